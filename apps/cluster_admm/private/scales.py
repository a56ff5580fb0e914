"""How long rows and targets are, as one noisy sum of counts: from it come B and Y [GG].

Noise is sized for B and Y: twice too large is as bad as a quarter of the samples, or worse. A
sample adds, for |x| and (ridge) for |y| separately, a count of 1 on the scale of log2 from -20 to
20, divided between the two whole numbers about it: what is beyond the ends counts at the ends.

Such counts are vectors with entries >= 0 and of length 1 at most, so one sample replaced moves each
of the two by sqrt(2), both together by 2. Their mean, over the places near the highest where there
is more than noise, is that of log2: B is the geometric mean of |x| (long rows are shortened with
their targets, which costs little), and Y twice that of |y|, about the deviation of a normal target.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

END = 20
PLACES = 2 * END + 1
SENSITIVITY = {"ridge": 2.0 * (1.0 + 1e-6), "logistic": math.sqrt(2.0) * (1.0 + 1e-6)}
ROWS = {"ridge": 2, "logistic": 1}
_DEVIATIONS = 3.5  # of the noise, which the highest place must exceed
_NEAR = 3
_TARGET_ROOM = 2.0


def scale_counts(loss: str, X: Array, y: Array) -> Array:
    """Return the counts (2, 41) of a client's samples, for ``logistic`` (1, 41)."""
    with np.errstate(over="ignore", invalid="ignore"):
        lengths = np.sqrt(np.einsum("ij,ij->i", X, X))
    found = [_counts(lengths)]
    if loss == "ridge":
        found.append(_counts(np.abs(y)))
    return np.array(found)


def scales_in(total: Array, sigma: float) -> tuple[float | None, float | None]:
    """Return B and Y from the noisy sum of counts; None for what noise hides."""
    means = [_mean_place(row, sigma) for row in total]
    length = None if means[0] is None else 2.0 ** means[0]
    width = None if len(means) < 2 or means[1] is None else _TARGET_ROOM * 2.0 ** means[1]
    return length, width


def _counts(values: Array) -> Array:
    with np.errstate(divide="ignore", invalid="ignore"):
        place = np.log2(values)
    place = np.clip(np.nan_to_num(place, nan=-END, posinf=END, neginf=-END), -END, END) + END
    low = np.minimum(np.floor(place), 2 * END - 1).astype(np.intp)
    part = place - low
    found = np.bincount(low, 1.0 - part, PLACES)
    return np.asarray(found + np.bincount(low + 1, part, PLACES))


def _mean_place(counts: Array, sigma: float) -> float | None:
    inner = counts[1:-1]  # at the ends is what is zero, or no number
    top = int(np.argmax(inner))
    if inner[top] <= _DEVIATIONS * sigma:
        return None
    # Only what is near the highest place: elsewhere one of many may be high by noise alone.
    places = np.arange(-END + 1, END)
    near = np.abs(places - places[top]) <= _NEAR
    seen = np.where(near & (inner > sigma), inner, 0.0)
    return float(seen @ places / seen.sum())
