"""Algorithm 1 and the equations of the paper as they are printed, where ours differ from them.

Weights n_i are divided by n here, and with them lambda and rho: rho is in units of n_i.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from trellis.strategies.joint_precision.prox import PENALTIES

from ..problem import log_determinant, omega_update, smooth_loss

Matrix = NDArray[np.float64]


class Iterate(NamedTuple):
    """One iteration: matrices (K, p, p), what line 10 compares with epsilon, and the certified gap.

    The gap is how far Psi's objective is from the minimum, at most; see `Splitting`.
    """

    omega: Matrix
    psi: Matrix
    change: float
    gap: float


def algorithm_1(
    correlations: Matrix, lambda1: float, lambda2: float, rho: float, penalty: str = "group"
) -> Iterator[Iterate]:
    """Take the steps of Algorithm 1 for ever, from Omega = I, Psi = U = 0."""
    p = correlations.shape[-1]
    rule = PENALTIES[penalty]
    upper = np.triu_indices(p, 1)
    psi, u = np.zeros_like(correlations), np.zeros_like(correlations)
    before = np.broadcast_to(np.eye(p), correlations.shape)
    while True:
        omega = np.array(
            [
                omega_update(s - rho * (a - b), rho)
                for s, a, b in zip(correlations, psi, u, strict=True)
            ]
        )  # (14)
        b = omega + u
        psi = b * np.eye(p)
        off = rule.prox(b[:, *upper], lambda1 / rho, lambda2 / rho)  # (17), (18)
        psi[:, *upper] = off
        psi[:, upper[1], upper[0]] = off
        u = b - psi
        change = sum(
            float(np.linalg.norm(new - old) / np.linalg.norm(new, 2))
            for new, old in zip(omega, before, strict=True)
        )  # line 10
        before = omega
        primal = 2.0 * rule.value(off, lambda1, lambda2)
        primal += sum(smooth_loss(a, s) for a, s in zip(psi, correlations, strict=True))
        bound = sum(log_determinant(s + rho * v) + p for s, v in zip(correlations, u, strict=True))
        yield Iterate(omega, psi, change, primal - bound)


def printed_tau(x: NDArray[np.float64], y: NDArray[np.float64]) -> float:
    """Return Kendall's tau with the printed factor, 1 / (n (n - 1)) over r <= r'."""
    n = len(x)
    a, b = np.triu_indices(n)
    return float(np.sum(np.sign((x[a] - x[b]) * (y[a] - y[b]))) / (n * (n - 1)))


def printed_fused_pair(b: Matrix, lambda2: float) -> Matrix:
    """Return (19) for columns ``b`` (2, m), rho = 1."""
    first, second = b
    middle = (first + second) / 2.0
    above, below = first > second + 2.0 * lambda2, second > first + 2.0 * lambda2
    return np.array(
        [
            np.where(above, first - lambda2, np.where(below, first + lambda2, middle)),
            np.where(above, second + lambda2, np.where(below, second - lambda2, middle)),
        ]
    )


def printed_symmetric(columns: Matrix) -> Matrix:
    """Return (22) of CLIME's columns (p, p)."""
    size, other = np.abs(columns), np.abs(columns.T)
    first = columns * np.sign(np.maximum(size - other, 0.0))
    second = columns.T * np.sign(np.maximum(other - size, 0.0))
    return first + second
