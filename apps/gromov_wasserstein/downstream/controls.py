"""Controls: what an accuracy has to beat before it says anything about embeddings.

Three, to be shown beside every result, with the same classifier and the same folds:

- `majority`: always the commonest class;
- `sizes_only`: the classifier on |n_i - n_j|, the numbers of nodes, which every release gives away;
- a constant embedding: the same encoder, estimator and distances on rows that are 1/h everywhere
  (`judge` for a run, the figures' `scores`). Its codes are pure coin flips, yet the *number* of
  them still shows through the distances, so it can score well above the majority.

n_i : (N,) nodes of the graphs, public; h : length of a row. One draw of the encoder moves an
accuracy by several points, so embeddings and controls are drawn ``draws`` times (5 or more) and
compared draw by draw: draw t of graph i uses the same uniforms for every embedding, so the same
coordinates are sent and the same bits flipped, and only the embedding differs.

Privacy: majority, sizes and the constant embedding touch no embedding and cost nothing. Drawing a
*real* embedding again costs its epsilon again: that is for simulations, on a device every draw is
a release.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .classify import Accuracy, Labels

Matrix = NDArray[np.float64]
Score = Callable[[Matrix, Labels], Accuracy]  # of D and labels: partial(svm_accuracy, seed=1)

ENOUGH_DRAWS = 5


@dataclass(frozen=True)
class Paired:
    """Mean of paired differences and its standard error.

    The error is that of the encoder's draws only: graphs, folds and model are the same in all of
    them, and another sample of graphs would move both accuracies.
    """

    mean: float
    error: float
    draws: int

    def summary(self) -> str:
        """Return the line for people, in points of per cent."""
        text = f"{100 * self.mean:+.1f} ± {100 * self.error:.1f} points over {self.draws} draws"
        few = f" (too few: {ENOUGH_DRAWS} or more are needed to tell)"
        return text + (few if self.draws < ENOUGH_DRAWS else "")


def majority(labels: ArrayLike) -> float:
    """Return the share of the commonest class among the labelled graphs; labels (N,), -1 unknown.

    It is chosen on all of them, so no honest constant guess does better.
    """
    y = np.asarray(labels, dtype=np.int64)
    known = y[y >= 0]
    if known.size == 0:
        raise ValueError("labels: all are -1 (unknown); there is no majority")
    return float(np.bincount(known).max() / known.size)


def sizes_only(sizes: ArrayLike, labels: ArrayLike, score: Score) -> Accuracy:
    """Return the accuracy from the numbers of nodes ``sizes`` (N,) alone, D_ij = |n_i - n_j|."""
    n = _sizes(sizes).astype(np.float64)
    return score(np.abs(n[:, None] - n[None, :]), np.asarray(labels, dtype=np.int64))


def paired(ours: ArrayLike, control: ArrayLike) -> Paired:
    """Return the mean of ``ours - control``, both (draws,), and its standard error.

    Draw t of both must come from the same uniforms and folds; else use two means.
    """
    a, b = np.asarray(ours, dtype=np.float64), np.asarray(control, dtype=np.float64)
    if a.shape != b.shape or a.ndim != 1:
        raise ValueError(f"ours {a.shape}, control {b.shape}: one accuracy a draw each, paired")
    if len(a) < 2:
        raise ValueError(
            f"{len(a)} draw(s): a standard error needs 2, and {ENOUGH_DRAWS} to mean something; "
            "set draws"
        )
    if not (np.isfinite(a).all() and np.isfinite(b).all()):
        raise ValueError("ours, control: accuracies must be finite")
    difference = a - b
    error = float(difference.std(ddof=1)) / math.sqrt(len(a))
    return Paired(float(difference.mean()), error, len(a))


def _sizes(sizes: ArrayLike) -> NDArray[np.int64]:
    n = np.asarray(sizes, dtype=np.int64)
    if n.ndim != 1 or (n < 1).any():
        raise ValueError("sizes: one number of nodes >= 1 for each graph is needed, (N,)")
    return n
