"""How well a learned graph agrees with a known one."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

Vector = NDArray[np.float64]

# An edge counts where its weight exceeds this share of the graph's largest weight. The papers leave
# the threshold open and it matters, so every report names it.
EDGE_THRESHOLD = 0.2
LOOSE_EDGE_THRESHOLD = 1e-4


def edges(weights: Vector, threshold: float = EDGE_THRESHOLD) -> NDArray[np.bool_]:
    """Return which entries of ``weights`` (..., p) exceed a share of the largest in their row."""
    magnitude = np.abs(weights)
    return magnitude > threshold * np.max(magnitude, axis=-1, keepdims=True, initial=0.0)


def matthews(learned: Vector, truth: Vector, threshold: float = EDGE_THRESHOLD) -> float:
    """Return Matthews' correlation of learned and true edges, (34) of [ZW] with counts.

    0 where one of the two graphs is empty or complete, as is usual for an undefined ratio.
    """
    guess, fact = edges(learned, threshold), np.asarray(truth) != 0.0
    hits = np.count_nonzero(guess & fact)
    return float(matthews_of(hits, np.count_nonzero(guess), np.count_nonzero(fact), guess.size))


def matthews_of(hits: ArrayLike, learned: ArrayLike, true: ArrayLike, pairs: int) -> Vector:
    """Return the same from counts, of one graph or of many at once.

    Parameters
    ----------
    hits, learned, true : (...,) how many edges are both, learned, true
    pairs : how many there could be
    """
    tp, guess, fact = (np.asarray(count, dtype=np.float64) for count in (hits, learned, true))
    fp, fn = guess - tp, fact - tp
    tn = pairs - tp - fp - fn
    norm = np.sqrt((tp + fp) * (tp + fn) * (tn + fp) * (tn + fn))
    return np.divide(tp * tn - fp * fn, norm, out=np.zeros_like(norm), where=norm > 0.0)


def matthews_each(learned: Vector, truth: Vector, threshold: float = EDGE_THRESHOLD) -> Vector:
    """Return Matthews' correlation (n,) of every graph (n, p) with its own true one (n, p)."""
    guess, fact = edges(learned, threshold), truth != 0.0
    hits, learnt, true = (np.count_nonzero(a, axis=-1) for a in (guess & fact, guess, fact))
    return matthews_of(hits, learnt, true, guess.shape[-1])


def relative_error(learned: Vector, truth: Vector) -> float:
    """Return |learned - truth| / |truth|, (35) of [ZW]."""
    norm = float(np.linalg.norm(truth))
    if norm == 0.0:
        return 0.0 if not np.any(learned) else float("inf")
    return float(np.linalg.norm(np.asarray(learned) - truth)) / norm
