"""From settings to the strategies of cluster-admm, a function per method."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trellis.apps.common.seeds import generator
from trellis.apps.common.servers import build_topology
from trellis.strategies.cluster_admm.finding import ClusterFinding, first_assignment
from trellis.strategies.cluster_admm.moments import SCALES, SCORE, ClusterMoments
from trellis.strategies.cluster_admm.releases import Bounds
from trellis.strategies.cluster_admm.strategy import ClusterAdmm, ExactMixing, Mixing, PaperMixing
from trellis.strategies.core.robust import Robust
from trellis.strategies.node_strategy import Sampler
from trellis.strategies.topology.clients import drawn_by_server
from trellis.strategies.topology.graph import Topology, topology

from .config import ClusterAdmmConfig
from .private.moments import LABEL_SCALE
from .private.scales import PLACES, ROWS, scales_in
from .private.score import SIZE, score_of

FRACTION_BITS = 24  # of moments, which are of the order of 1: a step is far below any noise


def pgfl(config: ClusterAdmmConfig, seed: int, **options: Any) -> ClusterAdmm:
    """Return the paper's method: one model per cluster, servers tell their neighbours."""
    return _by_cluster(config, seed, graph(config, seed).adjacency, **options)


def clusterfl(config: ClusterAdmmConfig, seed: int, **options: Any) -> ClusterAdmm:
    """Return the baseline whose servers do not talk to each other."""
    return _by_cluster(config, seed, np.zeros_like(graph(config, seed).adjacency), **options)


def gfl(config: ClusterAdmmConfig, seed: int, **options: Any) -> ClusterAdmm:
    """Return the baseline with one model for all clients."""
    return _admm(ClusterAdmm, config, seed, graph(config, seed).adjacency, 1, **options)


def fedavg(config: ClusterAdmmConfig, seed: int, **options: Any) -> ClusterAdmm:
    """Return the baseline with one server and one model."""
    return _admm(ClusterAdmm, config, seed, graph(config, seed).adjacency, 1, **options)


STRATEGIES = {"pgfl": pgfl, "gfl": gfl, "clusterfl": clusterfl, "fedavg": fedavg}


def graph(config: ClusterAdmmConfig, seed: int) -> Topology:
    """Return the graph of servers; one server for a method that has no others."""
    if config.row is None or not config.row.has("servers"):
        return topology("complete", 1)
    return build_topology(config, seed)


def _by_cluster(
    config: ClusterAdmmConfig, seed: int, adjacency: NDArray[np.bool_], **options: Any
) -> ClusterAdmm:
    more: dict[str, Any] = {"tau": config.tau, "tau_decay": config.tau_decay, **options}
    count = config.cluster_count
    if not config.searches:
        return _admm(ClusterAdmm, config, seed, adjacency, count, **more)
    config.permit_search(first_assignment(config.assign_every))
    more |= {"every": config.assign_every, "rng": partial(generator, seed, "sampling", 0, 0)}
    return _admm(ClusterFinding, config, seed, adjacency, count, timeout=config.timeout, **more)


def _admm(
    made: Callable[..., ClusterAdmm],
    config: ClusterAdmmConfig,
    seed: int,
    adjacency: NDArray[np.bool_],
    clusters: int,
    **options: Any,
) -> ClusterAdmm:
    strategy = made(adjacency, clusters, config.penalty, mixing=mixing(config), **options)
    if config.sample:
        strategy.sampler = _by_server(strategy, config.sample, seed)
    return strategy


def mixing(config: ClusterAdmmConfig) -> Mixing:
    """Return how servers combine their models."""
    if config.mixing == "exact":
        return ExactMixing()
    robust = Robust(config.robust, config.norm_bound, config.trim)
    return PaperMixing(robust.centres if robust.replaces_mean else None)


def _by_server(strategy: ClusterAdmm, most: int, seed: int) -> Sampler:
    """Return who is asked in a round: ``most`` clients of every server, drawn from the seed."""

    def draw(server_round: int, there: Sequence[int]) -> list[int]:
        nodes, rng = sorted(strategy.places), generator(seed, "sampling", 0, server_round)
        homes = np.array([strategy.places[node][0] for node in nodes], dtype=np.intp)
        drawn = drawn_by_server(homes, strategy.mailbox.own, most, rng)
        here = set(there)
        return [nodes[i] for i in drawn if nodes[i] in here]

    return draw


def moments(config: ClusterAdmmConfig, **options: Any) -> ClusterMoments:
    """Return the private regression from noisy sums."""
    loss, logistic = config.loss, config.loss == "logistic"
    width = LABEL_SCALE if logistic else config.clip_target

    return ClusterMoments(
        config.task_count,
        Bounds(config.clip_features, width, logistic),
        config.exchange_count,
        scales=scales_in if config.find_clips else None,
        score=partial(score_of, loss) if config.held_out else None,
        shapes={SCALES: {SCALES: (ROWS[loss], PLACES)}, SCORE: {SCORE: (SIZE[loss],)}},
        **options,
    )
