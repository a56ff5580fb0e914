"""From settings to the strategy of server-graph, with messages or without."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from trellis.apps.common.seeds import generator
from trellis.apps.common.servers import build_topology
from trellis.apps.common.settings import ConfigError
from trellis.apps.network.place import bridges
from trellis.privacy.accounting.sampled import spent_by
from trellis.strategies.network.place import Place
from trellis.strategies.server_graph.exchange import Noise, servers
from trellis.strategies.server_graph.failures import Outage, alive, parse_failures
from trellis.strategies.server_graph.strategy import ServerGraph, ServerPlan
from trellis.strategies.server_graph.sums import NoisySums, SumPlan
from trellis.strategies.topology.graph import Topology

from .config import ServerGraphConfig
from .private import Terms, digest
from .spending import paper_epsilon, settled, sound_epsilon

if TYPE_CHECKING:
    from trellis.strategies.core.secure import SecureSum
    from trellis.strategies.server_graph.lone import LonePost


def build_strategy(
    config: ServerGraphConfig,
    seed: int,
    arguments: Mapping[str, Any],
    masks: bool = True,
    noise: Noise | None = None,
    place: Place | None = None,
) -> ServerGraph:
    """Return the strategy of the run's method.

    Parameters
    ----------
    arguments : of `StudyStrategy`
    masks : False leaves out the masks between servers and those of clients, for who wants the
        numbers only
    noise : of (server, round); from the seed where absent, which protects nobody
    place : which server this is, where the others are elsewhere
    """
    graph = build_topology(config, seed, config.weights)
    post = None
    if place is not None:
        from trellis.strategies.server_graph.lone import LonePost

        _permit_alone(config, place)
        post = LonePost(bridges(graph, place))
    if config.sums:
        return _noisy_sums(config, graph, arguments, post)
    method = "none" if config.method == "fedavg" else config.method
    outages = _outages(config, graph)
    if config.method == "masked" and config.sigma == 0.0:
        _refuse_bare_edges(graph, outages)
    return ServerGraph(
        **arguments,
        servers=ServerPlan(graph, outages, config.on_server_loss == "rehome"),
        exchange=servers(
            method,
            graph.servers,
            0.0 if config.is_auto("sigma") else config.sigma,  # until the model's size is known
            noise or partial(generator, seed, "server noise"),
            None if place is None else place.run.encode(),
            masks=masks,
        ),
        post=post,
        secure=_secure_sum if masks and config.masks_clients else None,
        epsilons=partial(epsilons, config, graph),
        deviation=partial(deviation, config, graph),
    )


def _secure_sum(**settings: Any) -> SecureSum:
    """Return what adds masked models up. Late: runs without masks do without its modules."""
    from trellis.strategies.core.secure import SecureSum

    return SecureSum(**settings)


def _permit_alone(config: ServerGraphConfig, place: Place) -> None:
    """Refuse settings that need all servers in one process, or in step."""
    if config.failures:
        raise ConfigError(
            f"failures={config.failures!r}: outages are played in one process; servers with "
            "SuperLinks of their own really stop"
        )
    if place.max_staleness and config.method == "masked" and not config.sums:
        raise ConfigError(
            f"max-staleness={place.max_staleness}: masks cancel only where all letters are of one "
            "round; set max-staleness=0, or another method"
        )


def _noisy_sums(
    config: ServerGraphConfig,
    graph: Topology,
    arguments: Mapping[str, Any],
    post: LonePost | None = None,
) -> NoisySums:
    """Return the strategy for noise in sums: between servers nothing is left to hide."""
    terms = Terms.of(config)
    return NoisySums(
        **arguments,
        servers=ServerPlan(graph, _outages(config, graph), config.on_server_loss == "rehome"),
        exchange=servers("none", graph.servers, 0.0, partial(generator, 0, "no noise")),
        secure=partial(_secure_sum, noisy=True, dropout=config.dropout, colluding=config.colluding),
        sums=SumPlan(
            config.step,
            config.ridge,
            terms.needed_deviation,
            partial(spent_by, delta=config.delta),
            config.average,
            digest(config),
        ),
        post=post,
    )


def _outages(config: ServerGraphConfig, graph: Topology) -> tuple[Outage, ...]:
    try:
        return parse_failures(config.failures, graph.servers)
    except ValueError as error:
        raise ConfigError(str(error)) from None


def _refuse_bare_edges(graph: Topology, outages: Sequence[Outage]) -> None:
    """Refuse masks without noise where in some round a server has a single neighbour."""
    changes = {1} | {o.first for o in outages}
    changes |= {int(o.last) + 1 for o in outages if o.last < math.inf}
    for server_round in sorted(changes):
        up = alive(tuple(outages), server_round, graph.servers)
        degree = graph.adjacency[:, up].sum(axis=1)
        bare = np.flatnonzero(up & (degree == 1))
        if bare.size:
            raise ConfigError(
                f"sigma=0.0: in round {server_round} {graph.names[bare[0]]} has one neighbour, "
                "from whom masks can hide nothing; set sigma > 0 for the noise on such an edge, "
                "or choose a topology without"
            )


def epsilons(
    config: ServerGraphConfig, graph: Topology, server_round: int, size: int
) -> dict[str, float]:
    """Return the privacy spent up to a round, by the paper's formula and by the corrected one."""
    if config.method not in ("hybrid", "iid") or config.clip == 0.0 or config.sigma == 0.0:
        return {}
    releases = releases_in(config, graph)
    config = settled(config, size, releases)
    return {
        "epsilon-paper": paper_epsilon(config, server_round),
        "epsilon-sound": sound_epsilon(config, server_round, size, releases),
    }


def deviation(config: ServerGraphConfig, graph: Topology, size: int) -> float:
    """Return sigma_g of a run whose model has ``size`` parameters; the same on every server."""
    return settled(config, size, releases_in(config, graph)).sigma


def releases_in(config: ServerGraphConfig, graph: Topology) -> int:
    """Return how many messages of a server have noise of their own in a round, at most."""
    return int(np.max(graph.degree)) if config.method == "iid" else 1
