"""What ``norm-bound`` limits where one graph is learned for all (method ``fedavg``), at both ends.

Clients send a graph w_i and a slope s_i = 2 zbar_i, and both move the minimiser of (36): its
curvature is 2 beta at least, so a slope that is off by s moves it by |s| / (2 beta) at most. Graph
and slope / (2 beta) are one vector (2 p,), measured from the graph and the mean slope that were
sent; before there is one, from a slope of zero.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from strategies.core.robust import clipped

Vector = NDArray[np.float64]


def joined(graph: Vector, slope: Vector, beta: float) -> Vector:
    """Return graph (p,) and slope (p,) as one vector (2 p,), on the scale of graphs."""
    return np.concatenate([graph, slope / (2.0 * beta)])


def parted(both: Vector, beta: float) -> tuple[Vector, Vector]:
    """Return the graph and the slope of a `joined` vector."""
    graph, slope = np.split(both, 2)
    return graph, 2.0 * beta * slope


def clipped_pair(
    graph: Vector, slope: Vector, sent: tuple[Vector, Vector], beta: float, bound: float
) -> tuple[Vector, Vector]:
    """Return graph and slope within ``bound`` of those that were ``sent``; as they are for 0."""
    if not bound:
        return graph, slope
    both, reference = joined(graph, slope, beta), joined(*sent, beta)
    found = clipped(both, reference, bound)
    return (graph, slope) if found is both else parted(found, beta)
