"""Clusters around graphs that stand for them, without solving all pairs.

    min over medoids m_1 .. m_c of  sum_j min_a D(j, m_a)                          [PJ]_

Medoids to start from are drawn one after the other with a probability in proportion to the distance
from those there are (discrepancies are squares, as in k-means++); then graphs go to the nearest
medoid and each cluster takes as its medoid the graph with the least sum of distances within it, in
turns, until nothing changes. The objective falls in every turn.

The nearest medoid is found as any nearest graph (`neighbours`). Of a cluster's candidates the one
with the least sum of lower bounds is tried first; when no sum of what is known (values) and of what
is at least (bounds) is below the best exact sum, the rest need not be solved. Sums are of the same
numbers in the same order as with a whole matrix: the answers are the same.

.. [PJ] H.-S. Park, C.-H. Jun, A simple and fast algorithm for k-medoids clustering, Expert Systems
   with Applications 36, 2009.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .neighbours import nearest
from .partial import PartialDistances, Places

_MOST_TURNS = 100
_AT_ONCE = 20  # a part of the candidates that is left is tried before looking again


@dataclass(frozen=True)
class Medoids:
    """A partition of graphs.

    Attributes
    ----------
    labels : (N,), the cluster of each graph
    medoids : (count,), the graph that stands for each cluster, in order
    objective : sum of the distances to them
    share : of the pairs of different graphs that have been solved so far, 0 to 1
    """

    labels: Places
    medoids: Places
    objective: float
    share: float


def medoids(known: PartialDistances, count: int, *, seed: int = 0) -> Medoids:
    """Return ``count`` clusters around medoids; a local minimum that the seed decides.

    Parameters
    ----------
    known : distances, of which more are solved as needed
    count : clusters, 1 to N
    seed : of the medoids to start from
    """
    if not 1 <= count <= len(known):
        raise ValueError(f"count={count}: must be between 1 and the {len(known)} graphs")
    chosen = _first(known, count, np.random.default_rng(seed))
    labels, objective = _assigned(known, chosen)
    for _ in range(_MOST_TURNS):
        better = np.sort([_centre(known, np.flatnonzero(labels == a)) for a in range(count)])
        if (better == chosen).all():
            break
        moved, value = _assigned(known, better)
        if not value < objective:
            break
        chosen, labels, objective = better, moved, value
    known.close()
    return Medoids(labels, chosen, objective, known.share)


def _first(known: PartialDistances, count: int, generator: np.random.Generator) -> Places:
    """Return graphs to start from, each far from those before it where there are such."""
    chosen = [int(generator.integers(len(known)))]
    near = _row(known, chosen[0])
    while len(chosen) < count:
        near[chosen] = 0.0
        mass = near if near.any() else np.ones(len(known))
        mass[chosen] = 0.0
        chosen.append(int(generator.choice(len(known), p=mass / mass.sum())))
        near = np.minimum(near, _row(known, chosen[-1]))
    return np.sort(np.array(chosen, dtype=np.int64))


def _row(known: PartialDistances, graph: int) -> NDArray[np.float64]:
    everyone = np.arange(len(known))
    pairs = np.column_stack([np.full(len(known), graph), everyone])
    known.solve(pairs, np.full(len(pairs), np.inf))
    return known.between(everyone[graph : graph + 1])[0][0]


def _assigned(known: PartialDistances, chosen: Places) -> tuple[Places, float]:
    """Return of each graph the cluster of its nearest medoid, and the sum of these distances."""
    allowed = np.zeros((len(known), len(known)), dtype=bool)
    allowed[:, chosen] = True
    others = np.setdiff1d(np.arange(len(known)), chosen)
    found = nearest(known, 1, queries=others, allowed=allowed)
    labels = np.empty(len(known), dtype=np.int64)
    labels[chosen] = np.arange(len(chosen))  # a medoid stays with itself, also beside a twin
    labels[others] = np.searchsorted(chosen, found.places[:, 0])
    return labels, float(found.distances.sum())


def _centre(known: PartialDistances, members: Places) -> int:
    """Return the graph of a cluster with the least sum of distances within it."""
    tried = np.zeros(len(members), dtype=bool)
    while True:
        values, bounds = known.between(members, members)
        best = float(values[tried].sum(axis=1).min(initial=np.inf))
        least = bounds.sum(axis=1)  # of values where there are any
        hopeful = np.flatnonzero(~tried & (least <= best))
        if not hopeful.size:
            return int(members[tried][np.argmin(values[tried].sum(axis=1))])
        some = -(-len(hopeful) // _AT_ONCE) if tried.any() else 1
        next_ = hopeful[np.argsort(least[hopeful], kind="stable")[:some]]
        pairs = np.column_stack(
            [np.repeat(members[next_], len(members)), np.tile(members, len(next_))]
        )
        known.solve(pairs, np.full(len(pairs), np.inf))
        tried[next_] = True
