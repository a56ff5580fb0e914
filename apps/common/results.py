"""One result object for every study and runtime, and its layout on disk.

A run's folder holds ``run.json`` (what was run, where, how long, what was sent, what privacy was
spent), ``metrics.csv`` (one row a round), ``scores.csv`` (how good the result is on held-out
records, by client), ``result.npz`` (the study's arrays) and ``report.html``.
Every file is written whole or not at all, by one run at a time (`FolderLock`); to ``metrics.csv`` a
line is added when a round has ended (`trellis.apps.common.files.metrics_file`).
"""

from __future__ import annotations

import csv
import fcntl
import io
import json
import os
import platform
import re
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trellis.apps.common.evaluation.scores import scores_csv
from trellis.apps.common.settings import ConfigError
from trellis.strategies.core.history.rows import Row as Row
from trellis.strategies.core.history.rows import Rows

FORMAT = 1
LOCK = ".lock"


@dataclass
class RunResult:
    """What a study learned, how it got there and what that cost.

    Attributes
    ----------
    study : the study that was run
    seed : what its draws come from; the same seed gives the same result
    engine : ``local`` (in this process), ``flower`` (Flower's simulation) or ``deployment``
    config : the study's settings, kebab-case
    data : the folder with the clients' files; empty for synthetic data
    arrays : the study's arrays, as named in the public contract
    metrics : one row a round; missing values are absent
    clients : one entry a client in the order of the arrays: ``name``, ``count``, ``rounds``
    variables : names of the columns, or of the graph's nodes
    ledger : the privacy that was spent and what the claim covers
    headline : the few numbers worth a closing table
    notes : warnings a reader of the result must see
    bytes_up : what all clients sent together
    bytes_down : what they were sent
    seconds : how long the run took, over all its resumes
    started : when it began, in UTC
    versions : of Python, Trellis and the packages that numbers depend on
    status : ``running``, ``completed``, ``stopped`` (from outside), ``interrupted`` or ``failed``
    settled : whether another round would have changed nothing that matters, by the study's own
        rule; None where nobody asked (``tolerance=0``), or where it is not known
    network : of a server with a SuperLink of its own, or of several that were gathered: the graph,
        which server this is, and what happened between them; empty where all servers are in one
        process, or there is one only
    scores : how the result does on held-out records, by client and in the mean, beside learning
        alone; see `apps.common.evaluation.scores`. Empty where none were held out, or clients keep
        that to themselves
    """

    study: str
    seed: int
    engine: str
    config: dict[str, Any]
    data: str = ""
    arrays: dict[str, NDArray[Any]] = field(default_factory=dict)
    metrics: Sequence[Row] = field(default_factory=Rows)
    clients: list[dict[str, Any]] = field(default_factory=list)
    variables: list[str] = field(default_factory=list)
    ledger: dict[str, Any] = field(default_factory=dict)
    headline: dict[str, float] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    bytes_up: int = 0
    bytes_down: int = 0
    seconds: float = 0.0
    started: str = ""
    status: str = "running"
    settled: bool | None = None
    versions: dict[str, str] = field(default_factory=dict)
    network: dict[str, Any] = field(default_factory=dict)
    scores: dict[str, Any] = field(default_factory=dict)
    folder: Path | None = None

    def __post_init__(self) -> None:
        self.versions = self.versions or versions()
        self.started = self.started or time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())

    def save(self, folder: Path) -> Path:
        """Write ``run.json``, ``metrics.csv`` and ``result.npz`` into ``folder``."""
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        if self.arrays:
            write_atomically(folder / "result.npz", npz(self.arrays))
        if self.metrics:
            write_atomically(folder / "metrics.csv", metrics_csv(self.metrics).encode())
        if self.scores:
            write_atomically(folder / "scores.csv", scores_csv(self.scores).encode())
        text = io.StringIO()
        json.dump(self.header(), text, indent=2)  # `dumps` would hold every token at once
        write_atomically(folder / "run.json", text.getvalue().encode())
        return folder

    def header(self) -> dict[str, Any]:
        """Return the content of ``run.json``."""
        # One key at a time: asdict would copy every array first.
        kept = {name: getattr(self, name) for name in _HEADER_FIELDS}
        return {"format": FORMAT, **kept}

    @classmethod
    def load(cls, folder: Path) -> RunResult:
        """Read a run's folder.

        Raises
        ------
        FileNotFoundError
            Where the folder holds no ``run.json``.
        """
        path = folder / "run.json"
        if not path.is_file():
            raise FileNotFoundError(f"{folder} holds no run: {path} is missing")
        header = json.loads(path.read_text())
        if header.pop("format", None) != FORMAT:
            raise ValueError(f"{path} was written by another version of Trellis")
        result = cls(**header)
        if (folder / "result.npz").is_file():
            with np.load(folder / "result.npz", allow_pickle=False) as arrays:
                result.arrays = {name: arrays[name] for name in arrays.files}
        if (folder / "metrics.csv").is_file():
            result.metrics = read_metrics_csv((folder / "metrics.csv").read_text())
        result.folder = folder
        return result

    def summary(self) -> str:
        """Return a few lines for people."""
        lines = [f"{self.study} on {self.engine}: {self.status} after {len(self.metrics)} rounds"]
        told = {name: f"{value:.6g}" for name, value in self.headline.items()}
        told["sent up / down"] = f"{self.bytes_up:,} / {self.bytes_down:,} bytes"
        if self.folder is not None:
            told["kept in"] = str(self.folder)
        width = max(24, *(len(name) + 2 for name in told))
        lines += [f"  {name:<{width}}{value}" for name, value in told.items()]
        return "\n".join(lines)


_HEADER_FIELDS = (
    "study",
    "seed",
    "engine",
    "config",
    "data",
    "status",
    "settled",
    "started",
    "seconds",
    "headline",
    "clients",
    "variables",
    "ledger",
    "notes",
    "bytes_up",
    "bytes_down",
    "versions",
    "network",
    "scores",
)


def versions() -> dict[str, str]:
    """Return the versions that can change a number."""
    found = {"python": platform.python_version(), "platform": platform.machine()}
    for package in ("trellis", "flwr", "numpy", "scipy"):
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:  # run from an unpacked FAB
            found[package] = "not installed"
    return found


def metrics_csv(rows: Sequence[Mapping[str, float]]) -> str:
    """Return the rows as csv, columns in order of first appearance."""
    columns = list(dict.fromkeys(name for row in rows for name in row))
    lines = _Lines()
    writer = csv.DictWriter(lines, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return "".join(lines)


class _Lines(list[str]):
    """Lines of a text, for csv to write to: a StringIO has four bytes a character."""

    write = list.append


def read_metrics_csv(text: str) -> Rows:
    """Return what `metrics_csv` wrote; empty cells stay absent, and so does half a line."""
    whole = text[: text.rfind("\n") + 1]  # while a run writes, or was killed when it did
    lines = (found.group() for found in re.finditer(r".*\n", whole))
    return Rows(
        {name: float(cell) for name, cell in row.items() if cell not in ("", None)}
        for row in csv.DictReader(lines)
    )


def said(error: BaseException) -> str:
    """Return the words of an error; its kind where it has none."""
    return str(error).strip() or type(error).__name__


def npz(arrays: Mapping[str, NDArray[Any]]) -> memoryview:
    """Return the bytes of an ``.npz`` file."""
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)  # type: ignore[arg-type]
    return buffer.getbuffer()


def write_atomically(path: Path, data: bytes | memoryview) -> None:
    """Write ``path`` so that a crash leaves the old file or the new one, never half of one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(name, path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


class FolderLock:
    """Holds a run's folder until it is released, or its process has ended, in whatever way.

    Raises
    ------
    ConfigError
        Where another run holds it; nothing in the folder is touched then. Where it can be no
        folder: a file has its name, or it must not be written.
    """

    _handle = -1

    def __init__(self, folder: Path) -> None:
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ConfigError(
                f"out={str(folder)!r}: no folder can be made there ({error.strerror})"
            ) from None
        self._handle = os.open(folder / LOCK, os.O_CREAT | os.O_RDWR, 0o644)
        try:
            fcntl.flock(self._handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.read(self._handle, 100).decode(errors="replace").strip()
            os.close(self._handle)
            self._handle = -1
            raise ConfigError(
                f"out={str(folder)!r}: another run writes into this folder"
                f"{f' ({holder})' if holder else ''}; wait for its end or choose another folder"
            ) from None
        os.ftruncate(self._handle, 0)
        os.write(self._handle, f"process {os.getpid()}".encode())

    def release(self) -> None:
        """Let another run have the folder."""
        if self._handle >= 0:
            os.ftruncate(self._handle, 0)  # nobody holds it: who looked in vain leaves no trace
            os.close(self._handle)  # which gives the lock back
            self._handle = -1

    def __del__(self) -> None:
        self.release()


def is_held(folder: Path) -> bool:
    """Return whether a run writes into a folder now; nothing there is touched."""
    try:
        handle = os.open(folder / LOCK, os.O_RDONLY)
    except OSError:
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(handle)  # which gives the lock back
    return False
