"""A score of the public consensus on held-out signals, as two counts for a noisy sum.

*Explained*: how many held-out signals are more likely under the consensus than under a graph that
knows nothing (complete, equal weights). Of a signal's direction u only, so that its size does not
matter, by the angular Gaussian density [T]_ with precision L, on the signals without a mean:

    log p(u) = log det+(L) / 2 - (d - 1) / 2 log(u'L u) + constant.

*Helped*: one bit a client, whether the consensus raised its own held-out likelihood in `personal`.

One record replaced moves one count by 1 at most: a held-out signal is its own term and no part of
the bit, a signal that is learnt from can move the bit and no term. So the two counts together have
sensitivity 1. How many signals are held out is public.

.. [T] D. Tyler, Statistical analysis for the angular central Gaussian distribution, 1987.
"""

from __future__ import annotations

import numpy as np

from trellis.apps.common.evaluation import holding
from trellis.apps.common.node import Node
from trellis.apps.common.tables import Table
from trellis.apps.consensus_graph.problem import Matrix, Vector

from .personal import laplacian_of, personal_graph
from .pooled import directions

SENSITIVITY = 1.0
# Complete graph on top of the consensus, of the same weight in all: clients have edges of their
# own, and a node that the consensus leaves alone must not make a signal impossible. Measured at
# d = 20: a good consensus explains .69 of the signals, one at random .32, one of MCC .47 .60.
_REST = 1.0


def held_out_count(count: int, share: float) -> int:
    """Return how many of ``count`` signals are held out; two at least are learnt from."""
    return max(0, min(int(share * count), count - 2))


def split(
    table: Table, share: float, node: Node, seed: int, privacy: str = "dp"
) -> tuple[Table, Matrix]:
    """Return the signals to learn from, as a table, and those held out."""
    number = held_out_count(len(table.values), share)
    return holding.split(table, number, node, seed, privacy)


def scores(learning: Matrix, held: Matrix, consensus: Vector, noise: float, alpha: float) -> Vector:
    """Return the two counts (2,) of one client."""
    explained = float(np.count_nonzero(advantage(held, consensus) > 0.0))
    try:
        # Signals of any size: what overflows on the way is no reason to say so.
        with np.errstate(over="ignore", invalid="ignore"):
            helped = bool(personal_graph(learning, consensus, noise, alpha).gain > 0.0)
    except Exception:
        helped = False  # whether a device answers must not depend on its signals
    return np.array([explained, float(helped)])


def advantage(signals: Matrix, consensus: Vector) -> Vector:
    """Return log p(u) under the consensus less that under no graph, (N,); 0 for no direction."""
    total = float(np.sum(consensus))
    if not total > 0.0 or not len(signals):
        return np.zeros(len(signals))
    laplacian = laplacian_of(consensus / total + _REST / consensus.size)
    d = laplacian.shape[0]
    log_determinant = float(np.linalg.slogdet(laplacian + 1.0 / d)[1])
    units, octaves = directions(signals)
    roughness = np.sum((units @ laplacian) * units, axis=1)
    there = octaves >= 0
    safe = np.where(there, np.maximum(roughness, np.finfo(np.float64).tiny), 1.0)
    found = 0.5 * log_determinant - 0.5 * (d - 1) * np.log(safe)
    return np.where(there, found, 0.0)
