"""What a ClientApp keeps in memory from message to message: parsed settings and parsed data.

For one run only: another run, other settings or a changed file are read anew. Nothing here is part
of the algorithm; a process that is killed between two messages loses time and nothing else.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar

from flwr.app import Context

from trellis.apps.common.node import Node, data_stamp, seed_of
from trellis.apps.common.settings import StudyConfig


class HasNode(Protocol):
    """What a study keeps of a client: at least whose it is."""

    @property
    def node(self) -> Node:
        """The client's node."""


Config = TypeVar("Config", bound=StudyConfig)
Client = TypeVar("Client", bound=HasNode)


@dataclass(frozen=True)
class Kept(Generic[Client]):
    """One client, the node config it was read by, and its file's stamp."""

    node_config: dict[str, Any]
    stamp: tuple[int, int] | None
    client: Client


@dataclass(frozen=True)
class KeptRun(Generic[Config, Client]):
    """What this process keeps of the run it works for; ``clients`` by their nodes."""

    run_id: int
    run_config: dict[str, Any]
    config: Config
    seed: int
    clients: dict[int, Kept[Client]] = field(default_factory=dict)


class Memory(Generic[Config, Client]):
    """The run and the clients that one process works for.

    Parameters
    ----------
    config_class : the study's settings
    read : reads one client's data; raises where its owner does not allow the run. Called for the
        first message of a run, whatever it is: a server may leave enrolment out
    """

    def __init__(
        self, config_class: type[Config], read: Callable[[Config, int, Context], Client]
    ) -> None:
        self._config_class = config_class
        self._read = read
        self.kept: KeptRun[Config, Client] | None = None

    def run(self, context: Context) -> KeptRun[Config, Client]:
        """Return what is kept of this run; what was kept of another is forgotten."""
        kept = self.kept
        if kept is None or kept.run_id != context.run_id or kept.run_config != context.run_config:
            config = self._config_class.from_run_config(context.run_config)
            seed = seed_of(context)
            # One assignment, so that a thread sees either run whole.
            self.kept = kept = KeptRun(context.run_id, dict(context.run_config), config, seed)
        return kept

    def client(self, context: Context) -> Client:
        """Return this node's client, its data parsed once a run unless its file changes."""
        run = self.run(context)
        kept = run.clients.get(context.node_id)
        if (
            kept is not None
            and kept.node_config == context.node_config
            and (kept.stamp is None or kept.stamp == data_stamp(kept.client.node))
        ):
            return kept.client
        # Before it is read: a change meanwhile is seen at the next message.
        stamp = data_stamp(Node.of(context))
        client = self._read(run.config, run.seed, context)
        run.clients[context.node_id] = Kept(dict(context.node_config), stamp, client)
        return client
