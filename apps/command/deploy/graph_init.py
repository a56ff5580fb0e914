"""``trellis deploy init --servers``: which servers, who are neighbours, whose clients are whose."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from trellis.apps.command.saying import say
from trellis.apps.common.settings import ConfigError

from . import named_devices

if TYPE_CHECKING:
    from rich.console import Console

    from trellis.sim.federation.graph.create import Planned
    from trellis.sim.run_config import Scalar
    from trellis.strategies.topology.graph import Topology

_DRAWN = ("erdos-renyi", "random", "small-world")


def init(options: argparse.Namespace, port: int, console: Console) -> int:
    """Make the folder of a graph of servers."""
    from trellis.sim.federation.graph.create import create_graph
    from trellis.sim.federation.graph.folder import ServerGraph

    topology, file = _topology(options)
    servers = topology.servers
    names, data = named_devices(options, options.clients and options.clients * servers)
    plans = _plans(options, servers, port, _clients(options, names, data, servers))
    for name, plan in zip(topology.names, plans, strict=True):
        if not plan.clients:
            raise ConfigError(f"{name} has no client; every server needs one at least")
    graph = ServerGraph(
        options.folder.resolve(),
        topology.names,
        file.name if file is not None else topology.graph,
        tuple((int(first), int(second)) for first, second in topology.edges),
        tuple(_address(plan.hosts[0], plan.port) for plan in plans),
        tuple(len(plan.clients) for plan in plans),
        options.tls,
    )
    create_graph(
        graph, plans, file=file, data=data, open_policy=options.open, rehome=options.rehome
    )
    links = len(graph.edges)
    say(console, f"{servers} servers, {links} links and {len(names)} devices in {graph.folder}")
    for name, plan in zip(graph.names, plans, strict=True):
        near = ", ".join(graph.neighbours(name))
        say(console, f"  {name}: {', '.join(plan.clients)}; neighbours {near}; port {plan.port}")
    if not data:
        say(
            console,
            f"put each device's file at {graph.folder}/servers/SERVER/devices/NAME/data/NAME.csv",
        )
    if options.open:
        say(console, "their policies allow runs without any privacy: for trying out only")
    if options.rehome:
        say(console, "while its server is gone a device goes to a neighbour of that")
    say(console, f"what to do now: {graph.folder}/README.md, or here, as a rehearsal:")
    say(console, f"  trellis deploy up {options.folder}")
    return 0


def _topology(options: argparse.Namespace) -> tuple[Topology, Path | None]:
    """Return the graph of servers, and its file where there is one."""
    from trellis.strategies.topology.files import SUFFIXES
    from trellis.strategies.topology.graph import topology

    setting = options.topology or "ring"
    is_file = setting.lower().endswith(SUFFIXES)
    if options.servers is None and not is_file:
        raise ConfigError(f"--topology {setting}: of how many servers? give --servers too")
    if options.servers is not None and options.servers < 2:
        raise ConfigError(
            f"--servers {options.servers}: a graph needs two at least; for one server leave "
            "--servers and --topology out"
        )
    if setting.partition(":")[0] in _DRAWN:
        raise ConfigError(
            f"--topology {setting}: is drawn anew with every seed of a run, and bridges are built "
            "once; use ring, path, star, complete or grid, or a file with an edge per line"
        )
    try:
        found = topology(setting, options.servers)
    except ValueError as error:
        raise ConfigError(f"--topology {setting}: {error}") from None
    if found.servers < 2:
        raise ConfigError(f"--topology {setting}: one server; a graph needs two at least")
    return found, Path(setting) if is_file else None


def _clients(
    options: argparse.Namespace, names: list[str], data: dict[str, Path], servers: int
) -> list[dict[str, dict[str, Scalar]]]:
    """Return every server's clients with what their node configs say of their places.

    As a run in one process deals them: by ``assignment.csv`` beside the data, or else contiguously.
    """
    from trellis.apps.common.assignment import ASSIGNMENT, assigned_number, dealt_server
    from trellis.apps.common.node import Node

    table = options.data / ASSIGNMENT if options.data is not None else None
    table = table if table is not None and table.is_file() else None
    found: list[dict[str, dict[str, Scalar]]] = [{} for _ in range(servers)]
    for place, name in enumerate(names):
        if names.index(name) != place:
            raise ConfigError(f"{name!r} is the name of two devices")
        node = Node(name, place, data.get(name), None, False)
        server, cluster = None, None
        if table is not None:
            server = assigned_number("server", servers, node, table, required=False)
            cluster = assigned_number("cluster", len(names), node, table, required=False)
        if server is None:
            server = dealt_server(len(names), servers, node)
        config: dict[str, Scalar] = {
            "partition-id": place,
            "num-partitions": len(names),
            "server": server,
        }
        if cluster is not None:
            config["cluster"] = cluster
        found[server][name] = config
    return found


def _plans(
    options: argparse.Namespace,
    servers: int,
    port: int,
    clients: list[dict[str, dict[str, Scalar]]],
) -> list[Planned]:
    from trellis.sim.federation.graph.create import Planned

    if not 0 < port <= port + servers - 1 < 65536:
        raise ConfigError(
            f"--port {port}: {servers} servers take {port} to {port + servers - 1}, and ports go "
            "from 1 to 65535"
        )
    hosts = [given.split(",") for given in options.host] or [["127.0.0.1"]]
    if len(hosts) not in (1, servers):
        raise ConfigError(
            f"{len(hosts)} times --host for {servers} servers: give it once for all, or once for "
            "each in their order"
        )
    hosts = hosts * servers if len(hosts) == 1 else hosts
    return [
        Planned(names, port + number, own)
        for number, (names, own) in enumerate(zip(hosts, clients, strict=True))
    ]


def _address(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
