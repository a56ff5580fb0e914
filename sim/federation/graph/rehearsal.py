"""All processes of a graph of servers on this machine: a `Rehearsal` a server, in the right order.

A bridge belongs to one server's machine and is online at another's SuperLink: it is started and
stopped with the former, and looked for at the latter.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from trellis.sim.federation.folder import FederationError
from trellis.sim.federation.rehearsal import (
    BRIDGE,
    EVERYTHING,
    SERVER,
    DeviceStatus,
    Rehearsal,
    commands,
    stop,
)
from trellis.sim.flwr_command import tail
from trellis.sim.processes import FlowerRunError

from .folder import ServerGraph, bridge_name

logger = logging.getLogger("trellis.flower")

_PATIENCE, _FOR_EACH = 180.0, 20.0  # seconds until all are online: for any graph, for each node


@dataclass(frozen=True)
class ServerStatus:
    """What is known of one server.

    Attributes
    ----------
    name : of the server
    answers : whether its SuperLink does
    clients, bridges : its devices, and the bridges of its neighbours, as its SuperLink sees them;
        empty where it does not answer
    """

    name: str
    answers: bool
    clients: tuple[DeviceStatus, ...] = ()
    bridges: tuple[DeviceStatus, ...] = ()

    @property
    def missing(self) -> list[str]:
        """Who is not online."""
        return [n.name for n in (*self.clients, *self.bridges) if n.status != "online"]

    @property
    def ok(self) -> bool:
        """Whether it answers and all are online."""
        return self.answers and not self.missing


class GraphRehearsal:
    """The processes of a graph of servers on this machine.

    Parameters
    ----------
    graph : as its folder describes it
    """

    def __init__(self, graph: ServerGraph) -> None:
        self.graph = graph
        self.servers = {
            name: Rehearsal(federation, self._guest_logs(name))
            for name, federation in graph.federations.items()
        }

    def chosen(self, only: str | None) -> list[str]:
        """Return the names of all servers, or the one that was asked for."""
        if only is None:
            return list(self.graph.names)
        return [self.graph.names[self.graph.number(only)]]

    # --- starting ----------------------------------------------------------------------------

    def up(
        self,
        only: str | None = None,
        *,
        timeout: float | None = None,
        say: Callable[[str], None] = logger.info,
    ) -> None:
        """Start what does not run yet, register all, wait until all of them are online.

        Of one server only: its SuperLink, its devices and its bridges. Those are waited for where
        the neighbour's SuperLink runs, and so are the neighbours' bridges that run.

        Raises
        ------
        FederationError
            Where something does not start; what runs then goes on, for a look at its log.
        """
        names = self.chosen(only)
        nodes = sum(len(self.servers[name].federation.nodes) for name in names)
        timeout = _PATIENCE + _FOR_EACH * nodes if timeout is None else timeout
        deadline = time.monotonic() + timeout
        for name in names:
            self.servers[name].check_port()
        for name in names:
            self.servers[name].start_superlink()
        for name in names:
            self._register(name, deadline, say)
        for name in names:
            self.servers[name].start_devices()
            for other in self.graph.neighbours(name):
                self.servers[name].start_node(
                    _process(other),
                    self.graph.bridge(name, other),
                    self.servers[other].federation.here,
                )
        self._wait(names, deadline, timeout, say)

    def _register(self, name: str, deadline: float, say: Callable[[str], None]) -> None:
        """Wait for a server's SuperLink and tell it who may come; errors say which server it is."""
        try:
            self.servers[name].register(deadline, lambda text: say(f"{name}: {text}"))
        except (FederationError, FlowerRunError) as error:
            raise FederationError(f"{name}: {error}") from None

    def _wait(
        self, names: Sequence[str], deadline: float, timeout: float, say: Callable[[str], None]
    ) -> None:
        open_ = self._awaited(names)
        while True:
            for server in sorted({server for server, _ in open_}):
                status = self._status_of(server)
                online = {n.name for n in (*status.clients, *status.bridges)} - {*status.missing}
                for node in sorted(online):
                    if (server, node) in open_ and self.servers[server].has_connected(node):
                        say(f"{server}: online: {node}")
                        open_.remove((server, node))
            if not open_:
                return
            gone = sorted(pair for pair in open_ if not self._runs(*pair))
            if gone or time.monotonic() > deadline:
                why = "ended" if gone else f"not online after {timeout:g} s"
                lost = gone or sorted(open_)
                listed = ", ".join(f"{node} at {server}" for server, node in lost)
                server, node = lost[0]
                end = tail(self.servers[server].log(node), 12)
                raise FederationError(f"{listed}: {why}; the log of {node} ends with\n{end}")
            time.sleep(0.5)

    def _awaited(self, names: Sequence[str]) -> set[tuple[str, str]]:
        """Return who must come online, with the server at which they must."""
        graph = self.graph
        running = {name for name, rehearsal in self.servers.items() if rehearsal.running}
        found = {(name, device) for name in names for device in graph.federations[name].names}
        for name in names:
            for other in graph.neighbours(name):
                if other in running:
                    found |= {(other, bridge_name(name)), (name, bridge_name(other))}
        return found

    def _runs(self, server: str, node: str) -> bool:
        """Return whether the process of a node that connects to a server lives."""
        for other in self.graph.neighbours(server):
            if node == bridge_name(other):
                return _process(server) in self.servers[other].processes()
        return node in self.servers[server].processes()

    def _guest_logs(self, name: str) -> dict[str, Path]:
        """Return where the neighbours' bridges to a server write."""
        folders = {other: self.graph.server(other) for other in self.graph.neighbours(name)}
        return {
            bridge_name(other): folder / "rehearsal" / f"{_process(name)}.log"
            for other, folder in folders.items()
        }

    # --- looking and stopping ----------------------------------------------------------------

    def status(self) -> list[ServerStatus]:
        """Return what every SuperLink says of its nodes."""
        return [self._status_of(name) for name in self.graph.names]

    def _status_of(self, name: str) -> ServerStatus:
        rehearsal = self.servers[name]
        try:
            rehearsal.command = commands(rehearsal.federation)  # here, or on its own machine
            found = rehearsal.status()
        except (FederationError, FlowerRunError):
            return ServerStatus(name, False)
        guests = rehearsal.federation.guests
        return ServerStatus(
            name,
            True,
            tuple(node for node in found if node.name not in guests),
            tuple(node for node in found if node.name in guests),
        )

    def down(self, only: str | None = None, *, kill: bool = False) -> int:
        """Stop every process of the graph, or one server; return how many there were.

        One server is its SuperLink and its bridges, as if its machine was gone. Its devices are
        other machines: they stay, and wait for it or go elsewhere. With ``kill`` nobody can tell
        others that it leaves.
        """
        parts = EVERYTHING if only is None else frozenset({SERVER, BRIDGE})
        return stop([self.servers[name] for name in self.chosen(only)], parts, kill=kill)


def _process(neighbour: str) -> str:
    """Return the name of the process that is a server's bridge to a neighbour."""
    return f"bridge-to-{neighbour}"
