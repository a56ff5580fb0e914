"""From settings to the strategy of server-graph: the graph, its servers, who fails when."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
from flwr.app import ConfigRecord, Message
from flwr.serverapp import Grid

from trellis.apps.common.seeds import generator
from trellis.apps.common.servers import build_topology
from trellis.apps.common.settings import ConfigError
from trellis.strategies.core.declared import Client
from trellis.strategies.core.robust import Robust
from trellis.strategies.grid_wrapper import GridWrapper
from trellis.strategies.server_graph.exchange import Noise, Server, servers
from trellis.strategies.server_graph.failures import Outage, alive, parse_failures
from trellis.strategies.server_graph.post import Post
from trellis.strategies.server_graph.strategy import ServerGraph
from trellis.strategies.server_graph.sums import GradientSums
from trellis.strategies.topology.graph import Topology

from .config import ServerGraphConfig
from .private import Terms


def server_graph(
    config: ServerGraphConfig,
    seed: int,
    exchange: Sequence[Server],
    post: Post | None = None,
    topology: Topology | None = None,
) -> ServerGraph:
    """Return (7) and (8) over the run's graph.

    Parameters
    ----------
    exchange : the servers, see `parties`
    post : what carries their messages; within this process by default
    topology : `build_topology` of the settings, if it is known
    """
    graph = topology or build_topology(config, seed, config.weights)
    robust = Robust(config.robust, config.norm_bound, config.trim)
    return ServerGraph(
        graph,
        exchange,
        centre=robust.centres if robust.replaces_mean else None,
        **_options(config, seed, graph, post),
    )


def gradient_sums(
    config: ServerGraphConfig,
    seed: int,
    post: Post | None = None,
    topology: Topology | None = None,
) -> GradientSums:
    """Return the steps from sums of gradients over the run's graph."""
    graph = topology or build_topology(config, seed, config.weights)
    return GradientSums(
        graph,
        step=config.step,
        ridge=config.ridge,
        rounds=config.rounds,
        average=config.average,
        **_options(config, seed, graph, post),
    )


def parties(
    config: ServerGraphConfig,
    seed: int,
    graph: Topology,
    noise: Noise | None = None,
    run: bytes | None = None,
    *,
    masks: bool = True,
) -> list[Server]:
    """Return the P servers of the run's method.

    Parameters
    ----------
    noise : of (server, round); from the seed if absent, which protects nobody
    run : names the run, for masks; drawn if absent
    masks : False leaves out the masks between servers, for the numbers only
    """
    # One server has nobody to send anything.
    method = config.method if config.row.has("servers") else "none"
    if method == "masked" and config.sigma == 0.0:
        _refuse_bare_edges(graph, outages(config, graph))
    sigma = 0.0 if config.is_auto("sigma") else config.sigma  # until the model's size is known
    noise = noise or partial(generator, seed, "server noise")
    return servers(method, graph.servers, sigma, noise, run, masks=masks)


class NoiseNeeded(GridWrapper):
    """A Grid that adds to ``train`` messages how much noise the sum of a server needs.

    Parameters
    ----------
    grid : secure sums
    strategy : says which clients are whose in a round
    clients : by number, from 1
    terms : how much noise the sums of clients need
    """

    def __init__(
        self,
        grid: Grid,
        strategy: ServerGraph,
        clients: Sequence[Client],
        terms: Terms,
    ) -> None:
        super().__init__(grid)
        self.strategy, self.clients, self.terms = strategy, clients, terms

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> Iterable[Message]:
        """Send messages with ``deviation`` in their ``config``; return their replies."""
        return self.grid.send_and_receive(self._completed(messages), timeout=timeout)

    def _completed(self, messages: Iterable[Message]) -> Iterator[Message]:
        records: dict[int, ConfigRecord] = {}
        for message in messages:
            if message.metadata.message_type == "train":
                told = message.content.config_records["config"]
                server = int(told["server"])  # type: ignore[arg-type]
                if server not in records:
                    found = self.deviation(int(told["server-round"]), server)  # type: ignore[arg-type]
                    records[server] = ConfigRecord({**told, "deviation": found})
                message.content["config"] = records[server]
            yield message

    def deviation(self, server_round: int, server: int) -> float:
        """Return the most noise that any of a server's clients needs in their sum."""
        homes = self.strategy.homes(server_round)
        own = [c.count for n, c in enumerate(self.clients, 1) if homes.get(n) == server]
        return self.terms.needed_by_all(own)


def outages(config: ServerGraphConfig, graph: Topology) -> tuple[Outage, ...]:
    """Return which servers stop, and when."""
    try:
        return parse_failures(config.failures, graph.servers)
    except ValueError as error:
        raise ConfigError(str(error)) from None


def _options(
    config: ServerGraphConfig, seed: int, graph: Topology, post: Post | None
) -> dict[str, Any]:
    return {
        "outages": outages(config, graph),
        "rehome": config.on_server_loss == "rehome",
        "sample": config.sample,
        "draws": partial(generator, seed, "sampling", 0),
        "post": post,
    }


def _refuse_bare_edges(graph: Topology, stops: Sequence[Outage]) -> None:
    """Refuse masks without noise if in some round a server has a single neighbour."""
    changes = {1} | {o.first for o in stops}
    changes |= {int(o.last) + 1 for o in stops if o.last < math.inf}
    for server_round in sorted(changes):
        up = alive(tuple(stops), server_round, graph.servers)
        degree = graph.adjacency[:, up].sum(axis=1)
        bare = np.flatnonzero(up & (degree == 1))
        if bare.size:
            raise ConfigError(
                f"sigma=0.0: in round {server_round} {graph.names[bare[0]]} has one neighbour, "
                "from whom masks can hide nothing; set sigma > 0 for the noise on such an edge, "
                "or choose a topology without"
            )
