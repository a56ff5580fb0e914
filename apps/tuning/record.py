"""What a tuning keeps on disk as it goes, and how it goes on from it.

``tuning.json`` has what was asked, ``trials.jsonl`` a line a run, ``trials.csv`` the table: each is
written whole or not at all, so that whatever ends the process leaves all runs that were done.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from trellis.apps.common.results import FolderLock, write_atomically
from trellis.apps.common.settings import ConfigError, Scalar

from .runs import Found, Run

ASKED, RUNS, TABLE = "tuning.json", "trials.jsonl", "trials.csv"
MADE = (RUNS, TABLE, "best.toml", "tuning.png", "tuning.svg", "tuning.html")
_FORMAT = 1


class Record:
    """The runs of a tuning that are done; on disk, where there is a folder.

    Parameters
    ----------
    folder : where to keep them; None keeps them in memory only
    arguments : what was asked, see `trellis.apps.tuning.plan.Plan.arguments`
    force : whether a tuning with other arguments in the folder may be replaced

    Raises
    ------
    ConfigError
        Where the folder holds a tuning with other arguments, or another process writes into it.
    """

    def __init__(
        self, folder: Path | None, arguments: Mapping[str, Any], *, force: bool = False
    ) -> None:
        self.folder = folder
        self._runs: dict[str, Found] = {}
        self._lines: dict[str, str] = {}
        self._lock = None if folder is None else FolderLock(folder)
        if folder is not None:
            try:
                self._open(folder, json.loads(json.dumps(arguments)), force)
            except BaseException:
                self.close()
                raise

    def __enter__(self) -> Record:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Let another process have the folder."""
        if self._lock is not None:
            self._lock.release()

    def get(self, values: Mapping[str, Scalar], seed: int) -> Found | None:
        """Return what a run gave; None where it is still to be made."""
        return self._runs.get(_key(values, seed))

    def add(self, run: Run, found: Found) -> None:
        """Keep what a run gave."""
        key = _key(run.values, run.seed)
        self._runs[key] = found
        line = {"values": dict(run.values), "seed": run.seed, **asdict(found)}
        line["value"] = found.value if math.isfinite(found.value) else None
        self._lines[key] = json.dumps(line, allow_nan=False)
        if self.folder is not None:
            text = "".join(f"{line}\n" for line in self._lines.values())
            write_atomically(self.folder / RUNS, text.encode())

    def forget_failures(self) -> None:
        """Have failed runs made again."""
        for key in [key for key, found in self._runs.items() if found.error]:
            del self._runs[key], self._lines[key]

    def _open(self, folder: Path, arguments: Mapping[str, Any], force: bool) -> None:
        asked = folder / ASKED
        if asked.is_file():
            before = json.loads(asked.read_text())
            if before.get("format") == _FORMAT and before["arguments"] == arguments:
                self._load(folder / RUNS)
                return
            if not force:
                raise ConfigError(_other(folder, before.get("arguments", {}), arguments))
        for name in MADE:
            (folder / name).unlink(missing_ok=True)
        content = {"format": _FORMAT, "arguments": arguments}
        write_atomically(asked, json.dumps(content, indent=2).encode())

    def _load(self, path: Path) -> None:
        if not path.is_file():
            return
        for text in path.read_text().splitlines():
            line = json.loads(text)
            key = _key(line.pop("values"), line.pop("seed"))
            if line["value"] is None:
                line["value"] = math.nan
            line["spent"] = [
                (names, [(kind, times) for kind, times in releases])
                for names, releases in line["spent"]
            ]
            self._runs[key], self._lines[key] = Found(**line), text


def _key(values: Mapping[str, Scalar], seed: int) -> str:
    return json.dumps([dict(values), seed])


def _other(folder: Path, before: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    names = [name for name in now if before.get(name) != now[name]]
    what = "; ".join(f"{name} was {before.get(name)!r}, is {now[name]!r}" for name in names)
    return (
        f"{folder} holds a tuning with other arguments ({what or 'of another version'}): choose "
        "another --out, or --force to throw it away and start anew"
    )
