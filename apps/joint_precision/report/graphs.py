"""A run's graphs, counted by pairs of variables and drawn.

One rule everywhere: a pair is an edge where Psi is not zero, with no threshold; an edge is *common*
where all clients have it. A client that never answered has no graph and is not counted among them.
Clients are looked at one at a time, so that memory does not grow with them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from trellis.apps.common.metrics import matthews_of
from trellis.apps.common.results import RunResult
from trellis.apps.pages.brains.connectome import connectome
from trellis.apps.pages.clients.chosen import drawn
from trellis.apps.pages.clients.once import once
from trellis.apps.pages.plots import svg

if TYPE_CHECKING:
    from markupsafe import Markup
    from matplotlib.figure import Figure

Matrix = NDArray[np.float64]

ENDS = ("with most edges", "with fewest")  # of the order that clients are put in
_GALLERY_EDGES = 400


class Graphs:
    """A run's graphs by their q = p (p - 1) / 2 pairs, in ``numpy.triu_indices(p, 1)`` order."""

    def __init__(self, result: RunResult) -> None:
        self.result = result
        self.arrays: dict[str, NDArray[Any]] = result.arrays
        self.method = str(result.config.get("method", "group"))
        count, self.p = result.arrays["sparse"].shape[:2]
        self.a, self.b = np.triu_indices(self.p, 1)
        self._at = self.a * self.p + self.b
        answered = self.arrays.get("answered", np.ones(count, dtype=int))
        self.present: NDArray[np.bool_] = (answered > 0) | (not np.any(answered > 0))
        self.heard = int(self.present.sum())
        self.has_truth = "truth" in self.arrays
        self.variables = result.variables or [f"x{k + 1}" for k in range(self.p)]
        known = result.clients if len(result.clients) == count else [{}] * count
        self.names = [str(entry.get("name", f"client {k + 1}")) for k, entry in enumerate(known)]
        if len(set(self.names)) < count:
            self.names = [f"{name} ({k + 1})" for k, name in enumerate(self.names)]
        self.counts = [entry.get("count") for entry in known]
        self.coordinates = self.arrays.get("coordinates")
        self.groups = self._groups()
        self._pictures: dict[int | None, Markup] = {}
        self._count()

    def _count(self) -> None:
        """Look at every client's graph once: whose edges, of which signs, how many are true."""
        count, pairs = len(self.names), self.a.size
        self.edges, self.negative, self.hits, self.true = np.zeros((4, count), dtype=np.int64)
        holders, above, owner = np.zeros((3, pairs), dtype=np.int64)
        total, magnitude = np.zeros((2, pairs))
        for k in range(count):
            if self.has_truth:
                fact = self.truth_of(k) != 0.0
                self.true[k] = np.count_nonzero(fact)
            if not self.present[k]:
                continue
            partial = self.partial_of(k)
            held = partial != 0.0
            positive = partial > 0.0
            self.edges[k] = np.count_nonzero(held)
            self.negative[k] = self.edges[k] - np.count_nonzero(positive)
            holders += held
            above += positive
            owner[held] = k
            total += partial
            magnitude += np.abs(partial)
            if self.has_truth:
                self.hits[k] = np.count_nonzero(held & fact)
        self.common: NDArray[np.bool_] = holders == self.heard
        # One sign an edge even where the clients' cancel; `mixed` tells.
        sign = np.where(total < 0.0, -1.0, 1.0)
        self.middle = np.where(self.common, sign * magnitude / max(self.heard, 1), 0.0)
        self.mixed = self.common & (above > 0) & (above < self.heard)
        single = (holders == 1) & (self.heard > 1)
        self.private = np.bincount(owner[single], minlength=count)

    def _pairs(self, name: str, client: int) -> Matrix:
        """Return the upper triangle (q,) of a client's matrix in one of the run's arrays."""
        return np.take(self.arrays[name][client].reshape(-1), self._at)

    def partial_of(self, client: int) -> Matrix:
        """Return a client's partial correlations (q,); not zero where it has an edge."""
        if not self.present[client]:
            return np.zeros(self.a.size)
        entries = self._pairs("sparse", client)
        held = (entries != 0.0) & ~np.isnan(entries)
        partial = np.where(held, np.nan_to_num(self._pairs("partial", client)), 0.0)
        # An entry too small for its partial correlation to be written is an edge all the same.
        lost = np.flatnonzero(held & (partial == 0.0))
        partial[lost] = -np.copysign(np.finfo(np.float64).tiny, entries[lost])
        return partial

    def precision_of(self, client: int) -> Matrix:
        """Return a client's precisions (q,)."""
        return np.take(self._precision[client].reshape(-1), self._at)

    @property
    def _precision(self) -> Matrix:
        return self.arrays["precision" if "precision" in self.arrays else "sparse"]

    def truth_of(self, client: int) -> Matrix:
        """Return a client's true precisions (q,)."""
        return self._pairs("truth", client)

    def common_truth(self) -> NDArray[np.bool_]:
        """Return the pairs (q,) that are true edges of all clients."""
        shared = np.ones(self.a.size, dtype=bool)
        for k in range(len(self.names)):
            shared &= self.truth_of(k) != 0.0
        return shared

    @cached_property
    def mean_precision(self) -> Matrix:
        """The mean precisions (q,) of the common edges; zero elsewhere."""
        found, at = np.zeros(self.a.size), np.flatnonzero(self.common)
        for k in np.flatnonzero(self.present):
            found[at] += self._precision[k].reshape(-1)[self._at[at]]
        return found / max(self.heard, 1)

    @cached_property
    def drawn(self) -> list[int]:
        """The clients whose graphs are drawn; see `trellis.apps.pages.clients.chosen`."""
        return drawn(self.edges).tolist()

    @property
    def common_edges(self) -> NDArray[np.int64]:
        """How many (K,) of a client's edges all have."""
        return np.where(self.present, int(self.common.sum()), 0)

    @cached_property
    def compared(self) -> Mapping[str, Sequence[Any]]:
        """The table of all clients' edges."""
        some = self.edges - self.common_edges - self.private
        if self.heard == 1:  # what one client has all have
            some = self.edges - self.common_edges
        return {
            "client": self.names,
            "samples": self.counts,
            "edges": self.edges.tolist(),
            "common to all": self.common_edges.tolist(),
            "shared with some": some.tolist(),
            "private to this client": self.private.tolist(),
            "negative": self.negative.tolist(),
        }

    @cached_property
    def agreement(self) -> Mapping[str, Sequence[Any]]:
        """The table of how all clients' edges agree with the true ones."""
        pairs, edges, true = self.a.size, self.edges, self.true
        mcc = matthews_of(self.hits, edges, true, pairs)
        return {
            "client": self.names,
            "edges": edges.tolist(),
            "true edges": true.tolist(),
            "TPR": _ratio(self.hits, true),
            "FPR": _ratio(edges - self.hits, pairs - true),
            "PPV": _ratio(self.hits, edges),
            "MCC": mcc.tolist(),
        }

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

    def picture(self, client: int | None = None) -> Markup:
        """Return the drawing of the common edges, or of a client's graph; drawn once."""
        if client not in self._pictures:
            if client is None:
                text = "The edges common to all clients; wider means a stronger correlation"
                self._pictures[client] = svg(self.draw_common(), text)
            else:
                text = f"{self.names[client]}: common edges in blue, others in orange"
                self._pictures[client] = svg(self.draw_client(client), text)
        return self._pictures[client]

    def draw_common(self) -> Figure:
        """Return the drawing of the edges all clients have, by sign."""
        matrix = self.square(self.middle)
        return connectome(matrix, self.coordinates, self.variables, groups=self.groups)

    def draw_client(self, index: int) -> Figure:
        """Return the drawing of one client's graph in two colours."""
        return connectome(
            self.square(self.partial_of(index)),
            self.coordinates,
            self.variables,
            self.names[index],
            self.groups,
            common=self.square(self.common),
            max_edges=_GALLERY_EDGES,
        )


@once
def graphs_of(result: RunResult) -> Graphs:
    """Return a run's graphs, once for its files and its page."""
    return Graphs(result)


def _ratio(part: NDArray[np.int64], whole: NDArray[np.int64]) -> list[float]:
    nothing = np.full(part.shape, np.nan)
    return np.divide(part, whole, out=nothing, where=whole > 0).tolist()
