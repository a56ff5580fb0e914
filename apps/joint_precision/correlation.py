"""Latent correlations of a client's variables, and what the solver needs of their matrix.

X : (n, p) holds n samples whose margins are unknown monotone transforms of a Gaussian vector's
(nonparanormal). The correlation matrix S of that vector is estimated from ranks,

    S = sin(pi/2 tau)      tau : Kendall's, (p, p)        (8)
    S = 2 sin(pi/6 rho)    rho : Spearman's, (p, p)

or, where the margins are Gaussian, as Pearson's correlation. Both sines leave the cone of positive
semidefinite matrices where n is not much larger than p, and the joint problem (9) may then have no
minimum: `to_positive_semidefinite` leads back.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from trellis.privacy.numerics import lapack, rankdata
from trellis.strategies.joint_precision.blocks import mirror

from .kendall import checked_table, kendall

Vector = NDArray[np.float64]
Matrix = NDArray[np.float64]

KINDS = ("kendall", "spearman", "pearson")


def correlation(X: ArrayLike, kind: str, columns: Sequence[str] | None = None) -> Matrix:
    """Return the latent correlations (p, p) between the columns of ``X`` (n, p).

    Parameters
    ----------
    X : finite numbers, no column constant
    kind : ``kendall``, ``spearman`` or ``pearson``
    columns : the names of the columns, for messages

    Raises
    ------
    ValueError
        For data that has no correlation; the message names row and column.
    """
    if kind == "kendall":
        return _latent(latent_from_tau(kendall(X, columns=columns)))
    if kind == "spearman":
        return _latent(latent_from_spearman(spearman(X, columns)))
    if kind == "pearson":
        return pearson(X, columns)
    raise ValueError(f"correlation={kind!r}: choose one of {', '.join(KINDS)}")


def correlation_from_tau(tau: Matrix) -> Matrix:
    """Return S = sin(pi/2 tau) (8), symmetric with unit diagonal, from the upper triangle of tau.

    Noise may carry an entry of tau out of [-1, 1]; it is clipped.
    """
    if not np.isfinite(tau).all():
        row, column = np.argwhere(~np.isfinite(tau))[0]
        raise ValueError(f"tau[{row}, {column}] = {tau[row, column]}: every entry must be finite")
    return _latent(latent_from_tau(tau.copy()))


def latent_from_tau(tau: Matrix) -> Matrix:
    """Return sin(pi/2 tau) (8), written over ``tau``, whose entries are clipped to [-1, 1]."""
    np.clip(tau, -1.0, 1.0, out=tau)
    tau *= np.pi / 2.0
    return np.sin(tau, out=tau)


def latent_from_spearman(rho: Matrix) -> Matrix:
    """Return 2 sin(pi/6 rho), written over ``rho``."""
    rho *= np.pi / 6.0
    np.sin(rho, out=rho)
    rho *= 2.0
    return rho


def _latent(matrix: Matrix) -> Matrix:
    """Return the correlation matrix with this upper triangle, written over the matrix."""
    mirror(matrix)
    matrix += 0.0  # no negative zeros
    np.fill_diagonal(matrix, 1.0)
    return matrix


def pearson(X: ArrayLike, columns: Sequence[str] | None = None) -> Matrix:
    """Return Pearson's correlations (p, p) between the columns of ``X`` (n, p)."""
    return _cosines(cosine_factors(X, "pearson", columns))


def spearman(X: ArrayLike, columns: Sequence[str] | None = None) -> Matrix:
    """Return Spearman's rank correlations (p, p): Pearson's of the ranks, ties at their mean."""
    return _cosines(cosine_factors(X, "spearman", columns))


def _cosines(values: Matrix) -> Matrix:
    cosines = values.T @ values
    np.clip(cosines, -1.0, 1.0, out=cosines)
    np.fill_diagonal(cosines, 1.0)
    return cosines


def cosine_factors(X: ArrayLike, kind: str, columns: Sequence[str] | None = None) -> Matrix:
    """Return the columns of ``X`` (n, p), or their ranks, centred and of norm 1.

    The cosines between them are Pearson's correlations, or Spearman's.
    """
    table = checked_table(X, columns)
    values = rankdata(table) if kind == "spearman" else table.astype(np.float64)
    # To size one first, lest a sum or a square leave the range of floating point.
    values /= np.abs(values).max(axis=0)
    values -= values.mean(axis=0)
    norms = np.linalg.norm(values, axis=0)
    if not norms.all():
        column = int(np.argmin(norms))
        name = (range(len(norms)) if columns is None else columns)[column]
        raise ValueError(f"column {name!r}: constant to floating point; leave it out")
    values /= norms
    return values


def to_positive_semidefinite(S: Matrix, floor: float = 0.0) -> tuple[Matrix, float]:
    """Return a positive semidefinite correlation matrix near ``S``, and S's smallest eigenvalue.

    Eigenvalues below ``floor`` are raised to it, which enlarges the diagonal, and the diagonal is
    scaled back to 1, so in the end the smallest may be a little below ``floor``. Where S is
    positive semidefinite already, to rounding, it is returned itself.
    """
    if floor < 0.0:
        raise ValueError(f"floor={floor}: must be >= 0")
    values, vectors = symmetric_eigen(S)
    smallest = float(values[0])
    if smallest >= -len(S) * np.finfo(np.float64).eps * float(values[-1]):
        return S, smallest
    low = values < floor
    lift = vectors[:, low] * np.sqrt(floor - values[low])
    del vectors
    raised = lift @ lift.T
    del lift
    raised += S
    scale = 1.0 / np.sqrt(np.diagonal(raised))
    for row, factor in zip(raised, scale, strict=True):
        row *= factor * scale
    return _latent(raised), smallest


def symmetric_eigen(
    matrix: Matrix, overwrite: bool = False, again: Callable[[], Matrix] | None = None
) -> tuple[Vector, Matrix]:
    """Return the eigenvalues (p,), ascending, and eigenvectors (p, p), as columns.

    Divide and conquer (``evd``), the quickest in LAPACK, fails on a few harmless matrices, which
    then go to ``evr``. A failure destroys both triangles, so one copy of the matrix is kept; with
    ``overwrite`` the vectors are written over ``matrix``, and the copy is given up. With ``again``,
    which makes the matrix once more where it is needed, there is no copy.

    Raises
    ------
    ValueError
        Where an entry of ``matrix`` is not finite.
    """
    # A symmetric matrix is its own transpose, and LAPACK wants the order of columns.
    a = matrix if matrix.flags.f_contiguous else matrix.T
    kept = matrix.copy() if overwrite and again is None else matrix
    values, vectors, failed = lapack().dsyevd(a, compute_v=1, lower=1, overwrite_a=overwrite)
    if failed or not (np.isfinite(values).all() and np.isfinite(vectors.sum())):
        del vectors
        kept = again() if overwrite and again is not None else kept
        if not np.isfinite(kept).all():
            row, column = np.argwhere(~np.isfinite(kept))[0]
            raise ValueError(f"matrix[{row}, {column}] = {kept[row, column]}: not finite")
        from scipy.linalg import eigh

        values, vectors = eigh(kept, driver="evr", check_finite=False)
    return values, vectors
