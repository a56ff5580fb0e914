"""Checkpoints of a strategy: enough to go on as if nothing had happened.

``state.npz`` is replaced whole: the strategy's arrays, counters, the ledger, the last row of the
metrics, which may still change. It has the same size after ten rounds and after ten thousand. The
rows before the last are in ``rows.f8``, which is only added to (`history.file`). Both are on disk
when `save` returns, the rows first: whenever a run is killed, one whole checkpoint is there.

Rounds can take microseconds (in one process) or minutes (on devices). A checkpoint is written after
a round if the last one was a second ago and the time since is 25 times what it cost. All but the
last checkpoint of a run together so take at most 4 % of its time, and what is lost by a crash is a
second of work, or 25 times what a checkpoint costs.
"""

from __future__ import annotations

import io
import json
import math
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .history.file import RowFile
from .history.rows import Rows

VERSION = 2  # 1 had all rows in its facts, and is still read
_FILE, _ROWS = "state.npz", "rows.f8"
_PARTIAL = f".{_FILE}.partial"
_LARGEST_SHARE = 0.04
_LEAST_SECONDS = 1.0


class CheckpointError(ValueError):
    """A checkpoint that does not belong to this run."""


@dataclass
class Snapshot:
    """A strategy between two rounds.

    Attributes
    ----------
    server_round : the last finished round
    arrays : the strategy's arrays
    facts : plain data: clients, ledger, counters
    rows : the metrics of all rounds
    """

    server_round: int
    arrays: dict[str, NDArray[Any]]
    facts: dict[str, Any]
    rows: Rows = field(default_factory=Rows)


@dataclass
class Checkpoint:
    """A folder with at most one snapshot, of a run with these ``settings``.

    Parameters
    ----------
    folder : where the snapshot is kept
    settings : what must be equal for a snapshot to be resumed
    clock : seconds, never backwards
    """

    folder: Path
    settings: Mapping[str, Any] = field(default_factory=dict)
    clock: Callable[[], float] = time.monotonic
    _saved_at: float = field(default=-math.inf, init=False)
    _cost: float = field(default=0.0, init=False)

    def __post_init__(self) -> None:
        self._rows = RowFile(self.folder / _ROWS)

    def due(self) -> bool:
        """Return whether a snapshot now would cost little next to the work it saves."""
        wait = max(_LEAST_SECONDS, self._cost / _LARGEST_SHARE)
        return self.clock() - self._saved_at >= wait

    def save(self, snapshot: Snapshot) -> None:
        """Replace the snapshot."""
        begin = self.clock()
        self.folder.mkdir(parents=True, exist_ok=True)
        rows = snapshot.rows
        header = {
            "version": VERSION,
            "round": snapshot.server_round,
            "settings": dict(self.settings),
            "facts": snapshot.facts,
            "rows": self._rows.add(rows, max(len(rows) - 1, 0)),
            "last": rows[-1] if rows else None,
        }
        buffer = io.BytesIO()
        text = np.frombuffer(json.dumps(header).encode(), dtype=np.uint8)
        np.savez(buffer, **snapshot.arrays, header=text)  # type: ignore[arg-type]
        # One run at a time has the folder: what a killed one left half done is written over.
        partial = self.folder / _PARTIAL
        with open(partial, "wb") as file:
            file.write(buffer.getbuffer())
            file.flush()
            os.fsync(file.fileno())
        os.replace(partial, self.folder / _FILE)
        self._saved_at = self.clock()
        self._cost = self._saved_at - begin

    def is_there(self) -> bool:
        """Return whether there is a snapshot, of whichever run."""
        return (self.folder / _FILE).is_file()

    def load(self) -> Snapshot | None:
        """Return the snapshot, or None where the run was stopped before its first.

        Raises
        ------
        CheckpointError
            Where the snapshot is of another run: the error names the setting that differs.
        """
        path = self.folder / _FILE
        if not self.is_there():
            return None
        try:
            with np.load(path, allow_pickle=False) as file:
                arrays = {name: file[name] for name in file.files if name != "header"}
                header = json.loads(file["header"].tobytes())
        except Exception as error:
            raise CheckpointError(f"{path}: not a readable checkpoint ({error})") from None
        if header.get("version") not in (1, VERSION):
            raise CheckpointError(f"{path}: written by another version of Trellis; start anew")
        for key, value in self.settings.items():
            if header["settings"].get(key) != value:
                raise CheckpointError(
                    f"{path}: made with {key}={header['settings'].get(key)!r}, this run has "
                    f"{key}={value!r}; resume with the same settings or start in another folder"
                )
        return Snapshot(int(header["round"]), arrays, header["facts"], self._read_rows(header))

    def _read_rows(self, header: dict[str, Any]) -> Rows:
        """Return the rows of a snapshot, and add to the file behind them from now on."""
        if header["version"] == 1:
            self._rows.forget()
            return Rows(header["facts"]["progress"].pop("rows"))
        try:
            rows = self._rows.read(header["rows"])
        except (OSError, ValueError) as error:
            raise CheckpointError(
                f"{self._rows.path}: does not hold the metrics of the rounds before the "
                f"checkpoint ({error}); put the file back or start anew"
            ) from None
        if header["last"] is not None:
            rows.append(header["last"])
        return rows

    def clear(self) -> None:
        """Forget the snapshot: a new run in the same folder starts at its beginning."""
        (self.folder / _FILE).unlink(missing_ok=True)
        self._rows.clear()
