"""What graph-homomorphic noise does to the models, to second order of the loss.

With g_i the servers' draws (P,) of one coordinate, (8) and (24) give deviations from the centroid

    e_i = A e_{i-1} + (A - I) g_i + O(mu),   sum of e_i = 0

so for small mu their covariance is sigma_g^2 times the sum over A's eigenvalues l below 1 of
(1 - l) / (1 + l) v v'. It does not depend on mu. The centroid moves by the mean over servers of
their gradients, and a gradient's mean over e_p is grad P_p + s_p / 2 grad (Laplacian P_p): the
centroid settles where that vanishes, which is off the minimiser w^o by

    b = -1/2 H^{-1}  1/P sum_p s_p grad (Laplacian P_p)(w^o),   s_p = Var(e_p)

b grows as sigma_g^2, its power as sigma_g^4, and no mu is in it. For quadratics it is 0.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from trellis.privacy.numerics import expit

from ..config import ServerGraphConfig
from ..data import synthetic_table
from ..losses import Logistic

Array = NDArray[np.float64]


def variances(weights: Array, sigma: float) -> Array:
    """Return s_p (P,): variance of one coordinate of every server's deviation from the centroid."""
    values, vectors = np.linalg.eigh(weights)  # ascending: the last is 1, of the centroid
    share = np.append((1.0 - values[:-1]) / (1.0 + values[:-1]), 0.0)
    found: Array = sigma**2 * (vectors**2 @ share)
    return found


def disagreement(weights: Array, sigma: float, size: int) -> float:
    """Return the mean squared distance of the servers' models (M = ``size``) to their centroid."""
    return size * float(np.mean(variances(weights, sigma)))


def shift(config: ServerGraphConfig, seed: int, truth: Array, spread: Array) -> tuple[Array, float]:
    """Return b (M,) for the logistic loss, given the s_p (P,) and w^o, and H's least eigenvalue."""
    curvature = np.diag(np.full(truth.size, config.ridge))
    pull = np.zeros(truth.size)
    for k in range(config.clients):
        table = synthetic_table(config, seed, k)
        home = k * config.servers // config.clients
        share = np.full(len(table.y), 1.0 / (config.clients * len(table.y)))
        curvature += Logistic().hessian(truth, table.X, table.y, share)
        p = expit(table.X @ truth)
        third = p * (1.0 - p) * (1.0 - 2.0 * p) * np.sum(table.X**2, axis=1)
        pull += float(spread[home]) * ((share * third) @ table.X)
    found = np.asarray(np.linalg.solve(curvature, -0.5 * pull), dtype=np.float64)
    return found, float(np.linalg.eigvalsh(curvature)[0])
