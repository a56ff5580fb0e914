"""``trellis deploy`` of a graph of servers: start it here, look at it, stop it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trellis.apps.command.saying import say
from trellis.apps.common.settings import ConfigError

from . import not_ready

if TYPE_CHECKING:
    from rich.console import Console

    from trellis.sim.federation.graph.folder import ServerGraph


class GraphCommands:
    """What the subcommands do where the folder is one of a graph.

    Parameters
    ----------
    graph : as the folder describes it
    typed : the folder as it was typed, for commands that a person types
    """

    def __init__(self, graph: ServerGraph, typed: Path) -> None:
        from trellis.sim.federation.graph.rehearsal import GraphRehearsal

        self.graph, self.typed = graph, typed
        self.rehearsal = GraphRehearsal(graph)

    def up(self, only: str | None, console: Console) -> int:
        """Start all of it, or one server, on this machine."""
        if problems := self._not_ready(self.rehearsal.chosen(only)):
            raise ConfigError("\n".join(problems))
        self.rehearsal.up(only, say=lambda text: say(console, text))
        graph = self.graph
        what = f"all {len(graph.names)} servers, {graph.clients} clients" if only is None else only
        bridges = f" and {2 * len(graph.edges)} bridges are" if only is None else " is"
        say(console, f"{what}{bridges} online, until")
        say(console, f"  trellis deploy down {self.typed}{f' --only {only}' if only else ''}")
        return 0

    def status(self, console: Console) -> int:
        """Show a line per server; 1 where something is not online."""
        from rich.table import Table

        rows, found = _last_run(self.graph.folder), self.rehearsal.status()
        table = Table()
        for heading in ("server", "SuperLink", "round", "links", "oldest"):
            table.add_column(heading, no_wrap=True)
        for heading in ("clients online", "bridges online"):
            table.add_column(heading)
        for number, server in enumerate(found):
            last = rows.get(number, {})
            table.add_row(
                server.name,
                "answers" if server.answers else "no answer",
                *(f"{last[key]:g}" if key in last else "-" for key in ("round", "links", "oldest")),
                _online(server.clients),
                _online(server.bridges),
            )
        console.print(table)
        for server in found:
            if not server.answers:
                address = self.graph.addresses[self.graph.number(server.name)]
                say(console, f"{server.name}: nobody answers at {address}")
            elif server.missing:
                say(console, f"{server.name}: not online: {', '.join(server.missing)}")
        return 0 if all(server.ok for server in found) else 1

    def down(self, only: str | None, kill: bool, console: Console) -> int:
        """Stop what was started on this machine."""
        stopped = self.rehearsal.down(only, kill=kill)
        say(console, f"{stopped} processes stopped" if stopped else "nothing was running here")
        if only is not None:
            say(console, f"the clients of {only} stay, as on machines of their own")
        return 0

    def register(self, console: Console) -> int:
        """Register devices and bridges at the real SuperLinks."""
        from trellis.sim.federation.rehearsal import register_for_real

        for name, federation in self.graph.federations.items():
            say(console, f"{name}:")
            register_for_real(federation, lambda text: say(console, f"  {text}"))
            nodes = len(federation.nodes)
            say(console, f"  all {nodes} nodes are registered at {federation.address}")
        return 0

    def _not_ready(self, names: list[str]) -> list[str]:
        """Return why devices or bridges would not start here."""
        from trellis.sim.federation.device import Device

        from .check import before_start

        problems = []
        for name in names:
            problems += not_ready(self.graph.federations[name])
            for neighbour in self.graph.neighbours(name):
                bridge = Device.load(self.graph.bridge(name, neighbour))
                problems += [
                    f"bridge of {name} to {neighbour}: {finding.what}: {finding.words}"
                    for finding in before_start(bridge)
                    if not finding.ok
                ]
        return problems


def _online(nodes: Any) -> str:
    return f"{sum(node.status == 'online' for node in nodes)} of {len(nodes)}" if nodes else "-"


def _last_run(folder: Path) -> dict[int, dict[str, float]]:
    """Return the last row of every server in the last run, by number, as far as it is here."""
    from .graph_settings import NOTES

    notes = [path for path in (folder / "runs").glob(f"*/{NOTES}") if path.is_file()]
    if not notes:
        return {}
    last = max(notes, key=lambda path: path.stat().st_mtime_ns).parent
    found = {}
    for place in last.glob("server-*"):
        number = place.name.removeprefix("server-")
        if number.isdecimal() and (row := _last_row(place)):
            found[int(number)] = row
    return found


def _last_row(folder: Path) -> dict[str, float]:
    """Return the metrics of the last round of a run: of its end, or of its last checkpoint."""
    from trellis.apps.common.results import RunResult
    from trellis.strategies.core.checkpoint import Checkpoint

    try:
        result = RunResult.load(folder)
    except (OSError, ValueError, KeyError, TypeError, json.JSONDecodeError):
        return {}
    if result.metrics:
        return result.metrics[-1]
    try:
        snapshot = Checkpoint(folder / "checkpoint").load()
    except (OSError, ValueError):
        return {}
    return snapshot.rows[-1] if snapshot is not None and snapshot.rows else {}
