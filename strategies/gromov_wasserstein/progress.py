"""The values so far of a long computation over pairs: one file, and whose it is.

``values`` (k,) holds one number a pair and not-a-number for what is still to do; ``header`` holds
the settings and a digest of every graph, so that nobody goes on with values of other graphs.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from trellis.strategies.core.checkpoint import CheckpointError

Vector = NDArray[np.float64]

VERSION = 1
_BEFORE = {"solver": "pot"}  # what files without the setting were made with
_LARGEST_SHARE = 0.02  # of the time that may go into saving
_LEAST_APART = 2.0  # seconds between two savings: what a killed run may have to solve again


def digest(*arrays: ArrayLike | None) -> str:
    """Return a digest of arrays, with their shapes."""
    found = hashlib.sha256()
    for given in arrays:
        array = None if given is None else np.ascontiguousarray(given, dtype=np.float64)
        found.update(repr(None if array is None else array.shape).encode())
        found.update(b"" if array is None else array.tobytes())
    return found.hexdigest()


@dataclass
class PairFile:
    """A file of values, of this computation and no other.

    Parameters
    ----------
    path : the file
    settings : what all pairs have in common
    graphs : one digest a graph
    """

    path: Path
    settings: Mapping[str, Any]
    graphs: Sequence[str]
    _saved_at: float = field(default_factory=time.monotonic, init=False)
    _cost: float | None = field(default=None, init=False)  # of the last time, in seconds

    def load(self, count: int) -> Vector:
        """Return the values so far; where there is no file, ``count`` that are still to do.

        Raises
        ------
        CheckpointError
            Where the file is of another computation: the error names what differs.
        """
        if not self.path.exists():
            return np.full(count, np.nan)
        try:
            with np.load(self.path, allow_pickle=False) as file:
                values, header = file["values"], json.loads(file["header"].tobytes())
            version, settings, graphs = (header[key] for key in ("version", "settings", "graphs"))
        except Exception as error:
            raise CheckpointError(
                f"{self.path}: not a readable file of distances ({error}); delete it to start anew"
            ) from None
        if version != VERSION:
            raise CheckpointError(f"{self.path}: written by another version of Trellis; delete it")
        advice = "pass another checkpoint file, or delete this one to start anew"
        for key in sorted({*settings, *self.settings}):
            theirs, ours = (made.get(key, _BEFORE.get(key)) for made in (settings, self.settings))
            if theirs != ours:
                raise CheckpointError(
                    f"{self.path}: made with {key}={theirs!r}, this run has {key}={ours!r}; "
                    f"{advice}"
                )
        if len(graphs) != len(self.graphs):
            raise CheckpointError(
                f"{self.path}: made for {len(graphs)} graphs, this run has {len(self.graphs)}; "
                f"{advice}"
            )
        for i, (theirs, ours) in enumerate(zip(graphs, self.graphs, strict=True)):
            if theirs != ours:
                raise CheckpointError(f"{self.path}: made with another graph {i}; {advice}")
        if values.shape != (count,):
            raise CheckpointError(f"{self.path}: {values.shape} values, not {count}; {advice}")
        return np.array(values, dtype=np.float64)

    def keep(self, values: Vector) -> None:
        """Save for the first time, and then every few seconds; of long files more rarely.

        Saving takes a fiftieth of the time at most.
        """
        if self._cost is None:
            self.save(values)
            return
        if time.monotonic() - self._saved_at >= max(_LEAST_APART, self._cost / _LARGEST_SHARE):
            self.save(values)

    def save(self, values: Vector) -> None:
        """Replace the file, whole or not at all."""
        begin = time.monotonic()
        header = {"version": VERSION, "settings": self.settings, "graphs": list(self.graphs)}
        buffer = io.BytesIO()
        text = np.frombuffer(json.dumps(header).encode(), dtype=np.uint8)
        np.savez(buffer, values=values, header=text)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        partial = self.path.with_name(f".{self.path.name}.{os.getpid()}")
        partial.write_bytes(buffer.getbuffer())
        os.replace(partial, self.path)
        self._saved_at = time.monotonic()
        self._cost = self._saved_at - begin
