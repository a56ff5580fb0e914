"""A client's primal step (4) of cluster-admm, written for a batch of clients [GG].

For the v = phi_k + rho w_{s,q} it is sent, a client solves

    w_k = argmin_w  1/D sum_i l(w; x_i, y_i) + share ridge |w|^2 - <v, w> + rho/2 |w|^2      (4)

whose quadratic part is c/2 |w|^2 with c = 2 share ridge + rho. For ``ridge`` this is

    (2/D X'X + c I) w = 2/D X'y + v,

one matrix for all rounds. Clients have fewer samples than features (D < d), where

    (c I + U'U)^-1 g = (g - U' (c I + U U')^-1 U g) / c = (g - V'V g) / c   (Woodbury), U : (D, d)

with V = L^-1 U, L L' = c I + U U', made once: O(D d) a round. Else the d x d factor is kept.

A device has a batch of one client, `primal_step`; a run without messages has all of them.

    v, w : (n, d) of n clients      X : (D, d)   y : (D,) of one of them
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from trellis.privacy.numerics import Factor, cho_factor, cho_solve, expit, solve_lower

from .problem import Array, Tables, signed_labels, step_length

Places = NDArray[np.intp]

# What is said here stays on the device.
_log = logging.getLogger("trellis.device")
_FAILURES = (ArithmeticError, np.linalg.LinAlgError, ValueError)

# Of a logistic step. What the clients of a cluster leave adds up; models are to be right to 1e-8.
GRADIENT_TOLERANCE = 1e-10
_MOST_LOGISTIC_STEPS = 50
# Of the descent that takes over where Newton's method does not end.
MOST_DESCENT_STEPS = 100_000
# w_k is off by about rho / curvature; smaller, and the step's rounding, 1e-16 / rho, is more.
LEAST_RHO = 1e-8


class Steps(Protocol):
    """The primal steps of a batch of clients."""

    def solve(self, v: Array, clients: Places | None = None) -> Array:
        """Return the w_k (n, d) of ``clients`` (n,), all by default, for their v (n, d)."""


class RidgeSteps:
    """The primal step (4) of squared errors, factorised once for its data, rho and shares.

    Parameters
    ----------
    tables : X and y of every client
    ridge, shares : R(w) = ridge |w|^2, of which a client has its share (K,)
    rho : > 0, of the augmented Lagrangian
    """

    def __init__(self, tables: Tables, ridge: float, shares: ArrayLike, rho: float) -> None:
        given = np.asarray(shares, dtype=np.float64)
        self._c = np.array([curvature(ridge, float(share), rho) for share in given])
        counts = [checked(X, y) for X, y in tables]
        size = tables[0][0].shape[1]
        self._target = np.empty((len(counts), size))
        most = max((count for count in counts if count < size), default=0)
        self._V = np.zeros((len(counts), most, size))  # zero rows change nothing
        self._tall: dict[int, Factor] = {}
        for k, ((X, y), count) in enumerate(zip(tables, counts, strict=True)):
            self._target[k] = (2.0 / count) * (X.T @ y)
            U = math.sqrt(2.0 / count) * X
            if count < size:
                V = _whitened(U, self._c[k])
                if len(counts) == 1:
                    self._V = V[None]  # a device's own, laid out as it came: last bits depend on it
                else:
                    self._V[k, :count] = V
            else:
                self._tall[k] = cho_factor(self._c[k] * np.eye(size) + U.T @ U)

    def solve(self, v: Array, clients: Places | None = None) -> Array:
        """Return the w_k (n, d) of ``clients`` (n,), all by default, for their v (n, d)."""
        who = slice(None) if clients is None else clients
        V, g = self._V[who], self._target[who] + v
        w = (g - _projected(V, g)) / self._c[who, None]
        if self._tall:
            for place, k in enumerate(np.arange(len(self._c))[who].tolist()):
                if k in self._tall:
                    w[place] = cho_solve(self._tall[k], g[place])
        return np.asarray(w)


class LogisticStep:
    """The primal step (4) of the logistic loss, by Newton's method: of one client.

    ``y`` holds labels -1 and +1, or 0 and 1. See `RidgeSteps` for the others.
    """

    def __init__(self, X: Array, y: Array, ridge: float, share: float, rho: float) -> None:
        self._count = checked(X, y)
        self._signed = signed_labels(y)[:, None] * X
        self._c = curvature(ridge, share, rho)

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

    def descend(self, v: Array) -> Array:
        """Return w_k (d,) by gradient descent, slow and certain: |w - w_k| <= 1e-10 / c.

        Steps of 1 / L contract by 1 - c / L, L = c + max |x|^2 / 4; at the start v / c the gradient
        is at most max |x|. No more than `MOST_DESCENT_STEPS` are taken.
        """
        Z, c = self._signed, self._c
        longest = float(np.max(np.linalg.norm(Z, axis=1)))
        L, w = c + 0.25 * longest**2, v / c
        for _ in range(min(descent_steps(longest, c), MOST_DESCENT_STEPS)):
            w = w - (c * w - v - (expit(-(Z @ w)) @ Z) / self._count) / L
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
            w = w + step_length(value, w, move, float(g @ move)) * move
        return w, norm


class LogisticSteps:
    """The primal steps (4) of the logistic loss, each client's by itself; see `RidgeSteps`.

    Newton's method takes another number of steps for each, so there is no product to share.
    """

    def __init__(self, tables: Tables, ridge: float, shares: ArrayLike, rho: float) -> None:
        given = np.asarray(shares, dtype=np.float64).tolist()
        self._own = [
            LogisticStep(X, y, ridge, share, rho)
            for (X, y), share in zip(tables, given, strict=True)
        ]

    def solve(self, v: Array, clients: Places | None = None) -> Array:
        """Return the w_k (n, d) of ``clients`` (n,), all by default, for their v (n, d)."""
        own = self._own if clients is None else [self._own[k] for k in clients.tolist()]
        return np.array([step.solve(row) for step, row in zip(own, v, strict=True)])


class Step(Protocol):
    """The primal step of one client."""

    def solve(self, v: Array) -> Array:
        """Return w_k (d,) for v = phi_k + rho w_{s,q}."""


class SureStep:
    """The step of one client that its data cannot make fail, for a device's own model.

    The same numbers as those of `primal_step` wherever that has any. Newton's method for
    ``logistic`` may not end where features are long: then `LogisticStep.descend` finds the same
    minimiser, to the same accuracy. What is not finite is v / c, the solution without data.
    """

    def __init__(
        self, loss: str, X: Array, y: Array, ridge: float, share: float, rho: float
    ) -> None:
        self._c = curvature(ridge, share, rho)
        self._logistic = LogisticStep(X, y, ridge, share, rho) if loss == "logistic" else None
        self._step: Step | None = self._logistic
        if loss != "logistic":
            try:
                self._step = primal_step(loss, X, y, ridge, share, rho)
            except _FAILURES as error:
                _log.warning("the primal step cannot be factorised (%s); v / c is used", error)

    def solve(self, v: Array) -> Array:
        """Return w_k (d,) for v = phi_k + rho w_{s,q}."""
        found = None
        try:
            found = None if self._step is None else self._step.solve(v)
        except _FAILURES as error:
            _log.warning("the primal step failed: %s", error)
            found = None if self._logistic is None else self._logistic.descend(v)
        return found if found is not None and np.isfinite(found).all() else v / self._c


class PrimalStep:
    """The step of one client: a batch of one."""

    def __init__(self, steps: Steps) -> None:
        self._steps = steps

    def solve(self, v: Array) -> Array:
        """Return w_k (d,) for v = phi_k + rho w_{s,q}."""
        return self._steps.solve(v[None])[0]


def primal_steps(loss: str, tables: Tables, ridge: float, shares: ArrayLike, rho: float) -> Steps:
    """Return the primal steps of several clients, by the setting ``loss``."""
    kinds: dict[str, type[RidgeSteps] | type[LogisticSteps]] = {
        "ridge": RidgeSteps,
        "logistic": LogisticSteps,
    }
    if loss not in kinds:
        from .own_steps import OwnSteps  # here: other losses do without it

        return OwnSteps(loss, tables, ridge, shares, rho)
    return kinds[loss](tables, ridge, shares, rho)


def primal_step(
    loss: str, X: Array, y: Array, ridge: float, share: float, rho: float
) -> PrimalStep:
    """Return the primal step of one client, by the setting ``loss``."""
    return PrimalStep(primal_steps(loss, [(X, y)], ridge, [share], rho))


def alone(loss: str, tables: Tables, ridge: float) -> Array:
    """Return argmin loss_k / D_k + ridge |w|^2 (K, d) of every client for itself.

    It is (4) with v = 0, no share of a regulariser and rho/2 |w|^2 in its place; at ``ridge = 0``
    with a rho that matters to nobody, which gives the shortest solution.
    """
    steps = primal_steps(loss, tables, 0.0, np.zeros(len(tables)), max(2.0 * ridge, LEAST_RHO))
    return steps.solve(np.zeros((len(tables), tables[0][0].shape[1])))


def descent_steps(longest: float, c: float) -> int:
    """Return how many steps `LogisticStep.descend` needs, for |x| <= ``longest``."""
    condition = 1.0 + 0.25 * longest**2 / c
    steps = condition * math.log(max(longest / GRADIENT_TOLERANCE, 2.0))
    return math.ceil(min(steps, 1e18))


def _projected(V: Array, g: Array) -> Array:
    """Return V'V g (n, d) of each client."""
    if len(V) == 1:  # a device's: products with a vector have other last bits in a batch
        return ((V[0] @ g[0]) @ V[0])[None]
    return ((V @ g[..., None])[..., 0][:, None] @ V)[:, 0]


def _whitened(U: Array, c: float) -> Array:
    """Return V = L^-1 U with L L' = c I + U U': one triangular solve here spares two a round."""
    return solve_lower(np.linalg.cholesky(c * np.eye(len(U)) + U @ U.T), U)


def _shifted(U: Array, c: float) -> Callable[[Array], Array]:
    """Return g -> (c I + U'U)^-1 g, by the smaller of the two Cholesky factors."""
    rows, columns = U.shape
    if rows < columns:
        V = _whitened(U, c)
        return lambda g: (g - (V @ g) @ V) / c
    large = cho_factor(c * np.eye(columns) + U.T @ U)
    return lambda g: cho_solve(large, g)


def curvature(ridge: float, share: float, rho: float) -> float:
    """Return c = 2 share ridge + rho, checked."""
    if not (rho > 0.0 and math.isfinite(rho)):
        raise ValueError(f"rho={rho}: must be positive and finite")
    if not (share >= 0.0 and ridge >= 0.0 and math.isfinite(share * ridge)):
        raise ValueError(f"share={share}, ridge={ridge}: must be >= 0 and finite")
    return 2.0 * share * ridge + rho


def checked(X: Array, y: Array) -> int:
    """Return the number of samples D."""
    if X.ndim != 2 or y.shape != (len(X),) or len(y) == 0:
        raise ValueError(f"X has shape {X.shape}, y {y.shape}; one y a row, and one row at least")
    return len(y)
