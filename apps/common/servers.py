"""The graph of servers that a run's settings name, the same on every engine."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from trellis.apps.common.seeds import generator
from trellis.apps.common.settings import ConfigError
from trellis.strategies.topology.graph import Topology, topology


class ServerSettings(Protocol):
    """Settings of a study with several servers."""

    @property
    def method(self) -> str:
        """``fedavg`` has one server."""

    @property
    def servers(self) -> int:
        """Their number."""

    @property
    def topology(self) -> str:
        """Their graph."""


def build_topology(config: ServerSettings, seed: int, weights: str = "auto") -> Topology:
    """Return the graph of servers; one server for ``fedavg``."""
    # One server has no degree that random:3 could ask for; a file says itself how many there are.
    alone = config.servers == 1 and not Path(config.topology).exists()
    if alone or config.method == "fedavg":
        return topology("complete", 1)
    try:
        return topology(
            config.topology, config.servers, weights=weights, seed=generator(seed, "topology")
        )
    except ValueError as error:
        raise ConfigError(f"topology={config.topology!r}: {error}") from None
