"""CLIME, the precision matrix of one client by linear programmes (Cai, Liu and Luo 2011).

min |Omega|_1  s.t.  |S Omega - I|_inf <= lambda                                             (20)

falls apart into one programme a column, min |beta|_1 s.t. |S beta - e_j|_inf <= lambda (21), whose
dual is max y_j - lambda |y|_1 s.t. |S y|_inf <= 1. S : (p, p) symmetric; lambda > 0.

The columns' solutions are not symmetric. The paper's (22) keeps of Omega_ij and Omega_ji the one of
larger magnitude, and zero where the two are equal. Cai et al. keep the smaller, for which their
error bound holds, and that is done here: an edge is where both are nonzero.

At lambda = 1 the solution is 0. From there lambda falls, and the parametric simplex method (Pang,
Liu and Vanderbei 2014) follows the vertex: one pivot wherever beta or a slack reaches its end, so
that one descent solves a whole path of lambdas. It keeps a dictionary a column,

    basic (p,) = T (p, p) nonbasic (p,),

at first z = S beta. Nonbasic beta are 0, nonbasic z at an end of their interval e_j +- lambda. Some
columns descend together, to share the cost of each numpy call. Whatever comes out is certified by
feasibility and the duality gap; HiGHS solves again what fails.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

Matrix = NDArray[np.float64]
Vector = NDArray[np.float64]
Indices = NDArray[np.int64]

_log = logging.getLogger("trellis.clime")

_CERTIFIED = 1e-8  # violation of constraints, and duality gap relative to 1 + |beta|_1
_SLOPE = 1e-13
_PIVOT = 1e-11
_PIVOTS_A_VARIABLE = 20  # 9 were seen at p = 108, n = 150, lambda = 0.02
_BATCH_ENTRIES = 250_000  # of T; more fall out of the cache


class ClimeError(RuntimeError):
    """A column's linear programme that has no solution, or that was not solved."""


def clime(correlation: Matrix, lambda_: float) -> Matrix:
    """Return the CLIME estimate (p, p), symmetric, of the inverse of ``correlation`` (p, p).

    Raises
    ------
    ClimeError
        With the column and the solver's status. For a singular S there is a smallest lambda, below
        which nothing is feasible.
    """
    return clime_path(correlation, [lambda_])[0]


def clime_path(correlation: Matrix, lambdas: Sequence[float] | Vector) -> Matrix:
    """Return the estimates (L, p, p) for all of ``lambdas``, in any order, in one descent."""
    return symmetrised(clime_columns(correlation, lambdas))


def clime_columns(correlation: Matrix, lambdas: Sequence[float] | Vector) -> Matrix:
    """Return the solutions of (21) for every lambda and column, (L, p, p), not symmetric."""
    S = np.asarray(correlation, dtype=np.float64)
    if S.ndim != 2 or S.shape[0] != S.shape[1] or not np.all(np.isfinite(S)):
        raise ValueError(f"correlation {S.shape}: a square matrix of finite numbers is needed")
    path = np.asarray(lambdas, dtype=np.float64)
    if path.size == 0 or not np.all(path > 0.0):
        raise ValueError(f"lambda={lambdas}: must be > 0")
    p = len(S)
    falling = np.argsort(-path)
    beta = np.zeros((path.size, p, p))
    y = np.zeros((path.size, p, p))
    size = max(1, _BATCH_ENTRIES // max(1, p * p))
    for first in range(0, p, size):
        batch = np.arange(first, min(first + size, p))
        _descend(S, batch, path[falling], beta, y)
    unsure = np.argwhere(~_certified(S, path[falling], beta, y))
    if unsure.size:
        _log.debug("CLIME: %d of %d programmes solved again by HiGHS", len(unsure), path.size * p)
    for point, column in unsure:
        beta[point, :, column] = solve_column(S, int(column), float(path[falling][point]))
    ordered = np.empty_like(beta)
    ordered[falling] = beta
    return ordered


def symmetrised(columns: Matrix) -> Matrix:
    """Return ``columns`` (..., p, p) with the smaller magnitude of each pair; (22), corrected."""
    across = np.swapaxes(columns, -1, -2)
    upper = np.triu(np.where(np.abs(columns) <= np.abs(across), columns, across))
    return upper + np.swapaxes(np.triu(upper, 1), -1, -2)


def solve_column(correlation: Matrix, column: int, lambda_: float) -> Vector:
    """Return the solution (p,) of (21) by HiGHS."""
    from scipy.optimize import Bounds, LinearConstraint, milp

    p = len(correlation)
    unit = np.zeros(p)
    unit[column] = 1.0
    # beta = u - v with u, v >= 0. Two-sided rows make half the model that linprog's would be, and
    # milp without integers is HiGHS' linear solver. On a dense model presolve only costs time.
    answer = milp(
        np.ones(2 * p),
        bounds=Bounds(0.0, np.inf),
        constraints=LinearConstraint(
            np.hstack([correlation, -correlation]), unit - lambda_, unit + lambda_
        ),
        options={"presolve": False},
    )
    if answer.x is None or answer.status != 0:
        raise ClimeError(
            f"CLIME, column {column} of {p}, lambda={lambda_:g}: status {answer.status}, "
            f"{answer.message}; use a larger lambda"
        )
    solution: Vector = answer.x[:p] - answer.x[p:]
    return solution


def _certified(S: Matrix, path: Vector, beta: Matrix, y: Matrix) -> NDArray[np.bool_]:
    """Return (L, p), which columns are feasible with their dual ``y`` (L, p, p) and optimal."""
    primal = np.max(np.abs(S @ beta - np.eye(len(S))), axis=1) - path[:, None]
    dual = np.max(np.abs(S @ y), axis=1) - 1.0
    norm = np.sum(np.abs(beta), axis=1)
    gap = norm - (np.diagonal(y, axis1=1, axis2=2) - path[:, None] * np.sum(np.abs(y), axis=1))
    worst = np.maximum(np.maximum(primal, dual), np.abs(gap) / (1.0 + norm))
    return worst <= _CERTIFIED


@dataclass
class _Batch:
    """The dictionaries of m columns; every field but the first and last is (m, p).

    Variables 0..p-1 are beta, p..2p-1 are z. Slopes are by the fall of lambda.
    """

    column: Indices  # (m,) which column of Omega
    basic: Indices
    value: Vector
    slope: Vector
    sign: Vector  # of a basic beta; 0 for a basic z
    centre: Vector  # e_j of a basic z; 0 for a basic beta
    nonbasic: Indices
    end: Vector  # +-1, the end at which a nonbasic z is; 0 for a nonbasic beta
    gradient: Vector  # of |beta|_1 by the nonbasic variables
    T: Matrix  # (m, p, p)

    def keep(self, which: NDArray[np.bool_]) -> None:
        for field in fields(self):
            setattr(self, field.name, getattr(self, field.name)[which])


def _descend(S: Matrix, batch: Indices, path: Vector, beta: Matrix, y: Matrix) -> None:
    """Write primal and dual solutions of the columns ``batch`` for the falling ``path``.

    A column that ends early (nothing feasible below, or too many pivots) is left at 0.
    """
    p, m = len(S), len(batch)
    zeros = np.zeros((m, p))
    state = _Batch(
        column=batch,
        basic=np.tile(np.arange(p, 2 * p), (m, 1)),
        value=zeros.copy(),
        slope=zeros.copy(),
        sign=zeros.copy(),
        centre=np.eye(p)[batch],
        nonbasic=np.tile(np.arange(p), (m, 1)),
        end=zeros.copy(),
        gradient=zeros.copy(),
        T=np.repeat(S[None], m, axis=0),
    )
    now = np.ones(m)  # lambda, of every column
    point = np.full(m, np.count_nonzero(path >= 1.0))  # of the path, next to be written
    until = np.append(path, -np.inf)
    for _ in range(_PIVOTS_A_VARIABLE * p):
        going = point < path.size
        if not np.all(going):
            state.keep(going)
            now, point = now[going], point[going]
        if now.size == 0:
            return
        row, fall, side = _first_event(state, now)
        while np.any(due := (point < path.size) & (now - fall <= until[point])):
            _write(state, np.flatnonzero(due), now, path, point, beta, y)
            point[due] += 1
        rest = (point < path.size) & np.isfinite(fall)
        state.value += state.slope * np.where(rest, fall, 0.0)[:, None]
        now = np.where(rest, now - fall, now)
        feasible = _pivot(state, rest, row, side, now)
        point[~feasible] = path.size


def _write(
    state: _Batch, due: Indices, now: Vector, path: Vector, point: Indices, beta: Matrix, y: Matrix
) -> None:
    p = state.value.shape[1]
    for i in due:
        value = state.value[i] + state.slope[i] * (now[i] - path[point[i]])
        is_beta, is_z = state.sign[i] != 0.0, state.end[i] != 0.0
        beta[point[i], state.basic[i, is_beta], state.column[i]] = value[is_beta]
        y[point[i], state.nonbasic[i, is_z] - p, state.column[i]] = state.gradient[i, is_z]


def _first_event(state: _Batch, now: Vector) -> tuple[Indices, Vector, Vector]:
    """Return which basic variable (m,) reaches its end first, after what fall, on which side."""
    off = state.value - state.centre
    slope, sign = state.slope, state.sign
    with np.errstate(divide="ignore", invalid="ignore"):
        zero = np.where(
            sign * slope < -_SLOPE, np.maximum(off * sign, 0.0) / -(sign * slope), np.inf
        )
        upper = np.where(
            1.0 + slope > _SLOPE, np.maximum(now[:, None] - off, 0.0) / (1.0 + slope), np.inf
        )
        lower = np.where(
            1.0 - slope > _SLOPE, np.maximum(now[:, None] + off, 0.0) / (1.0 - slope), np.inf
        )
    fall = np.where(sign == 0.0, np.minimum(upper, lower), zero)
    row = np.argmin(fall, axis=1)
    k = np.arange(len(row))
    side = np.where(upper[k, row] <= lower[k, row], 1.0, -1.0)
    return row, fall[k, row], np.where(sign[k, row] == 0.0, side, -sign[k, row])


def _pivot(
    state: _Batch, rest: NDArray[np.bool_], row: Indices, side: Vector, now: Vector
) -> NDArray[np.bool_]:
    """Exchange basic variable ``row`` for a nonbasic one, where ``rest``; return where it could.

    The multiplier of the basic variable grows until a nonbasic beta's gradient reaches -1 or 1, or
    that of a nonbasic z reaches 0. A beta whose own reaches 2 first just changes its sign.
    """
    k = np.arange(len(row))
    push = side[:, None] * state.T[k, row]
    end, gradient = state.end, state.gradient
    with np.errstate(divide="ignore", invalid="ignore"):
        for_beta = np.where(
            np.abs(push) > _PIVOT,
            np.maximum(1.0 - np.sign(push) * gradient, 0.0) / np.abs(push),
            np.inf,
        )
        for_z = np.where(
            end * push > _PIVOT, np.maximum(-end * gradient, 0.0) / (end * push), np.inf
        )
    ratio = np.where(end == 0.0, for_beta, for_z)
    entering = np.argmin(ratio, axis=1)
    was_sign = state.sign[k, row]
    multiplier = np.where(was_sign != 0.0, np.minimum(ratio[k, entering], 2.0), ratio[k, entering])
    feasible = rest & np.isfinite(multiplier)
    state.gradient += np.where(feasible, multiplier, 0.0)[:, None] * np.where(
        feasible[:, None], push, 0.0
    )
    turns = feasible & (was_sign != 0.0) & (ratio[k, entering] >= 2.0)
    state.sign[turns, row[turns]] *= -1.0
    _exchange(state, np.flatnonzero(feasible & ~turns), row, entering, side, multiplier, now)
    return feasible | ~rest


def _exchange(
    state: _Batch,
    a: Indices,
    row: Indices,
    entering: Indices,
    side: Vector,
    multiplier: Vector,
    now: Vector,
) -> None:
    """Exchange the basic variables ``row`` and the nonbasic ``entering`` of the columns ``a``."""
    p = state.value.shape[1]
    r, c, side, multiplier, n = row[a], entering[a], side[a], multiplier[a], np.arange(a.size)
    T = state.T if a.size == len(state.T) else state.T[a]
    line, column = T[n, r].copy(), T[n, :, c].copy()
    pivot = line[n, c]
    was_sign, was_end = state.sign[a, r], state.end[a, c]
    leaves_beta, enters_beta = was_sign != 0.0, was_end == 0.0
    # e_j of the entering z: its own variable is j.
    centre = np.where(state.nonbasic[a, c] - p == state.column[a], 1.0, 0.0)
    pinned = np.where(leaves_beta, 0.0, -side)
    change = (pinned - state.slope[a, r]) / pivot
    state.slope[a] += column * change[:, None]
    state.slope[a, r] = -was_end + change
    state.value[a, r] = np.where(enters_beta, 0.0, centre + was_end * now[a])
    state.sign[a, r] = np.where(enters_beta, -np.sign(state.gradient[a, c]), 0.0)
    state.centre[a, r] = np.where(enters_beta, 0.0, centre)
    state.end[a, c] = np.where(leaves_beta, 0.0, side)
    state.gradient[a, c] = -multiplier * side - was_sign
    state.basic[a, r], state.nonbasic[a, c] = state.nonbasic[a, c], state.basic[a, r]
    line /= -pivot[:, None]
    line[n, c] = 1.0 / pivot
    column[n, r] = 0.0
    T[n, :, c] = 0.0
    T += column[:, :, None] * line[:, None, :]
    T[n, r] = line
    if T is not state.T:
        state.T[a] = T
