"""What the folder of a graph of servers holds, and where.

- ``graph.toml``: the description: names, graph, addresses, how many clients each has
- ``topology.csv`` (or as the file was called): the graph, where a file gives it
- ``ca/``: the certificate authority's private key, of the whole graph; no machine needs it
- ``servers/NAME/``: for the machine of one server: a federation's folder (`sim.federation.folder`),
  and besides

  - ``graph/``: the server's own: ``identity.key``, with which it signs what it tells neighbours,
    ``servers.txt`` with the public keys of all, ``spool/`` for its letters, and copies of
    ``graph.toml`` and the graph's file
  - ``bridges/NEIGHBOUR/``: a SuperNode of this machine that connects to that neighbour's SuperLink
    and hands it this server's letters

- ``runs/``: what ``trellis deploy run`` leaves
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from trellis.sim.federation.folder import Federation, FederationError
from trellis.sim.run_config import Scalar, toml

GRAPH = "graph.toml"
OWN = "graph"  # the server's own folder, in that of its machine
SPOOL = "spool"
IDENTITY, SERVERS = "identity.key", "servers.txt"


@dataclass(frozen=True)
class ServerGraph:
    """P servers, each with a SuperLink of its own, and who is whose neighbour.

    Attributes
    ----------
    folder : absolute
    names : of the servers, in the order of their numbers
    topology : the setting that gives the graph, as ``ring``, or the name of a file in the folder
    edges : pairs of neighbours, the smaller number first
    addresses : ``host:port`` of every SuperLink
    counts : how many clients each server has
    tls : whether with TLS and authenticated nodes
    """

    folder: Path
    names: tuple[str, ...]
    topology: str
    edges: tuple[tuple[int, int], ...]
    addresses: tuple[str, ...]
    counts: tuple[int, ...]
    tls: bool

    def __post_init__(self) -> None:
        servers = len(self.names)
        if servers < 2:
            raise FederationError("a graph needs two servers at least")
        if len(self.addresses) != servers or len(self.counts) != servers:
            raise FederationError(f"{servers} servers need {servers} addresses and client counts")
        if not all(0 <= first < second < servers for first, second in self.edges):
            raise FederationError(f"edges {self.edges}: servers are numbered 0 to {servers - 1}")

    @classmethod
    def load(cls, folder: Path) -> ServerGraph:
        """Read the description in ``folder``.

        Raises
        ------
        FederationError
            Where there is none, or it cannot be used.
        """
        found, path = read_description(folder.resolve() / GRAPH)
        return cls(path.parent, **_fields(found, path))

    def description(self, server: int | None = None) -> str:
        """Return the text of `GRAPH`; for the machine of one server, with its number."""
        settings: dict[str, Scalar] = {
            "names": ",".join(self.names),
            "topology": self.topology,
            "edges": ",".join(f"{first}-{second}" for first, second in self.edges),
            "addresses": ",".join(self.addresses),
            "clients": ",".join(map(str, self.counts)),
            "tls": self.tls,
        }
        if server is not None:
            settings["server"] = server
        return "# Made by trellis deploy init.\n" + toml(settings)

    # --- where -------------------------------------------------------------------------------

    def server(self, name: str) -> Path:
        """Return the folder for the machine of one server."""
        return self.folder / "servers" / name

    def own(self, name: str) -> Path:
        """Return the server's own folder: its identity, its spool."""
        return self.server(name) / OWN

    def bridge(self, name: str, neighbour: str) -> Path:
        """Return the folder of the bridge that takes a server's letters to a neighbour."""
        return self.server(name) / "bridges" / neighbour

    # --- who ---------------------------------------------------------------------------------

    @cached_property
    def federations(self) -> dict[str, Federation]:
        """The federation of every server, by its name, as its folder describes it."""
        return {name: Federation.load(self.server(name)) for name in self.names}

    @property
    def clients(self) -> int:
        """How many clients all servers have."""
        return sum(self.counts)

    @property
    def setting(self) -> str:
        """What a run's ``topology`` is: a name, or the absolute path of the graph's file."""
        return setting_of(self.topology, self.folder)

    def neighbours(self, name: str) -> tuple[str, ...]:
        """Return a server's neighbours, in the order of their numbers."""
        number = self.number(name)
        ends = {end for edge in self.edges if number in edge for end in edge}
        return tuple(self.names[other] for other in sorted(ends - {number}))

    def number(self, name: str) -> int:
        """Return the number of a server.

        Raises
        ------
        FederationError
            Where none has that name.
        """
        if name not in self.names:
            raise FederationError(f"no server is called {name!r}: {', '.join(self.names)}")
        return self.names.index(name)


def bridge_name(server: str) -> str:
    """Return by which name a server's bridges are registered at its neighbours."""
    return f"bridge-of-{server}"


def setting_of(topology: str, folder: Path) -> str:
    """Return a run's setting for the graph described in ``folder``."""
    path = folder / topology
    return str(path) if path.is_file() else topology


def is_graph(folder: Path) -> bool:
    """Return whether a folder is one of a whole graph."""
    return (folder / GRAPH).is_file()


def read_description(path: Path) -> tuple[dict[str, Any], Path]:
    """Return what a `GRAPH` says, and its path.

    Raises
    ------
    FederationError
        Where it is not there, or no TOML.
    """
    try:
        return tomllib.loads(path.read_text(encoding="utf-8")), path
    except FileNotFoundError:
        raise FederationError(f"{path.parent}: no graph of servers, {GRAPH} is missing") from None
    except (OSError, ValueError) as error:
        raise FederationError(f"{path}: cannot be read ({error})") from None


@dataclass(frozen=True)
class Place:
    """What one server's machine knows of the graph.

    Attributes
    ----------
    graph : all that is public; its ``folder`` is the server's own
    number : of this server
    """

    graph: ServerGraph
    number: int

    @classmethod
    def load(cls, folder: Path) -> Place | None:
        """Return what the folder of a server's machine says; None for a federation of its own."""
        path = folder.resolve() / OWN / GRAPH
        if not path.is_file():
            return None
        found, _ = read_description(path)
        graph = ServerGraph(path.parent, **_fields(found, path))
        number = found.get("server")
        if not isinstance(number, int) or not 0 <= number < len(graph.names):
            raise FederationError(f"{path}: server={number!r} is no number of a server")
        return cls(graph, number)

    @property
    def name(self) -> str:
        """Of this server."""
        return self.graph.names[self.number]


def _fields(found: Mapping[str, Any], path: Path) -> dict[str, Any]:
    try:
        pairs = (edge.split("-") for edge in str(found["edges"]).split(","))
        return {
            "names": tuple(str(found["names"]).split(",")),
            "topology": str(found["topology"]),
            "edges": tuple((int(first), int(second)) for first, second in pairs),
            "addresses": tuple(str(found["addresses"]).split(",")),
            "counts": tuple(int(count) for count in str(found["clients"]).split(",")),
            "tls": found["tls"] is True,
        }
    except (KeyError, TypeError, ValueError) as error:
        raise FederationError(f"{path}: {error} is missing or wrong") from None
