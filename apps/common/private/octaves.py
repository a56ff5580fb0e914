"""Sizes of numbers of any units as counts by octave, and what stands out of a noisy sum of them.

A number adds a count of 1 on the scale of log2 from -20 to 20, divided between the two whole
numbers about it: what is beyond the ends counts at the ends. Counts of one number are a vector with
entries >= 0 and of length 1 at most, so one number replaced moves them by sqrt(2) at most.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

END = 20
PLACES = 2 * END + 1
_DEVIATIONS = 3.5  # of the noise, which the highest place must exceed
_NEAR = 3


def octave_counts(values: Array) -> Array:
    """Return the counts (41,) of numbers >= 0."""
    with np.errstate(divide="ignore", invalid="ignore"):
        place = np.log2(values)
    place = np.clip(np.nan_to_num(place, nan=-END, posinf=END, neginf=-END), -END, END) + END
    low = np.minimum(np.floor(place), 2 * END - 1).astype(np.intp)
    part = place - low
    found = np.bincount(low, 1.0 - part, PLACES)
    return np.asarray(found + np.bincount(low + 1, part, PLACES))


def standing_out(counts: Array, sigma: float) -> float | None:
    """Return the mean log2 about the highest place of a noisy sum; None where noise hides it."""
    inner = counts[1:-1]  # at the ends is what is zero, or no number
    top = int(np.argmax(inner))
    if inner[top] <= _DEVIATIONS * sigma:
        return None
    # Only what is near the highest place: elsewhere one of many may be high by noise alone.
    places = np.arange(-END + 1, END)
    near = np.abs(places - places[top]) <= _NEAR
    seen = np.where(near & (inner > sigma), inner, 0.0)
    return float(seen @ places / seen.sum())
