"""One client's part of the joint problem [TMS]: its own step, and its terms of the certificate.

    Omega = argmin -log det Omega + <Omega, S> + r/2 |Omega - T|^2                            (12)
    r = rho / w_i,  T = Psi - U

The optimality condition Omega^-1 - r Omega = S - r T (13) shares eigenvectors, so with
S - r T = V diag(D) V' the solution is V diag(f(D)) V', f the positive root of 1/f - r f = D (14).

Who knows T, r and Omega knows S = Omega^-1 - r (Omega - T): see `recover_correlation`.

Shapes: S (p, p) with unit diagonal; what travels is packed (m,) by `Blocks`.

Memory of a step with one block, in matrices of p^2 doubles: S 1, Psi and T packed 1, S - r T 1 (the
eigenvectors are written over it), LAPACK's workspace 2: 5 in all, where Omega is written when the
workspace is free again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from trellis.privacy.numerics import LinAlgError, cholesky
from trellis.strategies.joint_precision.blocks import Blocks

from .correlation import symmetric_eigen

Matrix = NDArray[np.float64]
Vector = NDArray[np.float64]


@dataclass(frozen=True)
class LocalStep:
    """A client's Omega (m,), and its terms of the certificate: see `Splitting.gap`."""

    omega: Vector
    loss: float
    log_det: float


class LocalProblem:
    """A client's correlation matrix, cut into the blocks of the joint problem."""

    def __init__(self, correlation: Matrix, blocks: Blocks) -> None:
        self.blocks = blocks
        self.parts = blocks.cut(correlation)

    @classmethod
    def packed(cls, correlation: Vector, blocks: Blocks) -> LocalProblem:
        """Return the problem of a matrix (m,) that is cut and packed already."""
        made = cls.__new__(cls)
        made.blocks = blocks
        made.parts = [blocks.block(correlation, number) for number in range(len(blocks.members))]
        return made

    def step(self, psi: Vector, point: Vector, ratio: float, certify: bool = True) -> LocalStep:
        """Return (14) from T = ``point``, and the certificate's terms at Psi and U = Psi - T.

        Without ``certify`` the terms are infinite, which certifies nothing.
        """
        omega = np.empty_like(psi)
        # A variable by itself has S = Psi = 1: loss 1 and log det 0.
        loss, log_det = float(self.blocks.alone.size), 0.0
        for number, s in enumerate(self.parts):
            if certify:
                block_loss, block_log_det = self._terms(number, s, psi, point, ratio)
                loss += block_loss
                log_det += block_log_det
            shifted = partial(self._shifted, number, s, point, ratio)
            start, stop = self.blocks.starts[number : number + 2]
            omega[start:stop] = self.blocks.upper(
                omega_update(shifted(), ratio, again=shifted), number
            )
        if not certify:
            loss, log_det = np.inf, -np.inf
        return LocalStep(omega, loss, log_det)

    def _shifted(self, number: int, s: Matrix, point: Vector, ratio: float) -> Matrix:
        """Return S - r T of one block."""
        target = self.blocks.block(point, number)
        target *= ratio
        return np.subtract(s, target, out=target)

    def _terms(
        self, number: int, s: Matrix, psi: Vector, point: Vector, ratio: float
    ) -> tuple[float, float]:
        """Return one block's terms of the certificate."""
        matrix = self.blocks.block(psi, number)
        loss = smooth_loss(matrix, s)
        matrix -= self.blocks.block(point, number)
        matrix *= ratio
        matrix += s
        return loss, log_determinant(matrix, overwrite=True)


def omega_update(matrix: Matrix, ratio: float, again: Callable[[], Matrix] | None = None) -> Matrix:
    """Return (14): the solution of Omega^-1 - r Omega = ``matrix`` (which is overwritten).

    ``again`` makes the matrix once more, see `symmetric_eigen`.
    """
    d, vectors = symmetric_eigen(matrix, overwrite=True, again=again)
    root = np.sqrt(d * d + 4.0 * ratio)
    # Two forms of one formula, each without cancellation where it is used.
    f = np.where(d > 0.0, 2.0 / (root + np.abs(d)), (root - d) / (2.0 * ratio))
    vectors *= np.sqrt(f)
    return vectors @ vectors.T


def smooth_loss(omega: Matrix, correlation: Matrix) -> float:
    """Return -log det Omega + <Omega, S>; infinite where Omega is not positive definite."""
    return float(np.vdot(omega, correlation)) - log_determinant(omega)


def log_determinant(matrix: Matrix, overwrite: bool = False) -> float:
    """Return log det of a symmetric matrix; -infinite where it is not positive definite."""
    try:
        # A symmetric matrix is its own transpose, which is in the order that LAPACK wants.
        factor = cholesky(matrix.T, overwrite=overwrite)
    except LinAlgError:
        return -np.inf
    return 2.0 * float(np.sum(np.log(np.diagonal(factor))))


def partial_correlations(precision: Matrix) -> Matrix:
    """Return -Omega_jk / sqrt(Omega_jj Omega_kk) for matrices (..., p, p), 1 on the diagonal."""
    scale = 1.0 / np.sqrt(np.maximum(np.diagonal(precision, axis1=-2, axis2=-1), 1e-300))
    partial = -precision * scale[..., :, None] * scale[..., None, :]
    index = np.arange(precision.shape[-1])
    partial[..., index, index] = 1.0
    return partial + 0.0  # no negative zeros


def recover_correlation(omega: Matrix, point: Matrix, ratio: float) -> Matrix:
    """Return S from one message: what the server can do where nothing is noised, from (13)."""
    return np.linalg.inv(omega) - ratio * (omega - point)


def step_of(
    correlation: Vector, blocks: Blocks, psi: Vector, point: Vector, ratio: float, certify: bool
) -> LocalStep:
    """Return the step of a client whose S (m,) is known, as `LocalProblem.step` takes it."""
    return LocalProblem.packed(correlation, blocks).step(psi, point, ratio, certify)
