"""How well a path of graphs finds a known one: ROC and precision-recall curves, and their areas.

A path is L graphs a client, ``support`` (L, K, pairs), held against ``truth`` (K, pairs). Counts
are pooled over the clients before any ratio is taken: TPR = TP / (TP + FN) (the paper prints
another), FPR = FP / (FP + TN), precision = TP / (TP + FP).

A path seldom reaches the empty and the complete graph, and it need not be monotone: an edge may
leave again as lambda falls. So both curves are taken through their points in order of the
horizontal axis, whatever order they came in, and extended by what is known of the ends: the empty
graph at (0, 0) and the complete one at (1, 1) of the ROC curve; the complete one, of recall 1 and
precision the share of true edges, of the other. A method is then measured as if the edges beyond
its last graph were guessed at random.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Support = NDArray[np.bool_]


class Confusion(NamedTuple):
    """Counts of pairs, each of the leading shape of what was compared."""

    true_positives: Array
    false_positives: Array
    false_negatives: Array
    true_negatives: Array


class Curve(NamedTuple):
    """Points of a curve, in the order of the path."""

    x: Array
    y: Array


def confusion(support: Support, truth: Support) -> Confusion:
    """Return the counts over the last axis of ``support`` and ``truth`` (..., pairs), broadcast."""
    found = np.asarray(support, dtype=bool)
    fact = np.asarray(truth, dtype=bool)
    positives = np.count_nonzero(found, axis=-1)
    facts = np.count_nonzero(fact, axis=-1)
    hits = np.count_nonzero(found & fact, axis=-1)
    rest = found.shape[-1] - positives - facts + hits
    counts = np.broadcast_arrays(hits, positives - hits, facts - hits, rest)
    return Confusion(*(count.astype(np.float64) for count in counts))


def roc_points(support: Support, truth: Support) -> Curve:
    """Return FPR and TPR (L,) of a path ``support`` (L, K, pairs) against ``truth`` (K, pairs).

    NaN where there is nothing to find (no true edge), or nothing to find wrongly.
    """
    tp, fp, fn, tn = _pooled(support, truth)
    return Curve(_ratio(fp, fp + tn, np.nan), _ratio(tp, tp + fn, np.nan))


def pr_points(support: Support, truth: Support) -> Curve:
    """Return recall and precision (L,) of a path; the precision of an empty graph is 1."""
    tp, fp, fn, _ = _pooled(support, truth)
    return Curve(_ratio(tp, tp + fn, np.nan), _ratio(tp, tp + fp, 1.0))


def area_under_roc(fpr: Array, tpr: Array) -> float:
    """Return the area under straight lines through the points, (0, 0) and (1, 1).

    Points of equal FPR are a vertical step, lowest first. 0.5 is guessing; NaN stays NaN.
    """
    x = np.concatenate([[0.0], np.ravel(fpr), [1.0]])
    y = np.concatenate([[0.0], np.ravel(tpr), [1.0]])
    order = np.lexsort((y, x))
    x, y = x[order], y[order]
    return float(np.sum(np.diff(x) * (y[1:] + y[:-1])) / 2.0)


def area_under_pr(recall: Array, precision: Array, prevalence: float) -> float:
    """Return the average precision: the sum over rises in recall of rise times precision.

    Steps and not straight lines, which would promise more than can be had between two points. At
    equal recall the best precision counts. ``prevalence``, the share of true edges among all pairs,
    is the precision of the complete graph, and what guessing gives.
    """
    x = np.concatenate([np.ravel(recall), [1.0]])
    y = np.concatenate([np.ravel(precision), [prevalence]])
    order = np.lexsort((-y, x))
    x, y = x[order], y[order]
    return float(np.sum(np.diff(x, prepend=0.0) * y))


def prevalence(truth: Support) -> float:
    """Return the share of true edges among all pairs of all clients."""
    return float(np.mean(np.asarray(truth, dtype=bool)))


def _pooled(support: Support, truth: Support) -> Confusion:
    if support.ndim != 3 or support.shape[1:] != truth.shape:
        raise ValueError(
            f"support {support.shape} against truth {truth.shape}: (L, K, pairs) and (K, pairs) "
            "are needed"
        )
    return Confusion(*(count.sum(axis=-1) for count in confusion(support, truth)))


def _ratio(part: Array, whole: Array, otherwise: float) -> Array:
    """Return part / whole, ``otherwise`` where whole is 0."""
    return np.divide(part, whole, out=np.full(part.shape, otherwise), where=whole > 0.0)
