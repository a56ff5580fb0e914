"""Means of graphs under Gromov-Wasserstein, and k-means with them.

    C* = argmin_C sum_s share_s GW(C, p; C_s, p_s)           C : (N, N), p : (N,) uniform   [PC]_

By blocks: with C fixed, a plan T_s for each graph by Frank-Wolfe from the plan of the round before;
with the plans fixed, C = sum_s share_s T_s C_s T_s' / (p p') exactly. Neither raises the objective.

k-means: each graph belongs to the nearest centroid; a centroid has the mean number of nodes of its
cluster [JC]_. A graph's plan to its own centroid is kept as one more start, and a new centroid
replaces the old only if it is nearer to the cluster: so the objective never rises, although all
these minima are local.

.. [PC] G. Peyré, M. Cuturi, J. Solomon, Gromov-Wasserstein averaging of kernel and distance
   matrices, ICML 2016.
.. [JC] H. Jin, X. Chen, Gromov-Wasserstein discrepancy with local differential privacy for
   distributed structural graphs, 2022.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .pair import Coupling, Space, couple, gathered, spread
from .rows import squared_distances
from .space import Matrix, Vector

_SMALLEST_GAIN = 1e-9  # of the first objective
_DIMENSIONS = (1, 2, 5)  # of the random points of a start; which is best depends on the graphs


@dataclass(frozen=True)
class Barycentre:
    """A mean of graphs.

    Attributes
    ----------
    distances : C*, (N, N); its diagonal need not be zero
    values : GW(C*, C_s) of each graph, (S,)
    plans : T_s, (N, atoms of graph s)
    objective : sum_s share_s GW after every round
    """

    distances: Matrix
    values: Vector
    plans: list[Matrix]
    objective: list[float]


@dataclass(frozen=True)
class Clustering:
    """A partition of graphs.

    Attributes
    ----------
    labels : (S,), the cluster of each graph
    centroids : one matrix a cluster
    values : GW of each graph from its centroid, (S,)
    objective : their sum after every round
    """

    labels: NDArray[np.int64]
    centroids: list[Matrix]
    values: Vector
    objective: list[float]


def barycentre(
    matrices: Sequence[ArrayLike],
    size: int,
    weights: Sequence[ArrayLike | None] | None = None,
    shares: ArrayLike | None = None,
    *,
    seed: int = 0,
    rounds: int = 50,
) -> Barycentre:
    """Return the mean of graphs with ``size`` nodes.

    Parameters
    ----------
    matrices : S distance matrices
    size : N
    weights : of the nodes of each graph; None is uniform
    shares : of the graphs, (S,) of sum one; None is equal
    seed : of the random starts, of which the best is kept
    rounds : most rounds
    """
    spaces = _spaces(matrices, weights)
    if size < 1:
        raise ValueError(f"size={size}: a barycentre has one node or more")
    lam = np.full(len(spaces), 1.0 / len(spaces)) if shares is None else np.asarray(shares, float)
    if lam.shape != (len(spaces),) or lam.min() < 0.0 or abs(lam.sum() - 1.0) > 1e-6:
        raise ValueError(f"shares: {len(spaces)} numbers >= 0 of sum one are needed")
    return _barycentre(spaces, size, lam, np.random.default_rng(seed), rounds)


def kmeans(
    matrices: Sequence[ArrayLike],
    weights: Sequence[ArrayLike | None] | None = None,
    clusters: int = 2,
    seed: int = 0,
    *,
    rounds: int = 20,
    barycentre_rounds: int = 10,
) -> Clustering:
    """Return a partition of graphs into ``clusters`` around barycentres. Deterministic.

    Parameters
    ----------
    matrices, weights : as for `barycentre`
    clusters : 1 to the number of graphs
    seed : of the first centroids (k-means++) and of the starts of barycentres
    rounds, barycentre_rounds : most rounds of assignment, and of one barycentre
    """
    spaces = _spaces(matrices, weights)
    nodes = np.array([len(np.asarray(matrix)) for matrix in matrices])
    if not 1 <= clusters <= len(spaces):
        raise ValueError(f"clusters={clusters}: must be between 1 and the {len(spaces)} graphs")
    generator = np.random.default_rng(seed)
    first = [spaces[i] for i in _first_centroids(spaces, clusters, generator)]
    centroids = [space.distances for space in first]
    masses: list[Vector | None] = [space.weights for space in first]  # None: uniform
    table = np.array([_distances(c, m, spaces) for c, m in zip(centroids, masses, strict=True)])
    labels = np.argmin(table, axis=0)
    own = table[labels, np.arange(len(spaces))]
    objective = [float(own.sum())]
    for _ in range(rounds):
        before = labels.copy()
        for k in range(clusters):
            members = np.flatnonzero(labels == k)
            if not members.size:
                farthest = int(np.argmax(own))
                centroids[k], masses[k] = spaces[farthest].distances, spaces[farthest].weights
                table[k] = _distances(centroids[k], masses[k], spaces)
                continue
            size = max(1, round(float(nodes[members].mean())))
            equal = np.full(members.size, 1.0 / members.size)
            inside = [spaces[i] for i in members]
            found = _barycentre(inside, size, equal, generator, barycentre_rounds)
            if found.values.sum() < own[members].sum():
                centroids[k], masses[k] = found.distances, None
                table[k] = _distances(found.distances, None, spaces)
                table[k, members] = np.minimum(table[k, members], found.values)
                own[members] = table[k, members]
        # A graph's value to its own centroid is the best that was seen, so nobody loses by staying.
        table[labels, np.arange(len(spaces))] = own
        labels = np.argmin(table, axis=0)
        own = table[labels, np.arange(len(spaces))]
        objective.append(float(own.sum()))
        if (labels == before).all() and objective[-2] - objective[-1] <= (
            _SMALLEST_GAIN * objective[0]
        ):
            break
    return Clustering(labels.astype(np.int64), centroids, own, objective)


def _barycentre(
    spaces: Sequence[Space], size: int, lam: Vector, generator: np.random.Generator, rounds: int
) -> Barycentre:
    """Return the best barycentre of a few starts."""
    starts = [_first_barycentre(spaces, size, generator, d) for d in _DIMENSIONS]
    found = [_descend(spaces, start, lam, rounds) for start in starts]
    return min(found, key=lambda one: one.objective[-1])


def _descend(spaces: Sequence[Space], c: Matrix, lam: Vector, rounds: int) -> Barycentre:
    """Improve plans and matrix in turn."""
    size = len(c)
    p = np.full(size, 1.0 / size)
    couplings = [_couple_to(c, p, space) for space in spaces]
    objective = [float(lam @ [found.value for found in couplings])]
    for _ in range(rounds):
        mean = np.zeros((size, size))
        for share, space, found in zip(lam, spaces, couplings, strict=True):
            mean += share * (found.plan @ space.distances @ found.plan.T)
        mean /= p[:, None] * p
        candidate = (mean + mean.T) / 2.0
        improved = [
            _couple_to(candidate, p, space, found.plan)
            for space, found in zip(spaces, couplings, strict=True)
        ]
        value = float(lam @ [found.value for found in improved])
        if value > objective[-1]:  # rounding only
            break
        c, couplings = candidate, improved
        objective.append(value)
        if objective[-2] - value <= _SMALLEST_GAIN * objective[0]:
            break
    values = np.array([found.value for found in couplings])
    return Barycentre(c, values, [found.plan for found in couplings], objective)


def _couple_to(c: Matrix, p: Vector | None, space: Space, start: Matrix | None = None) -> Coupling:
    """Return the coupling of a barycentre's nodes with a graph's atoms."""
    x, atoms = Space.of(c, p, name="barycentre")
    same = np.arange(space.weights.size)
    begin = None if start is None else gathered(start, x, space, atoms, same)
    found = couple(x, space, start=begin)
    mass = np.full(len(c), 1.0 / len(c)) if p is None else p
    return Coupling(found.value, spread(found.plan, x, space, atoms, same, mass, space.weights))


def _distances(c: Matrix, p: Vector | None, spaces: Sequence[Space]) -> Vector:
    x, _ = Space.of(c, p, name="centroid")
    return np.array([couple(x, space).value for space in spaces])


def _first_barycentre(
    spaces: Sequence[Space], size: int, generator: np.random.Generator, dimension: int
) -> Matrix:
    """Return distances between random points, at the mean distance of the graphs.

    A constant matrix would be a fixed point.
    """
    points = generator.normal(size=(size, dimension))
    c = np.sqrt(squared_distances(points, points))
    wanted = float(np.mean([space.rank[1] for space in spaces]))
    return c * (wanted / c.mean()) if c.any() else c


def _first_centroids(
    spaces: Sequence[Space], clusters: int, generator: np.random.Generator
) -> list[int]:
    """Return graphs far from each other, by k-means++."""
    chosen = [int(generator.integers(len(spaces)))]
    nearest = np.full(len(spaces), np.inf)
    while len(chosen) < clusters:
        last = spaces[chosen[-1]]
        nearest = np.minimum(nearest, [couple(last, space).value for space in spaces])
        nearest[chosen] = 0.0
        if nearest.sum() > 0.0:
            chosen.append(int(generator.choice(len(spaces), p=nearest / nearest.sum())))
        else:  # all graphs equal a chosen one
            chosen.append(next(i for i in range(len(spaces)) if i not in chosen))
    return chosen


def _spaces(
    matrices: Sequence[ArrayLike], weights: Sequence[ArrayLike | None] | None
) -> list[Space]:
    if not len(matrices):
        raise ValueError("matrices: there is no graph")
    if weights is not None and len(weights) != len(matrices):
        raise ValueError(f"weights: {len(weights)} of them for {len(matrices)} graphs")
    return [
        Space.of(matrix, None if weights is None else weights[i], name=f"matrix {i}")[0]
        for i, matrix in enumerate(matrices)
    ]
