"""The study's problems, stated once more for a general convex solver."""

from __future__ import annotations

import cvxpy as cp
import numpy as np

TIGHT = {
    "solver": cp.CLARABEL,
    "tol_gap_abs": 1e-11,
    "tol_gap_rel": 1e-11,
    "tol_feas": 1e-11,
    "tol_ktratio": 1e-9,
    # By its default of .99 it stalls far from these tolerances on some processors.
    "max_step_fraction": 0.9,
}


def incidence(d: int) -> np.ndarray:
    a, b = np.triu_indices(d, 1)
    matrix = np.zeros((d, a.size))
    matrix[a, np.arange(a.size)] = matrix[b, np.arange(a.size)] = 1.0
    return matrix


def own_part(w, z, alpha, beta):
    d = round((1 + np.sqrt(1 + 8 * z.size)) / 2)
    return 2 * z @ w - alpha * cp.sum(cp.log(incidence(d) @ w)) + 2 * beta * cp.sum_squares(w)


def local(z, alpha, beta, pull=0.0, consensus=None):
    """Solve (13); return (w, value)."""
    w = cp.Variable(z.size, nonneg=True)
    value = own_part(w, z, alpha, beta)
    if consensus is not None:
        value += pull / 2 * cp.sum_squares(w - consensus)
    problem = cp.Problem(cp.Minimize(value))
    problem.solve(**TIGHT)
    return w.value, problem.value


def joint(zs, alpha, beta, rho, lambda_, gamma=None):
    """Solve (8), or (12) where ``gamma`` is given; return (weights, consensus, value)."""
    p = zs[0].size
    ws = [cp.Variable(p, nonneg=True) for _ in zs]
    consensus = cp.Variable(p)
    value = sum(own_part(w, z, alpha, beta) for w, z in zip(ws, zs, strict=True))
    if gamma is None:
        value += rho * sum(cp.norm(w - consensus, 2) for w in ws)
    else:
        value += sum(
            rho * g / 2 * cp.sum_squares(w - consensus) for g, w in zip(gamma, ws, strict=True)
        )
    value += lambda_ * cp.norm(consensus, 1)
    problem = cp.Problem(cp.Minimize(value))
    problem.solve(**TIGHT)
    return np.array([w.value for w in ws]), consensus.value, problem.value
