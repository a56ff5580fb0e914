"""What a run leaves in its folder: who may write over it, and what goes when a new run begins.

Only what Trellis writes is ever deleted. Other files in the folder stay, and where a run would
write over one of them, it is refused.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

from trellis.apps.common.results import is_held, write_atomically
from trellis.apps.common.settings import ConfigError
from trellis.strategies.core.checkpoint import CheckpointError

HEADER = "run.json"
FILES = ("metrics.csv", "scores.csv", "result.npz", "model.json", "report.html", "picture.svg")
# What studies write beside `GRAPHS` for other programs.
TABLES = ("clients.csv", "distances.csv", "graphs.csv", "models.csv")
GRAPHS = "graphs"
# State of the run and of its simulated clients: nobody else has a file there.
STATE = ("checkpoint", "nodes")
# Names the files that were written into `GRAPHS`: they depend on the clients' names.
WRITTEN = ".written"
# How the note begins that says which settings were chosen for the data.
CHOSEN = "Chosen for this data: "
_GRAPH_SUFFIXES = (".graphml", ".png", ".svg", ".csv")


class Named(Protocol):
    """A client: its name and the number of its records."""

    name: str
    count: int


def refuse_to_replace(folder: Path, *, force: bool = False) -> None:
    """Refuse to begin a run in a folder that holds another, or what it would write over.

    Raises
    ------
    ConfigError
        Names the folder, what it holds and what to do. With ``force`` a run may be replaced, and
        one that ended before its first round without; files that are of no run may not, nor a run
        that still writes.
    """
    if is_held(folder):
        raise ConfigError(
            f"out={str(folder)!r}: another run writes into this folder; wait for its end or choose "
            "another folder"
        )
    before = _header(folder)
    if before is None:
        found = [name for name in (HEADER, *FILES, *TABLES, *STATE, GRAPHS) if _is_in(folder, name)]
        if found:
            raise ConfigError(
                f"out={str(folder)!r}: holds {', '.join(found)}, which no run of Trellis left there"
                " and this one would write over; choose another folder or move them away"
            )
    elif not force and _has_begun(folder):
        raise ConfigError(
            f"out={str(folder)!r}: holds a run of {before.get('study')} ({before.get('status')}, "
            f"started {before.get('started')}). To go on with it use --resume, to delete it and "
            "begin anew --force (in Python and in a run config resume or force), or choose another "
            "folder"
        )


def refuse_to_resume(folder: Path, fixed: Mapping[str, Any]) -> None:
    """Refuse to go on, without any checkpoint, with a run that was another one.

    Parameters
    ----------
    fixed : study, seed, data and the settings that must be as they were

    Raises
    ------
    CheckpointError
        Where the run had other settings: names the first that differs.
    ConfigError
        Where the folder holds no run, but files that one would write over.
    """
    before = _header(folder)
    if before is None:  # stopped before it wrote anything: it begins now
        refuse_to_replace(folder)
        return
    known = before.get("config", {}) | {k: before.get(k) for k in ("study", "seed", "data")}
    for key, value in fixed.items():
        if known.get(key) != value:
            raise CheckpointError(
                f"{folder / HEADER}: made with {key}={known.get(key)!r}, this run has "
                f"{key}={value!r}; resume with the same settings or start in another folder"
            )


def refuse_fewer_rounds(folder: Path, rounds: int, done: int) -> None:
    """Refuse to go on with a run for fewer rounds than it has done already.

    Raises
    ------
    CheckpointError
        Names both numbers. What a run was set to it may always be resumed with: some do a round
        more than that, to say how far they came.
    """
    set_to = (_header(folder) or {}).get("config", {}).get("rounds", done)
    if rounds < min(done, set_to):
        raise CheckpointError(
            f"{folder}: has done {done} rounds, this run has rounds={rounds}; resume with "
            f"rounds={done} or more, or start in another folder"
        )


def gone_before(folder: Path) -> tuple[float, list[str]]:
    """Return the seconds that a run took until it is resumed, and the notes on what it chose."""
    before = _header(folder) or {}
    notes = [note for note in before.get("notes", []) if note.startswith(CHOSEN)]
    return float(before.get("seconds", 0.0)), notes


def refuse_other_clients(folder: Path, clients: Sequence[Named]) -> None:
    """Refuse to take up a run that completed, without any checkpoint, with other clients.

    Raises
    ------
    CheckpointError
        Where a client is gone, or has another number of records.
    """
    before = _header(folder) or {}
    if before.get("status") != "completed":
        return  # it has no result to lose
    now = {(client.name, client.count) for client in clients}
    for client in before.get("clients", []):
        if (client["name"], client["count"]) not in now:
            raise CheckpointError(
                f"{folder / HEADER}: made with client {client['name']} and its {client['count']} "
                "records, which is not there as it was; start in another folder"
            )


def clear(folder: Path) -> None:
    """Delete what a run left in a folder, and nothing else; its header last."""
    if not (folder / HEADER).is_file():
        return
    for path in _exported(folder):
        path.unlink(missing_ok=True)
    with suppress(OSError):  # not there, or somebody else's files are in it
        (folder / GRAPHS).rmdir()
    for name in (*FILES, *TABLES, WRITTEN):
        (folder / name).unlink(missing_ok=True)
    for name in STATE:
        shutil.rmtree(folder / name, ignore_errors=True)
    sweep(folder)
    (folder / HEADER).unlink()


def sweep(folder: Path) -> None:
    """Delete what a process that was killed had half written; no other may be writing."""
    for name in (HEADER, *FILES, *TABLES, WRITTEN):
        for partial in folder.glob(f".{name}.*"):
            partial.unlink(missing_ok=True)


def note_written(folder: Path, paths: Iterable[Path]) -> None:
    """Note which graphs were written, so that `clear` finds them."""
    place = folder / GRAPHS
    names = {path.relative_to(folder).as_posix() for path in paths if path.is_relative_to(place)}
    names |= set(_noted(folder) or [])
    if names:
        write_atomically(folder / WRITTEN, "".join(f"{n}\n" for n in sorted(names)).encode())


def _exported(folder: Path) -> list[Path]:
    """Return the graphs that a run wrote; by their kind where it could not note them."""
    noted = _noted(folder)
    if noted is None:
        return [path for path in (folder / GRAPHS).glob("*") if path.suffix in _GRAPH_SUFFIXES]
    place = (folder / GRAPHS).resolve()
    # The file may be anybody's: it never leads out of the folder.
    return [path for name in noted if (path := folder / name).resolve().is_relative_to(place)]


def _noted(folder: Path) -> list[str] | None:
    try:
        return (folder / WRITTEN).read_text().splitlines()
    except OSError:
        return None


def _has_begun(folder: Path) -> bool:
    """Return whether a run got as far as its first round: before that it has nothing to lose."""
    kept = ("metrics.csv", "result.npz", "checkpoint/state.npz")
    return any((folder / name).is_file() for name in kept)


def _is_in(folder: Path, name: str) -> bool:
    path = folder / name
    return any(path.iterdir()) if path.is_dir() else path.exists()


def _header(folder: Path) -> dict[str, Any] | None:
    """Return ``run.json``; None where the folder holds no run."""
    try:
        found = json.loads((folder / HEADER).read_text())
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) and "study" in found else None
