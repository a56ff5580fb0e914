"""The multi-bit encoder: one embedding row, m bits, epsilon-LDP [JC]_ [SG]_.

Of the h coordinates of each row, m are chosen without replacement, independently of the data. A
chosen x in [alpha, beta] becomes a bit H* = +-1 with                          [JC] Algorithm 1

    P[H* = 1] = 1 / (e^b + 1) + (x - alpha) / (beta - alpha) (e^b - 1) / (e^b + 1),  b = eps_row / m

and the rest 0. Adversary: whoever receives H*, the server included. Neighbours: *any* two rows (any
two graphs with the same number n of nodes): local differential privacy, no delta. The budget is
per node (``eps_row`` each row) or per graph (eps_row = epsilon / n), see `row_budget`.

Not covered: n, which is public; encodings sent before or again (budgets add); model updates from
training; **the other rows of a graph under a budget per node**, since message passing writes a
node's data into its neighbours' rows too. [JC]'s prose turns epsilon round: small is private.
[JC] draws m of all n h entries with the budget epsilon / (m n) each, a factor n more noise than
its proof needs; here it is m a row.

Unbiased from one encoding, with tau = tanh(b / 2), middle = (alpha + beta) / 2 and the scale
s = h (beta - alpha) / (2 m tau): E[s H*_j] = x_j - middle, as P[j chosen] = m / h and the bit's
mean is tau (2 x_j - alpha - beta) / (beta - alpha). **A squared distance has no unbiased estimator
from one bit a coordinate**: the mean of any function of H* is affine in each x_j, and x_j^2 is
not. Two ways round it: `double_squared_distances` and `simplex_squared_distances`.

.. [JC] H. Jin, X. Chen, Gromov-Wasserstein discrepancy with local differential privacy for
   distributed structural graphs, 2022.
.. [SG] S. Sajadmanesh, D. Gatica-Perez, Locally private graph neural networks, CCS 2021.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .laplace import UniformSource

Matrix = NDArray[np.float64]
Encoded = NDArray[np.int8]

_SLACK = 1e-6  # of beta - alpha: a float32 softmax may exceed one a little
_SMALLEST_BIT = 1e-12  # below it the 53 bits of a uniform do not tell the coin from a fair one


def best_m(eps_row: float, h: int) -> int:
    """Return the number of bits a row that [SG] finds to have the least variance."""
    if not eps_row > 0.0:
        raise ValueError(f"eps_row={eps_row}: must be > 0")
    return max(1, min(h, math.floor(eps_row / 2.18)))


def row_budget(epsilon: float, nodes: int, per: Literal["node", "graph"]) -> float:
    """Return eps_row. ``graph``: the rows together are epsilon-LDP; ``node``: each row alone is.

    Not covered per node: what message passing wrote about it into other rows.
    """
    if not (epsilon > 0.0 and math.isfinite(epsilon)):
        raise ValueError(f"epsilon={epsilon}: must be positive and finite")
    if nodes < 1:
        raise ValueError(f"nodes={nodes}: must be >= 1")
    if per not in ("node", "graph"):
        raise ValueError(f"per={per!r}: use 'node' or 'graph'")
    return epsilon / nodes if per == "graph" else epsilon


@dataclass(frozen=True)
class MultiBit:
    """What encoder and receiver agree on; public, and free of data.

    Attributes
    ----------
    h : length of a row
    eps_row : budget of one encoding of one row
    m : coordinates sent of each row, 1..h
    alpha, beta : the range of every coordinate; must not be taken from the data
    """

    h: int
    eps_row: float
    m: int
    alpha: float = 0.0
    beta: float = 1.0

    def __post_init__(self) -> None:
        if not (self.eps_row > 0.0 and math.isfinite(self.eps_row)):
            raise ValueError(f"eps_row={self.eps_row}: must be positive and finite")
        if not 1 <= self.m <= self.h:
            raise ValueError(f"m={self.m}: must be between 1 and h={self.h}")
        if self.eps_row / self.m < _SMALLEST_BIT:
            raise ValueError(
                f"eps_row={self.eps_row}: below {_SMALLEST_BIT} for each of m={self.m}"
            )
        if not (math.isfinite(self.beta - self.alpha) and self.alpha < self.beta):
            raise ValueError(f"alpha={self.alpha}, beta={self.beta}: need alpha < beta, finite")

    @classmethod
    def best(cls, h: int, eps_row: float, alpha: float = 0.0, beta: float = 1.0) -> MultiBit:
        """Return the code with `best_m` bits a row."""
        return cls(h, eps_row, best_m(eps_row, h), alpha, beta)

    def halved(self) -> MultiBit:
        """Return the code of each of two encodings that together cost what this one costs."""
        return MultiBit.best(self.h, self.eps_row / 2.0, self.alpha, self.beta)

    @property
    def bit_budget(self) -> float:
        """What one bit costs, b = eps_row / m."""
        return self.eps_row / self.m

    @property
    def middle(self) -> float:
        """The value that a row of coin flips stands for."""
        return (self.alpha + self.beta) / 2.0

    @property
    def scale(self) -> float:
        """The s with E[s H*] = x - middle, h (beta - alpha) / (2 m tanh(b / 2))."""
        return self.h * (self.beta - self.alpha) / (2.0 * self.m * math.tanh(self.bit_budget / 2.0))


def encode(values: ArrayLike, code: MultiBit, source: UniformSource) -> Encoded:
    """Return H* of [JC] Algorithm 1, (n, h) int8 in {-1, 0, 1}, m non-zero a row.

    Each row is eps_row-LDP: adversary, neighbours and what is not covered, see the module. The bit
    is drawn as a coin of probability (x - alpha) / (beta - alpha) that is then flipped with
    probability 1 / (e^b + 1), rounded *up* on the 53-bit grid of the uniforms. So the claim holds
    for the floats really used, and for any x; the price is a bias of a few 2^-52 times s.

    Parameters
    ----------
    values : (n, h) in [alpha, beta]
    code : the agreed encoder
    source : of uniforms, secret
    """
    x = _unit(values, code)
    n, h, m = len(x), code.h, code.m
    keys = source.random(n * h).reshape(n, h)
    chosen = np.argpartition(keys, m - 1, axis=1)[:, :m]  # the m smallest: a uniform m-subset
    draws = source.random(2 * n * m).reshape(2, n, m)
    bits = draws[0] < np.take_along_axis(x, chosen, axis=1)
    bits ^= draws[1] < _flip_threshold(code.bit_budget)
    encoded = np.zeros((n, h), dtype=np.int8)
    np.put_along_axis(encoded, chosen, np.where(bits, 1, -1).astype(np.int8), axis=1)
    return encoded


def encode_twice(
    values: ArrayLike, code: MultiBit, source: UniformSource
) -> tuple[Encoded, Encoded]:
    """Return two independent encodings by ``code.halved()``: together eps_row-LDP a row.

    Adversary, neighbours and what is not covered: see the module.
    """
    half = code.halved()
    return encode(values, half, source), encode(values, half, source)


def bit_probability(values: ArrayLike, code: MultiBit) -> Matrix:
    """Return P[H* = 1 | chosen] of every entry, [JC] Algorithm 1 line 5. For tests and audits."""
    flip = _flip(code.bit_budget)
    return flip + _unit(values, code) * (1.0 - 2.0 * flip)


def log_probability(encoded: ArrayLike, values: ArrayLike, code: MultiBit) -> NDArray[np.float64]:
    """Return log P[H*_i | x_i] of every row; -inf for one that cannot be. For tests and audits."""
    bits, p = np.asarray(encoded), bit_probability(values, code)
    terms = np.where(bits == 0, 0.0, np.log(np.where(bits == 1, p, 1.0 - p)))
    possible = np.count_nonzero(bits, axis=1) == code.m
    return np.where(possible, terms.sum(axis=1) - math.log(math.comb(code.h, code.m)), -np.inf)


def rectify(encoded: ArrayLike, code: MultiBit) -> Matrix:
    """Return the unbiased estimate s H* + (alpha + beta) / 2 of the rows. Post-processing."""
    return code.scale * _received(encoded, code) + code.middle


def naive_squared_distances(rows: ArrayLike) -> Matrix:
    """Return |r_u - r_v|^2 between all rows, (n, n), as [JC] (3) squared. Post-processing.

    Of rectified rows it is biased: too large by v_u + v_v off the diagonal, with
    v_u = m s^2 - |x_u - middle|^2, as |H*_u|^2 is always m.
    """
    r = np.asarray(rows, dtype=np.float64)
    return _distances(np.einsum("ij,ij->i", r, r), r @ r.T)


def double_squared_distances(first: ArrayLike, second: ArrayLike, half: MultiBit) -> Matrix:
    """Return unbiased |x_u - x_v|^2 from two independent encodings, (n, n). Post-processing.

    With A, B = s H* of the two, E[A_u . B_u] = |x_u - middle|^2, and for u != v any product of a
    row of u and a row of v has the mean (x_u - middle) . (x_v - middle); the mean of all four is
    taken. The middle drops out of a difference. Entries can be negative: that is the price of no
    bias.

    Parameters
    ----------
    first, second : (n, h) from `encode_twice`
    half : the code of each, ``code.halved()``
    """
    a, b = _received(first, half), _received(second, half)
    squares = half.scale**2 * np.einsum("ij,ij->i", a, b)
    mean = (a + b) * (half.scale / 2.0)
    return _distances(squares, mean @ mean.T)


def simplex_squared_distances(encoded: ArrayLike, code: MultiBit) -> Matrix:
    """Return unbiased |x_u - x_v|^2 from one encoding of rows that sum to one. Post-processing.

    With y = x - 1/h the sum of a row is zero, so |y|^2 = -sum_{j != i} y_j y_i (|h|^2 = 1 -
    sum h_j h_i, centred) needs products of different coordinates only. Let W_j = s H*_j +
    (h / m)(middle - 1/h) where j is chosen, and 0 elsewhere: E[W_j] = y_j, and E[W_j | chosen] =
    (h / m) y_j. Both of a pair are chosen with probability m (m - 1) / (h (h - 1)), and given that
    their bits are independent, so for j != i

        E[W_j W_i] = m (m - 1) / (h (h - 1)) (h / m)^2 y_j y_i = h (m - 1) / (m (h - 1)) y_j y_i,
        |y|^2 ~ -m (h - 1) / (h (m - 1)) ((sum_j W_j)^2 - sum_j W_j^2).

    Any centre is unbiased; at 1/h the sum has mean zero and its square is least noisy. For u != v
    the product W_u . W_v is unbiased as it is. Entries can be negative. Not checked, as the
    receiver cannot: that the rows sum to one; if they do not, this is biased.
    """
    if code.m < 2:
        raise ValueError(
            f"m={code.m}: products of two coordinates need m >= 2, eps_row={code.eps_row} is too "
            "small for it or m was set; use double_squared_distances"
        )
    bits = _received(encoded, code)
    h, m = code.h, code.m
    w = code.scale * bits + (h / m) * (code.middle - 1.0 / h) * np.abs(bits)
    squares = np.einsum("ij,ij->i", w, w)
    squares = m * (h - 1) / (h * (m - 1)) * (squares - w.sum(axis=1) ** 2)
    return _distances(squares, w @ w.T)


def _distances(squares: NDArray[np.float64], products: Matrix) -> Matrix:
    distances = squares[:, None] + squares[None, :] - 2.0 * products
    np.fill_diagonal(distances, 0.0)  # the product of a row with itself is not one of two nodes
    return distances


def _flip(bit_budget: float) -> float:
    """Return 1 / (e^b + 1), without overflow."""
    return math.exp(-bit_budget) / (1.0 + math.exp(-bit_budget))


def _flip_threshold(bit_budget: float) -> float:
    """Return t with P[u < t] >= 1 / (e^b + 1) for u = k 2^-53 and for u = (k + 1/2) 2^-53."""
    return _flip(bit_budget) + 2.0**-52


def _unit(values: ArrayLike, code: MultiBit) -> Matrix:
    x = np.asarray(values, dtype=np.float64)
    if x.ndim != 2 or x.shape[1] != code.h:
        raise ValueError(f"values: shape {x.shape}, (n, h={code.h}) is needed")
    unit = (x - code.alpha) / (code.beta - code.alpha)
    outside = ~((unit >= -_SLACK) & (unit <= 1.0 + _SLACK))  # also nan
    if outside.any():
        i, j = (int(k) for k in np.argwhere(outside)[0])
        raise ValueError(
            f"values[{i}, {j}] = {x[i, j]}: outside [alpha={code.alpha}, beta={code.beta}]; "
            "clip first"
        )
    return np.clip(unit, 0.0, 1.0)


def _received(encoded: ArrayLike, code: MultiBit) -> Matrix:
    bits = np.asarray(encoded, dtype=np.float64)
    if bits.ndim != 2 or bits.shape[1] != code.h:
        raise ValueError(f"encoded: shape {bits.shape}, (n, h={code.h}) is needed")
    wrong = np.flatnonzero(
        (bits**2 != np.abs(bits)).any(axis=1) | ((bits**2).sum(axis=1) != code.m)
    )
    if wrong.size:
        raise ValueError(f"encoded: row {wrong[0]} is not m={code.m} signs and zeros")
    return bits
