"""One model a cluster of clients: what is minimised, and a client's part of it [GG].

    w_q = argmin_w  sum_{k in cluster q} 1/D_k sum_i l(w; x_{k,i}, y_{k,i}) + ridge |w|^2    (1)

at tau = 0, with l = (y - x'w)^2 (``ridge``, (49)) or log(1 + exp(-y x'w)) of labels -1 and +1
(``logistic``, (51)). A client's primal step, for the v = phi_k + rho w_{s,q} it is sent:

    w_k = argmin_w  1/D sum_i l(w; x_i, y_i) + share ridge |w|^2 - <v, w> + rho/2 |w|^2      (4)

Its quadratic part is c/2 |w|^2 with c = 2 share ridge + rho. For ``ridge`` this is

    (2/D X'X + c I) w = 2/D X'y + v,

one matrix for all rounds. Clients have fewer samples than features (D < d), where

    (c I + U'U)^-1 g = (g - U' (c I + U U')^-1 U g) / c           (Woodbury), U : (D, d)

needs a D x D Cholesky factor and O(D d) a round; else the d x d one is kept.

    D samples of d features: X : (D, d)   y : (D,)   w, v : (d,)
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve, solve_triangular
from scipy.special import expit

Array = NDArray[np.float64]
Tables = Sequence[tuple[Array, Array]]

# Of a logistic step. What the clients of a cluster leave adds up; models are to be right to 1e-8.
GRADIENT_TOLERANCE = 1e-10
_MOST_STEPS = 200
_MOST_LOGISTIC_STEPS = 50
_HALVINGS = 60


class RidgeStep:
    """The primal step (4) of squared errors, factorised once for its data, rho and share.

    Parameters
    ----------
    X, y : the client's samples
    ridge, share : R(w) = ridge |w|^2, of which this client has ``share``
    rho : > 0, of the augmented Lagrangian
    """

    def __init__(self, X: Array, y: Array, ridge: float, share: float, rho: float) -> None:
        count = _checked(X, y)
        self._solve = _shifted(math.sqrt(2.0 / count) * X, _curvature(ridge, share, rho))
        self._target = (2.0 / count) * (X.T @ y)

    def solve(self, v: Array) -> Array:
        """Return w_k (d,) for v = phi_k + rho w_{s,q}."""
        return self._solve(self._target + v)


class LogisticStep:
    """The primal step (4) of the logistic loss, by Newton's method; see `RidgeStep`.

    ``y`` holds labels -1 and +1, or 0 and 1.
    """

    def __init__(self, X: Array, y: Array, ridge: float, share: float, rho: float) -> None:
        self._count = _checked(X, y)
        self._signed = _labels(y)[:, None] * X
        self._c = _curvature(ridge, share, rho)

    def solve(self, v: Array, start: Array | None = None) -> Array:
        """Return w_k (d,), where the gradient's norm is at most 1e-10, or its rounding.

        Newton's method with backtracking from ``start`` (v / c, the solution without data, where
        absent). Features of size 1000 give the loss kinks that Newton's steps creep along: then
        t log(1 + exp(-m / t)) is minimised for t falling to 1, each from the last solution.
        """
        w = v / self._c if start is None else np.array(start, dtype=np.float64)
        found, left = self._newton(v, w, 1.0)
        if not left:
            return found
        t = max(1.0, float(np.max(np.sum(self._signed**2, axis=1))) / self._c)
        w = v / self._c
        while t > 1.0:
            w, _ = self._newton(v, w, t)
            t *= 0.3
        w, left = self._newton(v, w, 1.0)
        if left:
            raise ArithmeticError(
                f"the logistic step did not converge: gradient {left:.3g} at |w| = "
                f"{np.linalg.norm(w):.3g}, |v| = {np.linalg.norm(v):.3g}; scale the features to "
                "about 1"
            )
        return w

    def _newton(self, v: Array, w: Array, t: float) -> tuple[Array, float]:
        """Return where Newton's method ends with margins divided by t, and 0 or the gradient."""
        Z, c, count = self._signed, self._c, self._count
        lengths = np.linalg.norm(Z, axis=1)

        def value(w: Array) -> float:
            losses = t * float(np.logaddexp(0.0, -(Z @ w) / t).sum()) / count
            return losses + 0.5 * c * float(w @ w) - float(v @ w)

        norm = math.inf
        for _ in range(_MOST_LOGISTIC_STEPS):
            margin = (Z @ w) / t
            chance = expit(-margin)
            curved = expit(margin) * chance / (count * t)
            g = c * w - v - (chance @ Z) / count
            norm, size = float(np.linalg.norm(g)), float(np.linalg.norm(w))
            # No gradient is better than the rounding of its terms, and of the margins in them.
            terms = c * size + float(np.linalg.norm(v)) + float(chance @ lengths) / count
            if norm <= max(GRADIENT_TOLERANCE, 1e-15 * (terms + size * float(curved @ lengths**2))):
                return w, 0.0
            move = _shifted(np.sqrt(curved)[:, None] * Z, c)(-g)
            w = w + _step_length(value, w, move, float(g @ move)) * move
        return w, norm


Step = RidgeStep | LogisticStep


def primal_step(loss: str, X: Array, y: Array, ridge: float, share: float, rho: float) -> Step:
    """Return the primal step of the setting ``loss``."""
    kinds: dict[str, type[RidgeStep] | type[LogisticStep]] = {
        "ridge": RidgeStep,
        "logistic": LogisticStep,
    }
    return kinds[loss](X, y, ridge, share, rho)


def mean_losses(loss: str, models: Array, X: Array, y: Array) -> Array:
    """Return the mean loss (Q,) of the samples under each of ``models`` (Q, d), without ridge."""
    predicted = X @ models.T
    if loss == "ridge":
        return np.mean((y[:, None] - predicted) ** 2, axis=0)
    return np.mean(np.logaddexp(0.0, -_labels(y)[:, None] * predicted), axis=0)


def optimum(loss: str, tables: Tables, ridge: float) -> Array:
    """Return the model (d,) of one cluster, the minimiser of (1) at tau = 0.

    Parameters
    ----------
    loss : ``ridge`` or ``logistic``
    tables : X and y of every client of the cluster, on whatever server
    ridge : counted once

    Raises
    ------
    ValueError
        Where no client is there, or no unique minimiser.
    """
    return _minimiser(loss, tables, [1.0] * len(tables), ridge)


def server_uniform_optimum(
    loss: str,
    servers: Sequence[Tables],
    ridge: float,
    sizes: Sequence[int] | None = None,
) -> Array:
    """Return what ``paper`` mixing reaches for one cluster where all servers are neighbours.

    Its fixed point at tau = 0 is w = M (w - g(w) / rho), g_s the mean gradient of f_k over the
    server's clients in the cluster; M = 1 1'/S makes all models equal and leaves mean_s g_s(w) = 0.
    A server without such clients passes its model on, hence g_s = 0, and drops out. With (4)'s
    share_k = 1 / |C_s|, the same for all clients of a server, this minimises

        mean_s mean_{k in C_{s,q}} loss_k(w) / D_k + ridge mean_s(1 / |C_s|) |w|^2

    over the servers s that have clients in the cluster.

    Parameters
    ----------
    servers : X and y of the cluster's clients, by server
    sizes : |C_s|, all clients of each server, of every cluster; where absent, those in ``servers``
    """
    sizes = [len(tables) for tables in servers] if sizes is None else sizes
    if len(sizes) != len(servers):
        raise ValueError(f"{len(sizes)} sizes for {len(servers)} servers; give one each")
    present = [(tables, size) for tables, size in zip(servers, sizes, strict=True) if tables]
    everyone = [table for tables, _ in present for table in tables]
    weights = [1.0 / (len(present) * len(tables)) for tables, _ in present for _ in tables]
    share = float(np.mean([1.0 / size for _, size in present])) if present else 0.0
    return _minimiser(loss, everyone, weights, ridge * share)


def nmsd(models: Array, truth: Array) -> float:
    """Return the mean over clients of |w_k - w*|^2 / |w*|^2 in dB, (50).

    Parameters
    ----------
    models : (..., d), one a client
    truth : of the same shape, or one w* (d,) for all; not zero
    """
    error = np.sum((models - truth) ** 2, axis=-1) / np.sum(truth**2, axis=-1)
    mean = float(np.mean(error))
    return 10.0 * math.log10(mean) if mean > 0.0 else -math.inf


def _minimiser(loss: str, tables: Tables, weights: Sequence[float], ridge: float) -> Array:
    """Return argmin sum_k weights_k loss_k / D_k + ridge |w|^2."""
    if not tables:
        raise ValueError("the cluster has no client; there is nothing to minimise")
    X = np.concatenate([X for X, _ in tables])
    y = np.concatenate([y for _, y in tables])
    each = np.concatenate(
        [np.full(len(y), weight / len(y)) for (_, y), weight in zip(tables, weights, strict=True)]
    )
    penalty = 2.0 * ridge * np.eye(X.shape[1])
    if loss == "ridge":
        return _regular_solve(2.0 * (X.T * each) @ X + penalty, 2.0 * X.T @ (each * y))
    Z = _labels(y)[:, None] * X

    def value(w: Array) -> float:
        return float(each @ np.logaddexp(0.0, -(Z @ w))) + ridge * float(w @ w)

    w = np.zeros(X.shape[1])
    for _ in range(_MOST_STEPS):
        margin = Z @ w
        g = 2.0 * ridge * w - (each * expit(-margin)) @ Z
        H = (Z.T * (each * expit(margin) * expit(-margin))) @ Z + penalty
        move = _regular_solve(H, -g)
        # Converging quadratically, what is left after this step is far below the step.
        if float(np.linalg.norm(move)) <= 1e-10 * (1.0 + float(np.linalg.norm(w))):
            return w + move
        w = w + _step_length(value, w, move, float(g @ move)) * move
    raise ValueError(
        f"no minimiser after {_MOST_STEPS} Newton steps (|w| = {np.linalg.norm(w):.3g}); labels "
        "that a hyperplane separates need ridge > 0"
    )


def _regular_solve(H: Array, b: Array) -> Array:
    curvatures = np.linalg.eigvalsh(H)
    if curvatures[0] <= 1e-13 * curvatures[-1]:
        raise ValueError(
            f"no unique minimiser: the Hessian's eigenvalues go from {curvatures[0]:.3g} to "
            f"{curvatures[-1]:.3g}; set ridge > 0, or drop features that others determine"
        )
    return cho_solve(cho_factor(H), b)


def _shifted(U: Array, c: float) -> Callable[[Array], Array]:
    """Return g -> (c I + U'U)^-1 g, by the smaller of the two Cholesky factors."""
    rows, columns = U.shape
    if rows < columns:
        # One triangular solve here spares two a round: U'(c I + UU')^-1 U = V'V.
        V = solve_triangular(np.linalg.cholesky(c * np.eye(rows) + U @ U.T), U, lower=True)
        return lambda g: (g - (V @ g) @ V) / c
    large = cho_factor(c * np.eye(columns) + U.T @ U)
    return lambda g: cho_solve(large, g)


def _step_length(value: Callable[[Array], float], w: Array, move: Array, slope: float) -> float:
    """Return the first of 1, 1/2, 1/4, ... that lowers the objective as Armijo asks."""
    here, length = value(w), 1.0
    # The last bits of the objective are rounding: a step may not be judged by them.
    slack = 1e-14 * (1.0 + abs(here))
    for _ in range(_HALVINGS):
        if value(w + length * move) <= here + 1e-4 * length * slope + slack:
            break
        length *= 0.5
    return length


def _curvature(ridge: float, share: float, rho: float) -> float:
    if not (rho > 0.0 and math.isfinite(rho)):
        raise ValueError(f"rho={rho}: must be positive and finite")
    if not (share >= 0.0 and ridge >= 0.0 and math.isfinite(share * ridge)):
        raise ValueError(f"share={share}, ridge={ridge}: must be >= 0 and finite")
    return 2.0 * share * ridge + rho


def _checked(X: Array, y: Array) -> int:
    if X.ndim != 2 or y.shape != (len(X),) or len(y) == 0:
        raise ValueError(f"X has shape {X.shape}, y {y.shape}; one y a row, and one row at least")
    return len(y)


def _labels(y: Array) -> Array:
    """Return labels -1 and +1; 0 is taken for -1."""
    return np.where(y > 0.0, 1.0, -1.0)
