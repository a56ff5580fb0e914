"""The paper's synthetic clients (Sec. V-A), a client's own file, its server and its cluster.

    w_0 ~ N(0, I),   w_q = (1 + gamma_q) w_0,   gamma_q ~ U(-similarity, similarity)
    x ~ N(0, I),     D_k uniform over ``samples``
    y = x'w_q + N(0, noise^2)                          ``ridge``, and own losses of numbers
    y = +1 with probability 1 / (1 + exp(-x'w_q)), else -1      ``logistic``, and others of labels

The paper leaves the law of w_0 open; it is normal here. Its clients are "randomly split" between
the clusters: here into parts of equal size, give or take one, so that no cluster is empty. All is
drawn from the run's seed, the same in every runtime.

A client's own file: npz with ``X`` (n, d) and ``y`` (n,), or csv with a column ``y``; all other
columns are features; it is read by `apps.server_graph.data`. Its cluster stands in its node config
(``cluster=2``) or in the column ``cluster`` of ``assignment.csv``; see `apps.common.assignment`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from flwr.app import Context
from numpy.typing import NDArray

from trellis.apps.common.assignment import dealt_server, given_number
from trellis.apps.common.node import Node
from trellis.apps.common.seeds import generator
from trellis.apps.common.tables import DataError, numbered
from trellis.apps.server_graph.data import Samples, read_samples
from trellis.privacy.numerics import expit

from .config import ClusterAdmmConfig
from .losses import is_own, own_loss, reading, targets_of

Array = NDArray[np.float64]
Numbers = NDArray[np.intp]

TARGETS = True  # a client's data has targets beside its columns
UNKNOWN = -1


@dataclass(frozen=True)
class Truth:
    """What synthetic data was made from.

    Attributes
    ----------
    models : (Q, d) the w_q
    clusters : (K,) the cluster of every client, 0 to Q - 1
    """

    models: Array
    clusters: Numbers


@lru_cache(maxsize=4)
def synthetic_truth(config: ClusterAdmmConfig, seed: int) -> Truth:
    """Return the clusters' true models, and whose client is in which.

    The same arrays for every client that asks: they cannot be written.
    """
    base = generator(seed, "base model").standard_normal(config.features)
    gamma = generator(seed, "similarity").uniform(
        -config.similarity, config.similarity, config.cluster_count
    )
    truth = Truth((1.0 + gamma)[:, None] * base, _clusters(config, seed))
    for array in (truth.models, truth.clusters):
        array.setflags(write=False)
    return truth


def synthetic_table(config: ClusterAdmmConfig, seed: int, partition: int) -> Samples:
    """Return the samples of one client of the synthetic federation."""
    truth = synthetic_truth(config, seed)
    if not 0 <= partition < config.clients:
        raise DataError(f"partition {partition}: the clients are 0 to {config.clients - 1}")
    w = truth.models[truth.clusters[partition]]
    rng = generator(seed, "samples", partition)
    low, high = config.sample_range()
    count = int(rng.integers(low, high + 1))
    X = rng.standard_normal((count, config.features))
    if is_numeric(config):
        y = X @ w + config.noise * rng.standard_normal(count)
    else:
        y = np.where(rng.random(count) < expit(X @ w), 1.0, -1.0)
    source = f"synthetic client {partition + 1}"
    if is_own(config.loss):
        y = own_loss(config.loss, config.features).check_targets(y, source)
    return Samples(X, y, numbered("x", config.features), source)


def client_table(config: ClusterAdmmConfig, seed: int, node: Node) -> Samples:
    """Return one node's samples: its own file, or in simulation the synthetic ones."""
    if node.data_path is None:
        return synthetic_table(config, seed, node.partition)
    loss = reading(config.loss)
    return read_samples(node.data_path, loss, tolerant=not config.clear_updates)


def server_of(config: ClusterAdmmConfig, node: Node, context: Context) -> int:
    """Return which server, from 0 to S - 1, this client belongs to (`apps.common.assignment`)."""
    if config.row is None or not config.row.has("servers"):
        return 0
    given = given_number("server", config.servers, node, context)
    return dealt_server(config.clients, config.servers, node) if given is None else given


def cluster_of(config: ClusterAdmmConfig, seed: int, node: Node, context: Context) -> int:
    """Return which cluster, from 0 to Q - 1, this client is in; -1 where clusters are to be found.

    Raises
    ------
    DataError
        For a cluster that is not there, and where nothing tells and the method must know.
    """
    if config.finds_clusters:
        return UNKNOWN
    count = config.cluster_count
    required = count > 1 and not config.one_task
    given = given_number("cluster", count, node, context, required)
    if given is not None:
        return given
    if node.data_path is None:
        return int(synthetic_truth(config, seed).clusters[node.partition])
    if required:
        raise DataError(
            f"{node.name}: which of the {count} clusters is it in? Set cluster=0 to {count - 1} in "
            "its --node-config, or a column cluster in assignment.csv; or set "
            f"clusters=auto:{count} to have clusters found"
        )
    return 0


def is_numeric(config: ClusterAdmmConfig) -> bool:
    """Return whether targets are numbers, which have units of their own."""
    return targets_of(config.loss) == "numbers"


def held_out_count(count: int, fraction: float) -> int:
    """Return how many of ``count`` rows are held out: at least 1, never all.

    One row cannot be split: none is held out then. ``fraction = 0`` holds nothing out.
    """
    if not 0.0 <= fraction < 1.0:
        raise ValueError(f"held-out fraction {fraction}: at least 0 and below 1")
    if fraction == 0.0 or count < 2:
        return 0
    return min(max(round(fraction * count), 1), count - 1)


def _clusters(config: ClusterAdmmConfig, seed: int) -> Numbers:
    dealt = np.arange(config.clients, dtype=np.intp) % config.cluster_count
    return generator(seed, "clusters").permutation(dealt)
