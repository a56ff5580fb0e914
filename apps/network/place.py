"""One server of a graph of SuperLinks: what the run config says of it.

``server`` names it; then ``server-folder`` (its identity, the table of servers, its spool) and
``graph-run`` (what all servers know this run by) are needed. All servers must have the same study,
seed and settings: a digest of these is in their greetings.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trellis.apps.common.settings import ConfigError, StudyConfig

if TYPE_CHECKING:
    from trellis.apps.common.results import RunResult
    from trellis.strategies.network.bridges import Bridges
    from trellis.strategies.network.place import Place
    from trellis.strategies.rounds import Rounds
    from trellis.strategies.topology.graph import Topology

DEFAULTS: dict[str, Any] = {
    "server": -1,
    "server-folder": "",
    "graph-run": "",
    "clients-here": 0,
    "max-staleness": 0,
    "server-timeout": 60.0,
}
STUDIES = ("server-graph", "cluster-admm")
# How long to wait and with how many to go on is each server's own affair.
_OWN_AFFAIR = ("timeout", "enrol-timeout", "clients-least")


def place_of(run_config: Mapping[str, Any], config: StudyConfig, seed: int) -> Place | None:
    """Return which server of a graph this run is; None where all servers are in this process.

    Raises
    ------
    ConfigError
        Names the key and what to do.
    """
    from trellis.strategies.network.place import Place

    given = {key: run_config.get(key, default) for key, default in DEFAULTS.items()}
    server = _whole(given, "server", -1)
    if server < 0:
        return None
    if config.study not in STUDIES:
        raise ConfigError(f"server={server}: {config.study} has one server; leave server out")
    servers = int(config.settings()["servers"])
    if not server < servers:
        raise ConfigError(f"server={server}: the servers are numbered 0 to {servers - 1}")
    folder = Path(str(given["server-folder"]))
    if not folder.is_absolute() or not folder.is_dir():
        raise ConfigError(
            f"server-folder={str(folder)!r}: the absolute path of the folder with identity.key, "
            "servers.txt and spool/ is needed; trellis deploy init --servers makes them"
        )
    if not given["graph-run"]:
        raise ConfigError("graph-run='': a name for this run, the same at all its servers")
    timeout = given["server-timeout"]
    if isinstance(timeout, bool) or not isinstance(timeout, int | float) or not timeout > 0.0:
        raise ConfigError(f"server-timeout={timeout!r}: seconds, more than 0")
    staleness = _whole(given, "max-staleness", 0)
    return Place(
        server,
        folder,
        str(given["graph-run"]),
        terms(config, seed, staleness),
        staleness,
        float(timeout) if math.isfinite(timeout) else 1e9,
        2.0 * config.enrol_timeout,  # others may still wait for their clients
    )


def terms(config: StudyConfig, seed: int, max_staleness: int) -> str:
    """Return the digest of what all servers of a run must share."""
    settings = {k: v for k, v in config.settings().items() if k not in _OWN_AFFAIR}
    graph = Path(str(settings["topology"]))
    if graph.is_file():
        # Where a server keeps it is its own affair; what stands in it is not.
        settings["topology"] = hashlib.sha256(graph.read_bytes()).hexdigest()
    shared = {"study": config.study, "seed": seed, "max-staleness": max_staleness, **settings}
    return hashlib.sha256(json.dumps(shared, sort_keys=True, default=str).encode()).hexdigest()


def clients_here(run_config: Mapping[str, Any], clients: int, servers: int, server: int) -> int:
    """Return how many clients a server waits for: what is said, or its even share."""
    said = _whole(dict(run_config), "clients-here", 0)
    # As `trellis.apps.common.assignment.dealt_server` deals them.
    here = said or sum(k * servers // clients == server for k in range(clients))
    if not here:
        raise ConfigError(
            f"clients={clients}: of so few server {server} of {servers} gets none, and waits for "
            "nobody; say how many it has by clients-here, or run fewer servers"
        )
    return here


def bridges(graph: Topology, place: Place) -> Bridges:
    """Return the letters of one server of a graph.

    Raises
    ------
    ConfigError
        Where its folder cannot be used.
    """
    from trellis.strategies.network.bridges import Bridges

    if graph.servers < 2:
        raise ConfigError(f"server={place.server}: the run has one server; leave server out")
    try:
        return Bridges(graph, place)
    except (ValueError, OSError) as error:
        raise ConfigError(str(error)) from None


def tell_of_graph(result: RunResult, strategy: Rounds) -> None:
    """Put into a result what its server saw of the graph, where it is one of several."""
    mail: Bridges | None = getattr(strategy.network, "mail", None)
    if mail is None:
        return
    if result.arrays:
        result.arrays |= mail.seen.arrays()
    result.network = {
        "server": mail.place.server,
        "name": mail.board.names[mail.place.server],
        "run": mail.place.run,
        "names": mail.board.names,
        "edges": mail.graph.edges.tolist(),
        "neighbours": mail.links.neighbours,
        "max_staleness": mail.place.max_staleness,
        "events": mail.seen.events,
    }


def _whole(given: Mapping[str, Any], key: str, least: int) -> int:
    value = given.get(key, DEFAULTS[key])
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise ConfigError(f"{key}={value!r}: a whole number, {least} at least")
    return int(value)
