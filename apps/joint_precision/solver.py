"""The joint problem (9) with all correlation matrices in one place, and of one client alone.

The same steps as in the federation, in one loop: the reference that the federated result is
compared with, the method ``pooled``, and, with one matrix, what a client does alone (``glasso``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from trellis.strategies.joint_precision.blocks import Blocks
from trellis.strategies.joint_precision.prox import PENALTIES, Penalty, connected, weighted_penalty
from trellis.strategies.joint_precision.splitting import Splitting

from .clime import clime_path
from .config import JointPrecisionConfig
from .problem import LocalProblem, smooth_loss

Matrix = NDArray[np.float64]
Vector = NDArray[np.float64]


@dataclass(frozen=True)
class JointSolution:
    """The matrices of K clients at one lambda.

    Attributes
    ----------
    precision : (K, p, p) Omega, positive definite
    sparse : (K, p, p) Psi, with exact zeros: the graphs
    losses : (K,) -log det Psi_i + <Psi_i, S_i>
    gap : certified distance from the smallest objective
    rounds : steps taken
    """

    precision: Matrix
    sparse: Matrix
    losses: Vector
    objective: float
    gap: float
    rounds: int


@dataclass(frozen=True)
class PackedSolution:
    """The same with matrices as `Blocks` packs them: ``omega`` and ``psi`` (K, m)."""

    blocks: Blocks
    omega: Matrix
    psi: Matrix
    losses: Vector
    objective: float
    gap: float
    rounds: int

    def dense(self) -> JointSolution:
        """Return the whole matrices."""
        return JointSolution(
            precision=self.blocks.unpack(self.omega),
            sparse=self.blocks.unpack(self.psi),
            losses=self.losses,
            objective=self.objective,
            gap=self.gap,
            rounds=self.rounds,
        )


def solve_joint(
    correlations: Matrix,
    lambda1: float,
    lambda2: float,
    penalty: str = "group",
    *,
    weights: Vector | None = None,
    rho: float = 1.0,
    tolerance: float = 1e-6,
    rounds: int = 1000,
    screening: bool = True,
) -> JointSolution:
    """Minimise (9) over K precision matrices.

    Parameters
    ----------
    correlations : (K, p, p), positive semidefinite with unit diagonals
    lambda1, lambda2, penalty : see `trellis.strategies.joint_precision.prox`
    weights : (K,) w_i; equal by default
    tolerance : stop at this duality gap; 0 takes all rounds
    screening : solve unconnected blocks of variables by themselves
    """
    path = solve_path(
        correlations,
        [(lambda1, lambda2)],
        penalty,
        weights=weights,
        rho=rho,
        tolerance=tolerance,
        rounds=rounds,
        screening=screening,
    )
    return path[0]


def solve_path(
    correlations: Matrix,
    points: Sequence[tuple[float, float]],
    penalty: str = "group",
    *,
    weights: Vector | None = None,
    rho: float = 1.0,
    tolerance: float = 1e-6,
    rounds: int = 1000,
    screening: bool = True,
) -> list[JointSolution]:
    """Solve the joint problem at several (lambda1, lambda2), each from the last one's solution."""
    count, p, _ = correlations.shape
    w = np.ones(count) if weights is None else np.asarray(weights, dtype=np.float64)
    rule = PENALTIES[penalty]
    blocks = Blocks.whole(p)
    if screening:
        blocks = screened_blocks(correlations, w, rule, points)
    problems = [LocalProblem(s, blocks) for s in correlations]
    split = Splitting(blocks, w, rule, rho)
    found = []
    for lambda1, lambda2 in points:
        split.penalise(lambda1, lambda2)
        found.append(iterate(split, problems, tolerance, rounds).dense())
    return found


def solve_weighted_path(
    correlation: Matrix,
    weights: Matrix,
    lambdas: Sequence[float],
    *,
    rho: float = 1.0,
    tolerance: float = 1e-6,
    rounds: int = 1000,
) -> list[JointSolution]:
    """Solve one client's graphical lasso with a penalty of its own on every pair.

        min -log det Omega + <Omega, S> + lambda sum_{j != k} weights_jk |Omega_jk|

    at every lambda, each from the last one's solution, to a certified gap. Pairs are screened as
    without weights: the solution's blocks are the components of |S_jk| > lambda weights_jk (the
    conditions of optimality hold pair by pair).

    Parameters
    ----------
    correlation : (p, p) positive semidefinite with unit diagonal
    weights : (p, p) symmetric, >= 0; the diagonal is not penalised
    lambdas : (L,) > 0
    """
    p = len(correlation)
    rows, columns = np.triu_indices(p, 1)
    least = min(lambdas) * weights[rows, columns]
    linked = np.abs(correlation[rows, columns]) > least
    blocks = Blocks.components(p, rows[linked], columns[linked])
    rule = weighted_penalty(blocks.pack(weights), blocks.off_diagonal)
    split = Splitting(blocks, np.ones(1), rule, rho)
    problems = [LocalProblem(correlation, blocks)]
    found = []
    for lambda_ in lambdas:
        split.penalise(float(lambda_), 0.0)
        found.append(iterate(split, problems, tolerance, rounds).dense())
    return found


def screened_blocks(
    correlations: Matrix, weights: Vector, penalty: Penalty, points: Sequence[tuple[float, float]]
) -> Blocks:
    """Return the finest blocks that hold at every point, by the exact joint rules."""
    p = correlations.shape[-1]
    rows, columns = np.triu_indices(p, 1)
    weighted = weights[:, None] * correlations[:, rows, columns]
    linked = np.zeros(rows.size, dtype=bool)
    for lambda1, lambda2 in points:
        linked |= connected(weighted, penalty, lambda1, lambda2)
    return Blocks.components(p, rows[linked], columns[linked])


def iterate(
    split: Splitting, problems: Sequence[LocalProblem], tolerance: float, rounds: int
) -> PackedSolution:
    """Step until the certified gap is at most ``tolerance`` or ``rounds`` are used up."""
    for step in range(1, rounds + 1):
        certify = step == rounds or split.worth_certifying(tolerance)
        steps = [
            problem.step(split.psi[i], split.point(i), split.ratio(i), certify)
            for i, problem in enumerate(problems)
        ]
        losses = np.array([found.loss for found in steps])
        gap = split.gap(losses, np.array([found.log_det for found in steps]))
        omegas = {i: found.omega for i, found in enumerate(steps)}
        if (tolerance > 0.0 and gap <= tolerance) or step == rounds:
            break
        split.advance(omegas)
    return PackedSolution(
        blocks=split.blocks,
        omega=np.array([omegas[i] for i in range(len(problems))]),
        psi=split.psi.copy(),
        losses=losses,
        objective=split.objective(losses),
        gap=gap,
        rounds=step,
    )


def glasso_alone(
    config: JointPrecisionConfig, correlation: Matrix, lambdas: Vector
) -> dict[str, Vector]:
    """Return one client's graphical lasso at every lambda1.

    Returns
    -------
    ``psi``, ``omega`` (L, m) packed with one block; ``losses``, ``gaps`` (L,)
    """
    whole = Blocks.whole(len(correlation))
    path = solve_path(
        correlation[None],
        [(float(lambda_), 0.0) for lambda_ in lambdas],
        rho=config.rho,
        tolerance=config.tolerance,
        rounds=config.rounds,
        screening=config.screening,
    )
    return {
        "psi": np.array([whole.pack(point.sparse[0]) for point in path]),
        "omega": np.array([whole.pack(point.precision[0]) for point in path]),
        "losses": np.array([point.losses[0] for point in path]),
        "gaps": np.array([point.gap for point in path]),
    }


def clime_alone(correlation: Matrix, lambdas: Vector) -> dict[str, Vector]:
    """Return one client's CLIME at every lambda1, as `glasso_alone`.

    It has no gap, and no loss where it is not positive definite.
    """
    whole = Blocks.whole(len(correlation))
    found = clime_path(correlation, lambdas.tolist())
    psi = np.array([whole.pack(matrix) for matrix in found])
    losses = np.array([smooth_loss(matrix, correlation) for matrix in found])
    return {"psi": psi, "omega": psi, "losses": losses, "gaps": np.full(len(lambdas), np.nan)}
