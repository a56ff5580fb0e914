"""A client's own model, from its raw samples and the private model of all.

    w(beta) = argmin_w  1/n sum_x Q(w; x) + (rho / 2) |w|^2 + (beta / 2) |w - c|^2

c is the private model, which everyone has. beta = infinity is c itself, beta = 0 learning alone.
The device chooses among a few by the loss of samples that were left out, in three folds; c costs
nothing to try, so for its own samples the choice is no worse than learning alone but for chance.

None of this leaves the device, so none of it is noised.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..losses import Loss

Array = NDArray[np.float64]

PULLS = (0.0, 0.01, 0.1, 1.0, math.inf)
FOLDS = 3


@dataclass(frozen=True)
class Own:
    """A client's own model (M,), its pull beta, and losses on samples that were left out."""

    model: Array
    pull: float
    loss: float
    private_loss: float
    alone_loss: float


def personal_model(loss: Loss, centroid: Array, X: Array, y: Array, ridge: float) -> Own:
    """Return the client's own model, its pull chosen by its own held-out samples."""
    folds = np.arange(len(y)) % FOLDS
    # Rows may be sorted; which fold a row is in must not go by that.
    folds = np.random.default_rng(len(y)).permutation(folds)
    losses = {pull: _held_out(loss, centroid, X, y, ridge, pull, folds) for pull in PULLS}
    # Of equals the strongest pull: it is the one with least of chance in it.
    best = min(reversed(PULLS), key=lambda pull: losses[pull])
    model = pulled(loss, centroid, X, y, ridge, best)
    return Own(model, best, losses[best], losses[math.inf], losses[0.0])


def _held_out(
    loss: Loss, c: Array, X: Array, y: Array, ridge: float, pull: float, folds: NDArray[np.intp]
) -> float:
    total = 0.0
    for fold in range(FOLDS):
        out = folds == fold
        if out.any() and not out.all():
            w = pulled(loss, c, X[~out], y[~out], ridge, pull)
            total += float(np.sum(loss.loss(w, X[out], y[out])))
        elif out.any():  # a single sample: nothing to learn from
            total += float(np.sum(loss.loss(c, X[out], y[out])))
    return total / max(len(y), 1)


def pulled(loss: Loss, c: Array, X: Array, y: Array, ridge: float, pull: float) -> Array:
    """Return w(beta)."""
    if math.isinf(pull):
        return c.copy()

    def objective(w: Array) -> tuple[float, Array]:
        away = w - c
        value = float(np.mean(loss.loss(w, X, y))) + 0.5 * ridge * float(w @ w)
        slope = np.mean(loss.gradients(w, X, y), axis=0) + ridge * w + pull * away
        return value + 0.5 * pull * float(away @ away), slope

    # Here: no other message of a client needs it, and each starts a process.
    from scipy.optimize import minimize

    found = minimize(objective, c, jac=True, method="L-BFGS-B", options={"maxiter": 200})
    best: Array = np.asarray(found.x, dtype=np.float64)
    return best
