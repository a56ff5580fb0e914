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

from trellis.apps.common.private.octaves import PLACES, octave_counts, standing_out

Array = NDArray[np.float64]

SENSITIVITY = {"ridge": 2.0 * (1.0 + 1e-6), "logistic": math.sqrt(2.0) * (1.0 + 1e-6)}
ROWS = {"ridge": 2, "logistic": 1}
_TARGET_ROOM = 2.0

__all__ = ["PLACES", "ROWS", "SENSITIVITY", "scale_counts", "scales_in"]


def scale_counts(loss: str, X: Array, y: Array) -> Array:
    """Return the counts (2, 41) of a client's samples, for ``logistic`` (1, 41)."""
    with np.errstate(over="ignore", invalid="ignore"):
        lengths = np.sqrt(np.einsum("ij,ij->i", X, X))
    found = [octave_counts(lengths)]
    if loss == "ridge":
        found.append(octave_counts(np.abs(y)))
    return np.array(found)


def scales_in(total: Array, sigma: float) -> tuple[float | None, float | None]:
    """Return B and Y from the noisy sum of counts; None for what noise hides."""
    means = [standing_out(row, sigma) for row in total]
    length = None if means[0] is None else 2.0 ** means[0]
    width = None if len(means) < 2 or means[1] is None else _TARGET_ROOM * 2.0 ** means[1]
    return length, width
