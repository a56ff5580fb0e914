"""Smooth-signal graph learning on one client's data [ZW]_.

A client holds N signals on d nodes, X : (N, d). Its graph is w >= 0 : (p,), the upper triangle of
the adjacency matrix in ``numpy.triu_indices(d, 1)`` order, p = d (d - 1) / 2. The client's part of
the joint problem (8), with the consensus w_con and its weight rho * gamma_i held fixed, is (13):

    min_{w >= 0}  2 zbar'w - alpha 1'log(S w) + 2 beta |w|^2 + (pull / 2) |w - w_con|^2

=========  ===========  ================================================================
symbol     argument     meaning
=========  ===========  ================================================================
zbar       ``z``        (p,) mean over signals of the squared differences (x_a - x_b)^2
alpha      ``alpha``    > 0, weight of the log barrier on the degrees
beta       ``beta``     > 0, ridge: larger means more, smaller weights
S w        `degrees`    (d,) node degrees; S is never built
rho gamma  ``pull``     >= 0, how hard the consensus pulls; 0 is learning alone
=========  ===========  ================================================================

The data enters through ``zbar`` only, which is what makes one noisy release enough
(``privacy = "dp"``).

.. [ZW] X. Zhang, Q. Wang, Graph topology learning under privacy constraints.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float64]
Matrix = NDArray[np.float64]

# Signals are clipped and summed this many entries at a time, so memory does not grow with N.
_BLOCK_ENTRIES = 1 << 20
# What is left of a constant signal when its mean is taken out, by rounding; of a largest entry 1.
_CONSTANT = 1e-13


@lru_cache(maxsize=16)
def edge_ends(d: int) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Return the two end points (p,), (p,) of every edge of a graph with ``d`` nodes."""
    return np.triu_indices(d, 1)


def edge_count(d: int) -> int:
    """Return p, the number of node pairs among ``d`` nodes."""
    return d * (d - 1) // 2


def node_count(p: int) -> int:
    """Return d for a vector of p = d (d - 1) / 2 edge weights."""
    d = (1 + round(float(np.sqrt(1 + 8 * p)))) // 2
    if edge_count(d) != p:
        raise ValueError(f"{p} is not a number of node pairs d (d - 1) / 2; the vector is cut")
    return d


def adjacency(w: Vector) -> Matrix:
    """Return the symmetric (d, d) matrix whose upper triangle is ``w``."""
    d = node_count(w.size)
    matrix = np.zeros((d, d))
    matrix[edge_ends(d)] = w
    return matrix + matrix.T


def edge_vector(matrix: Matrix) -> Vector:
    """Return the upper triangle (p,) of a (d, d) matrix."""
    return np.ascontiguousarray(matrix[edge_ends(matrix.shape[0])])


def degrees(w: Vector, d: int) -> Vector:
    """Return S w, the node degrees (d,)."""
    a, b = edge_ends(d)
    # bincount of float weights is float64, whatever its stubs say.
    return np.asarray(np.bincount(a, w, d) + np.bincount(b, w, d), dtype=np.float64)


def spread(v: Vector) -> Vector:
    """Return S'v (p,): the sum of the values ``v`` (d,) at the two ends of every edge."""
    a, b = edge_ends(v.size)
    return v[a] + v[b]


def statistic(signals: Matrix, clip: float | None = None) -> Vector:
    """Return zbar (p,), the mean over signals of the (clipped) pairwise squared differences.

    With ``clip`` = C every signal's vector z_n is scaled to norm at most C first (Sec. IV-D), so
    one signal moves zbar by at most sqrt(2) C / N. No z_n is ever formed: its norm follows from
    four power sums of the centred signal, and the weighted mean from one d x d product,

        |z_n|^2 = d m4 - 4 m1 m3 + 3 m2^2,   zbar_ab = (G_aa + G_bb - 2 G_ab) / N,

    with m_k = sum_a x_a^k and G = sum_n c_n x_n x_n'. Memory is O(d^2), time O(N d^2) in one GEMM.
    With ``clip`` the bound holds for all signals, those included whose powers are no floats and
    those that are constant but for rounding (see `clipped_signals`).
    """
    count, d = signals.shape
    gram = np.zeros((d, d))
    rows = max(1, _BLOCK_ENTRIES // d)
    for start in range(0, count, rows):
        block = np.asarray(signals[start : start + rows], dtype=np.float64)
        # Differences do not see a signal's mean; taking it out avoids cancellation in G.
        block = block - _means(block) if clip is None else clipped_signals(block, clip)
        gram += block.T @ block
    diagonal = np.diagonal(gram)
    z = edge_vector(diagonal[:, None] + diagonal[None, :] - 2.0 * gram) / count
    return np.maximum(z, 0.0)


def clipped_signals(block: Matrix, clip: float) -> Matrix:
    """Return the signals, centred and scaled to squared differences of norm ``clip`` at most.

    With x = 2^k u (`centred_units`) the vector of squared differences of x is 4^k that of u, so the
    signal to return is min(2^k, sqrt(clip / |z(u)|)) u.
    """
    unit, exponent = centred_units(block)
    norms = _distance_norms(unit)
    with np.errstate(over="ignore"):  # 2^1024 is no float, and never the smaller of the two
        scale = np.minimum(
            np.ldexp(1.0, exponent), np.sqrt(clip / np.where(norms > 0.0, norms, 1.0))
        )
    return np.asarray(unit * scale[:, None])


def centred_units(block: Matrix) -> tuple[Matrix, NDArray[np.int32]]:
    """Return u (N, d) and k (N,) with x = 2^k u of the signals x (N, d) without their means.

    Before the mean is taken out, the largest |u_a| is between 1/2 and 1, exactly: powers of u
    neither over- nor underflow, whatever the size of a signal. What is then left of a constant
    signal is the rounding of its mean, which is 0 here; a signal that is not finite counts as 0.
    """
    largest = np.max(np.abs(block), axis=1, initial=0.0)
    if not np.all(np.isfinite(largest)):
        block = np.where(np.isfinite(largest)[:, None], block, 0.0)
        largest = np.where(np.isfinite(largest), largest, 0.0)
    exponent = np.frexp(largest)[1]
    unit = np.ldexp(block, -exponent[:, None])
    for _ in range(2):  # the second takes out what rounding left of the mean
        unit -= _means(unit)
    unit[np.sum(unit * unit, axis=1) <= _CONSTANT**2] = 0.0
    return unit, exponent


def _means(block: Matrix) -> Matrix:
    return np.asarray(block.mean(axis=1, keepdims=True), dtype=np.float64)


def _distance_norms(centred: Matrix) -> Vector:
    """Return |z_n| (rows,), the norm of every signal's vector of squared differences.

    Never less than 2 |x_n|^2, which bounds |z_n| from below where the mean is exactly 0: so
    rounding cannot make a signal look shorter than it is.
    """
    squares = centred * centred
    m1 = centred.sum(axis=1)
    m2 = squares.sum(axis=1)
    m3 = (squares * centred).sum(axis=1)
    m4 = (squares * squares).sum(axis=1)
    d = centred.shape[1]
    return np.sqrt(np.maximum(d * m4 - 4.0 * m1 * m3 + 3.0 * m2 * m2, 4.0 * m2 * m2))


def sensitivity(clip: float, count: int) -> float:
    """Return how far zbar moves (l2) when one of ``count`` signals is replaced by another.

    Two non-negative vectors of norm at most C are at most sqrt(2) C apart, attained when
    orthogonal; the paper's C is too small.
    """
    return float(np.sqrt(2.0) * clip / count)


def objective(w: Vector, z: Vector, alpha: float, beta: float) -> float:
    """Return g_i(w), the client's part of (8); infinite where a node has no edge."""
    degree = degrees(w, node_count(w.size))
    if degree.min() <= 0.0:
        return float("inf")
    # Sums, not BLAS dot products: their bits do not depend on the number of threads.
    return float(2.0 * np.sum(z * w) - alpha * np.sum(np.log(degree)) + 2.0 * beta * np.sum(w * w))


def local_objective(
    w: Vector, z: Vector, alpha: float, beta: float, pull: float, consensus: Vector
) -> float:
    """Return the objective of (13): `objective` plus the pull towards the consensus."""
    gap = w - consensus
    return objective(w, z, alpha, beta) + 0.5 * pull * float(np.sum(gap * gap))


def gradient(w: Vector, z: Vector, alpha: float, beta: float) -> Vector:
    """Return the gradient of `objective` at a graph with positive degrees."""
    return 2.0 * z - alpha * spread(1.0 / degrees(w, node_count(w.size))) + 4.0 * beta * w


def recover_statistic(
    w: Vector, pull: float, consensus: Vector, alpha: float, beta: float
) -> Vector:
    """Return zbar from a solution w of (13): what whoever receives a graph knows of its client.

    Exact on the edges with w > 0; on the others the true zbar is this or more.
    """
    return -0.5 * (gradient(w, np.zeros_like(w), alpha, beta) + pull * (w - consensus))
