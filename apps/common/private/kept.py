"""Results on a device's disk: where one goes, how much all may take, and how they are found again.

A result is a folder ``results/RUN`` in the state folder, readable by the owner only, and is never
written over: what a server sends for the same run afterwards goes to ``results/RUN-2`` and so on.
A server can send as many results as it likes, with anything in them. So a run leaves at most
`MOST_OF_A_RUN`, all runs at most `MOST`, and all files together take at most what one message may
have (``most-megabytes``). What is beyond is not kept, which the device's log says; nothing that is
there is deleted for it.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

RESULTS, PAGE, ABOUT, ARRAYS = "results", "result.html", "model.json", "result.npz"
FORMAT = 1
MOST_OF_A_RUN, MOST = 5, 1000


@dataclass(frozen=True)
class Kept:
    """One result that is there: its folder, and what `ABOUT` says of it."""

    folder: Path
    about: dict[str, Any]

    @property
    def page(self) -> Path:
        """The owner's page."""
        return self.folder / PAGE

    @cached_property
    def arrays(self) -> dict[str, NDArray[Any]]:
        """All arrays by name."""
        with np.load(self.folder / ARRAYS, allow_pickle=False) as file:
            return {name: file[name] for name in file.files}

    @property
    def variables(self) -> list[str]:
        """The names of variables or features, in order."""
        return [str(name) for name in self.about.get("variables", ())]


def free_place(state: Path, run: str, size: int, most_bytes: float) -> Path:
    """Make and return a new folder for a result of ``size`` bytes.

    Raises
    ------
    ValueError
        Where there are enough results already; says what the owner can do.
    """
    results = state / RESULTS
    results.mkdir(parents=True, exist_ok=True, mode=0o700)
    taken, folders = 0, 0
    for folder in results.iterdir():
        folders += 1
        taken += sum(file.stat().st_size for file in folder.iterdir()) if folder.is_dir() else 0
    if folders >= MOST or taken + size > most_bytes:
        raise ValueError(
            f"{results} holds {folders} results of {taken} bytes, and this one has {size}; at most "
            f"{MOST} results and {most_bytes:.0f} bytes (most-megabytes) are kept: delete old ones"
        )
    for number in range(1, MOST_OF_A_RUN + 1):
        place = results / (run if number == 1 else f"{run}-{number}")
        try:
            os.mkdir(place, 0o700)
        except FileExistsError:
            continue
        return place
    raise ValueError(f"run {run} has left {MOST_OF_A_RUN} results already; no more are kept")


def kept_results(state: Path) -> list[Kept]:
    """Return all results that are whole, oldest first."""
    found = []
    for page in state.glob(f"{RESULTS}/*/{PAGE}"):
        try:
            about = json.loads((page.parent / ABOUT).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            continue
        if isinstance(about, dict) and about.get("format") == FORMAT:
            found.append((page.stat().st_mtime_ns, Kept(page.parent, about)))
    return [kept for _, kept in sorted(found, key=lambda one: (one[0], one[1].folder.name))]


def find_result(state: Path, run: str | None = None) -> Kept:
    """Return the newest result, or the one of ``run`` (the name of its folder).

    Raises
    ------
    ValueError
        Where there is none; names those that are there.
    """
    known = kept_results(state)
    if not known:
        raise ValueError(f"no results in {state}: a run leaves one when it ends")
    if run is None:
        return known[-1]
    for kept in known:
        if kept.folder.name == run:
            return kept
    names = ", ".join(kept.folder.name for kept in known)
    raise ValueError(f"no result of run {run} in {state}; there are {names}")
