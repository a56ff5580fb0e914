"""A client's part of a round: its data, and (4) solved for the v that the server sent.

Nothing is kept from round to round but the parsed data and the factorisation of (4), in memory and
for this run only: another run, other settings or a changed file are read anew. The server holds the
duals: a client that restarts loses nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from flwr.app import ConfigRecord, Context, Message, MetricRecord, RecordDict
from numpy.typing import NDArray

from trellis.apps.common.evaluation.holding import held_out_rows
from trellis.apps.common.memory import Memory
from trellis.apps.common.node import Node
from trellis.apps.common.own_data.sent import SampledClient
from trellis.apps.server_graph.data import Samples
from trellis.privacy.accounting.budget import Policy
from trellis.strategies.core import wire
from trellis.strategies.core.robust import clipped

from .config import ClusterAdmmConfig
from .data import client_table, cluster_of, held_out_count, is_numeric
from .steps import Step, primal_step

Array = NDArray[np.float64]

_RHO_RANGE = (1e-9, 1e9)
_MOST_STEPS_KEPT = 8  # a server that changes rho every round must not fill the memory


@dataclass(frozen=True)
class Client(SampledClient[Samples]):
    """One client, ready to answer; ``steps`` by (rho, share)."""

    steps: dict[tuple[float, float], Step] = field(default_factory=dict, init=False)

    def step(self, config: ClusterAdmmConfig, rho: float, share: float) -> Step:
        """Return the factorised step (4)."""
        if (rho, share) not in self.steps:
            made = primal_step(config.loss, *self.learning, config.ridge, share, rho)
            if len(self.steps) >= _MOST_STEPS_KEPT:
                self.steps.clear()
            self.steps[rho, share] = made
        return self.steps[rho, share]


def _read(config: ClusterAdmmConfig, seed: int, context: Context) -> Client:
    """Return this node's client, where its owner allows the run."""
    Policy.from_node_config(context.node_config).permit(config.privacy)
    node = Node.of(context)
    samples = client_table(config, seed, node)
    number = held_out_count(len(samples.y), config.held_out)
    held = held_out_rows(len(samples.y), number, node, seed, config.privacy)
    return Client(node, samples, held, is_numeric(config))


memory = Memory(ClusterAdmmConfig, _read)


@dataclass(frozen=True)
class Solved:
    """The solution ``w`` (d,) of (4), and what went into it."""

    config: ClusterAdmmConfig
    seed: int
    client: Client
    server_round: int
    v: Array
    rho: float
    w: Array

    @property
    def count(self) -> int:
        """Return D, how many samples this client learns from."""
        return len(self.client.learning[1])

    def metrics(self) -> MetricRecord:
        """Return the metrics of a reply."""
        return MetricRecord({"num-examples": self.count})


def solved(message: Message, context: Context) -> Solved:
    """Return this client's solution of (4) for the v, rho and share of a ``train`` message."""
    run, client = memory.run(context), memory.client(context).standardised(message)
    v, config = sent_array(message, "v", (client.samples.X.shape[1],)), sent_config(message)
    server_round = int(wire.number(config, "server-round", 0.0))
    rho, share = wire.number(config, "rho", *_RHO_RANGE), wire.number(config, "share", 0.0, 1.0)
    w = client.step(run.config, rho, share).solve(v)
    return Solved(run.config, run.seed, client, server_round, v, rho, w)


def model(message: Message, context: Context) -> Message:
    """Return this client's solution of (4)."""
    found = solved(message, context)
    w = clipped(found.w, found.v / found.rho, found.config.norm_bound)
    content = RecordDict({"arrays": wire.record({"model": w}), "metrics": found.metrics()})
    return Message(content, reply_to=message)


def slot(context: Context, client: Client) -> int:
    """Return the place of this client's cluster among the models that the method learns."""
    run = memory.run(context)
    if run.config.task_count == 1:
        return 0
    return cluster_of(run.config, run.seed, client.node, context)


def sent_array(message: Message, name: str, shape: tuple[int | None, ...]) -> Array:
    """Return an array of a message, checked before anything is computed from it."""
    return wire.received(message.content.get("arrays"), name, shape)


def sent_config(message: Message) -> ConfigRecord:
    """Return the record ``config`` of a message; an empty one where there is none."""
    found = message.content.get("config")  # `config_records` would copy all records
    return found if isinstance(found, ConfigRecord) else ConfigRecord()
