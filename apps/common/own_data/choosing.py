"""Settings that fit the clients there are, where nobody asked for others: servers, graph, clusters.

For devices (``trellis deploy run``) and for files of one's own (``trellis run --data``) alike. What
clients say of themselves counts: their node configs, or ``assignment.csv`` beside their files. For
``flwr run`` (`choose_for_number`), which has as many clients as there are SuperNodes, too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from trellis.apps.common.assignment import ASSIGNMENT, read_assignment
from trellis.apps.common.settings import AUTO_WORD, StudyConfig

FEWEST = 3  # clients of a secure sum
SMALL = 4  # servers that are all connected, where nobody names a graph


@dataclass
class Chosen:
    """Settings of a run, some of them chosen.

    Attributes
    ----------
    kind : the study's settings
    settings : those given and those chosen
    reasons : the latter by name, with the reason
    """

    kind: type[StudyConfig]
    settings: dict[str, Any]
    reasons: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.defaults = self.kind().settings()

    def take(self, key: str, value: Any, why: str) -> None:
        """Choose a setting, if it is open, has an effect, and is not the default anyway."""
        if key not in self.settings and value != self.defaults[key] and self.has(key):
            self.settings[key] = value
            self.reasons[key] = f"{key}={value} ({why})"

    def has(self, key: str) -> bool:
        """Return whether a setting has an effect with the method and privacy that are set."""
        return self.kind.has_effect(key, self.settings)

    def number(self, key: str, otherwise: int) -> int:
        """Return a setting that is a whole number; building the config names one that is not."""
        try:
            return int(self.settings.get(key, self.defaults[key]))
        except (TypeError, ValueError):
            return otherwise


def choose_places(chosen: Chosen, nodes: Sequence[Mapping[str, Any]], asked_for: str) -> None:
    """Choose servers, their graph and clusters for these clients.

    Parameters
    ----------
    nodes : what every client says of itself: ``server`` and ``cluster``, if it does
    asked_for : where a client could say so, in words
    """
    _choose_servers(chosen, nodes, asked_for)
    if "clusters" in chosen.defaults:
        grouped = [int(node["cluster"]) for node in nodes if "cluster" in node]
        if grouped and len(grouped) == len(nodes):
            chosen.take("clusters", str(max(grouped) + 1), f"as {asked_for} says")
        else:
            why = f"no cluster in {asked_for}; clusters=auto:2 would find two"
            chosen.take("clusters", "1", why)


def choose_for_number(
    kind: type[StudyConfig],
    given: Mapping[str, Any],
    clients: int,
    *,
    files: Sequence[Path] = (),
    simulated: bool = False,
) -> Chosen:
    """Complete the settings of a Flower app, in which ``servers = 0`` is open, for its clients.

    In a simulation, what needs more clients than there are is lowered if it has its default, and
    what the built-in example has for another number of clients is scaled.
    Everything else that does not fit is refused when the config is built.

    Parameters
    ----------
    given : settings of the study
    files : the clients' own, in a simulation; without any they have built-in data
    simulated : whether there is nobody whom a secure sum would protect
    """
    chosen = Chosen(kind, {**given, "clients": clients})
    defaults = chosen.defaults
    left_open = set()
    if "servers" in defaults and not chosen.number("servers", 1):
        left_open.add("servers")
    if simulated:
        fitting = {"topology", "clusters", "secure-aggregation"} & defaults.keys()
        fitting |= kind.for_number(clients).keys()
        left_open |= {k for k in fitting if chosen.settings.get(k, defaults[k]) == defaults[k]}
    chosen.settings = {k: v for k, v in chosen.settings.items() if k not in left_open}
    if simulated:
        _fit_simulation(chosen, clients, files)
    _choose_servers(chosen, (), "")
    chosen.settings = {**{key: defaults[key] for key in left_open}, **chosen.settings}
    return chosen


def _fit_simulation(chosen: Chosen, clients: int, files: Sequence[Path]) -> None:
    defaults, few = chosen.defaults, f"{clients} client{'s' * (clients > 1)}"
    without_privacy = chosen.settings.get("privacy", defaults["privacy"]) == "none"
    if files:
        choose_places(chosen, places_of_files(files), ASSIGNMENT)
    else:
        for key, value in chosen.kind.for_number(clients).items():
            chosen.take(key, value, few)
        if without_privacy and clients < 2 * FEWEST and "servers" in defaults:
            chosen.take("servers", min(clients, 2), few)
    _choose_servers(chosen, (), "")
    usual = str(defaults.get("clusters", ""))
    if usual.isdecimal() and clients < int(usual):
        chosen.take("clusters", str(clients), few)
    # The auto of server-graph is on also without privacy; it needs so many clients per server.
    if without_privacy and defaults.get("secure-aggregation") == AUTO_WORD:
        servers = chosen.number("servers", 1) if chosen.has("servers") else 1
        if clients // max(1, servers) < FEWEST:
            why = f"fewer than {FEWEST} clients per server"
            chosen.take("secure-aggregation", "off", why)


def _choose_servers(chosen: Chosen, nodes: Sequence[Mapping[str, Any]], asked_for: str) -> None:
    if "servers" not in chosen.defaults:
        return
    placed = [int(node["server"]) for node in nodes if "server" in node]
    if placed and len(placed) == len(nodes):
        chosen.take("servers", max(placed) + 1, f"as {asked_for} says")
    else:
        clients = chosen.number("clients", len(nodes))
        most = int(chosen.defaults["servers"])
        servers = max(1, min(most, clients // FEWEST))
        chosen.take("servers", servers, f"{FEWEST} clients at least for each")
    if 1 < chosen.number("servers", 1) <= SMALL:
        chosen.take("topology", "complete", "few servers")


def places_of_files(files: Sequence[Path]) -> list[dict[str, int]]:
    """Return what ``assignment.csv`` beside clients' files says of each; nothing without one.

    Raises
    ------
    DataError
        For a table that cannot be read.
    """
    table = files[0].parent / ASSIGNMENT if files else None
    if table is None or not table.is_file():
        return [{} for _ in files]
    return [read_assignment(table, {path.stem, path.name}) for path in files]
