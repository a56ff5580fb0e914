"""One model a cluster of clients: what is minimised, its minimiser, and how far models are [GG].

    w_q = argmin_w  sum_{k in cluster q} 1/D_k sum_i l(w; x_{k,i}, y_{k,i}) + ridge |w|^2    (1)

at tau = 0, with l = (y - x'w)^2 (``ridge``, (49)), log(1 + exp(-y x'w)) of labels -1 and +1
(``logistic``, (51)), or that of a class of a user's own (`losses`). A client's part of it, the
primal step (4), is in `steps`.

    D samples of d features: X : (D, d)   y : (D,)   w : (d,)
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from trellis.privacy.numerics import cho_factor, cho_solve, expit

from .losses import is_own, own_loss

Array = NDArray[np.float64]
Tables = Sequence[tuple[Array, Array]]

_MOST_STEPS = 200
_HALVINGS = 60


def mean_losses(loss: str, models: Array, X: Array, y: Array) -> Array:
    """Return the mean loss (Q,) of the samples under each of ``models`` (Q, d), without ridge."""
    if is_own(loss):
        own = own_loss(loss, X.shape[1])
        return np.array([float(np.mean(own.loss(model, X, y))) for model in models])
    predicted = X @ models.T
    if loss == "ridge":
        return np.mean((y[:, None] - predicted) ** 2, axis=0)
    return np.mean(np.logaddexp(0.0, -signed_labels(y)[:, None] * predicted), axis=0)


def optimum(loss: str, tables: Tables, ridge: float) -> Array:
    """Return the model (d,) of one cluster, the minimiser of (1) at tau = 0.

    Parameters
    ----------
    loss : ``ridge``, ``logistic`` or the name of a class
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
    if is_own(loss):
        from .own_steps import minimiser  # it imports this module

        nothing = np.zeros(X.shape[1])
        own = own_loss(loss, X.shape[1])
        return minimiser(own, X, y, each, 2.0 * ridge, nothing, nothing)
    penalty = 2.0 * ridge * np.eye(X.shape[1])
    if loss == "ridge":
        return _regular_solve(2.0 * (X.T * each) @ X + penalty, 2.0 * X.T @ (each * y))
    Z = signed_labels(y)[:, None] * X

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
        w = w + step_length(value, w, move, float(g @ move)) * move
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


def step_length(value: Callable[[Array], float], w: Array, move: Array, slope: float) -> float:
    """Return the first of 1, 1/2, 1/4, ... that lowers the objective as Armijo asks."""
    here, length = value(w), 1.0
    # The last bits of the objective are rounding: a step may not be judged by them.
    slack = 1e-14 * (1.0 + abs(here))
    for _ in range(_HALVINGS):
        if value(w + length * move) <= here + 1e-4 * length * slope + slack:
            break
        length *= 0.5
    return length


def signed_labels(y: Array) -> Array:
    """Return labels -1 and +1; 0 is taken for -1."""
    return np.where(y > 0.0, 1.0, -1.0)
