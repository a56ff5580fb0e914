"""How clients that keep their records find a common offset and scale for every feature.

Three ways, by what may be told of a client:

*told*    each client tells its count, means and sums of squared deviations; `pooled` adds them up
          as if all records were in one table.
*summed*  the server learns sums over all clients and nothing of one. Sums of squares of unknown
          units do not fit into fixed point, so every feature's are made octave by octave: values of
          size 2^k are added in units of 2^k. One sum then holds features of any units.
*noisy*   the sum is a counted release. Each record adds, for every feature, one count to the octave
          of its size, positive and negative apart, divided between the two whole octaves about it.
          Per feature that is a vector of length 1 at most with entries >= 0, so one record replaced
          moves it by sqrt(2), and D features (targets among them) by sqrt(2 D). A feature's scale
          is the geometric mean of its sizes near the highest place that stands out of the noise;
          its offset the same, with its sign, where nearly all have one sign, else 0. Where
          nothing stands out, the feature has the largest scale of the others (1 where there is
          none): a scale that is too large makes a feature quiet, one too small drowns the rest.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from trellis.apps.common.own_data.scaling import Scaling
from trellis.apps.common.private.octaves import END, octave_counts, standing_out

Array = NDArray[np.float64]

COUNTS = "places"  # the array of a noisy sum of counts
WHAT = "counts of the sizes of features"  # what is released by it
WIDEST = 40  # octaves either way of sizes in exact sums: 1e-12 to 1e12
PLACES = 2 * WIDEST + 1
SIDES = 2 * (2 * END + 1)  # places of a noisy count, of negative values, then of positive ones
# A share of records with the other sign below which a feature has one sign.
_ONE_SIGN = 0.1


def columns_of(X: Array, y: Array, numbers: bool) -> Array:
    """Return what is to be scaled (n, D): the features, and targets that are numbers."""
    return np.column_stack([X, y]) if numbers else X


def own_moments(columns: Array) -> list[list[float]]:
    """Return count, means (D,) and sums of squared deviations (D,), to be told."""
    mean = columns.mean(axis=0)
    spread = np.sum((columns - mean) ** 2, axis=0)
    return [[float(len(columns))], mean.tolist(), spread.tolist()]


def looks_like_labels(moments: Sequence[Sequence[float]]) -> bool:
    """Return whether the last column, by its moments, has values 0 and 1, or -1 and 1, only."""
    mean, square = moments[1][-1], moments[2][-1] / moments[0][0] + moments[1][-1] ** 2
    return min(abs(square - mean), abs(square - 1.0)) < 1e-9


def pooled(moments: Sequence[Sequence[Sequence[float]]], numbers: bool) -> Scaling:
    """Return mean and deviation over all clients' records, from what each told."""
    counts = np.array([own[0][0] for own in moments])
    means = np.array([own[1] for own in moments])
    spreads = np.array([own[2] for own in moments])
    shares = counts / counts.sum()
    mean = shares @ means
    between = shares @ (means - mean) ** 2
    return _scaling(mean, spreads.sum(axis=0) / counts.sum() + between, numbers)


def learned_in_own_units(
    fit: Callable[[Array, Array], Array], X: Array, y: Array, numbers: bool
) -> Array:
    """Return what a client learns alone: a linear model (d + 1,) of records ``X`` (n, d + 1).

    By itself a client would use its own means and deviations, not the scale that all have found
    through noise; so it does here, and the model is returned in the coordinates of ``X``.
    """
    own = pooled([own_moments(columns_of(X[:, :-1], y, numbers))], numbers)
    model = fit(own.apply(X[:, :-1]), own.apply_target(y) if numbers else y)
    slopes, intercept = own.raw_coefficients(model)
    return np.append(slopes, intercept)


def summands(columns: Array) -> dict[str, Array]:
    """Return what a client adds to an exact sum: its count, sums and squares by octave (D, P)."""
    size = np.clip(np.nan_to_num(_places(columns), neginf=-WIDEST), -WIDEST, WIDEST)
    place: NDArray[np.int64] = np.ceil(size).astype(np.int64)
    unit = np.clip(np.ldexp(columns, -place), -1.0, 1.0)
    found: dict[str, Array] = {"count": np.array([float(len(columns))])}
    for name, values in (("sums", unit), ("squares", unit**2)):
        total = np.zeros((columns.shape[1], PLACES))
        np.add.at(total, (np.arange(columns.shape[1])[None, :], place + WIDEST), values)
        found[name] = total
    return found


def summands_layout(columns: int) -> dict[str, tuple[int, ...]]:
    """Return names and shapes of `summands`."""
    return {"count": (1,), "sums": (columns, PLACES), "squares": (columns, PLACES)}


def from_sum(total: Mapping[str, Array], numbers: bool) -> Scaling:
    """Return mean and deviation over all clients' records, from the sum of `summands`."""
    count, powers = float(total["count"][0]), 2.0 ** np.arange(-WIDEST, WIDEST + 1)
    mean = total["sums"] @ powers / count
    square = total["squares"] @ powers**2 / count
    return _scaling(mean, np.maximum(square - mean**2, 0.0), numbers)


def sign_counts(columns: Array) -> Array:
    """Return a client's counts (D, `SIDES`) of the octaves of its values, by sign."""
    rows = []
    for values in columns.T:
        below = values < 0.0
        rows += [np.concatenate([octave_counts(-values[below]), octave_counts(values[~below])])]
    return np.array(rows)


def sensitivity_of_counts(columns: int) -> float:
    """Return how far (l2) one record replaced moves `sign_counts`."""
    return math.sqrt(2.0 * columns) * (1.0 + 1e-6)


def from_counts(total: Array, sigma: float, numbers: bool) -> tuple[Scaling, list[int]]:
    """Return the scaling from the noisy sum of `sign_counts`, and which columns noise hides."""
    half = SIDES // 2
    offset, scale = np.zeros(len(total)), np.full(len(total), np.nan)
    for column, row in enumerate(total):
        below, above = row[:half], row[half:]
        place = standing_out(below + above, math.sqrt(2.0) * sigma)
        if place is None:
            continue
        scale[column] = 2.0**place
        near = slice(max(round(place) + END - 2, 1), min(round(place) + END + 3, half - 1))
        sides = max(float(below[near].sum()), 0.0), max(float(above[near].sum()), 0.0)
        doubt = 2.0 * sigma / max(sum(sides), 1e-300)
        if min(sides) <= (_ONE_SIGN + doubt) * sum(sides) and max(sides) > 4.0 * min(sides):
            offset[column] = math.copysign(scale[column], sides[1] - sides[0])
    hidden = np.flatnonzero(np.isnan(scale)).tolist()
    known = scale[np.isfinite(scale)]
    scale[hidden] = float(known.max()) if known.size else 1.0
    return _split(offset, scale, numbers), hidden


def _places(columns: Array) -> Array:
    with np.errstate(divide="ignore"):
        return np.log2(np.abs(columns))


def _scaling(mean: Array, variance: Array, numbers: bool) -> Scaling:
    deviation = np.sqrt(np.maximum(variance, 0.0))
    # A column that is constant but for rounding: its intercept says all there is.
    constant = deviation <= 1e-7 * np.abs(mean)
    deviation = np.where(constant | (deviation < 1e-70), np.maximum(np.abs(mean), 1e-70), deviation)
    deviation = np.where(deviation <= 1e-70, 1.0, deviation)
    return _split(mean, deviation, numbers)


def _split(offset: Array, scale: Array, numbers: bool) -> Scaling:
    if not numbers:
        return Scaling(offset, scale)
    return Scaling(offset[:-1], scale[:-1], float(offset[-1]), float(scale[-1]))
