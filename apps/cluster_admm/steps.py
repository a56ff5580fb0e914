"""The primal step (4) of all clients at once: ridge in closed form, logistic by Newton [GG].

With v_k = phi_k + rho w_{s,q}, c_k = rho + 2 share_k ridge, U_k = sqrt(2 / D_k) X_k, ``ridge`` is

    w_k = (c_k I + U_k'U_k)^-1 (2/D_k X_k'y_k + v_k)
        = (g - V_k'V_k g) / c_k,   V_k = L_k^-1 U_k,   L_k L_k' = c_k I + U_k U_k'    (Woodbury)

with V (K, D, d) made once. ``logistic``, with z_i = y_i x_i and any u in R^D,

    min_w  1/D sum_i log(1 + exp(-z_i'w)) + c/2 |w|^2 - <v, w>,     w = (v + Z'u) / c,

has its solution where u_i = 1/D expit(-m_i), m = Z w = (Z v + G u) / c, G = Z Z' (D, D). Newton's
step on w stays in this form, so it is done on u, in D and not in d numbers: with
r = u - 1/D expit(-m), S = diag(1/D expit(m) expit(-m)),

    (c I + S G) du = -c r,     gradient Z'r,  |gradient|^2 = r'G r          (Woodbury)
    objective  1/D sum_i log(1 + exp(-m_i)) + u'G u / (2 c)  + a constant

from the last round's u, with backtracking. Rows of zeros with weight 0 in place of 1/D pad D.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import solve_triangular
from scipy.special import expit

from .problem import GRADIENT_TOLERANCE

Array = NDArray[np.float64]
Places = NDArray[np.intp]
Tables = Sequence[tuple[Array, Array]]

_MOST_STEPS, _HALVINGS = 100, 40


class RidgeSteps:
    """The primal step (4) of all clients, factorised once.

    Parameters
    ----------
    tables : X (D_k, d) and y (D_k,) of every client
    ridge, rho : of R(w) = ridge |w|^2 and of the augmented Lagrangian
    shares : (K,) each client's part of R
    """

    def __init__(self, tables: Tables, ridge: float, shares: Array, rho: float) -> None:
        most = max(len(y) for _, y in tables)
        size = tables[0][0].shape[1]
        self._c = rho + 2.0 * ridge * shares
        self._V = np.zeros((len(tables), most, size))  # zero rows change nothing
        self._target = np.empty((len(tables), size))
        for k, (X, y) in enumerate(tables):
            U = np.sqrt(2.0 / len(y)) * X
            L = np.linalg.cholesky(self._c[k] * np.eye(len(y)) + U @ U.T)
            self._V[k, : len(y)] = solve_triangular(L, U, lower=True)
            self._target[k] = (2.0 / len(y)) * (X.T @ y)

    def solve(self, v: Array, clients: Places) -> Array:
        """Return the w_k (n, d) of ``clients`` (n,) for their ``v`` (n, d)."""
        g = (self._target[clients] + v)[..., None]
        V = self._V[clients]
        inside = g - V.transpose(0, 2, 1) @ (V @ g)
        return np.asarray(inside[..., 0] / self._c[clients, None])


class LogisticSteps:
    """The primal step (4) of all clients; see `RidgeSteps`, whose interface it has.

    Parameters
    ----------
    tables : X (D_k, d) and y (D_k,) in {-1, 1} of every client
    ridge, rho : of R(w) = ridge |w|^2 and of the augmented Lagrangian
    shares : (K,) each client's part of R
    """

    def __init__(self, tables: Tables, ridge: float, shares: Array, rho: float) -> None:
        most = max(len(y) for _, y in tables)
        self._c = rho + 2.0 * ridge * shares
        self._Z = np.zeros((len(tables), most, tables[0][0].shape[1]))
        self._weight = np.zeros((len(tables), most))
        for k, (X, y) in enumerate(tables):
            self._Z[k, : len(y)] = y[:, None] * X
            self._weight[k, : len(y)] = 1.0 / len(y)
        self._G = self._Z @ self._Z.transpose(0, 2, 1)
        self._u = 0.5 * self._weight

    def solve(self, v: Array, clients: Places) -> Array:
        """Return the w_k (n, d) of ``clients`` (n,) for their ``v`` (n, d)."""
        Z, c = self._Z[clients], self._c[clients, None]
        Zv = (Z @ v[..., None])[..., 0]
        u = self._multipliers(self._u[clients], Zv, self._G[clients], self._weight[clients], c)
        self._u[clients] = u
        return np.asarray((v + (u[:, None] @ Z)[:, 0]) / c)

    @staticmethod
    def _multipliers(u: Array, Zv: Array, G: Array, weight: Array, c: Array) -> Array:
        """Return u (n, D) where the gradient's norm is at most a tenth of a single client's."""

        def curved(u: Array) -> Array:
            return (G @ u[..., None])[..., 0]

        def value(u: Array, Gu: Array) -> Array:
            losses = np.sum(weight * np.logaddexp(0.0, -(Zv + Gu) / c), axis=1)
            return np.asarray(losses + np.sum(u * Gu, axis=1) / (2.0 * c[:, 0]))

        eye = np.eye(u.shape[1])
        for _ in range(_MOST_STEPS):
            Gu = curved(u)
            m = (Zv + Gu) / c
            r = u - weight * expit(-m)
            Gr = curved(r)
            gradients = np.sqrt(np.maximum(np.sum(r * Gr, axis=1), 0.0))
            if np.all(gradients <= 0.1 * GRADIENT_TOLERANCE):
                return u
            S = weight * expit(m) * expit(-m)
            du = np.linalg.solve(c[..., None] * eye + S[..., None] * G, -(c * r)[..., None])[..., 0]
            slope = np.sum(Gr * du, axis=1) / c[:, 0]
            here, length = value(u, Gu), np.ones(len(u))
            slack = 1e-14 * (1.0 + np.abs(here))  # the last bits are rounding
            for _ in range(_HALVINGS):
                tried = u + length[:, None] * du
                high = value(tried, curved(tried)) > here + 1e-4 * length * slope + slack
                if not high.any():
                    break
                length[high] *= 0.5
            u = u + length[:, None] * du
        raise ArithmeticError(
            f"logistic steps did not converge: gradient {gradients.max():.3g} after {_MOST_STEPS} "
            "Newton steps; scale the features to about 1"
        )


Steps = RidgeSteps | LogisticSteps


def all_steps(loss: str, tables: Tables, ridge: float, shares: Array, rho: float) -> Steps:
    """Return the primal steps of the setting ``loss``."""
    kind: type[RidgeSteps] | type[LogisticSteps] = RidgeSteps
    if loss == "logistic":
        kind = LogisticSteps
    return kind(tables, ridge, shares, rho)
