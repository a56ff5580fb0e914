"""The score of the clusters' models on held-out samples, as a noisy sum of bounded terms [GG].

    ridge     a = sum min(e^2 / Y^2, 1),  b = sum min(y^2 / Y^2, 1);   score 1 - a / b
    logistic  a = how many labels are right;                            score a / n

over samples that taught nothing, e = y - x'w under the model of the client's cluster. The models
are public, so a sample is in its own terms only, each from 0 to 1: one sample replaced moves
``ridge`` by sqrt(2) at most, ``logistic`` by 1. How many samples are held out is public.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

SENSITIVITY = {"ridge": math.sqrt(2.0) * (1.0 + 1e-6), "logistic": 1.0 + 1e-6}
SIZE = {"ridge": 2, "logistic": 1}


def score_terms(loss: str, X: Array, y: Array, model: Array, width: float) -> Array:
    """Return the sums (2,) or (1,) of one client's held-out samples, whatever is in them."""
    with np.errstate(over="ignore", invalid="ignore"):
        fitted = X @ model
        if loss == "logistic":
            right = np.where(y > 0.0, fitted > 0.0, fitted < 0.0)
            return np.array([float(np.count_nonzero(right))])
        terms = np.stack([((y - fitted) / width) ** 2, (y / width) ** 2])
        return np.asarray(np.fmin(np.nan_to_num(terms, nan=1.0), 1.0).sum(axis=1))


def score_of(loss: str, total: Array, count: int, sigma: float) -> tuple[float, float]:
    """Return the score from the noisy sums over ``count`` samples, and its standard error."""
    if loss == "logistic":
        return float(total[0]) / count, sigma / count
    base = max(float(total[1]), sigma, 1e-9)
    share = float(total[0]) / base
    return 1.0 - share, sigma * math.sqrt(1.0 + share**2) / base
