"""Make the folder of a graph of servers: a federation for each, bridges, identities."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from trellis.sim.federation import scripts
from trellis.sim.federation.certificates import (
    make_authority,
    make_node_key,
    make_signing_key,
)
from trellis.sim.federation.create import InGraph, create, private, public, script
from trellis.sim.federation.device import DEVICE
from trellis.sim.federation.folder import Federation, FederationError
from trellis.sim.run_config import Scalar

from . import texts
from .folder import GRAPH, IDENTITY, SERVERS, SPOOL, ServerGraph, bridge_name


@dataclass(frozen=True)
class Planned:
    """One server of a graph that is to be made.

    Attributes
    ----------
    hosts : names and addresses by which its SuperLink is reached; the first is used
    port : of its SuperLink
    clients : the node config of each of its devices, by name, beyond what every device has
    """

    hosts: Sequence[str]
    port: int
    clients: Mapping[str, Mapping[str, Scalar]] = field(default_factory=dict)


def create_graph(
    graph: ServerGraph,
    servers: Sequence[Planned],
    *,
    file: Path | None = None,
    data: Mapping[str, Path] | None = None,
    open_policy: bool = False,
    rehome: bool = False,
) -> None:
    """Write everything into the graph's folder, which must be empty or not there.

    Parameters
    ----------
    graph : what to make
    servers : every server's addresses and devices, in the order of ``graph.names``
    file : the graph's file, copied; None where a name gives it
    data : a file or folder for each device, copied into its folder
    open_policy : let devices take part in runs without privacy, for trying out
    rehome : let devices go to a neighbour of their server while that is gone

    Raises
    ------
    FederationError
        Where there is something already, or names are not as they must be.
    """
    plans = dict(zip(graph.names, servers, strict=True))
    federations = [_federation(graph, name, plans, rehome) for name in plans]
    folder = graph.folder
    if folder.exists() and any(folder.iterdir()):
        raise FederationError(f"{folder} is not empty: a graph is made in a new folder")
    folder.mkdir(parents=True, exist_ok=True)
    os.chmod(folder, 0o700)  # keys of all are in here until they are where they belong
    authority = None
    if graph.tls:
        authority = make_authority()
        private(folder / "ca" / "ca.key", authority.pair.private)
        public(folder / "ca" / "ca.crt", authority.pair.public)
    signing = {name: make_signing_key() for plan in servers for name in plan.clients}
    for federation, (name, plan) in zip(federations, plans.items(), strict=True):
        near = [graph.addresses[graph.number(other)] for other in graph.neighbours(name)]
        shared = InGraph(
            authority,
            signing,
            plan.clients,
            near if rehome else (),
            scripts.server_unit(name),
            scripts.server_compose(name),
            texts.server_page(graph, name),
        )
        create(federation, hosts=plan.hosts, data=data, open_policy=open_policy, shared=shared)
    if graph.tls and rehome:
        _introduce(federations)
    _own_folders(graph, file)
    for name in graph.names:
        for neighbour in graph.neighbours(name):
            _bridge(graph, name, neighbour)
    if file is not None:
        shutil.copyfile(file, folder / graph.topology)
    public(folder / "README.md", texts.graph_page(graph))
    # Last: a folder with a description is whole.
    public(folder / GRAPH, graph.description())


def _federation(
    graph: ServerGraph, name: str, plans: Mapping[str, Planned], rehome: bool
) -> Federation:
    plan, near = plans[name], graph.neighbours(name)
    guests = tuple(bridge_name(other) for other in near)
    visitors = tuple(client for other in near for client in plans[other].clients)
    strange = [c for c in plan.clients if c == "server" or c.startswith("bridge-")]
    if strange:
        raise FederationError(f"{strange[0]!r} is no name for a device: others are called so")
    return Federation(
        graph.server(name),
        tuple(plan.clients),
        plan.hosts[0],
        plan.port,
        graph.tls,
        guests,
        visitors if rehome else (),
    )


def _introduce(federations: Sequence[Federation]) -> None:
    """Leave the public keys of devices at the servers to which they may go."""
    keys = {name: made.public_key(name) for made in federations for name in made.names}
    for federation in federations:
        for name in federation.visitors:
            public(federation.public_key(name), keys[name].read_bytes())


def _own_folders(graph: ServerGraph, file: Path | None) -> None:
    """Give every server its identity, and the public keys of all."""
    identities = {name: make_signing_key() for name in graph.names}
    known = "".join(f"{name} {key.public.decode().strip()}\n" for name, key in identities.items())
    for number, name in enumerate(graph.names):
        own = graph.own(name)
        private(own / IDENTITY, identities[name].private)
        public(own / SERVERS, known)
        public(own / GRAPH, graph.description(number))
        if file is not None:
            shutil.copyfile(file, own / graph.topology)
        (own / SPOOL).mkdir(mode=0o700)


def _bridge(graph: ServerGraph, name: str, neighbour: str) -> None:
    """Make the bridge of a server to a neighbour, and leave its public key there."""
    place = graph.bridge(name, neighbour)
    unit = f"bridge-{name}-to-{neighbour}"
    if graph.tls:
        node = make_node_key()
        private(place / "node.key", node.private)
        public(graph.federations[neighbour].public_key(bridge_name(name)), node.public)
        shutil.copyfile(graph.folder / "ca" / "ca.crt", place / "ca.crt")
    public(place / DEVICE, texts.bridge_toml(graph, name, neighbour))
    script(place / "start.sh", scripts.device_script())
    where = f"{name}/bridges/{neighbour}"
    public(place / f"trellis-{unit}.service", scripts.device_unit(unit, where))
    # Two folders up from where the container has this one.
    public(
        place / "compose.yaml",
        scripts.device_compose(unit, f"../../graph/{SPOOL}:/graph/{SPOOL}:ro"),
    )
    public(place / "README.md", texts.bridge_page(graph, name, neighbour))
