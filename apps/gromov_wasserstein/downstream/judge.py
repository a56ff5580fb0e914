"""What can be learned from the distances between graphs, always beside what proves nothing.

From D (N, N) and the graphs' labels, where clients shared them: an SVM on exp(-gamma D), nearest
neighbours, clusters, anomaly scores. Beside every accuracy stand the controls of `controls`: the
majority, the numbers of nodes alone, and with an encoder the same encoder on a constant embedding,
``draws`` times. The run's own embedding was encoded once: to draw it again would cost its budget
again, so its accuracy is of one draw, and one draw moves it by several points.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trellis.strategies.gromov_wasserstein.barycentre import kmeans
from trellis.strategies.gromov_wasserstein.embeddings import Released
from trellis.strategies.gromov_wasserstein.pruning.medoids import medoids
from trellis.strategies.gromov_wasserstein.pruning.partial import PartialDistances

from ..config import GromovWassersteinConfig
from ..distances import costs, distances, partial_distances, split
from ..release import simulated_release
from .classify import Accuracy, knn_accuracy, svm_accuracy
from .controls import majority, sizes_only
from .needed import NEIGHBOURS, cluster_count, solve_for_votes
from .tasks import anomaly_scores, cluster_scores, outlier_scores, spectral_clusters

log = logging.getLogger("trellis.run")

Array = NDArray[np.float64]
Labels = NDArray[np.int64]
Score = Callable[[Array, Labels], Accuracy]

SEEN = (
    "task='graph': the model was trained on the labels of seven in ten of these graphs, so the "
    "accuracies from its embeddings are flattered; task='node' uses no label of a graph."
)


@dataclass
class Judgement:
    """Numbers for the headline, arrays for ``result.npz``, and what a reader must know."""

    numbers: dict[str, float] = field(default_factory=dict)
    arrays: dict[str, NDArray[Any]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


def judge(
    config: GromovWassersteinConfig,
    seed: int,
    found: Array,
    released: Released,
    known: PartialDistances | None = None,
) -> Judgement:
    """Return what the settings' ``downstream`` makes of the distances ``found``.

    With ``pairs = "needed"`` these are ``known``, with lower bounds in place of what was not
    needed: they are above all that is looked at (`needed`).
    """
    told, names, labels = Judgement(), config.downstream_names(), released.labels
    labelled = bool(np.any(labels >= 0))
    if names and not labelled:
        told.notes.append("No graph has a label, so accuracies are not told.")
    elif config.trains and config.task == "graph" and {"svm", "knn"} & set(names):
        told.notes.append(SEEN)
    constant: list[Array] = []
    if labelled and config.encoder != "none" and {"svm", "knn"} & set(names):
        constant = constant_distances(config, seed, released)
    for name in names:
        try:
            if name in ("svm", "knn"):
                if labelled:
                    _classified(name, seed, found, constant, released, told)
            elif name == "anomaly":
                told.arrays["anomaly"] = anomaly_scores(found)
            elif name == "outliers":
                told.arrays["outliers"] = outlier_scores(found)
            else:
                _clustered(name, config, seed, found, released, told, known)
        except (ImportError, ValueError) as error:
            told.notes.append(f"downstream {name}: {error}")
            log.warning("downstream %s: %s", name, error)
    if labelled and told.numbers:
        told.numbers["majority"] = majority(labels)
    return told


def _classified(
    name: str,
    seed: int,
    found: Array,
    constant: list[Array],
    released: Released,
    told: Judgement,
) -> None:
    """Enter the accuracies of one classifier and of its controls."""
    labels = released.labels
    for title, score in scores(name, len(labels), seed).items():
        accuracy = score(found, labels)
        told.numbers[f"{title}-accuracy"] = accuracy.mean
        told.numbers[f"{title}-from-sizes"] = sizes_only(released.sizes, labels, score).mean
        if constant:
            drawn = np.array([score(control, labels).mean for control in constant])
            told.numbers[f"{title}-from-constant"] = float(np.mean(drawn))
            told.arrays[f"{title}-from-constant"] = drawn
        told.notes += [f"{title}: {note}" for note in accuracy.notes if note not in told.notes]


def scores(name: str, graphs: int, seed: int) -> dict[str, Score]:
    """Return the classifiers that a name of ``downstream`` stands for."""
    if name == "svm":
        # The paper's grid of C and gamma takes five times as long; its table uses it.
        return {"svm": partial(svm_accuracy, seed=seed, grid="quick")}
    return {f"knn{k}": partial(knn_accuracy, k=k, seed=seed) for k in NEIGHBOURS if 2 * k < graphs}


def constant_distances(
    config: GromovWassersteinConfig, seed: int, released: Released
) -> list[Array]:
    """Return D (N, N) of the same encoder and metric on a constant embedding, ``draws`` times."""
    h = released.codes.shape[1]
    rows = [np.full((int(n), h), 1.0 / h) for n in released.sizes]
    found = []
    for draw in range(config.draws):
        drawn = simulated_release(config, rows, draw, seed)
        if config.pairs == "all":
            found.append(distances(config, *drawn, seed=seed))
        else:
            known = partial_distances(config, *drawn, seed=seed)
            solve_for_votes(known, released.labels, max(NEIGHBOURS), seed)
            found.append(known.bounds)
    return found


def _clustered(
    name: str,
    config: GromovWassersteinConfig,
    seed: int,
    found: Array,
    released: Released,
    told: Judgement,
    known: PartialDistances | None,
) -> None:
    """Enter the clusters that a method finds, and how they agree with the labels."""
    labels = released.labels
    count = cluster_count(labels)
    if name == "spectral":
        clusters = spectral_clusters(found, count, seed=seed)
    elif name == "medoids":
        matrix = PartialDistances.solved(found) if known is None else known
        around = medoids(matrix, count, seed=seed)
        clusters, told.arrays["medoids"] = around.labels, around.medoids
    elif config.metric != "gw":
        raise ValueError(f"barycentres are of metric='gw', the run's is {config.metric!r}")
    else:
        rows = split(released.codes, released.sizes)
        second = split(released.second, released.sizes) if released.second.size else None
        clusters = kmeans(costs(config, rows, second), None, count, seed=seed).labels
    told.arrays[f"{name}-clusters"] = clusters
    if np.any(labels >= 0):
        agreement = cluster_scores(clusters, labels)
        told.numbers[f"{name}-ari"] = agreement.ari
        told.numbers[f"{name}-purity"] = agreement.purity
