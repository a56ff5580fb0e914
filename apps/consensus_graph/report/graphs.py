"""A run's graphs: which one is common, what was counted of every client's, and how they are drawn.

One rule everywhere: a pair is an edge where its weight exceeds a share of the largest weight of its
own graph, and the share is named beside every number; a client's edge is *shared* where the
consensus has it as well, else *private*.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from trellis.apps.common.metrics import (
    EDGE_THRESHOLD,
    LOOSE_EDGE_THRESHOLD,
    Vector,
    edges,
    matthews_of,
)
from trellis.apps.common.results import RunResult
from trellis.apps.consensus_graph.problem import node_count
from trellis.apps.pages import plots
from trellis.apps.pages.clients.chosen import Places, drawn
from trellis.apps.pages.clients.once import once

from .privacy import TIGHT

if TYPE_CHECKING:
    from markupsafe import Markup
    from matplotlib.figure import Figure

STRONGEST = 20
# The loose threshold as the text names it; the other is `TIGHT`.
LOOSE = np.format_float_scientific(LOOSE_EDGE_THRESHOLD, trim="-", exp_digits=1)
_GALLERY_EDGES = 400
_BLOCK = 2**16  # weights that are looked at together: what fits a processor's own memory
_ENDS = {
    "gamma": ("closest to the consensus", "furthest from it"),
    "edges": ("with most edges", "with fewest"),
    "signals": ("with most signals", "with fewest"),
}


@dataclass(frozen=True)
class Counts:
    """What was counted of I clients' graphs, in one pass over the weights.

    Attributes
    ----------
    strict, loose, shared : (I,) edges at either threshold; those at 0.2 that the common graph has
    holders : (E,) how many clients have each of the strongest edges of the common graph
    mcc, mcc_loose, error : (I,) against the true graphs; empty where those are not known
    """

    strict: NDArray[np.int64]
    loose: NDArray[np.int64]
    shared: NDArray[np.int64]
    holders: NDArray[np.int64]
    mcc: Vector
    mcc_loose: Vector
    error: Vector


def counted(weights: Vector, common: Vector, strongest: Places, truth: Vector | None) -> Counts:
    """Return what is told of all clients' graphs (I, p), a few at a time: memory does not grow."""
    count, pairs = weights.shape
    table = np.zeros((6, count), dtype=np.int64)
    strict, loose, shared, hits, loose_hits, facts = table
    holders = np.zeros(strongest.size, dtype=np.int64)
    errors = np.zeros(count)
    joined = edges(common)
    step = max(1, _BLOCK // max(pairs, 1))
    for start in range(0, count, step):
        at = slice(start, start + step)
        size = np.abs(weights[at])
        largest = size.max(axis=1, keepdims=True, initial=0.0)
        tight, wide = size > EDGE_THRESHOLD * largest, size > LOOSE_EDGE_THRESHOLD * largest
        strict[at], loose[at] = _count(tight), _count(wide)
        shared[at] = _count(tight & joined)
        holders += tight[:, strongest].sum(axis=0)
        if truth is None:
            continue
        fact = truth[at] != 0.0
        hits[at], loose_hits[at] = _count(tight & fact), _count(wide & fact)
        facts[at] = _count(fact)
        errors[at] = _relative(weights[at], truth[at])
    nothing = np.zeros(0)
    if truth is None:
        return Counts(strict, loose, shared, holders, nothing, nothing, nothing)
    mcc = matthews_of(hits, strict, facts, pairs)
    return Counts(
        *(strict, loose, shared, holders),
        *(mcc, matthews_of(loose_hits, loose, facts, pairs), errors),
    )


def _count(mask: NDArray[np.bool_]) -> NDArray[np.int64]:
    if len(mask) == 1:  # many times as fast as along an axis
        return np.array([np.count_nonzero(mask)], dtype=np.int64)
    return mask.sum(axis=1, dtype=np.int64)


def _relative(learned: Vector, truth: Vector) -> Vector:
    """Return |learned - truth| / |truth| (n,), as `apps.common.metrics.relative_error` has it."""
    gap = learned - truth
    apart, norm = (np.sqrt(np.einsum("ij,ij->i", x, x)) for x in (gap, truth))
    empty = np.where(apart > 0.0, np.inf, 0.0)
    return np.divide(apart, norm, out=empty, where=norm > 0.0)


class Graphs:
    """A run's graphs, with the one common graph its method has, if any, and where nodes stand."""

    def __init__(self, result: RunResult) -> None:
        arrays = result.arrays
        self.method = str(result.config.get("method", "fedgl"))
        self.consensus: Vector = arrays["consensus"]
        # Graphs that devices keep are not there; all that is known of them is the consensus.
        self.kept = "weights" not in arrays
        self.weights: Vector = self.consensus[None] if self.kept else arrays["weights"]
        self.single = self.method == "fedavg" or self.kept
        # Where one graph serves all, it is the common graph, however the run recorded it.
        alone = self.method == "fedavg" and not np.any(self.consensus)
        self.common = self.weights[0] if alone else self.consensus
        self.has_common = self.method != "igl"
        self.gamma: Vector | None = arrays.get("gamma") if self.method == "fedgl" else None
        self.truth: Vector | None = None if self.kept else arrays.get("truth")
        self.pulls: Vector | None = arrays.get("pulls")
        self.truth_consensus: Vector | None = arrays.get("truth_consensus")
        self.d = node_count(self.common.size)
        self.variables = result.variables or [f"x{k + 1}" for k in range(self.d)]
        count = max(len(result.clients), 1) if self.kept else len(self.weights)
        known = result.clients if len(result.clients) == count else [{}] * count
        self.names = [str(entry.get("name", f"client {k + 1}")) for k, entry in enumerate(known)]
        self.signals = [entry.get("count") for entry in known]
        self._pictures: dict[int | None, Markup] = {}

    @cached_property
    def strongest(self) -> Places:
        """The heaviest edges of the common graph."""
        order = np.argsort(-self.common, kind="stable")[:STRONGEST]
        return order[self.common[order] > 0.0]

    @cached_property
    def counts(self) -> Counts:
        """What was counted of all clients' graphs."""
        return counted(self.weights, self.common, self.strongest, self.truth)

    @cached_property
    def positions(self) -> Vector | None:
        """One place a node for all drawings, so that the eye can compare them; None: a circle."""
        if self.d <= plots.LABELLED_NODES:
            return None
        whole = self.common if np.any(self.common) else self.weights.mean(axis=0)
        return plots.spring(whole, self.d)

    @property
    def ranking(self) -> tuple[Sequence[float], tuple[str, str]]:
        """By what clients are put in order, and what its two ends are called."""
        if self.kept or self.single:
            return [float(n or 0) for n in self.signals], _ENDS["signals"]
        if self.gamma is not None:
            return self.gamma.tolist(), _ENDS["gamma"]
        return self.counts.strict.tolist(), _ENDS["edges"]

    @cached_property
    def drawn(self) -> list[int]:
        """The clients whose graphs are drawn; see `trellis.apps.pages.clients.chosen`."""
        return [] if self.single else drawn(self.ranking[0]).tolist()

    @cached_property
    def columns(self) -> Mapping[str, Sequence[object]]:
        """The table of all clients: edges, closeness to the consensus, agreement with truth."""
        columns: dict[str, Sequence[object]] = {"client": self.names, "signals": self.signals}
        if self.kept:
            return columns
        found, whole = self.counts, len(self.names) == len(self.weights)
        columns[f"edges (threshold {TIGHT})"] = found.strict.tolist()
        if self.method == "fedgl" and whole:
            columns["shared"] = found.shared.tolist()
            columns["private"] = (found.strict - found.shared).tolist()
        columns[f"edges (threshold {LOOSE})"] = found.loose.tolist()
        if self.gamma is not None:
            columns["gamma"] = self.gamma.tolist()
        if self.pulls is not None:
            columns["pull"] = self.pulls.tolist()
        if self.truth is not None:
            columns[f"MCC (threshold {TIGHT})"] = found.mcc.tolist()
            columns[f"MCC (threshold {LOOSE})"] = found.mcc_loose.tolist()
            columns["relative error"] = found.error.tolist()
        return columns

    def picture(self, client: int | None = None) -> Markup:
        """Return the drawing of the common graph, or of a client's; drawn once."""
        if client not in self._pictures:
            if client is None:
                title = "The consensus graph" if self.method == "fedgl" else "The graph of all"
                text = f"{title}: edges above {TIGHT} of the largest weight"
                self._pictures[client] = plots.svg(self.draw_common(), text)
            else:
                text = f"Graph of {self.names[client]}: shared edges in blue, private in orange"
                self._pictures[client] = plots.svg(self.draw_client(client), text)
        return self._pictures[client]

    def draw_common(self) -> Figure:
        """Return the drawing of the common graph."""
        legend = "consensus edges" if self.method == "fedgl" else "edges of the one graph"
        return plots.two_colour_graph(
            self.common, self.variables, legend=(legend, ""), positions=self.positions
        )

    def draw_client(self, index: int) -> Figure:
        """Return the drawing of one client's graph."""
        both = ("shared with the consensus", "private")
        return plots.two_colour_graph(
            self.weights[index],
            self.variables,
            edges(self.common),
            title=self.names[index],
            legend=both if self.has_common else ("", "edges of this client"),
            positions=self.positions,
            max_edges=_GALLERY_EDGES,
        )


@once
def graphs_of(result: RunResult) -> Graphs:
    """Return a run's graphs, once for its files and its page."""
    return Graphs(result)
