"""A run's graphs, counted by pairs of variables and drawn.

One rule everywhere: a pair is an edge where Psi is not zero, with no threshold; an edge is *common*
where all clients have it. A client that never answered has no graph and is not counted among them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from apps.common.results import RunResult
from apps.pages.brains.connectome import connectome

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Matrix = NDArray[np.float64]

DRAWN_CLIENTS = 6
_GALLERY_EDGES = 400


class Graphs:
    """A run's graphs by their q = p (p - 1) / 2 pairs, in ``numpy.triu_indices(p, 1)`` order."""

    def __init__(self, result: RunResult) -> None:
        self.result = result
        self.arrays: dict[str, NDArray[Any]] = result.arrays
        self.method = str(result.config.get("method", "group"))
        count, self.p = result.arrays["sparse"].shape[:2]
        self.a, self.b = np.triu_indices(self.p, 1)
        entries = np.nan_to_num(self._pairs("sparse"))
        answered = self.arrays.get("answered", np.ones(count, dtype=int))
        self.present: NDArray[np.bool_] = (answered > 0) | (not np.any(answered > 0))
        self.support: NDArray[np.bool_] = (entries != 0.0) & self.present[:, None]
        partial = np.where(self.support, np.nan_to_num(self._pairs("partial")), 0.0)
        # An entry too small for its partial correlation to be written is an edge all the same.
        least = -np.copysign(np.finfo(np.float64).tiny, entries)
        self.partial = np.where(self.support & (partial == 0.0), least, partial)
        self.precision = self._pairs("precision" if "precision" in self.arrays else "sparse")
        self.truth = self._pairs("truth") if "truth" in self.arrays else None
        self.holders = self.support.sum(axis=0)
        self.heard = int(self.present.sum())
        self.common = self.holders == self.heard
        # One sign an edge even where the clients' cancel; `mixed` tells.
        sign = np.where(self.partial.sum(axis=0) < 0.0, -1.0, 1.0)
        self.middle = np.where(
            self.common, sign * np.abs(self.partial).sum(axis=0) / self.heard, 0.0
        )
        above = (self.partial > 0.0).sum(axis=0)
        self.mixed = self.common & (above > 0) & (above < self.heard)
        self.variables = result.variables or [f"x{k + 1}" for k in range(self.p)]
        known = result.clients if len(result.clients) == count else [{}] * count
        self.names = [str(entry.get("name", f"client {k + 1}")) for k, entry in enumerate(known)]
        if len(set(self.names)) < count:
            self.names = [f"{name} ({k + 1})" for k, name in enumerate(self.names)]
        self.counts = [entry.get("count") for entry in known]
        self.coordinates = self.arrays.get("coordinates")
        self.groups = self._groups()

    def _pairs(self, name: str) -> Matrix:
        """Return the upper triangles (K, q) of one of the run's arrays."""
        return self.arrays[name][:, self.a, self.b]

    def _groups(self) -> list[str] | None:
        """Return a label a variable: as the run gives them, or the block it was screened into."""
        if "groups" in self.arrays:
            return [str(label) for label in self.arrays["groups"]]
        labels = self.arrays.get("blocks", np.zeros(self.p, dtype=int))
        _, block, sizes = np.unique(labels, return_inverse=True, return_counts=True)
        if np.count_nonzero(sizes > 1) < 2:
            return None
        rank = np.argsort(np.argsort(-sizes, kind="stable"), kind="stable")
        return [f"block {rank[k] + 1}" if sizes[k] > 1 else "" for k in block.ravel()]

    def square(self, values: NDArray[Any]) -> NDArray[Any]:
        """Return pairs (q,) as a symmetric matrix (p, p) with a zero diagonal."""
        matrix = np.zeros((self.p, self.p), dtype=values.dtype)
        matrix[self.a, self.b] = matrix[self.b, self.a] = values
        return matrix

    def draw_common(self) -> Figure:
        """Return the drawing of the edges all clients have, by sign."""
        matrix = self.square(self.middle)
        return connectome(matrix, self.coordinates, self.variables, groups=self.groups)

    def draw_client(self, index: int) -> Figure:
        """Return the drawing of one client's graph in two colours."""
        return connectome(
            self.square(self.partial[index]),
            self.coordinates,
            self.variables,
            self.names[index],
            self.groups,
            common=self.square(self.common),
            max_edges=_GALLERY_EDGES,
        )
