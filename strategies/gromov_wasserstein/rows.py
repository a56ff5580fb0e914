"""The Wasserstein distance between rows in a common space, a cheaper rival of Gromov-Wasserstein.

    W2^2 = min_T sum_ij |x_i - y_j|^2 T_ij       over T >= 0, T 1 = p, T' 1 = q

x : (n, d) and y : (m, d), with weights p : (n,) and q : (m,).

Embeddings of one model share a space, so their rows can be compared as they are. A linear
programme: unlike Gromov-Wasserstein, the value found is the minimum.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from .simplex import check_marginals, transport
from .space import Matrix, Vector, checked_features, checked_weights


def wasserstein(
    X1: ArrayLike, X2: ArrayLike, p: ArrayLike | None = None, q: ArrayLike | None = None
) -> float:
    """Return the Wasserstein distance W2 between rows (n, d) and (m, d) of a common space.

    The root of min_T <T, |x_i - y_j|^2>: unlike GW a linear programme, hence exact.
    """
    return couple_rows(lump_rows(X1, p, "X1"), lump_rows(X2, q, "X2"))


def lump_rows(
    rows: ArrayLike, weights: ArrayLike | None = None, name: str = "features"
) -> tuple[Matrix, Vector]:
    """Return the distinct rows, sorted, and their weights."""
    x = checked_features(rows, len(np.asarray(rows)), name)
    p = checked_weights(weights, len(x), name)
    distinct, atoms = np.unique(x[p > 0.0], axis=0, return_inverse=True)
    return distinct, np.asarray(np.bincount(atoms.ravel(), p[p > 0.0]), dtype=np.float64)


def couple_rows(x: tuple[Matrix, Vector], y: tuple[Matrix, Vector]) -> float:
    """Return W2 between two results of `lump_rows`."""
    if x[0].shape[1] != y[0].shape[1]:
        raise ValueError(
            f"rows of {x[0].shape[1]} and of {y[0].shape[1]} features: not one common space"
        )
    if x[0].tobytes() > y[0].tobytes():
        x, y = y, x
    costs = squared_distances(x[0], y[0])
    plan = transport(x[1], y[1], costs)
    check_marginals(plan, x[1], y[1])
    return float(np.sqrt(np.vdot(plan, costs)))


def squared_distances(x: Matrix, y: Matrix) -> Matrix:
    """Return |x_i - y_j|^2, (n, m), zero exactly for equal rows."""
    difference = x[:, None, :] - y[None, :, :]
    return np.einsum("ijk,ijk->ij", difference, difference)
