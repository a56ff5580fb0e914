"""The client of gromov-wasserstein: message in, message out.

``query.enrol``   who it is, how many graphs it has, how many features and classes they have.
``train``         gets the weights w of the shared model, trains for some epochs on its own labels
                  ([JC] Algorithm 3), and returns c w, c, its loss and its hits; or, masked, their
                  sum over clients.
``query.embed``   gets w, embeds its graphs with it and returns what `release` makes of the rows.

Orders: ``round`` and ``classes``. Model, epochs, budget and encoder are the client's to choose by
the run's settings; a server cannot order others in a message. Kept from message to message: the
parsed graphs and the model, in memory and for this run only.

What a server learns in training is not covered by epsilon: in the clear every client's weights,
with secure aggregation their sum. So a device whose owner has set a budget (``max-epsilon``), or
that takes part with ``privacy = "sound"``, trains with secure aggregation only; what else it keeps
to itself then: see `guarded`.
"""

from __future__ import annotations

import math
import secrets
from dataclasses import dataclass, field

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp
from numpy.typing import NDArray

from apps.common.enrolment import enrolment, introduction
from apps.common.memory import Memory
from apps.common.node import Node
from privacy.accounting.budget import Policy, PrivacyRefused
from privacy.secagg.client import Summands, register
from strategies.core import wire

from .config import GromovWassersteinConfig
from .data import Split, class_count, client_graphs, client_split, feature_count, variables
from .graphs import Graph, labels_of
from .guarded import (
    finite_rows,
    guarded_update,
    is_guarded,
    known_classes,
    may_tell_labels,
    require_declared,
)
from .model.gnn import build_model, load, nn, weights
from .model.training import embed
from .model.update import client_hits, client_update, simulated_draw
from .release import release_rows

app = ClientApp()

Array = NDArray[np.float64]

MOST_CLASSES = 10_000


@dataclass(frozen=True)
class _Client:
    """One client, ready to answer; ``models`` by the number of classes."""

    node: Node
    graphs: list[Graph]
    split: Split
    policy: Policy
    guarded: bool
    tell_labels: bool
    models: dict[int, nn.Module] = field(default_factory=dict)


def _read(config: GromovWassersteinConfig, seed: int, context: Context) -> _Client:
    """Return this node's client, where its owner allows the run."""
    policy = Policy.from_node_config(context.node_config)
    policy.permit(config.privacy)
    if math.isfinite(policy.max_epsilon) and not config.secure_aggregation:
        raise PrivacyRefused(
            f"this device has a budget (max-epsilon {policy.max_epsilon:g}), and the updates of "
            "training have no noise that could be counted against it. Set "
            "secure-aggregation=true, so that the server sees their sum only"
        )
    node = Node.of(context)
    guarded = is_guarded(config, node)
    if guarded:
        require_declared(config, node)
    graphs = client_graphs(config, seed, node)
    if guarded:
        graphs = known_classes(graphs, config.classes)
    tell_labels = may_tell_labels(config, node, context.node_config)
    return _Client(node, graphs, client_split(graphs, seed, node), policy, guarded, tell_labels)


_memory = Memory(GromovWassersteinConfig, _read)


@enrolment(app)
def enrol(message: Message, context: Context) -> Message:
    """Tell who this client is and what its graphs are like."""
    config, client = _memory.run(context).config, _memory.client(context)
    names = variables(config, client.graphs)
    classes = config.classes if client.guarded else class_count(config, client.graphs)
    return introduction(message, client.node, len(client.graphs), names, classes=classes)


@app.train()
def train(message: Message, context: Context) -> Message:
    """Return this client's part of the sums, in the clear."""
    if _memory.run(context).config.secure_aggregation:
        raise ValueError("the run asks for secure aggregation; this reply would be in the clear")
    return Message(RecordDict({"arrays": wire.record(_update(message, context))}), reply_to=message)


def summands(message: Message, context: Context) -> Summands:
    """Return what this client adds to the sums."""
    return Summands(_update(message, context))


# The same update, masked, for the server that asks for the sum by secure aggregation.
register(app, summands)


@app.query("embed")
def embeddings(message: Message, context: Context) -> Message:
    """Return this client's embeddings, encoded where the run says so."""
    run, client = _memory.run(context), _memory.client(context)
    model = _loaded(run.config, client, message)
    rows = embed(model, client.graphs)
    if client.guarded:
        rows = finite_rows(rows)
    found, events = release_rows(
        run.config, run.seed, client.node, rows, _round(run.config, message), client.policy
    )
    labels = labels_of(client.graphs)
    if not client.tell_labels:
        labels = np.full_like(labels, -1)
    sizes = np.array([graph.nodes for graph in client.graphs], dtype=np.int64)
    content = RecordDict({"arrays": wire.record({**found, "sizes": sizes, "labels": labels})})
    for event in events:
        content[f"privacy.{event.name}"] = ConfigRecord(event.as_record())
    return Message(content, reply_to=message)


def _update(message: Message, context: Context) -> dict[str, Array]:
    """Train from the weights that were sent; return the summands of `FederatedGnn`."""
    run, client = _memory.run(context), _memory.client(context)
    config, server_round = run.config, _round(run.config, message)
    model = _loaded(config, client, message)
    chosen = [client.graphs[place] for place in client.split.train]
    if client.node.simulated:
        draw = simulated_draw(run.seed, client.node.partition, server_round)
    else:
        draw = secrets.randbits(62)  # no server knows the order of the batches
    if client.guarded:
        return guarded_update(model, chosen, config, draw)
    hits = client_hits(model, client.graphs, client.split, config.task)  # of the weights sent
    return client_update(model, chosen, weights(model), config, draw) | hits


def _loaded(config: GromovWassersteinConfig, client: _Client, message: Message) -> nn.Module:
    """Return the client's model with the weights that the message brings."""
    order = message.content.get("order")
    classes = order.get("classes") if isinstance(order, ConfigRecord) else None
    if isinstance(classes, bool) or not isinstance(classes, int) or not 2 <= classes < MOST_CLASSES:
        raise ValueError(f"the server's order has classes={classes!r}; a whole number >= 2")
    if client.guarded and classes != config.classes:
        raise ValueError(
            f"the server's order has classes={classes}; the run's are {config.classes}"
        )
    model = client.models.get(classes)
    if model is None:
        features = feature_count(variables(config, client.graphs))
        model = build_model(config.model, features, classes, config.task, config.width)
        client.models.clear()  # a server that changes it every round must not fill the memory
        client.models[classes] = model
    arrays = message.content["arrays"]
    if not isinstance(arrays, ArrayRecord) or "weights" not in arrays:
        raise ValueError("the server's message has no weights")
    vector = wire.unpack(arrays["weights"])
    wire.check_reals(vector, "the server's weights", vector.shape)
    load(model, vector)
    return model


def _round(config: GromovWassersteinConfig, message: Message) -> int:
    order = message.content.get("order")
    found = order.get("round") if isinstance(order, ConfigRecord) else None
    if isinstance(found, bool) or not isinstance(found, int) or not 1 <= found <= config.rounds:
        raise ValueError(f"the server's round is {found!r}; the run's are 1 to {config.rounds}")
    return found
