"""Graph-homomorphic perturbations: noise between servers that cancels over the network.

Server m draws g_m once a round and perturbs what it sends to server p by         [RS]_ (24)

    g_mp = g_m                            to every other server,
    g_mm = -(1 - a_mm) / a_mm g_m         in its own combination,

so that sum_p sum_m a_mp g_mp = 0 [RS] (25): the mean of the servers' models is free of noise
whatever its size. Each single server's model is not: it carries sum_m a_mp (g_m - g_p).

Adversary: a server that is a neighbour of m and sees psi_m + g_m, or several that compare what m
sent them (it is the same). Neighbours: the data of one client of m replaced; epsilon follows from
the law and scale of g_m (`privacy.mechanisms.laplace`, with the l1 sensitivity of psi_m), which the
caller draws. Not covered:

- server m itself, which sees psi_m and its own noise, and m's clients against it (that is what
  secure aggregation is for);
- **a neighbour that also learns w_m**, m's combined model, when everything else that went into it
  is known, e.g. all of m's neighbours together with any one of m's clients, to whom w_m is sent.
  They hold psi_m + g_m and a_mm psi_m - (1 - a_mm) g_m: two equations that give psi_m exactly.
  The structure that cancels the noise for the network cancels it for them;
- what adds up over rounds: a draw protects one round's psi.

.. [RS] E. Rizk, A. H. Sayed, A graph federated architecture with privacy preserving learning.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from trellis.privacy.components import matrix_components

Matrix = NDArray[np.float64]


def check_combination_matrix(combination: ArrayLike, tolerance: float = 1e-9) -> float:
    """Refuse a matrix that is not symmetric, doubly stochastic, connected, with a_mm > 0.

    Not a mechanism: no adversary and no neighbours. It is Assumption 1 of [RS], without which (25)
    is false and the servers do not agree. Metropolis weights and I - eps Laplacian pass; plain
    averages over neighbourhoods do not, unless the graph is regular.

    Parameters
    ----------
    combination : (P, P), a_mp the weight of server m at server p
    tolerance : for symmetry and row sums, absolute

    Returns
    -------
    float
        lambda_2, the second largest modulus of an eigenvalue: the rate at which servers agree.

    Raises
    ------
    ValueError
        Naming the first entry or row that is wrong, or the components of a disconnected graph.
    """
    a = np.asarray(combination, dtype=np.float64)
    if a.ndim != 2 or a.shape[0] != a.shape[1] or a.size == 0:
        raise ValueError(f"combination matrix: shape {a.shape}, a square matrix is needed")
    _refuse_entry(a, ~np.isfinite(a), "is not finite")
    _refuse_entry(a, a < 0.0, "is negative")
    wrong = np.abs(a - a.T) > tolerance
    if wrong.any():
        m, p = (int(i) for i in np.argwhere(wrong)[0])
        what = " (plain averages over neighbourhoods)" if _averages(a, tolerance) else ""
        raise ValueError(
            f"combination matrix{what}: not symmetric, a[{m}, {p}] = {a[m, p]:.6g} but "
            f"a[{p}, {m}] = {a[p, m]:.6g}; use Metropolis weights"
        )
    off = np.abs(a.sum(axis=1) - 1.0)
    if off.max() > tolerance:
        m = int(off.argmax())
        advice = "was it rounded? Keep 17 digits, or " if off.max() < 1e-2 else ""
        raise ValueError(
            f"combination matrix: row {m} sums to {a[m].sum():.9g}, not 1; {advice}use Metropolis "
            f"weights"
        )
    diagonal = np.diagonal(a)
    if diagonal.min() <= 0.0:
        m = int(diagonal.argmin())
        raise ValueError(f"combination matrix: a[{m}, {m}] = 0, a server must weigh its own model")
    moduli = np.sort(np.abs(np.linalg.eigvalsh(a)))
    rate = float(moduli[-2]) if len(moduli) > 1 else 0.0
    # The graph decides, not the rounding of an eigenvalue near one (a long ring has one).
    label = matrix_components(a > 0.0)
    if label.any():
        far = int(np.flatnonzero(label)[0])
        raise ValueError(
            f"combination matrix: {label.max() + 1} components (lambda_2 = {rate:.6g}), no path "
            f"leads from server 0 to server {far}"
        )
    return rate


def homomorphic_noise(combination: ArrayLike, draws: ArrayLike) -> Matrix:
    """Return what server m adds to the message for server p, [RS] (24).

    Adversary, neighbours and what is not covered: see the module.

    Parameters
    ----------
    combination : (P, P), refused unless `check_combination_matrix` accepts it
    draws : (P, M), row m the private draw g_m of server m

    Returns
    -------
    Matrix
        (P, P, M), entry [m, p] is g_mp; zero where a_mp = 0, as nothing is sent there.
    """
    a, g = _checked(combination, draws)
    noise = np.where((a > 0.0)[:, :, None], g[:, None, :], 0.0)
    index = np.arange(len(a))
    noise[index, index] = _own_factor(a)[:, None] * g  # (24), m = p
    return noise


def combined_noise(combination: ArrayLike, draws: ArrayLike) -> Matrix:
    """Return sum_m a_mp g_mp for every server p, (P, M), without the (P, P, M) messages.

    It is (A' - I) g, since a_pp g_pp = -(1 - a_pp) g_p; its rows sum to zero, [RS] (25). This is
    the noise that a run's result carries; adversary and what is not covered: see the module.
    """
    a, g = _checked(combination, draws)
    own = np.diagonal(a) * (_own_factor(a) - 1.0)
    return a.T @ g + own[:, None] * g


def network_sum(combination: ArrayLike, noise: Matrix) -> NDArray[np.float64]:
    """Return sum_p sum_m a_mp g_mp, (M,): zero up to rounding, [RS] (25). A check, not a release.

    No adversary and no neighbours: nobody in the network sees all of ``noise``.
    """
    return np.einsum("mp,mpi->i", np.asarray(combination, dtype=np.float64), noise)


def _own_factor(a: Matrix) -> NDArray[np.float64]:
    """Return -(1 - a_mm) / a_mm, with 1 - a_mm as the sum of the other weights.

    The two are equal for a doubly stochastic matrix; a row sum that is off by the tolerance would
    leave noise in (25), the sum itself does not.
    """
    diagonal = np.diagonal(a)
    others = np.where(np.eye(len(a), dtype=bool), 0.0, a).sum(axis=1)
    return -others / diagonal


def _checked(combination: ArrayLike, draws: ArrayLike) -> tuple[Matrix, Matrix]:
    check_combination_matrix(combination)
    a = np.asarray(combination, dtype=np.float64)
    g = np.asarray(draws, dtype=np.float64)
    if g.ndim != 2 or len(g) != len(a):
        raise ValueError(f"draws: shape {g.shape}, one row for each of {len(a)} servers is needed")
    return a, g


def _averages(a: Matrix, tolerance: float) -> bool:
    """Return whether every column, or every row, has equal weights that sum to one."""
    equal = (a > 0.0) / np.maximum(np.count_nonzero(a > 0.0, axis=0), 1)
    by_row = ((a > 0.0).T / np.maximum(np.count_nonzero(a > 0.0, axis=1), 1)).T
    return bool(min(np.abs(a - equal).max(), np.abs(a - by_row).max()) <= tolerance)


def _refuse_entry(a: Matrix, wrong: NDArray[np.bool_], how: str) -> None:
    if wrong.any():
        m, p = (int(i) for i in np.argwhere(wrong)[0])
        raise ValueError(f"combination matrix: a[{m}, {p}] = {a[m, p]} {how}")
