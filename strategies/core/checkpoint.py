"""Checkpoints of a strategy: one file, replaced whole, enough to go on as if nothing happened.

Rounds can take microseconds (in one process) or minutes (on devices). A checkpoint is written after
a round if that costs at most a twentieth of the time since the last one, so a run loses little work
to a crash and little time to its insurance.
"""

from __future__ import annotations

import io
import json
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

VERSION = 1
_FILE = "state.npz"
_LARGEST_SHARE = 0.05


class CheckpointError(ValueError):
    """A checkpoint that does not belong to this run."""


@dataclass
class Snapshot:
    """A strategy between two rounds.

    Attributes
    ----------
    server_round : the last finished round
    arrays : the strategy's arrays
    facts : plain data: metric rows, clients, ledger, counters
    """

    server_round: int
    arrays: dict[str, NDArray[Any]]
    facts: dict[str, Any]


@dataclass
class Checkpoint:
    """A folder with at most one snapshot, of a run with these ``settings``.

    Parameters
    ----------
    folder : where the snapshot is kept
    settings : what must be equal for a snapshot to be resumed
    """

    folder: Path
    settings: Mapping[str, Any] = field(default_factory=dict)
    _saved_at: float = field(default=0.0, init=False)
    _cost: float = field(default=0.0, init=False)

    def due(self) -> bool:
        """Return whether a snapshot now would cost little next to the work it saves."""
        return (time.monotonic() - self._saved_at) * _LARGEST_SHARE >= self._cost

    def save(self, snapshot: Snapshot) -> None:
        """Replace the snapshot."""
        begin = time.monotonic()
        header = {
            "version": VERSION,
            "round": snapshot.server_round,
            "settings": dict(self.settings),
            "facts": snapshot.facts,
        }
        buffer = io.BytesIO()
        text = np.frombuffer(json.dumps(header).encode(), dtype=np.uint8)
        np.savez(buffer, **snapshot.arrays, header=text)  # type: ignore[arg-type]
        self.folder.mkdir(parents=True, exist_ok=True)
        partial = self.folder / f".{_FILE}.{os.getpid()}"
        partial.write_bytes(buffer.getbuffer())
        os.replace(partial, self.folder / _FILE)
        self._saved_at = time.monotonic()
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
        if header.get("version") != VERSION:
            raise CheckpointError(f"{path}: written by another version of Trellis; start anew")
        for key, value in self.settings.items():
            if header["settings"].get(key) != value:
                raise CheckpointError(
                    f"{path}: made with {key}={header['settings'].get(key)!r}, this run has "
                    f"{key}={value!r}; resume with the same settings or start in another folder"
                )
        return Snapshot(int(header["round"]), arrays, header["facts"])

    def clear(self) -> None:
        """Forget the snapshot: a new run in the same folder starts at its beginning."""
        (self.folder / _FILE).unlink(missing_ok=True)
