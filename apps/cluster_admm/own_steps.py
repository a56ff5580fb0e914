"""A client's primal step (4) with a loss of a user's own [GG].

    w_k = argmin_w  1/D sum_i l(w; x_i, y_i) + c/2 |w|^2 - <v, w>,    c = 2 share ridge + rho

by Newton's method with backtracking where the class has a ``hessian``, else by L-BFGS. Both start
at v / c, the solution without data, so that a client that restarts finds the same bits. c > 0 makes
it strongly convex wherever the loss is convex.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike

from trellis.apps.server_graph.losses import Loss

from .losses import own_loss
from .problem import Array, Tables, step_length
from .steps import GRADIENT_TOLERANCE, Places, checked, curvature

_NEWTON_STEPS = 100
_ROUNDING = 1e-14  # of the terms of a gradient
# L-BFGS ends where the objective's last bits are all that changes: half of a float's digits.
_ENOUGH = 1e-7
_OPTIONS = {"maxiter": 10_000, "maxfun": 50_000, "ftol": 0.0, "gtol": 1e-12, "maxcor": 30}


class OwnSteps:
    """The primal steps of several clients, each by itself; see `steps.RidgeSteps`.

    Parameters
    ----------
    name : the class, as the setting ``loss`` names it
    """

    def __init__(
        self, name: str, tables: Tables, ridge: float, shares: ArrayLike, rho: float
    ) -> None:
        self._tables = [(X, y, np.full(checked(X, y), 1.0 / len(y))) for X, y in tables]
        self._loss = own_loss(name, tables[0][0].shape[1])
        given = np.asarray(shares, dtype=np.float64).tolist()
        self._c = [curvature(ridge, share, rho) for share in given]

    def solve(self, v: Array, clients: Places | None = None) -> Array:
        """Return the w_k (n, d) of ``clients`` (n,), all by default, for their v (n, d)."""
        who = range(len(self._c)) if clients is None else clients.tolist()
        found = []
        for k, row in zip(who, v, strict=True):
            (X, y, weights), c = self._tables[k], self._c[k]
            found.append(minimiser(self._loss, X, y, weights, c, row, row / c))
        return np.array(found)


def minimiser(
    loss: Loss, X: Array, y: Array, weights: Array, c: float, v: Array, start: Array
) -> Array:
    """Return argmin sum_i weights_i l(w; x_i, y_i) + c/2 |w|^2 - <v, w>.

    Raises
    ------
    ArithmeticError
        Where the method does not end, as for a loss that is not convex; names the class.
    ValueError
        Where the class returns another shape, or what is no finite number.
    """
    name = type(loss).__name__

    def value(w: Array) -> float:
        losses = np.asarray(loss.loss(w, X, y), dtype=np.float64)
        if losses.shape != y.shape:
            raise ValueError(
                f"{name}.loss has shape {losses.shape}; one number a sample, {y.shape}"
            )
        return float(weights @ losses) + 0.5 * c * float(w @ w) - float(v @ w)

    def slope(w: Array) -> Array:
        rows = np.asarray(loss.gradients(w, X, y), dtype=np.float64)
        if rows.shape != X.shape:
            raise ValueError(f"{name}.gradients has shape {rows.shape}; {X.shape} is needed")
        found = weights @ rows + c * w - v
        if not np.isfinite(found).all():
            raise ValueError(f"{name}.gradients is not finite at |w| = {np.linalg.norm(w):.3g}")
        return np.asarray(found)

    hessian: Callable[..., Array] | None = getattr(loss, "hessian", None)
    if hessian is None:
        return _by_lbfgs(value, slope, start, name)
    return _by_newton(value, slope, lambda w: _curved(hessian(w, X, y, weights), c), start, name)


def _curved(H: Array, c: float) -> Array:
    return np.asarray(H + c * np.eye(len(H)))


def _by_newton(
    value: Callable[[Array], float],
    slope: Callable[[Array], Array],
    hessian: Callable[[Array], Array],
    w: Array,
    name: str,
) -> Array:
    for _ in range(_NEWTON_STEPS):
        g = slope(w)
        H = hessian(w)
        norm = float(np.linalg.norm(g))
        scale = float(np.linalg.norm(H)) * float(np.linalg.norm(w))
        if norm <= max(GRADIENT_TOLERANCE, _ROUNDING * scale):
            return w
        move: Array = np.asarray(np.linalg.solve(H, -g), dtype=np.float64)
        w = w + step_length(value, w, move, float(g @ move)) * move
    raise ArithmeticError(_stuck(name, "Newton's method", norm, w))


def _by_lbfgs(
    value: Callable[[Array], float], slope: Callable[[Array], Array], w: Array, name: str
) -> Array:
    from scipy.optimize import minimize  # here: no other loss needs it

    found = np.asarray(
        minimize(value, w, jac=slope, method="L-BFGS-B", options=_OPTIONS).x, dtype=np.float64
    )
    norm = float(np.linalg.norm(slope(found)))
    if norm > _ENOUGH * (1.0 + float(np.linalg.norm(found))):
        raise ArithmeticError(_stuck(name, "L-BFGS", norm, found))
    return found


def _stuck(name: str, method: str, norm: float, w: Array) -> str:
    return (
        f"the step (4) with {name} did not converge by {method}: gradient {norm:.3g} at |w| = "
        f"{np.linalg.norm(w):.3g}. The loss must be convex and its gradients right; features of "
        "about 1 and a larger rho help"
    )
