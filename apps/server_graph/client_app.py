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
budget (``max-epsilon``) refuses this study; ``require-privacy`` takes ``privacy = "sound"`` on the
servers' word.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from flwr.app import ArrayRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp
from numpy.typing import NDArray

from apps.enrolling import introduction, refusal
from privacy.budget import Policy, PrivacyRefused
from privacy.secagg.client import Summands, register
from sim.node import Node, data_stamp
from sim.seeds import generator
from strategies import wire

from .config import ServerGraphConfig
from .data import Samples, client_table, server_of
from .losses import Loss, loss_by_name
from .problem import draw_batches, local_steps

app = ClientApp()

Array = NDArray[np.float64]

_LARGEST_SQUARE = 1e100


@dataclass(frozen=True)
class _Client:
    """One client, ready to answer."""

    node: Node
    samples: Samples
    parameters: int
    stamp: tuple[int, int] | None


@dataclass(frozen=True)
class _Run:
    """What this process keeps of the run it works for."""

    run_id: int
    run_config: dict[str, Any]
    config: ServerGraphConfig
    loss: Loss
    seed: int
    clients: dict[Any, _Client] = field(default_factory=dict)


_kept: _Run | None = None


@app.query("enrol")
def enrol(message: Message, context: Context) -> Message:
    """Tell who this client is, of which server, and how much data it has; or refuse."""
    run = _run(context)
    try:
        client = _client(run, context)
    except PrivacyRefused as reason:
        return refusal(message, Node.of(context), reason)
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
    run = _run(context)
    config = run.config
    if config.masks_clients and not message.metadata.message_type.startswith("train.secagg"):
        raise ValueError("the run asks for secure aggregation; this reply would be in the clear")
    client = _client(run, context)
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
    return local_steps(run.loss, w, X, y, config.step, config.ridge, config.clip, batches)


def _run(context: Context) -> _Run:
    """Return what is kept of this run; what was kept of another is forgotten."""
    global _kept
    kept = _kept
    if kept is None or kept.run_id != context.run_id or kept.run_config != context.run_config:
        config = ServerGraphConfig.from_run_config(context.run_config)
        seed = int(context.run_config["seed"])
        loss = loss_by_name(config.loss)
        # One assignment, so that a thread sees either run whole.
        _kept = kept = _Run(context.run_id, dict(context.run_config), config, loss, seed)
    return kept


def _client(run: _Run, context: Context) -> _Client:
    """Return this node's client, its data parsed once a run unless its file changes.

    Raises
    ------
    PrivacyRefused
        Where the device's owner does not allow this run; here and not only at enrolment, because a
        server may leave that out.
    """
    key = (context.node_id, *context.node_config.items())
    client = run.clients.get(key)
    if client is not None and (client.stamp is None or client.stamp == data_stamp(client.node)):
        return client
    _permit(run.config, context)
    node = Node.of(context)
    stamp = data_stamp(node)  # before it is read: a change meanwhile is seen at the next message
    samples = client_table(run.config, run.seed, node)
    client = _Client(node, samples, run.loss.size(samples.X.shape[1]), stamp)
    run.clients[key] = client
    return client


def _permit(config: ServerGraphConfig, context: Context) -> None:
    policy = Policy.from_node_config(context.node_config)
    policy.permit(config.privacy)
    if math.isfinite(policy.max_epsilon):
        raise PrivacyRefused(
            f"this device has a budget (max-epsilon {policy.max_epsilon:g}); in server-graph the "
            "servers add the noise, so a device can count nothing against it. To trust the "
            "servers' noise, set require-privacy=true in place of max-epsilon"
        )
