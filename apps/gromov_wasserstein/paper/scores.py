"""How the paper's experiments are scored: encoder draws, distances and accuracies. No torch.

The encoder is this study's dp one. [JC]'s epsilon can be read as a graph's budget or as a
row's; these experiments take it as a **row's**, the reading with the least noise (a graph's would
be n times less still). So its default 1/|V| is `DEFAULT`: 1 a graph, 1/n a row. Its prose turns
epsilon round; here small is private.

Before the SVM, D is divided by its mean: the paper's grid of gamma is for distances near 1, and
those of a softmax are down to 1e-9. Neighbours and clusters do not depend on it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import spearmanr

from trellis.strategies.gromov_wasserstein.pairwise import pairwise

from ..config import GromovWassersteinConfig
from ..distances import distances
from ..downstream.classify import GRIDS, Accuracy, Grid, knn_accuracy, svm_accuracy
from ..downstream.controls import paired
from ..release import simulated_release

Array = NDArray[np.float64]
Integers = NDArray[np.int64]

SEED = 1
QUICK = Grid(
    (0.1, 1.0, 10.0, 100.0, 1000.0), (1 / 16, 1 / 4, 1.0, 4.0, 16.0)
)  # of distances near 1
SVM_GRIDS = {"paper": GRIDS["paper"], "quick": QUICK, "smallest": Grid((1.0, 100.0), (1.0,))}


@dataclass(frozen=True, eq=False)
class Embedded:
    """Embeddings of some graphs by a model that saw none of the labels they are judged by.

    Attributes
    ----------
    places : (N,) of these graphs in their data set
    rows : H of each, (n_i, h)
    labels : (N,)
    """

    places: Integers
    rows: list[Array]
    labels: Integers

    @property
    def sizes(self) -> Integers:
        """Numbers of nodes, (N,)."""
        return np.array([len(rows) for rows in self.rows], dtype=np.int64)

    def first(self, count: int) -> Embedded:
        """Return the first so many graphs."""
        return Embedded(self.places[:count], self.rows[:count], self.labels[:count])

    def constant(self) -> Embedded:
        """Return the same graphs with an embedding that is 1/h everywhere: it knows nothing."""
        return replace(self, rows=[np.full_like(rows, 1.0 / rows.shape[1]) for rows in self.rows])


@dataclass(frozen=True)
class Budget:
    """An epsilon, of a ``graph`` or a ``node``, and what to call it; ``epsilon`` 0 is no LDP."""

    name: str
    epsilon: float
    per: str = "node"

    def config(self, **changes: Any) -> GromovWassersteinConfig:
        """Return the settings of a release with this budget."""
        private = {"privacy": "dp", "epsilon": self.epsilon, "budget-per": self.per}
        chosen = private if self.epsilon else {"privacy": "none"}
        return GromovWassersteinConfig.from_settings({**chosen, **changes})


NONE = Budget("no LDP", 0.0)
DEFAULT = Budget("1/n a node", 1.0, "graph")  # n = |V|, the number of nodes


def node_budget(epsilon: float) -> Budget:
    """Return an epsilon for every row."""
    return Budget(f"{epsilon:g} a node", epsilon)


def named_budget(told: float | str) -> Budget:
    """Return the budget that a figure's file tells: epsilon a node's row, or ``1/|V|``."""
    return DEFAULT if isinstance(told, str) else node_budget(float(told))


def released(
    config: GromovWassersteinConfig, rows: Sequence[Array], draw: int, seed: int = SEED
) -> tuple[list[Array], list[Array] | None]:
    """Return what arrives at the server in one draw; see `release.simulated_release`."""
    return simulated_release(config, rows, draw, seed)


def drawn_distances(
    job: tuple[GromovWassersteinConfig, Sequence[Array], int, int],
) -> Array:
    """Return D (N, N) after one draw of the encoder with one seed."""
    config, rows, draw, seed = job
    first, second = released(config, rows, draw, seed)
    return distances(config, first, second, workers=1)


@dataclass(frozen=True, eq=False)
class ScoreJob:
    """One accuracy: of embeddings, under a budget, in one draw.

    ``ways`` are ``svm-quick``, ``svm-paper``, ``svm-smallest`` or ``knn5`` and so on.
    """

    config: GromovWassersteinConfig
    parts: tuple[Embedded, ...]
    draw: int = 0
    ways: tuple[str, ...] = ("svm-quick",)
    seed: int = SEED


def score_job(job: ScoreJob) -> list[Accuracy]:
    """Return the accuracy by every way of the job."""
    found = [drawn_distances((job.config, part.rows, job.draw, job.seed)) for part in job.parts]
    labels = [part.labels for part in job.parts]
    return [accuracy(found, labels, way, job.seed) for way in job.ways]


@dataclass(frozen=True, eq=False)
class RawJob:
    """SVMs on distances of raw graphs; ``features`` None is GW on structures alone."""

    structures: list[Array]
    features: list[Array] | None
    labels: Integers
    way: str
    seeds: tuple[int, ...] = (SEED,)


def raw_job(job: RawJob) -> list[Accuracy]:
    """Return the accuracy from GW_A, or FGW_AX with equal weights, with every seed's folds."""
    metric = "gw" if job.features is None else "fgw"
    found = pairwise(job.structures, metric=metric, features=job.features, workers=1)  # type: ignore[arg-type]
    return [accuracy([found], [job.labels], job.way, seed) for seed in job.seeds]


def accuracy(
    found: Sequence[Array], labels: Sequence[Integers], way: str, seed: int = SEED
) -> Accuracy:
    """Return the cross-validated accuracy inside every part, their folds one after the other."""
    each = [_score(d, y, way, seed) for d, y in zip(found, labels, strict=True)]
    notes = tuple(dict.fromkeys(note for one in each for note in one.notes))
    return Accuracy(
        np.concatenate([one.per_fold for one in each]),
        np.concatenate([one.predicted for one in each]),
        notes,
    )


def _score(d: Array, labels: Integers, way: str, seed: int) -> Accuracy:
    if way.startswith("knn"):
        return knn_accuracy(d, labels, int(way.removeprefix("knn")), seed=seed)
    name = way.removeprefix("svm-")
    folds = 2 if name == "smallest" else 10
    scaled = d / (d.mean() or 1.0)
    return svm_accuracy(scaled, labels, seed=seed, grid=SVM_GRIDS[name], folds=folds)


def against(ours: Array, control: Array) -> tuple[float, float]:
    """Return the mean paired difference and its standard error, over draws."""
    if ours.size < 2:
        return float(np.mean(ours - control)), float("nan")
    found = paired(ours, control)
    return found.mean, found.error


def standard_error(values: Array, axis: int = 0) -> Array:
    """Return the standard error of the mean; not a number of one value."""
    count = values.shape[axis]
    if count < 2:
        return np.full_like(values.mean(axis=axis), np.nan)
    return np.asarray(values.std(axis=axis, ddof=1) / np.sqrt(count))


def banded(values: Array) -> tuple[Array, tuple[Array, Array]]:
    """Return the mean (k,) of values (k, repeats) and the ends of two standard errors around it."""
    mean, error = values.mean(axis=1), np.nan_to_num(standard_error(values, axis=1))
    return mean, (mean - 2.0 * error, mean + 2.0 * error)


def clearly(gain: float, error: float) -> bool:
    """Return whether a mean difference is above 0 by two standard errors; of one value by any."""
    return bool(gain > (0.0 if np.isnan(error) else 2.0 * error))


def rank_correlation(a: Array, b: Array) -> float:
    """Return Spearman's rho; 0 where one of the two is constant, as it orders nothing."""
    if np.ptp(a) == 0.0 or np.ptp(b) == 0.0:
        return 0.0
    return float(spearmanr(a, b).statistic)
