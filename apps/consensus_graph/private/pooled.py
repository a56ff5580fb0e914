"""The pooled statistic of many clients, for one noisy sum, with no clip to guess.

A signal x_n : (d,), its mean taken out, enters the sum as the matrix of its *direction*

    M_n = x_n x_n' / |x_n|^2,     |M_n|_F = 1,     or 0 for a constant signal,

so no unit of the data and no outlier matters, and nothing needs to be clipped. Two rank-one
matrices of norm 1 are at most sqrt(2) apart (orthogonal directions), so replacing one signal moves
the sum over all signals of all clients by at most sqrt(2), whatever a client's number of signals.
The mean of the M_n is the spatial sign covariance: the eigenvectors of the covariance, its
eigenvalues drawn together a little. Squared differences follow from it linearly,

    z_ab = M_aa + M_bb - 2 M_ab,

and noise on M is gentler than noise of the same budget on z itself: the part of it that stands on
the diagonal moves all pairs of a node alike, which the log barrier of (13) takes up. Measured at
I = 200, N = 50, d = 20, epsilon = 0.3: consensus MCC .86 against .78.

The *unit* is counted beside it: a histogram of log2 |x_n|^2, `WEIGHT` times each count, in the same
vector, so that both are one release of sensitivity sqrt(2) sqrt(1 + WEIGHT^2). The window of
octaves that holds most signals is found in spite of noise on empty bins, and the median within it
is the scale: a noisy quantile that costs 2 % more noise on M and no message.

With a fixed ``clip`` = C in its place, M_n = x_n x_n' of signals whose z_n is scaled to norm C at
most. As |z|^2 = d sum x^4 + 3 |x|^4 >= 4 |x|^4, that leaves |M_n|_F <= C / 2.

Matrices travel as vectors (d (d + 1) / 2,), entries beside the diagonal times sqrt(2), so that
lengths are Frobenius norms.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from trellis.apps.common.metrics import edges
from trellis.apps.consensus_graph.problem import (
    Matrix,
    Vector,
    centred_units,
    clipped_signals,
    edge_vector,
)
from trellis.apps.consensus_graph.solver import solve

# Of the secure sum: a thousandth of what one signal moves it by, and less.
FRACTION_BITS = 20
# Bins of the histogram of log2 |x|^2, one octave each; what is beyond counts in the outermost.
OCTAVES = (-64, 64)
# Each count stands in the vector this many times; a larger weight buys scale with shape.
WEIGHT = 0.2
# Most signals' sizes lie within this many octaves (a factor 16 in |x|^2).
_WINDOW = 4
# Signals that clients may declare, over those that the sum shows; the rest may be constant signals.
_MOST_DECLARED = 2.0
# Deviations of noise that the sum's own number of signals may be off by.
_DEVIATIONS = 6.0
# alpha beta / (mean z)^2 of the consensus; see `consensus_of`.
SMOOTHNESS = 0.15


@dataclass(frozen=True)
class Pooled:
    """What the server knows of all signals together.

    Attributes
    ----------
    z : (p,) mean squared differences, noisy; entries may be negative
    noise : standard deviation of the noise in an entry of ``z``, over the mean entry; 0 without
    """

    z: Vector
    noise: float


def layout(d: int, clip: float) -> dict[str, tuple[int, ...]]:
    """Return names and shapes of what every device adds to the sum."""
    shape: dict[str, tuple[int, ...]] = {"shape": (d * (d + 1) // 2,)}
    return shape if clip > 0.0 else {**shape, "sizes": (OCTAVES[1] - OCTAVES[0],)}


def sensitivity(clip: float) -> float:
    """Return how far (l2) one signal replaced moves the arrays of `summands`, taken together."""
    return float(np.sqrt(2.0) * (1.0 if clip > 0.0 else np.sqrt(1.0 + WEIGHT**2)))


def summands(signals: Matrix, clip: float = 0.0) -> dict[str, Vector]:
    """Return what one client adds to the sum, from its ``signals`` (N, d).

    ``clip`` = 0 takes directions and counts sizes; C > 0 clips, in units of C / 2.
    """
    if clip > 0.0:
        kept = clipped_signals(np.asarray(signals, dtype=np.float64), clip)
        kept = kept / np.sqrt(0.5 * clip)
        return {"shape": _as_vector(kept.T @ kept)}
    units, octaves = directions(signals)
    counts = np.bincount(octaves[octaves >= 0], minlength=OCTAVES[1] - OCTAVES[0])
    return {"shape": _as_vector(units.T @ units), "sizes": WEIGHT * counts.astype(np.float64)}


def directions(signals: Matrix) -> tuple[Matrix, np.ndarray[tuple[int, ...], np.dtype[np.intp]]]:
    """Return the signals, centred and of norm 1 or 0, and the bins of their sizes, -1 for none."""
    unit, exponent = centred_units(np.asarray(signals, dtype=np.float64))
    norms = np.sqrt(np.sum(unit * unit, axis=1))
    some = norms > 0.0
    norms = np.where(some, norms, 1.0)
    octave = np.floor(2.0 * (np.log2(norms) + exponent)).astype(np.int64)
    octave = np.clip(octave, OCTAVES[0], OCTAVES[1] - 1) - OCTAVES[0]
    return unit / norms[:, None], np.where(some, octave, -1).astype(np.intp)


def signals_in(total: Mapping[str, Vector], declared: int, clip: float, noise: float) -> int:
    """Return the number of signals to divide a sum by, where ``declared`` may be false.

    Directions have trace 1, so the trace of the sum is the number of signals that are not constant,
    and noise: where clients declare more than `_MOST_DECLARED` times that, it counts. Clipped
    signals have no known trace, and what is declared stands. Parameters as for `pool`.
    """
    if clip > 0.0:
        return declared
    matrix = _centred(_as_matrix(total["shape"]))
    shown = max(float(np.trace(matrix)), 0.0) + _DEVIATIONS * noise * float(np.sqrt(len(matrix)))
    return declared if declared <= _MOST_DECLARED * shown else max(round(shown), 1)


def pool(total: Mapping[str, Vector], count: int, clip: float, noise: float) -> Pooled:
    """Return the pooled statistic from the sum of the `summands` of all clients.

    Parameters
    ----------
    total : the arrays of `layout`, summed, noise in them
    count : signals of all clients in the sum; public
    noise : standard deviation of the noise in one entry of ``total``
    """
    matrix = _centred(_as_matrix(total["shape"])) / count
    d = matrix.shape[0]
    centre = np.eye(d) - 1.0 / d
    if clip > 0.0:
        scale = 0.5 * clip
        # Clipped signals have a trace that is not known; noise must not make it vanish.
        trace = max(float(np.trace(matrix)), noise / count)
    else:
        scale, trace = typical_size(total["sizes"]), 1.0
    # Directions have trace 1: what differs is noise, or constant signals.
    matrix = matrix + (trace - float(np.trace(matrix))) / (d - 1) * centre
    diagonal = np.diagonal(matrix)
    z = edge_vector(diagonal[:, None] + diagonal[None, :] - 2.0 * matrix)
    # M_aa and M_bb have variance s^2 and M_ab half of it: z_ab has 4 s^2, the centring aside.
    relative = 2.0 * (noise / count) / float(np.mean(z))
    return Pooled(scale * z, relative)


def typical_size(sizes: Vector) -> float:
    """Return the typical |x|^2 from the noisy histogram ``sizes``, `WEIGHT` times the counts."""
    mass = np.convolve(sizes, np.ones(_WINDOW), mode="valid")
    first = int(np.argmax(mass))
    inside = np.maximum(sizes[first : first + _WINDOW], 0.0)
    whole = float(np.sum(inside))
    if not whole > 0.0:
        return 1.0
    below = np.concatenate([[0.0], np.cumsum(inside)])
    # The median, linear within its octave.
    position = float(np.interp(0.5 * whole, below, np.arange(below.size, dtype=np.float64)))
    return float(2.0 ** (OCTAVES[0] + first + position))


def consensus_of(pooled: Pooled, alpha: float) -> Vector:
    """Return the sparse graph (p,) that clients share: (13) on the pooled statistic, solved once.

    The ridge has alpha beta / (mean z)^2 = `SMOOTHNESS`. Between 0.1 and 0.2 the consensus was best
    or next to it in every setting measured: 20 to 1000 clients, epsilon from 0.3 to no noise at
    all; so it does not depend on the noise. Weights that do not count as edges are what single
    clients' own edges and noise add up to: without them clients' graphs at home came out better
    by up to .006 in MCC.
    """
    w = solve(pooled.z, alpha, smoothness_beta(pooled.z, alpha, SMOOTHNESS)).w
    return np.where(edges(w), w, 0.0)


def smoothness_beta(z: Vector, alpha: float, smoothness: float) -> float:
    """Return the ridge with alpha beta / (mean z)^2 = ``smoothness``.

    By the scale law w*(c z, alpha, c^2 beta) = w*(z, alpha, beta) / c that product alone decides
    which edges (13) finds, whatever the unit of the data.
    """
    return float(smoothness * np.mean(z) ** 2 / alpha)


def _as_vector(matrix: Matrix) -> Vector:
    return np.concatenate([np.diagonal(matrix), np.sqrt(2.0) * edge_vector(matrix)])


def _as_matrix(vector: Vector) -> Matrix:
    d = (round(float(np.sqrt(1 + 8 * vector.size))) - 1) // 2
    matrix = np.zeros((d, d))
    matrix[np.triu_indices(d, 1)] = vector[d:] / np.sqrt(2.0)
    return matrix + matrix.T + np.diag(vector[:d])


def _centred(matrix: Matrix) -> Matrix:
    """Return P M P, P taking out means: all signals have none, so what it removes is noise."""
    rows = matrix - matrix.mean(axis=0, keepdims=True)
    return np.asarray(rows - rows.mean(axis=1, keepdims=True), dtype=np.float64)
