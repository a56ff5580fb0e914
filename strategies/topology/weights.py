"""Combination matrices of a graph of servers, (P, P) from its adjacency.

Two rules give a symmetric doubly stochastic A with a positive diagonal on any graph:

    metropolis    a_mp = 1 / (1 + max(deg_m, deg_p))  on edges,   a_pp = 1 - sum_m a_mp
    laplacian     A = I - eps L,   0 < eps < 1 / max deg,   by default eps = 1 / (1 + max deg)

The plain average over a server's neighbourhood is neither symmetric nor doubly stochastic unless
all servers have as many neighbours, and is refused.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from trellis.privacy.mechanisms.homomorphic import check_combination_matrix

from .named import Adjacency
from .rules import check_rule

Matrix = NDArray[np.float64]


def combination(adjacency: ArrayLike, rule: str) -> Matrix:
    """Return A (P, P) of a graph by Metropolis' or the Laplacian rule."""
    graph_of = np.asarray(adjacency, dtype=bool)
    check_rule(rule)
    one_way = np.argwhere(graph_of & ~graph_of.T)
    if one_way.size:
        m, p = one_way[0].tolist()
        raise ValueError(f"server {m} is joined to {p} but {p} not to {m}; edges go both ways")
    degree = graph_of.sum(axis=1)
    name, _, text = rule.partition(":")
    if name == "metropolis":
        across = np.where(graph_of, 1.0 / (1.0 + np.maximum.outer(degree, degree)), 0.0)
        return across + np.diag(1.0 - across.sum(axis=1))
    if name != "laplacian":
        raise ValueError(f"weights = {rule!r}: a graph has none of its own; name a rule")
    hub = int(degree.argmax())
    most = int(degree[hub])
    epsilon = float(text) if text else 1.0 / (1.0 + most)
    if epsilon * most >= 1.0:
        raise ValueError(
            f"weights = {rule!r}: a[{hub}, {hub}] = {1.0 - epsilon * most:g} at a server with "
            f"{most} neighbours; take eps < {1.0 / most:.6g}"
        )
    return np.eye(len(graph_of)) - epsilon * laplacian(graph_of)


def without_rounding(weights: Matrix) -> Matrix:
    """Return A checked, then symmetric and doubly stochastic to the last bits.

    The check lets errors of 1e-9 pass; (25) would carry them into the mean of the models.
    """
    check_combination_matrix(weights)
    across = np.where(np.eye(len(weights), dtype=bool), 0.0, (weights + weights.T) / 2.0)
    return across + np.diag(1.0 - across.sum(axis=1))


def laplacian(adjacency: Adjacency) -> Matrix:
    """Return L (P, P), the degrees on the diagonal minus the adjacency."""
    return np.diag(adjacency.sum(axis=1)).astype(np.float64) - adjacency
