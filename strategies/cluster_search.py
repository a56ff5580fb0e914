"""Finding clusters: who fits which model, and models to start from that are apart.

As in iterative federated clustering: every client tells its loss under each of the Q models of its
server, and belongs to the one with the smallest until it is asked again. What is found depends on
where one starts. The start is spread: of the clients' own first models take one at random, then
again and again the one that is farthest from all taken so far.

Adversary and what is revealed: the server learns Q losses a client and assignment, in the clear.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Places = NDArray[np.intp]


def spread_models(models: Array, count: int, rng: np.random.Generator) -> Array:
    """Return ``count`` of the models (K, d), far from each other."""
    chosen = [int(rng.integers(len(models)))]
    distance = np.full(len(models), np.inf)
    while len(chosen) < min(count, len(models)):
        gaps = np.sum((models - models[chosen[-1]]) ** 2, axis=1)
        distance = np.minimum(distance, gaps)
        chosen.append(int(np.argmax(distance)))
    return models[chosen]


def fitting(losses: Array, groups: Places) -> Places:
    """Return the cluster (K,) with the smallest loss; unchanged where losses (K, Q) are missing."""
    known = np.all(np.isfinite(losses), axis=1)
    best = np.argmin(np.where(np.isfinite(losses), losses, np.inf), axis=1)
    return np.where(known, best, groups)


def agreement(found: Places, truth: Places, count: int) -> float:
    """Return the share of clients whose cluster is right, whatever the clusters are called."""
    from scipy.optimize import linear_sum_assignment

    table = np.zeros((count, count))
    np.add.at(table, (found, truth), 1.0)
    rows, columns = linear_sum_assignment(-table)
    return float(table[rows, columns].sum() / len(found))
