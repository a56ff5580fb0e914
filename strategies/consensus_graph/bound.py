"""What ``norm-bound`` limits where one graph is learned for all (method ``fedavg``), at both ends.

Clients send a graph w_i and a slope s_i = 2 zbar_i, and both move the minimiser of (36): its
curvature is 2 beta at least, so a slope that is off by s moves it by |s| / (2 beta) at most. Graph
and slope / (2 beta) are one vector (2 p,), measured from the graph and the mean slope that were
sent; before there is one, from a slope of zero. A reply without a slope is its graph (p,).
"""

from __future__ import annotations

import numpy as np
from flwr.app import Array, ArrayRecord, RecordDict
from numpy.typing import NDArray

from trellis.strategies.bounded_grid import Bounded
from trellis.strategies.core import wire
from trellis.strategies.core.robust import clipped

Vector = NDArray[np.float64]
Terms = tuple[Vector, Vector | None]


def _replace(content: RecordDict, **arrays: Vector) -> None:
    known = content.array_records["arrays"]
    content["arrays"] = ArrayRecord({**known, **{n: wire.pack(a) for n, a in arrays.items()}})


# A client's graph, measured from the consensus that it was sent. Between two graphs without
# negative weights there is none with one, so a clipped graph is a graph.
GRAPH = Bounded(
    reference=lambda sent: sent.array_records["arrays"]["consensus"],
    vector=lambda reply, _: wire.unpack(reply.array_records["arrays"]["weights"]),
    origin=lambda _, consensus: wire.unpack(consensus),
    replace=lambda reply, clipped_to: _replace(reply, weights=clipped_to),
)


def graph_and_slope(beta: float) -> Bounded:
    """Return what is bounded where one graph is learned for all: see the module."""

    def vector(reply: RecordDict, _: object) -> Vector:
        found = wire.arrays(reply["arrays"])
        return joined((found["weights"], found.get("slope")), beta)

    def origin(reply: RecordDict, sent: dict[str, Array]) -> Vector:
        known = {name: wire.unpack(array) for name, array in sent.items()}
        has_slope = "slope" in reply.array_records["arrays"]
        return joined(sent_terms(known["consensus"], known.get("slope"), has_slope), beta)

    def put(reply: RecordDict, both: Vector) -> None:
        size = wire.unpack(reply.array_records["arrays"]["weights"]).size
        graph, slope = parted(both, size, beta)
        _replace(reply, weights=graph, **({} if slope is None else {"slope": slope}))

    return Bounded(lambda sent: dict(sent.array_records["arrays"]), vector, origin, put)


def joined(terms: Terms, beta: float) -> Vector:
    """Return graph (p,) and slope (p,), if any, as one vector on the scale of graphs."""
    graph, slope = terms
    return graph if slope is None else np.concatenate([graph, slope / (2.0 * beta)])


def parted(both: Vector, size: int, beta: float) -> Terms:
    """Return the graph (``size``,) and the slope of a `joined` vector."""
    slope = both[size:]
    return both[:size], 2.0 * beta * slope if slope.size else None


def sent_terms(consensus: Vector, mean_slope: Vector | None, has_slope: bool) -> Terms:
    """Return what a reply is measured from, with a slope where the reply has one."""
    if not has_slope:
        return consensus, None
    return consensus, np.zeros_like(consensus) if mean_slope is None else mean_slope


def clipped_terms(terms: Terms, sent: Terms, beta: float, bound: float) -> Terms:
    """Return graph and slope within ``bound`` of those that were ``sent``; as they are for 0."""
    both = joined(terms, beta)
    found = clipped(both, joined(sent, beta), bound)
    return terms if found is both else parted(found, sent[0].size, beta)
