"""What the runs of one study at the servers of a graph have in common, and what each is told."""

from __future__ import annotations

import argparse
import secrets
import time
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trellis.apps.common.settings import ConfigError, Scalar, config_class

if TYPE_CHECKING:
    from trellis.sim.federation.folder import Federation
    from trellis.sim.federation.graph.folder import Place, ServerGraph

NOTES = "graph-run.toml"  # in the folder of a run
ONLY_FOR_GRAPHS = ("graph_run", "only", "max_staleness", "server_timeout")
_STALENESS, _TIMEOUT = 0, 60.0


@dataclass(frozen=True)
class GraphRun:
    """What all servers of a run must agree on beyond the study's settings.

    Attributes
    ----------
    name : by which they know the run; new for every run
    max_staleness : 0 for rounds in step, else how many rounds old a neighbour's letter may be
    server_timeout : seconds to wait for a neighbour's letter before it counts as gone
    """

    name: str
    max_staleness: int = _STALENESS
    server_timeout: float = _TIMEOUT

    def __post_init__(self) -> None:
        if not self.name or not self.name.isprintable() or set(self.name) & set('/\\"'):
            raise ConfigError(f"--graph-run {self.name!r}: letters, digits, - and _ make a name")
        if self.max_staleness < 0:
            raise ConfigError(f"--max-staleness {self.max_staleness}: 0 or more rounds")
        if not 0 < self.server_timeout < float("inf"):
            raise ConfigError(f"--server-timeout {self.server_timeout:g}: seconds above 0")

    @classmethod
    def of(cls, options: argparse.Namespace, name: str) -> GraphRun:
        """Return a new run, or the one in the folder that is to be resumed.

        Raises
        ------
        ConfigError
            Where that folder does not say which run it is of.
        """
        before: dict[str, Any] = {}
        if options.resume is not None:
            path = options.resume / NOTES
            try:
                before = tomllib.loads(path.read_text(encoding="utf-8"))
                name = str(before["name"])
            except (OSError, ValueError, KeyError) as error:
                raise ConfigError(
                    f"{options.resume} is no folder of a run on a graph of servers: {path} cannot "
                    f"be used ({error})"
                ) from None
        staleness, timeout = options.max_staleness, options.server_timeout
        if staleness is None:
            staleness = int(before.get("max-staleness", _STALENESS))
        if timeout is None:
            timeout = float(before.get("server-timeout", _TIMEOUT))
        return cls(name, staleness, timeout)

    def save(self, folder: Path) -> None:
        """Write it into the folder of the run, for who resumes it."""
        from trellis.sim.run_config import toml

        (folder / NOTES).write_text(toml(self.settings("name")), encoding="utf-8")

    def settings(self, name: str = "graph-run") -> dict[str, Scalar]:
        """Return it as a run config says it."""
        return {
            name: self.name,
            "max-staleness": self.max_staleness,
            "server-timeout": self.server_timeout,
        }


def new_name(study: str) -> str:
    """Return a name for a run that no other run has."""
    when = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
    return f"{study}-{when}-{secrets.token_hex(4)}"


def has_servers(study: str) -> bool:
    """Return whether a study is one of several servers."""
    return "servers" in config_class(study)().settings()


def graph_settings(study: str, given: Mapping[str, Any], graph: ServerGraph) -> dict[str, Any]:
    """Return settings that are given with those that the graph decides.

    Raises
    ------
    ConfigError
        For a study of one server, and for settings that are not the graph's.
    """
    if not has_servers(study):
        raise ConfigError(
            f"{study} has one server; make a federation for it: trellis deploy init DIR --clients N"
        )
    decided = {
        "servers": len(graph.names),
        "topology": graph.setting,
        "clients": graph.clients,
    }
    for key, value in decided.items():
        if given.get(key, value) != value:
            raise ConfigError(f"{key}={given[key]}: this graph was made with {value}")
    return {**given, **decided}


def server_config(
    graph: ServerGraph, number: int, own: Path, federation: Federation, run: GraphRun
) -> dict[str, Scalar]:
    """Return what the run config of one server says beyond the study's settings.

    Parameters
    ----------
    own : the server's own folder, with its identity and its spool
    federation : of this server
    """
    return {
        "server": number,
        "server-folder": str(own),
        "clients-here": graph.counts[number],
        "devices": ",".join(federation.names),
        "report": True,
        **run.settings(),
    }


@dataclass(frozen=True)
class ServerAlone:
    """One server of a graph, whose run is submitted on its own machine.

    Attributes
    ----------
    study : a key of `apps.STUDIES`
    place : what its machine knows of the graph
    federation : its own
    run : what all servers agree on
    """

    study: str
    place: Place
    federation: Federation
    run: GraphRun

    def settings(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Return settings that are given with those that the graph decides."""
        return graph_settings(self.study, given, self.place.graph)

    def devices(self, known: Mapping[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
        """Return what is known of the devices of all servers: of the others', their server."""
        graph = self.place.graph
        found = {name: {**node, "server": self.place.number} for name, node in known.items()}
        for number, count in enumerate(graph.counts):
            if number != self.place.number:
                others = (f"client {k + 1} of {graph.names[number]}" for k in range(count))
                found |= {name: {"server": number} for name in others}
        return found

    def run_config(self) -> dict[str, Scalar]:
        """Return what its run config says beyond the study's settings."""
        place = self.place
        return server_config(
            place.graph, place.number, place.graph.folder, self.federation, self.run
        )


def server_alone(options: argparse.Namespace, federation: Federation) -> ServerAlone | None:
    """Return the server whose folder this is; None where it is a federation of its own.

    Raises
    ------
    ConfigError
        For a run on a graph that has no name, and for options of a graph where there is none.
    """
    from trellis.sim.federation.graph.folder import Place

    place = Place.load(options.folder)
    if place is None or not has_servers(options.study):
        for name in ONLY_FOR_GRAPHS:
            if getattr(options, name) is not None:
                option = name.replace("_", "-")
                raise ConfigError(f"--{option} is for a study of several servers on their graph")
        return None
    if options.only is not None:
        raise ConfigError(f"--only: this is the folder of {place.name} alone; leave it out")
    if options.graph_run is None and options.resume is None:
        raise ConfigError(
            f"{options.folder} is one server of a graph: give --graph-run NAME, the same at all "
            f"{len(place.graph.names)} servers and new for every run, as {new_name(options.study)}"
        )
    if options.graph_run is not None and options.resume is not None:
        raise ConfigError("--graph-run: the folder that is resumed says it; leave it out")
    run = GraphRun.of(options, options.graph_run or "")
    return ServerAlone(options.study, place, federation, run)
