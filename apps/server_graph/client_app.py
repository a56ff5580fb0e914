"""The client of server-graph: message in, message out.

A client gets its server's model w_{p,i-1} and returns w_{p,k,i} after its mini-batch steps (6): in
the clear, or masked so that the server learns the sum over its clients only. Nothing is kept from
round to round but the parsed data, in memory and for this run only: another run, other settings or
a changed file are read anew.

In simulation mini-batches come from the run's seed. On a device they come from the operating
system: no server knows which samples were drawn.

What a server learns: without masks every w_{p,k,i}, which for one step tells the mean gradient of
the batch, (w_{p,i-1} - w_{p,k,i}) / mu. Noise is added between servers, by the servers: it does not
protect a client from its own server, and no device can check it. So a device whose owner has set a
budget (``max-epsilon``) refuses this study; with ``require-privacy`` it takes part under
``privacy = "sound"``, and by secure aggregation only: its server learns sums, and what sums tell is
not bounded. It also keeps to `RANGES`, so that a server cannot choose steps that carry one sample's
gradient past all others. Under ``sound`` no sample makes a client refuse or fail: see `data` and
`problem.clip_rows`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from flwr.app import ArrayRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp
from numpy.typing import NDArray

from apps.common.enrolment import enrolment, introduction
from apps.common.memory import Memory
from apps.common.node import Node
from apps.common.seeds import generator
from privacy.accounting.budget import Policy, PrivacyRefused
from privacy.secagg.client import Summands, register
from strategies.core import wire
from strategies.core.robust import clipped

from .config import ServerGraphConfig
from .data import Samples, client_table, server_of
from .losses import Loss, loss_by_name
from .problem import draw_batches, local_steps

app = ClientApp()

Array = NDArray[np.float64]

_LARGEST_SQUARE = 1e100
# What a device takes whose owner requires privacy.
RANGES = {
    "clip": (1e-6, 1e6),
    "step": (1e-9, 1e3),
    "ridge": (0.0, 1e6),
    "sigma": (1e-9, 1e9),
    "local_steps": (1, 10_000),
}


@dataclass(frozen=True)
class _Client:
    """One client, ready to answer."""

    node: Node
    samples: Samples
    loss: Loss

    @cached_property
    def parameters(self) -> int:
        """The number of a model's parameters."""
        return self.loss.size(self.samples.X.shape[1])


def _read(config: ServerGraphConfig, seed: int, context: Context) -> _Client:
    """Return this node's client, where its owner allows the run."""
    _permit(config, context)
    node = Node.of(context)
    return _Client(node, client_table(config, seed, node), loss_by_name(config.loss))


_memory = Memory(ServerGraphConfig, _read)


@enrolment(app)
def enrol(message: Message, context: Context) -> Message:
    """Tell who this client is, of which server, and how much data it has."""
    run, client = _memory.run(context), _memory.client(context)
    node, samples = client.node, client.samples
    server = server_of(run.config, node, context)
    return introduction(message, node, len(samples.y), samples.columns, server=server)


@app.train()
def train(message: Message, context: Context) -> Message:
    """Return this client's model after its steps from the server's."""
    content = RecordDict({"arrays": wire.record({"model": _update(message, context)})})
    return Message(content, reply_to=message)


def summands(message: Message, context: Context) -> Summands:
    """Return what this client adds to its server's sums: its model, and one."""
    return Summands({"model": _update(message, context), "count": np.ones(1)})


# The same model, masked, for the server that asks for the sum by secure aggregation.
register(app, summands)


def _update(message: Message, context: Context) -> Array:
    """Return w_{p,k,i}, (6)."""
    run = _memory.run(context)
    config = run.config
    if config.masks_clients and not message.metadata.message_type.startswith("train.secagg"):
        raise ValueError("the run asks for secure aggregation; this reply would be in the clear")
    client = _memory.client(context)
    arrays = message.content["arrays"]
    if not isinstance(arrays, ArrayRecord):
        raise ValueError("the server's message has no arrays")
    w = wire.unpack(arrays["model"])
    # The whole check, which says what is wrong, takes half as long as this client's step.
    if w.shape != (client.parameters,) or w.dtype != np.float64 or not w @ w < _LARGEST_SQUARE:
        wire.check_reals(w, "the server's model", (client.parameters,))
    server_round = int(message.content["order"]["round"])  # type: ignore[arg-type]
    if client.node.simulated:
        rng = generator(run.seed, "batch", client.node.partition, server_round)
    else:
        rng = np.random.default_rng()  # from the operating system's entropy
    X, y = client.samples.X, client.samples.y
    batches = draw_batches(len(y), config.batch, config.local_steps, rng)
    found = local_steps(client.loss, w, X, y, config.step, config.ridge, config.clip, batches)
    return clipped(found, w, config.norm_bound)


def _permit(config: ServerGraphConfig, context: Context) -> None:
    policy = Policy.from_node_config(context.node_config)
    policy.permit(config.privacy)
    if math.isfinite(policy.max_epsilon):
        raise PrivacyRefused(
            f"this device has a budget (max-epsilon {policy.max_epsilon:g}); in server-graph the "
            "servers add the noise, so a device can count nothing against it. To take "
            "part by secure sums alone, set require-privacy=true in place of max-epsilon"
        )
    if policy.require_privacy:
        _permit_settings(config)


def _permit_settings(config: ServerGraphConfig) -> None:
    """Refuse updates in the clear, and settings at which masks or clips would hide nothing."""
    if not config.masks_clients:
        raise PrivacyRefused(
            f"this device requires privacy; method={config.method!r} with secure-aggregation="
            f"{config.secure_aggregation!r} takes its updates in the clear. Set "
            "secure-aggregation='on'"
        )
    for name, (low, high) in RANGES.items():
        value = getattr(config, name)
        if not low <= value <= high:
            raise PrivacyRefused(
                f"this device takes {name.replace('_', '-')} from {low:g} to {high:g}: {value:g}"
            )
