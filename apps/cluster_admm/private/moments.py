"""What a client adds to a noisy secure sum: the moments of its bounded samples [GG].

A sample (x, y) enters as a vector v = (u, t) with |u| <= 1 and |t| <= 1,

    s = min(1, B / |x|),    u = s x / B,    t = clip(e / Y, -1, 1)
    e = s (y - x'w)                       ``ridge``
    e = 1[y > 0] - 1 / (1 + exp(-s x'w))  ``logistic``

where w is the model of its cluster, public, and the same for all samples; B, Y > 0 are public. A
row that is too long is shortened together with its target, so y = x'w stays true of it. Summed over
a client's samples:

    square  upper triangle of u u', off the diagonal times sqrt(2)
    cross   sqrt(2) t u: b of it in the slot of the client's cluster, sqrt(1 - b^2) in the last,
            which all clusters share, zero in all others
    power   t^2

0 <= b <= 1 is public. So a server that sees the sum does not see from it who is in which cluster.

**Sensitivity.** Both slots together are as long as one with all of it, and the two samples are of
one client. So the distance is that of the entries of v v' that its Frobenius norm counts: |v v'|^2
= |u u'|^2 + 2 |t u|^2 + t^4. With |v|^2 <= 2, and v0 in the place of v,

    |v v' - v0 v0'|_F^2 = |v|^4 + |v0|^4 - 2 (v'v0)^2 <= 8:

one sample replaced moves the sum by `SENSITIVITY` = sqrt(8), whatever B, Y, b and w a server sends.
That is what ``cross`` alone needs (u = -u0, t = t0 = 1), so ``square`` and ``power`` cost nothing
more: one release gives the whole regression. Where ``square`` is not asked for the bound holds as
well, for a part of the same vector.

The cluster of a client is given by its owner. Were it chosen by its samples, one sample could move
all of them from slot to slot: `apps.cluster_admm.paper.hidden` has what covering that would cost.

Arithmetic is in floats; every entry of a client's sum of D samples is off by less than D (d + 8)
2^-53 in units where the sensitivity is sqrt(8), which `ROUNDING` covers for d D up to 1e9.

    X : (D, d)   y : (D,)   models : (Q, d)
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from trellis.privacy.numerics import expit

Array = NDArray[np.float64]

ROUNDING = 1e-6
SENSITIVITY = math.sqrt(8.0) * (1.0 + ROUNDING)
LABEL_SCALE = 0.5  # Y of ``logistic``: at w = 0 every label is as far off
_ROOT = math.sqrt(2.0)


@dataclass(frozen=True)
class Question:
    """What a round asks: at which models, with which bounds, and whether for ``square`` too.

    Attributes
    ----------
    models : (Q, d)
    length, width : B and Y
    weight : b
    whole : whether ``square`` is asked for
    """

    models: Array
    length: float
    width: float
    weight: float
    whole: bool


def bounded_rows(X: Array, length: float) -> tuple[Array, Array]:
    """Return u (D, d) with |u| <= 1 and s (D,), whatever is in ``X``: not finite counts as 0."""
    X = np.where(np.isfinite(X), X, 0.0)
    largest = np.max(np.abs(X), axis=1, initial=0.0)
    largest[largest == 0.0] = 1.0
    # Squares of what is at most 1 do not overflow, and the largest does not vanish.
    scaled = X / largest[:, None]
    norms = np.sqrt(np.einsum("ij,ij->i", scaled, scaled))
    with np.errstate(over="ignore"):
        short = largest * norms <= length
        norms = np.where(short, 1.0, np.maximum(norms, 1.0))
        shrink = np.where(short, 1.0, length / largest / norms)
    U = np.where(short[:, None], X * short[:, None] / length, scaled / norms[:, None])
    return U, shrink


def residuals(
    loss: str, U: Array, shrink: Array, y: Array, model: Array, question: Question
) -> Array:
    """Return t (D,) of samples under one model (d,)."""
    with np.errstate(over="ignore", invalid="ignore"):
        fitted = question.length * (U @ model)
        if loss == "ridge":
            off = shrink * y - fitted
        else:
            off = np.where(y > 0.0, 1.0, 0.0) - expit(fitted)
        found = np.clip(off / question.width, -1.0, 1.0)
    return np.where(np.isfinite(found), found, 0.0)


def layout(clusters: int, size: int, whole: bool) -> dict[str, tuple[int, ...]]:
    """Return names and shapes of what every client adds."""
    found: dict[str, tuple[int, ...]] = {"cross": (clusters + 1, size), "power": (1,)}
    if whole:
        found["square"] = (size * (size + 1) // 2,)
    return found


def moments(loss: str, X: Array, y: Array, cluster: int, question: Question) -> dict[str, Array]:
    """Return what a client of ``cluster`` adds, in the shapes of `layout`."""
    clusters, size = question.models.shape
    U, shrink = bounded_rows(X, question.length)
    t = residuals(loss, U, shrink, y, question.models[cluster], question)
    cross = np.zeros((clusters + 1, size))
    cross[cluster] = _ROOT * question.weight * (t @ U)
    cross[-1] = _ROOT * math.sqrt(max(1.0 - question.weight**2, 0.0)) * (t @ U)
    found = {"cross": cross, "power": np.array([t @ t])}
    if question.whole:
        weights = np.where(np.eye(size, dtype=np.bool_), 1.0, _ROOT)
        found["square"] = (weights * (U.T @ U))[np.triu_indices(size)]
    return found
