"""Which pairs of graphs must be solved for what is done with distances, and no others.

    knn        the k nearest training graphs of every graph, in every fold
    outliers   the fifth nearest of every graph
    medoids    some of each cluster's own pairs, and what decides between two medoids
    kmeans     none: its barycentres are compared with graphs, not graphs with each other

Every device is also told the graphs that are nearest to its own. An SVM, spectral clusters and the
mean distance to all others read the whole matrix: there is nothing to leave out.

Where a pair was not needed its lower bound is above everything that was looked for, so the bound
may stand in its place: votes, scores and clusters are those of the whole matrix, ties included.
"""

from __future__ import annotations

import numpy as np

from trellis.strategies.gromov_wasserstein.pruning.medoids import medoids
from trellis.strategies.gromov_wasserstein.pruning.neighbours import nearest
from trellis.strategies.gromov_wasserstein.pruning.partial import PartialDistances

from ..config import GromovWassersteinConfig
from .classify import Labels, outer_folds
from .tasks import OUTLIER_NEIGHBOUR

NEIGHBOURS = (5, 20)  # of the votes
FOLDS = 10


def solve_needed(
    config: GromovWassersteinConfig,
    seed: int,
    known: PartialDistances,
    labels: Labels,
    near: int,
) -> None:
    """Solve what the settings' ``downstream`` and the ``near`` nearest of every graph need."""
    names = config.downstream_names()
    nearest(known, max(near, OUTLIER_NEIGHBOUR if "outliers" in names else 1))
    if "knn" in names:
        votes = [k for k in NEIGHBOURS if 2 * k < len(labels)]
        solve_for_votes(known, labels, max(votes, default=0), seed)
    if "medoids" in names and cluster_count(labels) <= len(labels):
        medoids(known, cluster_count(labels), seed=seed)


def solve_for_votes(known: PartialDistances, labels: Labels, k: int, seed: int) -> None:
    """Solve what the votes of the k nearest training graphs need, in `knn_accuracy`'s folds."""
    try:
        splits, _ = outer_folds(labels, FOLDS, seed)
    except ValueError:  # too few labels for any vote; who asks for the accuracy is told so
        return
    allowed = np.zeros((len(labels), len(labels)), dtype=bool)
    for train_at, test_at in splits:
        allowed[np.ix_(test_at, train_at)] = True
    if k:
        nearest(known, k, queries=np.flatnonzero(labels >= 0), allowed=allowed)


def cluster_count(labels: Labels) -> int:
    """Return how many clusters are looked for: as many as classes, two at least."""
    return max(2, len(np.unique(labels[labels >= 0])))
