"""What a server does with the distances between graphs: classify, cluster, score, draw.

D : (N, N) distances between graphs, symmetric, >= 0, zero diagonal; labels : (N,), -1 = unknown,
left out of every comparison. Classification, and the rules of D, are in `classify`; here is what
needs no labels: spectral clusters, the anomaly score (mean distance to the others), the outlier
score (distance to the fifth nearest) and pictures.
(k-means with barycentres needs the graphs' matrices and is elsewhere.)

All is post-processing of D: what D cost, this costs, and no more.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.linalg import eigh
from threadpoolctl import threadpool_limits

from .classify import (
    GRIDS,
    Accuracy,
    Grid,
    Labels,
    Matrix,
    checked_distances,
    kernel_svm_accuracy,
    knn_accuracy,
    sklearn_part,
    svm_accuracy,
)

_MANY = 300  # graphs

__all__ = [
    "GRIDS",
    "Accuracy",
    "ClusterScores",
    "Grid",
    "anomaly_scores",
    "cluster_scores",
    "embedding_2d",
    "kernel_svm_accuracy",
    "knn_accuracy",
    "outlier_scores",
    "spectral_clusters",
    "svm_accuracy",
]

OUTLIER_NEIGHBOUR = 5  # whose distance is a graph's outlier score


@dataclass(frozen=True)
class ClusterScores:
    """Agreement of clusters with labels: adjusted Rand, normalised mutual information, purity.

    Purity grows with the number of clusters; compare it at equal numbers only. ``left_out`` graphs
    have no label.
    """

    ari: float
    nmi: float
    purity: float
    left_out: int


def spectral_clusters(distances: ArrayLike, count: int, gamma: float = 0.0, *, seed: int) -> Labels:
    """Return clusters (N,) 0..count-1 of the affinity exp(-gamma D), by Ng, Jordan and Weiss.

    k-means on the unit rows of the ``count`` leading eigenvectors of Q^-1/2 A Q^-1/2, with Q the
    row sums of A. ``gamma`` 0 takes one over the median distance.
    """
    d = checked_distances(distances)
    n = len(d)
    if not 1 <= count <= n:
        raise ValueError(f"count={count}: must be between 1 and the {n} graphs")
    if not (gamma >= 0.0 and np.isfinite(gamma)):
        raise ValueError(f"gamma={gamma}: must be >= 0 and finite; 0 = one over the median")
    if gamma == 0.0:
        apart = d[d > 0.0]
        gamma = 1.0 / float(np.median(apart)) if apart.size else 1.0
    affinity = np.exp(-gamma * d)
    root = np.sqrt(affinity.sum(axis=1))  # >= 1, as the diagonal is 1
    vectors = np.linalg.eigh(affinity / np.outer(root, root))[1][:, -count:]
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    rows = vectors / np.maximum(lengths, np.finfo(float).tiny)
    with warnings.catch_warnings():  # fewer distinct graphs than clusters: some stay empty
        warnings.simplefilter("ignore")
        means = sklearn_part("cluster").KMeans(count, n_init=10, random_state=seed)
        return np.asarray(means.fit_predict(rows), dtype=np.int64)


def cluster_scores(found: ArrayLike, labels: ArrayLike) -> ClusterScores:
    """Return how well clusters ``found`` (N,) agree with ``labels`` (N,), -1 unknown left out."""
    clusters, y = np.asarray(found), np.asarray(labels)
    if clusters.shape != y.shape or y.ndim != 1:
        raise ValueError(f"found {clusters.shape}, labels {y.shape}: one number a graph each")
    known = y >= 0
    if not known.any():
        raise ValueError("labels: all are -1 (unknown); clusters cannot be compared with them")
    metrics = sklearn_part("metrics")
    clusters, y = clusters[known], y[known]
    table = metrics.cluster.contingency_matrix(y, clusters)
    return ClusterScores(
        float(metrics.adjusted_rand_score(y, clusters)),
        float(metrics.normalized_mutual_info_score(y, clusters)),
        float(table.max(axis=0).sum() / len(y)),
        int((~known).sum()),
    )


def anomaly_scores(distances: ArrayLike) -> NDArray[np.float64]:
    """Return the mean distance (N,) of every graph to the others; large is unusual."""
    d = checked_distances(distances)
    if len(d) < 2:
        raise ValueError("distances: one graph has no others to be far from")
    return d.sum(axis=1) / (len(d) - 1)


def outlier_scores(distances: ArrayLike, k: int = OUTLIER_NEIGHBOUR) -> NDArray[np.float64]:
    """Return the distance (N,) of every graph to its k-th nearest other; large is unusual.

    Where there are fewer others, to the farthest. Unlike `anomaly_scores` it asks for the nearest
    graphs only, so that most pairs need not be solved.
    """
    d = checked_distances(distances)
    if len(d) < 2:
        raise ValueError("distances: one graph has no others to be far from")
    others = np.where(np.eye(len(d), dtype=bool), np.inf, d)
    return np.sort(others, axis=1)[:, min(k, len(d) - 1) - 1]


def embedding_2d(distances: ArrayLike, how: Literal["mds", "tsne"], *, seed: int) -> Matrix:
    """Return points (N, 2) for a picture. Of t-SNE, only who is near whom means anything.

    ``mds`` is classical (the two leading eigenvectors of the doubly centred -D^2 / 2; no seed),
    ``tsne`` starts at random with a perplexity of 30, or (N - 1) / 3 where that is less.
    """
    d = checked_distances(distances)
    n = len(d)
    if how == "mds":
        squares = d**2
        means = squares.mean(axis=0)
        centred = -0.5 * (squares - means - means[:, None] + means.mean())
        if n > _MANY:  # two eigenvectors are found in a fraction of the time of all
            values, vectors = eigh(centred, subset_by_index=(n - 2, n - 1))
        else:
            values, vectors = np.linalg.eigh(centred)
        top = vectors[:, ::-1][:, :2] * np.sqrt(np.maximum(values[::-1][:2], 0.0))
        points = np.zeros((n, 2))
        points[:, : top.shape[1]] = top
        strongest = points[np.abs(points).argmax(axis=0), [0, 1]]
        return points * np.where(strongest < 0.0, -1.0, 1.0)  # a sign of its own
    if how == "tsne":
        if n < 3:
            raise ValueError(f"distances: t-SNE needs 3 graphs, there are {n}; use how='mds'")
        perplexity = min(30.0, max(1.0, (n - 1) / 3.0))
        model = sklearn_part("manifold").TSNE(
            perplexity=perplexity, metric="precomputed", init="random", random_state=seed
        )
        # Its threads wait by spinning: beside other work two are slower than one by far.
        with threadpool_limits(limits=1):
            return np.asarray(model.fit_transform(d), dtype=np.float64)
    raise ValueError(f"how={how!r}: use 'mds' or 'tsne'")
