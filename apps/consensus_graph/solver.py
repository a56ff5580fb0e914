"""Two solvers of the local problem (13), both without a constant to tune.

`solve` works on the dual, which has one variable a node instead of one an edge. Write
q = 2 zbar - pull w_con and c = 4 beta + pull. With a multiplier y > 0 on v = S w,

    w(y) = max(0, S'y - q) / c,
    D(y) = sum_a [alpha - alpha log(alpha / y_a)] - (c / 2) |w(y)|^2,

and (13) is max_y D(y), up to the constant (pull / 2) |w_con|^2. D is concave with gradient
alpha / y - S w(y) and generalised Hessian -(diag(alpha / y^2) + S_A S_A' / c), A the edges with
w(y) > 0, so Newton's method with a line search needs a handful of d x d Cholesky factorisations.
With u = y * S w(y) / alpha, the duality gap is alpha sum_a (u_a - 1 - log u_a): a certificate that
costs nothing, scale-free, and the stopping rule.

`accelerated_steps` is the paper's (14)-(16): projected gradient with momentum, K steps, from a
given start. The paper's fixed step diverges on one data scale and stalls on another, and an
extrapolated graph may lose all edges of a node, where the logarithm blows up. Here every step is
backtracked until the quadratic model bounds the objective, and momentum is dropped where the
extrapolated point has a degree <= 0 or the objective rose, so it never leaves the domain. A start
outside it, as the noisy last step (27) of the round before may leave, is joined up first.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from trellis.privacy.numerics import lapack

from .problem import (
    Vector,
    adjacency,
    degrees,
    edge_vector,
    gradient,
    local_objective,
    node_count,
    spread,
)

_MOMENTUM = 0.9  # xi in (14)
_EASY_KAPPA = 1e5
_LARGEST_KAPPA = 1e16
_STAGE_FACTOR = 30.0
_STAGE_TOLERANCE = 1e-3


@dataclass(frozen=True)
class LocalSolution:
    """A solution of (13): the graph, and how far its objective is from the optimum at most."""

    w: Vector
    gap: float
    iterations: int


def solve(
    z: Vector,
    alpha: float,
    beta: float,
    pull: float = 0.0,
    consensus: Vector | None = None,
    *,
    tolerance: float = 1e-12,
    max_iterations: int = 200,
) -> LocalSolution:
    """Solve (13) to a duality gap of ``tolerance`` per node, relative to alpha.

    Parameters
    ----------
    z : (p,) mean squared differences; may be noisy, negative entries are allowed
    alpha, beta : > 0
    pull : >= 0, rho * gamma_i
    consensus : (p,) w_con; needed where ``pull`` > 0
    """
    d = node_count(z.size)
    curvature = 4.0 * beta + pull
    if not curvature > 0.0:
        raise ValueError(f"beta={beta} with pull={pull} leaves (13) unbounded; use beta > 0")
    slopes = 2.0 * z if consensus is None else 2.0 * z - pull * consensus
    linear = adjacency(slopes)
    np.fill_diagonal(linear, np.inf)  # no self-loops
    iterations, y = 0, None
    for stage in _stages(slopes, alpha, curvature):
        dual = _DualProblem(linear, alpha, stage)
        point = dual.at(_start(z, alpha, stage, pull, consensus, d) if y is None else y)
        enough = tolerance if stage == curvature else _STAGE_TOLERANCE
        point, steps = _newton(dual, point, enough * alpha * d, max_iterations)
        iterations, y = iterations + steps, point.y
    return LocalSolution(edge_vector(point.weights), point.gap, iterations)


def _stages(slopes: Vector, alpha: float, curvature: float) -> list[float]:
    """Return the curvatures to solve for, one after the other, the wanted one last.

    How hard (13) is depends on kappa = (2 zbar)^2 / (alpha c) alone. Far from 1, as for data in
    large units, it is close to a linear programme and Newton's method stalls on the kinks of D; it
    does not where each problem starts from the solution of one a little smoother. The rounding
    error of w(y) grows as kappa: the gap is below 1e-8 of the objective up to 1e10, and measured
    below 1e-3 of it up to 3e15.
    """
    size = float(np.mean(np.abs(slopes)))
    kappa = (size / alpha) * (size / curvature)
    if not kappa < _LARGEST_KAPPA:
        raise FloatingPointError(
            f"squared differences of size {0.5 * size:.3g} are too large for a ridge of "
            f"{curvature:.3g}, no digit of the graph would be right: rescale the data, or raise "
            "beta with the square of their size"
        )
    smooth = size * size / (alpha * _EASY_KAPPA)
    stages = [curvature]
    while stages[-1] < smooth:
        stages.append(stages[-1] * _STAGE_FACTOR)
    return stages[::-1]


def _newton(
    dual: _DualProblem, point: _DualPoint, enough: float, most: int
) -> tuple[_DualPoint, int]:
    """Maximise D until the gap is ``enough``; return the last point and the number of steps."""
    rounding = 1e-9 * dual.alpha * point.y.size
    for iteration in range(most):
        if point.gap <= enough:
            return point, iteration
        step = dual.newton_step(point)
        # y must stay positive: go at most 0.95 of the way to the boundary.
        shrink = np.min(step / point.y)
        length = 1.0 if shrink > -0.95 else -0.95 / shrink
        slope = float(np.sum(step * point.residual))
        trial = dual.at(point.y + length * step)
        while trial.value < point.value + 1e-4 * length * slope - 1e-14 * abs(point.value):
            length *= 0.5
            if length < 1e-12:
                return point, iteration
            trial = dual.at(point.y + length * step)
        if trial.gap >= point.gap and (trial.gap < rounding or slope < rounding):
            return point, iteration  # rounding error is all that is left
        point = trial
    return point, most


@dataclass(frozen=True)
class _DualPoint:
    y: Vector
    weights: NDArray[np.float64]  # (d, d) w(y)
    residual: Vector  # alpha / y - S w(y), the gradient of D
    value: float
    gap: float


class _DualProblem:
    """The dual function of (13), on d x d matrices: dense, contiguous, no scatter."""

    def __init__(self, linear: NDArray[np.float64], alpha: float, curvature: float) -> None:
        self.linear = linear
        self.alpha = alpha
        self.curvature = curvature

    def at(self, y: Vector) -> _DualPoint:
        weights = y[:, None] + y[None, :]
        weights -= self.linear
        np.maximum(weights, 0.0, out=weights)
        weights /= self.curvature
        degree = weights.sum(axis=1)
        alpha = self.alpha
        value = alpha * float(np.sum(1.0 + np.log(y / alpha)))
        # Every edge stands twice in the matrix.
        value -= 0.25 * self.curvature * float(np.sum(weights * weights))
        if degree.min() > 0.0:
            u = y * degree / alpha
            gap = alpha * float(np.sum(u - 1.0 - np.log(u)))
        else:
            gap = float("inf")
        return _DualPoint(y, weights, alpha / y - degree, value, gap)

    def newton_step(self, point: _DualPoint) -> Vector:
        hessian = np.multiply(point.weights > 0.0, 1.0 / self.curvature)
        diagonal = self.alpha / point.y**2 + hessian.sum(axis=1)
        hessian.flat[:: hessian.shape[0] + 1] = diagonal
        # LAPACK's Cholesky solver itself: for small graphs its wrappers take longer than it does.
        _, step, failed = lapack().dposv(hessian, point.residual, overwrite_a=True)
        if failed:
            raise FloatingPointError(
                "the Hessian of (13) is not positive definite: alpha, beta or the data are of "
                "extreme size"
            )
        return np.asarray(step, dtype=np.float64)


def _start(
    z: Vector, alpha: float, curvature: float, pull: float, consensus: Vector | None, d: int
) -> Vector:
    """Return a dual start y = alpha / degree, from the consensus where it has degrees.

    Otherwise from the best complete graph with equal weights, which has a closed form. It depends
    on nothing but the problem, so a client that lost its memory computes the same bits.
    """
    # Minimise (p zbar) t + (c p / 2) t^2 - alpha d log((d - 1) t) over the common weight t.
    p = z.size
    slope = 2.0 * float(np.sum(z)) / p
    if consensus is not None:
        slope -= pull * float(np.sum(consensus)) / p
    root = np.sqrt(slope * slope + 8.0 * curvature * alpha / (d - 1))
    # The positive root of c t^2 + slope t = 2 alpha / (d - 1), in the form that does not cancel.
    if slope > 0.0:
        level = 4.0 * alpha / (d - 1) / (slope + root)
    else:
        level = (root - slope) / (2.0 * curvature)
    degree = np.full(d, (d - 1) * level)
    if consensus is not None and pull > 0.0:
        degree = np.maximum(degrees(consensus, d), 0.1 * degree)
    return alpha / degree


def accelerated_steps(
    start: Vector,
    z: Vector,
    alpha: float,
    beta: float,
    pull: float,
    consensus: Vector,
    steps: int,
    *,
    previous: Vector | None = None,
    last_gradient_noise: Vector | None = None,
    step: float = 0.0,
    restart: bool = True,
) -> tuple[Vector, Vector]:
    """Run ``steps`` accelerated projected gradient steps (14)-(16) on (13).

    Parameters
    ----------
    start, previous : (p,) the graph to start from and the one before it (momentum); ``previous``
        defaults to ``start``
    last_gradient_noise : (p,) added to the gradient of the last step, as in (26); that step is
        taken as it falls, with the step length the noise-free gradient earned
    step : longest step, eta_w in (15); 0 lets every step be as long as the objective allows
    restart : whether to forget the momentum where the objective has risen; False is (14) as printed

    Returns
    -------
    The last two graphs, the newer first.
    """
    d = node_count(start.size)
    w, before = start, start if previous is None else previous
    if degrees(w, d).min() <= 0.0:
        w = before = _joined(w, d)
    value = local_objective(w, z, alpha, beta, pull, consensus)
    # Curvature along the gradient at the start: a first guess the backtracking corrects.
    lipschitz = 4.0 * beta + pull + 2.0 * alpha * (d - 1) / max(degrees(w, d).max(), 1e-12) ** 2
    if step > 0.0:
        lipschitz = 1.0 / step
    floor = lipschitz if step > 0.0 else 0.0
    for k in range(steps):
        ahead = w + _MOMENTUM * (w - before)  # (14)
        if degrees(ahead, d).min() <= 0.0:
            ahead = w  # restart: the logarithm is undefined there
        slope = gradient(ahead, z, alpha, beta) + pull * (ahead - consensus)
        reference = local_objective(ahead, z, alpha, beta, pull, consensus)
        while True:
            trial = np.maximum(ahead - slope / lipschitz, 0.0)  # (15), (16)
            move = trial - ahead
            bound = reference + float(np.sum(slope * move))
            bound += 0.5 * lipschitz * float(np.sum(move * move))
            trial_value = local_objective(trial, z, alpha, beta, pull, consensus)
            if trial_value <= bound + 1e-12 * abs(bound):
                break
            lipschitz *= 2.0
        if last_gradient_noise is not None and k == steps - 1:
            noisy = np.maximum(ahead - (slope + last_gradient_noise) / lipschitz, 0.0)  # (26), (27)
            return noisy, w
        # A rise of the objective means that the momentum overshot.
        before = trial if restart and trial_value > value else w
        w, value = trial, trial_value
        lipschitz = max(0.9 * lipschitz, floor)
    return w, before


def _joined(w: Vector, d: int) -> Vector:
    """Return w with small weights on the edges of nodes that have none: the logarithm needs some.

    Small beside the graph, so that it says nothing, and not so small that steps shrink to nothing.
    """
    alone = (degrees(w, d) <= 0.0).astype(np.float64)
    small = 1e-3 * float(w.max()) if w.max() > 0.0 else 1.0 / d
    return np.where(spread(alone) > 0.0, np.maximum(w, small), w)
