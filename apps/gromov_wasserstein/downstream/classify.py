"""Classify graphs by the distances between them, with an accuracy that can be believed.

D : (N, N) distances between graphs, symmetric, >= 0, zero diagonal; labels : (N,) classes of the
graphs, -1 = unknown. Graphs without a label are left out of training and of the score (the result
says how many). The classifier of [JC] is the C-SVM on the indefinite kernel of [JC] Section 4,

    K_ij = exp(-gamma D_ij),    C in {1e-7, ..., 1e7},    gamma in {2^-10, ..., 2^10}.

K goes to libsvm as it is, neither clipped nor flipped: its SMO then stops at a stationary point,
which need not be the best one. C and gamma come from nested cross-validation: for every outer fold
they are chosen by an inner cross-validation **on its training graphs alone**, so that a graph never
takes part in the choices made to classify it. ([JC] splits 7 : 2 : 1 and does not say how often.)
Folds depend on (labels, seed, folds) only: two results of the same three are paired.

Privacy: post-processing of D. The labels of the graphs are taken as known to the server.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from trellis.apps.common.seeds import generator
from trellis.install import pip_install

Matrix = NDArray[np.float64]
Labels = NDArray[np.int64]

_MAX_STEPS = 200_000  # of SMO; an indefinite kernel with a huge C can take longer than it is worth


@dataclass(frozen=True)
class Grid:
    """Ascending C of the SVM and gamma of its kernel, for the inner cross-validation."""

    costs: tuple[float, ...]
    gammas: tuple[float, ...]


def _powers(base: float, exponents: range) -> tuple[float, ...]:
    return tuple(base**k for k in exponents)


GRIDS = {
    "paper": Grid(_powers(10.0, range(-7, 8)), _powers(2.0, range(-10, 11))),  # [JC] Section 4
    "quick": Grid(_powers(10.0, range(-1, 4)), _powers(2.0, range(-10, 11, 2))),
}


@dataclass(frozen=True)
class Accuracy:
    """Cross-validated accuracy.

    Attributes
    ----------
    per_fold : (folds,) accuracy on each fold's test graphs
    predicted : (N,) class given to each graph while it was a test graph; -1 where it has no label
    notes : what was left out or changed, for the reader of the number
    """

    per_fold: NDArray[np.float64]
    predicted: Labels
    notes: tuple[str, ...] = ()

    @property
    def mean(self) -> float:
        """Mean over the folds."""
        return float(self.per_fold.mean())

    @property
    def deviation(self) -> float:
        """Standard deviation over the folds, what [JC] Table 1 gives; not a standard error."""
        return float(self.per_fold.std(ddof=1))

    def summary(self) -> str:
        """Return the line for people, as in [JC] Table 1, in per cent."""
        text = f"{100 * self.mean:.1f} ± {100 * self.deviation:.1f}"
        return "; ".join((text, *self.notes))


def svm_accuracy(
    distances: ArrayLike,
    labels: ArrayLike,
    *,
    seed: int,
    folds: int = 10,
    grid: Literal["paper", "quick"] | Grid = "paper",
    inner_folds: int = 3,
) -> Accuracy:
    """Return the accuracy of the SVM on exp(-gamma D) by nested cross-validation.

    Parameters
    ----------
    distances : D (N, N)
    labels : (N,), -1 unknown
    seed : of the folds
    folds : outer folds; fewer, with a note, where a class has fewer graphs
    grid : ``paper`` is 15 x 21 pairs of C and gamma, ``quick`` 5 x 11
    inner_folds : of the choice of C and gamma; fewer where a class has fewer training graphs
    """
    d = checked_distances(distances)
    y = _checked_labels(labels, len(d))
    chosen = GRIDS[grid] if isinstance(grid, str) else grid
    kernels = [lambda part, g=g: np.exp(-g * part) for g in chosen.gammas]
    return _nested_svm(d, kernels, chosen.costs, y, seed, folds, inner_folds)


def kernel_svm_accuracy(
    kernel: ArrayLike,
    labels: ArrayLike,
    *,
    seed: int,
    folds: int = 10,
    costs: Sequence[float] = GRIDS["paper"].costs,
    inner_folds: int = 3,
) -> Accuracy:
    """Return the accuracy of the SVM on a given kernel (N, N), C chosen as in `svm_accuracy`."""
    k = _symmetric(kernel, "kernel")
    y = _checked_labels(labels, len(k))
    return _nested_svm(k, [lambda part: part], tuple(costs), y, seed, folds, inner_folds)


def knn_accuracy(
    distances: ArrayLike, labels: ArrayLike, k: int, *, seed: int, folds: int = 10
) -> Accuracy:
    """Return the accuracy of the vote of the k nearest training graphs, cross-validated.

    Graphs at the distance of the k-th share the votes that are left, and a tied vote goes to the
    class with more training graphs: D has many equal entries (isomorphic graphs, distances of
    sizes), and a rule by position would read the labels out of a file that is sorted by class.
    """
    d = checked_distances(distances)
    y = _checked_labels(labels, len(d))
    splits, notes = outer_folds(y, folds, seed)
    classes = np.unique(y[y >= 0])
    predicted = np.full(len(y), -1, dtype=np.int64)
    scores = []
    for train_at, test_at in splits:
        if not 1 <= k <= len(train_at):
            raise ValueError(f"k={k}: must be between 1 and the {len(train_at)} training graphs")
        near = d[np.ix_(test_at, train_at)]
        kth = np.partition(near, k - 1, axis=1)[:, k - 1 : k]
        closer, tied = near < kth, near == kth
        left = k - closer.sum(axis=1, keepdims=True)
        weights = closer + tied * (left / tied.sum(axis=1, keepdims=True))
        members = (y[train_at][:, None] == classes).astype(np.float64)
        # Rounded: three thirds of a vote are one. The small second term only breaks ties.
        votes = np.round(weights @ members, 9) + 1e-10 * members.mean(axis=0)
        predicted[test_at] = classes[votes.argmax(axis=1)]
        scores.append(np.mean(predicted[test_at] == y[test_at]))
    return Accuracy(np.array(scores), predicted, notes)


def stratified_folds(labels: Labels, folds: int, rng: np.random.Generator) -> list[Labels]:
    """Return the positions of each fold: sizes, and every class, even to within one."""
    shuffled = rng.permutation(len(labels))
    by_class = shuffled[np.argsort(labels[shuffled], kind="stable")]
    return [np.sort(by_class[fold::folds]) for fold in range(folds)]


def outer_folds(
    labels: Labels, folds: int, seed: int, needed: int = 1
) -> tuple[list[tuple[Labels, Labels]], tuple[str, ...]]:
    """Return (training, test) graphs of each fold, and notes on what was left out or changed.

    Graphs with label -1 are in neither. ``needed`` graphs of every class must be left to train on.
    """
    known = np.flatnonzero(labels >= 0)
    classes, counts = np.unique(labels[known], return_counts=True)
    if len(classes) < 2:
        raise ValueError(f"labels: {len(classes)} class among the labelled graphs, 2 are needed")
    if folds < 2:
        raise ValueError(f"folds={folds}: must be >= 2")
    rarest, least = int(classes[counts.argmin()]), int(counts.min())
    used = min(folds, least)
    if used < 2 or least - -(-least // used) < needed:
        raise ValueError(
            f"labels: class {rarest} has {least} graph(s), too few for cross-validation with "
            f"{folds} folds ({needed} must be left to train on); bring more graphs of class "
            f"{rarest}, or set its labels to -1 to leave it out"
        )
    notes = []
    if len(known) < len(labels):
        missing = len(labels) - len(known)
        notes.append(f"{missing} of {len(labels)} graphs have no label (-1) and were left out")
    if used < folds:
        notes.append(f"class {rarest} has {least} graphs: {used} folds instead of {folds}")
    tests = stratified_folds(labels[known], used, generator(seed, "outer folds"))
    return [(np.delete(known, test), known[test]) for test in tests], tuple(notes)


def _nested_svm(
    base: Matrix,
    kernels: Sequence[Callable[[Matrix], Matrix]],
    costs: tuple[float, ...],
    y: Labels,
    seed: int,
    folds: int,
    inner_folds: int,
) -> Accuracy:
    splits, notes = outer_folds(y, folds, seed, needed=2)  # the inner folds halve them again
    predicted = np.full(len(y), -1, dtype=np.int64)
    scores, stopped = [], 0
    for number, (train_at, test_at) in enumerate(splits):
        least = int(np.unique(y[train_at], return_counts=True)[1].min())
        rng = generator(seed, "inner folds", number)
        inner = stratified_folds(y[train_at], max(2, min(inner_folds, least)), rng)
        right = np.zeros((len(costs), len(kernels)))
        for column, kernel in enumerate(kernels):
            whole = kernel(base[np.ix_(train_at, train_at)])
            for held in inner:
                fit = np.delete(np.arange(len(train_at)), held)
                within, across = whole[np.ix_(fit, fit)], whole[np.ix_(held, fit)]
                guesses, cut = _svm_path(within, across, y[train_at[fit]], costs)
                right[:, column] += (guesses == y[train_at[held]]).sum(axis=1)
                stopped += cut
        # The first of equals: the smallest C, then the smallest gamma, the smoothest rule.
        row, column = divmod(int(right.argmax()), len(kernels))
        within, across = (kernels[column](base[np.ix_(at, train_at)]) for at in (train_at, test_at))
        guesses, cut = _svm_path(within, across, y[train_at], (costs[row],))
        stopped += cut
        predicted[test_at] = guesses[0]
        scores.append(np.mean(predicted[test_at] == y[test_at]))
    capped = (f"{stopped} SVM fits stopped after {_MAX_STEPS} steps",) if stopped else ()
    return Accuracy(np.array(scores), predicted, notes + capped)


def _svm_path(
    within: Matrix, across: Matrix, targets: Labels, costs: tuple[float, ...]
) -> tuple[Labels, int]:
    """Return the classes (costs, held) given to the held graphs, and how many fits were cut off."""
    svm = sklearn_part("svm")
    guesses = np.empty((len(costs), len(across)), dtype=np.int64)
    stopped = 0
    # Checked once above; checking each of thousands of small fits takes longer than the fit.
    unchecked = import_module("sklearn").config_context(
        assume_finite=True, skip_parameter_validation=True
    )
    with unchecked, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the cap, which is counted
        for row, cost in enumerate(costs):
            model = svm.SVC(C=cost, kernel="precomputed", max_iter=_MAX_STEPS)
            model.fit(within, targets)
            stopped += int(model.fit_status_ != 0)
            guesses[row] = model.predict(across)
            if np.abs(model.dual_coef_).max() < cost * (1.0 - 1e-9):
                # No multiplier at its bound C: the same point is stationary for every larger C.
                guesses[row + 1 :] = guesses[row]
                break
    return guesses, stopped


def sklearn_part(name: str) -> Any:
    """Return a module of scikit-learn. Late: only a server or a laptop needs it."""
    try:
        return import_module(f"sklearn.{name}")
    except ImportError:
        raise ImportError(
            f"classification and clustering need scikit-learn: {pip_install('laptop')}"
        ) from None


def checked_distances(distances: ArrayLike) -> Matrix:
    """Return D (N, N), checked, and symmetric to the last bit."""
    d = _symmetric(distances, "distances")
    slack = 1e-9 * float(np.abs(d).max(initial=1.0))  # rounding of a solver
    if d.size and d.min() < -slack:
        i, j = divmod(int(d.argmin()), len(d))
        raise ValueError(f"distances[{i}, {j}] = {d[i, j]}: negative; clip estimates at 0 first")
    if np.abs(np.diag(d)).max(initial=0.0) > slack:
        i = int(np.abs(np.diag(d)).argmax())
        raise ValueError(f"distances[{i}, {i}] = {d[i, i]}: must be 0; or is D a kernel?")
    return np.maximum(d, 0.0)


def _symmetric(matrix: ArrayLike, name: str) -> Matrix:
    m = np.asarray(matrix, dtype=np.float64)
    if m.ndim != 2 or m.shape[0] != m.shape[1]:
        raise ValueError(f"{name}: shape {m.shape}, (N, N) is needed")
    if not np.isfinite(m).all():
        i, j = divmod(int(np.isfinite(m).argmin()), len(m))
        raise ValueError(f"{name}[{i}, {j}] = {m[i, j]}: must be finite")
    gap = np.abs(m - m.T)
    if gap.max(initial=0.0) > 1e-6 * np.abs(m).max(initial=0.0):
        i, j = divmod(int(gap.argmax()), len(m))
        raise ValueError(f"{name}: not symmetric, [{i}, {j}] = {m[i, j]}, [{j}, {i}] = {m[j, i]}")
    return (m + m.T) / 2.0


def _checked_labels(labels: ArrayLike, count: int) -> Labels:
    y = np.asarray(labels)
    if y.shape != (count,) or not np.array_equal(y, y.astype(np.int64)):
        raise ValueError(f"labels: shape {y.shape}; a whole number for each of {count} graphs")
    return y.astype(np.int64)
