"""The server's step of joint-precision [TMS]: the prox of the two joint penalties, for any K.

For every pair of variables by itself, b the K clients' entries of Omega + U at that pair:

    argmin_x  1/2 |x - b|^2 + lambda1 sum_i |x_i| + lambda2 R(x)                     (15)

    group   R(x) = sqrt(sum_i x_i^2)                closed form                       (17)
    fused   R(x) = sum_{i < i'} |x_i - x_i'|        sort, isotonic regression, soft   (18)

``fused`` is exact for all pairs of any number of clients. In the order of b the penalty is linear,
sum_i (2 i - K - 1) x_(i) for x_(1) <= ... <= x_(K), and the solution has the order of b, so what is
left is the projection of b_(i) - lambda2 (2 i - K - 1) on increasing sequences; soft-thresholding
its result adds lambda1 (Friedman et al. 2007). K = 2 is (19).

Arrays: ``b`` (K, m), a column a pair. The same prox tells which pairs can be connected at all:
`connected`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Matrix = NDArray[np.float64]


@dataclass(frozen=True)
class Penalty:
    """One joint penalty: its prox and its value on columns of K entries."""

    prox: Callable[[Matrix, float, float], Matrix]
    value: Callable[[Matrix, float, float], float]


def soft_threshold(b: Matrix, threshold: float) -> Matrix:
    """Return ``b`` moved towards zero by ``threshold``."""
    return b - np.clip(b, -threshold, threshold)


def group_prox(b: Matrix, lambda1: float, lambda2: float) -> Matrix:
    """Return (17) for every column of ``b`` (K, m)."""
    x = soft_threshold(b, lambda1)
    norm = np.sqrt(np.einsum("km,km->m", x, x))
    kept = norm > lambda2
    x *= np.where(kept, 1.0 - lambda2 / np.where(kept, norm, 1.0), 0.0)
    return x


def group_value(x: Matrix, lambda1: float, lambda2: float) -> float:
    """Return lambda1 sum |x| + lambda2 sum of the columns' norms."""
    norms = np.sqrt(np.einsum("km,km->m", x, x))
    return float(lambda1 * np.sum(np.abs(x)) + lambda2 * np.sum(norms))


def fused_prox(b: Matrix, lambda1: float, lambda2: float) -> Matrix:
    """Return the exact prox of (18) for every column of ``b`` (K, m)."""
    order = np.argsort(b, axis=0, kind="stable")
    y = np.take_along_axis(b, order, axis=0)
    y -= lambda2 * _slopes(len(b))[:, None]
    x = np.empty_like(b)
    np.put_along_axis(x, order, _isotonic(y), axis=0)
    return soft_threshold(x, lambda1)


def fused_value(x: Matrix, lambda1: float, lambda2: float) -> float:
    """Return lambda1 sum |x| + lambda2 sum of |differences| over all pairs of a column."""
    differences = _slopes(len(x)) @ np.sum(np.sort(x, axis=0), axis=1)
    return float(lambda1 * np.sum(np.abs(x)) + lambda2 * differences)


def weighted_penalty(weights: Matrix, off_diagonal: NDArray[np.intp]) -> Penalty:
    """Return the penalty lambda1 sum_jk weights_jk |x_jk| of clients apart, lambda2 unused.

    Parameters
    ----------
    weights : (m,) or (K, m) >= 0, packed as the matrices are
    off_diagonal : which of them `Penalty.value` is given
    """

    def prox(b: Matrix, lambda1: float, lambda2: float) -> Matrix:
        return b - np.clip(b, -lambda1 * weights, lambda1 * weights)

    def value(x: Matrix, lambda1: float, lambda2: float) -> float:
        return float(lambda1 * np.sum(np.abs(x) * weights[..., off_diagonal]))

    return Penalty(prox, value)


def connected(b: Matrix, penalty: Penalty, lambda1: float, lambda2: float) -> NDArray[np.bool_]:
    """Return which pairs must lie in one block, from ``b`` = w_i S_i at every pair (K, m).

    A pair is zero in all matrices of a block-diagonal solution exactly where -w S lies in the
    penalty's subdifferential at zero, which is where the prox of w S is zero. The connected
    components of what is left are the solution's blocks (Danaher et al. 2014, theorems 1 and 2).
    """
    return np.any(penalty.prox(b, lambda1, lambda2) != 0.0, axis=0)


def _slopes(count: int) -> NDArray[np.float64]:
    """Return 2 i - K - 1, i = 1..K: what x_(i) counts in the sum of all differences."""
    return 2.0 * np.arange(1.0, count + 1.0, dtype=np.float64) - count - 1.0


def _isotonic(y: Matrix) -> Matrix:
    """Return every column's least-squares increasing sequence.

    By the minimax formula x_i = max over a <= i of min over c >= i of mean(y_a..y_c): K is small
    and columns are many, so K^2 vector operations beat pooling them one by one.
    """
    count = len(y)
    sums = np.vstack([np.zeros((1, y.shape[1])), np.cumsum(y, axis=0)])
    x = np.full_like(y, -np.inf)
    for a in range(count):
        least = np.full(y.shape[1], np.inf)
        for c in range(count - 1, a - 1, -1):
            np.minimum(least, (sums[c + 1] - sums[a]) / (c + 1 - a), out=least)
            np.maximum(x[c], least, out=x[c])
    return x


PENALTIES = {
    "group": Penalty(group_prox, group_value),
    "fused": Penalty(fused_prox, fused_value),
}
