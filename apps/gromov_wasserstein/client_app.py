"""The client of gromov-wasserstein: message in, message out.

``query.enrol``   who it is, how many graphs it has, how many features and classes they have.
``train``         gets the weights w of the shared model and answers as the run's method does
                  (`methods`): `update` trains for some epochs on its own labels ([JC] Algorithm 3);
                  under ``privacy = "dp"`` nothing is sent but terms of noisy secure sums of the
                  graphs' clipped gradients at w (`gradient_terms`).
``evaluate``      as a secure sum only: the score on held-out graphs (`score_terms`).
``query.embed``   gets w, embeds its graphs with it and returns what `release` makes of the rows.
``query.personal``  gets the final w; what the client makes of it and of its raw graphs stays with
                  it (`home`).

Records: ``arrays`` with ``weights``; ``config`` with ``server-round`` and ``classes``. Model,
epochs, budget and encoder are the client's to choose by the run's settings; a server cannot order
others in a message. Kept from message to message: the parsed graphs and the model, in memory and
for this run only.

torch is imported by what trains or embeds and nothing else: on a device every message is a process
of its own, and for enrolment, keys and shares seconds of imports would be in vain.

With other privacy than ``dp`` a server learns from training what no epsilon covers: in the clear
every client's weights, with secure aggregation their mean. So a device whose owner has set a budget
(``max-epsilon``) insists on secure aggregation there. What else a device keeps to itself under
``dp``: see `guarded`.
"""

from __future__ import annotations

import math
import secrets
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from flwr.app import ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from numpy.typing import NDArray

from trellis.apps.common.enrolment import enrolment, introduction
from trellis.apps.common.memory import Memory
from trellis.apps.common.node import Node
from trellis.apps.common.private.noisy_sum import noisy
from trellis.apps.common.private.personal import Personal, personal
from trellis.privacy.accounting.budget import Policy, PrivacyRefused
from trellis.privacy.secagg.client import Summands, register, weighted_summands
from trellis.strategies.core import wire
from trellis.strategies.gromov_wasserstein.strategy import METRICS

from .config import GromovWassersteinConfig
from .data import Split, class_count, client_graphs, client_split, feature_count, variables
from .graphs import Graph, labels_of
from .guarded import (
    finite_rows,
    is_guarded,
    known_classes,
    may_tell_labels,
    noisy_part,
    require_declared,
    right_part,
)
from .methods import METHODS
from .model import require_installed
from .release import release_rows

if TYPE_CHECKING:
    from .model.gnn import nn

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
    in_the_clear = config.clear_updates and not config.secure_aggregation
    if math.isfinite(policy.max_epsilon) and in_the_clear:
        raise PrivacyRefused(
            f"this device has a budget (max-epsilon {policy.max_epsilon:g}), and the updates of "
            f"training with privacy={config.privacy!r} have no noise that could be counted against "
            "it. Set secure-aggregation=true, so that the server sees their sum only, or "
            "privacy='dp'"
        )
    node = Node.of(context)
    guarded = is_guarded(config, node)
    if guarded:
        require_declared(config, node)
    graphs = client_graphs(config, seed, node)
    if guarded:
        graphs = known_classes(graphs, config.classes)
    tell_labels = may_tell_labels(config, node, context.node_config)
    parts = client_split(config, graphs, seed, node)
    return _Client(node, graphs, parts, policy, guarded, tell_labels)


_memory = Memory(GromovWassersteinConfig, _read)


@enrolment(app)
def enrol(message: Message, context: Context) -> Message:
    """Tell who this client is and what its graphs are like."""
    require_installed()
    config, client = _memory.run(context).config, _memory.client(context)
    names = variables(config, client.graphs)
    classes = config.classes if client.guarded else class_count(config, client.graphs)
    return introduction(message, client.node, len(client.graphs), names, classes=classes)


def settings_of(context: Context) -> GromovWassersteinConfig:
    """Return the run's settings."""
    return _memory.run(context).config


METHODS.answer_train(app, settings_of)


def update(message: Message, context: Context) -> Message:
    """Return the weights after training on this client's labels, and its numbers of items."""
    from .model.gnn import weights
    from .model.update import client_hits, client_update, simulated_draw

    run, client = _memory.run(context), _memory.client(context)
    config, server_round = run.config, _round(run.config, message)
    model = _loaded(config, client, message)
    chosen = [client.graphs[place] for place in client.split.train]
    if client.node.simulated:
        draw = simulated_draw(run.seed, client.node.partition, server_round)
    else:
        draw = secrets.randbits(62)  # no server knows the order of the batches
    hits = client_hits(model, client.graphs, client.split, config.task)  # of the weights sent
    done = client_update(model, chosen, weights(model), config, draw)
    loss = done.count * done.loss if done.count else 0.0
    metrics = MetricRecord({"num-examples": float(done.count), "loss": loss, **hits})
    arrays = wire.record({"weights": done.weights})
    return Message(RecordDict({"arrays": arrays, "metrics": metrics}), reply_to=message)


def masked_update(message: Message, context: Context) -> Summands:
    """Return `update` weighted by its items, for a secure mean."""
    return weighted_summands(update(message, context), METRICS)


def gradient_terms(message: Message, context: Context) -> Summands:
    """Return the sum of this client's clipped gradients, one per graph, with noise.

    One graph replaced: two gradients of norm C may lie opposite each other. Every round is a
    release of its own, once: there are as many as the run has declared, and a run that is resumed
    goes on with the noise of its round.
    """
    config, client = _memory.run(context).config, _memory.client(context)
    server_round, model = _round(config, message), _loaded(config, client, message)
    chosen = [client.graphs[place] for place in client.split.train]
    found = noisy(
        context,
        config,
        {"gradient": noisy_part(model, chosen, config)},
        what=f"gradients, round {server_round}",
        sensitivity=2.0 * config.gradient_bound,
        ratio=config.training_ratio,
        server_round=server_round,
    )
    return _counted(found, len(chosen))


def score_terms(message: Message, context: Context) -> Summands:
    """Return this client's held-out graphs' shares of correct items, added up, with noise."""
    config = _memory.run(context).config
    if not config.score_epsilon:
        raise PrivacyRefused("the run has no budget for a score on held-out graphs")
    client, server_round = _memory.client(context), _round(config, message)
    model = _loaded(config, client, message)
    held = [client.graphs[place] for place in client.split.test]
    found = noisy(
        context,
        config,
        {"correct": right_part(model, held, config)},
        what="held-out score",
        sensitivity=1.0,  # one graph replaced: its term lies between 0 and 1
        ratio=config.score_ratio,
        server_round=server_round,
    )
    return _counted(found, len(held))


def _counted(found: Summands, graphs: int) -> Summands:
    """Return the summands with their number of graphs, which is public, in the clear."""
    clear = RecordDict({"metrics": MetricRecord({"num-examples": graphs})})
    return replace(found, clear=clear)


summands = METHODS.in_sums("summands", settings_of)
score = METHODS.in_sums("score", settings_of)
register(app, summands, score)

# The last message: the weights that this client keeps, which stay on its device.
personal(app)(METHODS.own(settings_of))


@app.query("embed")
def embeddings(message: Message, context: Context) -> Message:
    """Return this client's embeddings, encoded where the run says so."""
    from .model.training import embed

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
    content = RecordDict(
        {"arrays": wire.record({**found, "sizes": _sizes(client), "labels": labels})}
    )
    for event in events:
        content[f"privacy.{event.name}"] = ConfigRecord(event.as_record())
    return Message(content, reply_to=message)


@dataclass(frozen=True)
class _Received:
    """What the last message brought, and what a result is made of.

    Attributes
    ----------
    model, shared : the network and the weights that were sent
    fresh : weights to learn alone from; None if nobody trains
    near : distances to other graphs
    trivial : the share of right answers without a model
    draw : the seed of what is drawn
    rate : the learning rate
    """

    model: nn.Module
    shared: Array
    fresh: Array | None
    near: dict[str, NDArray[Any]]
    trivial: float
    draw: int
    rate: float
    features: int
    classes: int
    variables: list[str]
    words: list[str]


def _received(message: Message, context: Context) -> _Received:
    """Return what the last message brought."""
    # Late: no other message needs these.
    from .model.gnn import build_model, weights
    from .model.home import RATE, USUAL_RATE
    from .model.update import simulated_draw
    from .owner.result import near_in_words, read_neighbours, trivial_share

    run, client = _memory.run(context), _memory.client(context)
    config = run.config
    model = _loaded(config, client, message)
    near = {} if client.node.simulated else read_neighbours(message.content, len(client.graphs))
    if client.node.simulated:
        draw = simulated_draw(run.seed, client.node.partition, config.rounds + 1)
    else:
        draw = secrets.randbits(62)
    names = variables(config, client.graphs)
    features = feature_count(names)
    classes = int(message.content["config"]["classes"])  # type: ignore[arg-type]
    fresh = None
    if config.trains:
        other = build_model(config.model, features, classes, config.task, config.width, seed=draw)
        fresh = weights(other)
    words = [
        f"A graph neural network ({config.model}) that tells {classes} classes of "
        f"{config.task}s apart, shared by all clients.",
        *near_in_words(near),
    ]
    return _Received(
        model=model,
        shared=weights(model),
        fresh=fresh,
        near=near,
        trivial=trivial_share(client.graphs, client.split, config.task),
        draw=draw,
        rate=RATE.get(config.model, USUAL_RATE),
        features=features,
        classes=classes,
        variables=names,
        words=words,
    )


def received_weights(message: Message, context: Context) -> Personal:
    """Return the weights that all clients share, as this client keeps them."""
    # Late: no other message needs these.
    from trellis.apps.common.evaluation.measures import ALONE as BY_ITSELF
    from trellis.apps.common.evaluation.measures import THIS, Scores

    from .model.home import ALONE, DECAY, score
    from .model.training import local_training, predicted
    from .owner.result import description, shares

    config, client = _memory.run(context).config, _memory.client(context)
    sent = _received(message, context)
    model = sent.model
    guesses = predicted(model, client.graphs, config.task)

    def scores() -> Scores:
        unseen = [client.graphs[place] for place in client.split.test]
        found = score(model, sent.shared, unseen, config.task)
        right = {THIS: float(found.correct)}
        parts = np.sort(np.concatenate([client.split.train, client.split.validation]))
        own = [client.graphs[place] for place in parts]
        start = sent.shared if sent.fresh is None else sent.fresh
        trained = local_training(
            *(model, own, start, config.task, ALONE, 0, sent.rate, DECAY, 0.0, sent.draw)
        )
        right[BY_ITSELF] = float(score(model, trained.weights, unseen, config.task).correct)
        return shares(right, float(found.count), sent.trivial)

    return Personal(
        {"weights": sent.shared, "sizes": _sizes(client), "predicted": guesses, **sent.near},
        variables=sent.variables,
        summary={"graphs": float(len(client.graphs))},
        words=sent.words,
        model=description(config, sent.features, sent.classes, "weights"),
        scores=scores if len(client.split.test) else None,
        made_here=False,
    )


def own_weights(message: Message, context: Context) -> Personal:
    """Return weights of this client's own, trained on its graphs, from those that all share."""
    # Late: no other message needs these.
    from .model.home import at_home
    from .model.training import embed, predicted
    from .owner.result import description, home_scores

    config, client = _memory.run(context).config, _memory.client(context)
    sent = _received(message, context)
    model = sent.model
    rows = embed(model, client.graphs)
    found = at_home(
        *(model, client.graphs, client.split, sent.shared, sent.fresh, config.task),
        rate=sent.rate,
        draw=sent.draw,
    )
    arrays = {
        "weights": sent.shared,
        "own-weights": found.weights,
        "rows": np.concatenate(rows),
        "sizes": _sizes(client),
        "predicted": predicted(model, client.graphs, config.task),
        **sent.near,
    }
    summary: dict[str, float | str] = {"kept": found.chosen}
    summary["test-items"] = float(found.test[found.chosen].count)
    for name, one in {**found.test, "kept": found.test[found.chosen]}.items():
        summary[f"{name}-right"] = float(one.correct)
    return Personal(
        arrays,
        variables=sent.variables,
        summary=summary,
        words=sent.words,
        model=description(config, sent.features, sent.classes, "own-weights"),
        scores=partial(home_scores, found.test, found.chosen, sent.trivial)
        if len(client.split.test)
        else None,
    )


def _sizes(client: _Client) -> NDArray[np.int64]:
    return np.array([graph.nodes for graph in client.graphs], dtype=np.int64)


def _loaded(config: GromovWassersteinConfig, client: _Client, message: Message) -> nn.Module:
    """Return the client's model with the weights that the message brings."""
    from .model.gnn import build_model, load

    told = message.content.get("config")
    classes = told.get("classes") if isinstance(told, ConfigRecord) else None
    if isinstance(classes, bool) or not isinstance(classes, int) or not 2 <= classes < MOST_CLASSES:
        raise ValueError(f"the message has classes={classes!r}; a whole number >= 2")
    if client.guarded and classes != config.classes:
        raise ValueError(f"the message has classes={classes}; the run's are {config.classes}")
    model = client.models.get(classes)
    if model is None:
        features = feature_count(variables(config, client.graphs))
        model = build_model(config.model, features, classes, config.task, config.width)
        client.models.clear()  # a server that changes it every round must not fill the memory
        client.models[classes] = model
    size = sum(p.numel() for p in model.parameters())
    load(model, wire.received(message.content.get("arrays"), "weights", (size,)))
    return model


def _round(config: GromovWassersteinConfig, message: Message) -> int:
    told = message.content.get("config")
    found = told.get("server-round") if isinstance(told, ConfigRecord) else None
    if isinstance(found, bool) or not isinstance(found, int) or not 1 <= found <= config.rounds:
        raise ValueError(f"the server's round is {found!r}; the run's are 1 to {config.rounds}")
    return found
