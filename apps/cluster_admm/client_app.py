"""The client of cluster-admm: message in, message out.

``query.enrol``   who it is, of which server and cluster, how much data it has.
``train``         gets v = phi_k + rho w_{s,q} and returns w_k, the solution of (4), noised as
                  `release` says. The server holds the duals: a client that restarts loses nothing.
``query.losses``  gets models (Q, d) and returns its mean loss under each, by which the server finds
                  clusters. Losses have no noise: with ``privacy = "sound"`` they are refused.

With ``release = "sum"`` (`private`) a client sends no model: it takes part in secure sums, with its
share of their noise, and makes its own model of the result at home (``query.personal``). ``train``
is refused then.

Orders: ``round``, ``rho``, ``share`` (of the ridge) and, where part of the data is held out, its
fraction ``held_out``: training leaves those rows out, losses are of them alone. The noise is the
client's to choose, by the run's settings; a server cannot order less in a message.

Nothing is kept from round to round but the parsed data and the factorisation of (4), in memory and
for this run only: another run, other settings or a changed file are read anew.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp
from numpy.typing import NDArray

from trellis.apps.common.enrolment import enrolment, introduction
from trellis.apps.common.evaluation.holding import held_out_rows as rows_to_score
from trellis.apps.common.memory import Memory
from trellis.apps.common.node import Node
from trellis.apps.common.own_data import units
from trellis.apps.common.own_data.scaling import is_apart
from trellis.apps.common.own_data.sent import SampledClient
from trellis.apps.common.private.noisy_sum import noisy
from trellis.apps.common.private.personal import Personal, personal
from trellis.apps.server_graph.data import Samples
from trellis.privacy.accounting.budget import Policy, PrivacyRefused
from trellis.privacy.secagg.client import Summands, register
from trellis.strategies.core import wire
from trellis.strategies.core.robust import clipped

from .config import ClusterAdmmConfig
from .data import (
    client_table,
    cluster_of,
    held_out_count,
    held_out_rows,
    is_numeric,
    server_of,
)
from .exactness import permit_scales, permit_step
from .private.budget import (
    SCALES,
    SCORES,
    TEACHES,
    scales_ratio,
    scoring_ratio,
    teaching_ratio,
    units_ratio,
)
from .private.moments import SENSITIVITY, Question, moments
from .private.scales import SENSITIVITY as SCALES_SENSITIVITY
from .private.scales import scale_counts
from .private.score import SENSITIVITY as SCORE_SENSITIVITY
from .private.score import score_terms
from .problem import mean_losses
from .release import bounded, permit_losses, release_model, sensitivity
from .steps import Step, SureStep, primal_step

if TYPE_CHECKING:
    from trellis.apps.common.evaluation.measures import Scores

app = ClientApp()

Array = NDArray[np.float64]

_RHO_RANGE = (1e-9, 1e9)
_SCALES = (1e-12, 1e12)
_MOST_STEPS_KEPT = 8  # a server that changes rho every round must not fill the memory


@dataclass(frozen=True)
class _Client(SampledClient[Samples]):
    """One client, ready to answer; ``steps`` by (rho, share, held_out)."""

    policy: Policy
    steps: dict[tuple[float, float, float], Step] = field(default_factory=dict, init=False)


def _read(config: ClusterAdmmConfig, seed: int, context: Context) -> _Client:
    """Return this node's client, where its owner allows the run."""
    policy = Policy.from_node_config(context.node_config)
    policy.permit(config.privacy)
    permit_scales(config)
    if config.finds_clusters and not config.sums:
        permit_losses(config)  # at enrolment, and not in the first round that asks
    node = Node.of(context)
    samples = client_table(config, seed, node)
    number = held_out_count(len(samples.y), config.scored_share)
    held = rows_to_score(len(samples.y), number, node, seed, config.privacy)
    return _Client(node, samples, held, is_numeric(config), policy)


_memory = Memory(ClusterAdmmConfig, _read)


@enrolment(app)
def enrol(message: Message, context: Context) -> Message:
    """Tell who this client is, of which server and cluster, and how much data it has."""
    run, client = _memory.run(context), _memory.client(context)
    node, samples = client.node, client.samples
    server = server_of(run.config, node, context)
    cluster = cluster_of(run.config, run.seed, node, context)
    told = run.config.units(is_apart(context.run_config)) == "told"
    moments = units.own_moments(client.columns) if told else ()
    places = {"server": server, "cluster": cluster} | ({"zeros": samples.zeros} if told else {})
    return introduction(message, node, len(samples.y), samples.columns, moments, **places)


@app.train()
def train(message: Message, context: Context) -> Message:
    """Return this client's solution of (4), noised where the run says so."""
    run = _memory.run(context)
    if run.config.sums:
        raise PrivacyRefused("release='sum': no client sends a model of its own in such a run")
    client = _memory.client(context).standardised(message)
    size = client.samples.X.shape[1]
    v = _array(message, "v", (size,))
    order = _order(message)
    server_round = int(wire.number(order, "round"))
    rho, share = wire.number(order, "rho", *_RHO_RANGE), wire.number(order, "share", 0.0, 1.0)
    held_out = wire.number(order, "held_out", 0.0, 1.0, default=0.0)
    count = int(np.count_nonzero(~held_out_rows(len(client.learning[1]), held_out)))
    permit_step(
        *(run.config, count, size, rho, share),
        float(np.linalg.norm(v)),
        sensitivity(run.config, count, rho, share),
    )
    step = _step(run.config, client, rho, share, held_out)
    model, events = release_model(
        run.config,
        run.seed,
        client.node,
        step.solve(v),
        server_round,
        count,
        rho,
        share,
        client.policy,
    )
    # After the noise: clipping what is released tells nothing more.
    model = clipped(model, v / rho, run.config.norm_bound)
    content = RecordDict({"arrays": wire.record({"model": model})})
    for event in events:
        content[f"privacy.{event.name}"] = ConfigRecord(event.as_record())
    return Message(content, reply_to=message)


@app.query("losses")
def losses(message: Message, context: Context) -> Message:
    """Return this client's mean loss under each model, and over how many samples it is.

    Of the held-out samples where the order says ``held_out``; a client that has none to hold out
    answers zeros of 0 samples.
    """
    run = _memory.run(context)
    client = _memory.client(context).standardised(message)
    permit_losses(run.config)
    models = _array(message, "models", (None, client.samples.X.shape[1]))
    X, y = client.learning
    fraction = wire.number(_order(message), "held_out", 0.0, 1.0, default=0.0)
    if fraction > 0.0:
        held = held_out_rows(len(y), fraction)
        X, y = X[held], y[held]
    found = mean_losses(run.config.loss, models, X, y) if len(y) else np.zeros(len(models))
    content = RecordDict(
        {"arrays": wire.record({"losses": found}), "samples": ConfigRecord({"count": len(y)})}
    )
    return Message(content, reply_to=message)


def summands(message: Message, context: Context) -> Summands:
    """Return what this client adds to a noisy sum: moments of its samples, or scores."""
    run, client = _memory.run(context), _memory.client(context)
    config, order = run.config, _order(message)
    if not config.sums:
        raise PrivacyRefused("release='each': such a run has no sums")
    server_round, asked = int(wire.number(order, "round")), order.get("ask")
    if asked == "units" and config.units() == "noisy":
        columns = client.columns
        return noisy(
            *(context, config, {units.COUNTS: units.sign_counts(columns)}),
            what=units.WHAT,
            sensitivity=units.sensitivity_of_counts(columns.shape[1]),
            ratio=units_ratio(config),
            server_round=server_round,
        )
    client = client.standardised(message)
    models = _models(message, config, client)
    cluster = _slot(run.config, run.seed, client, context)
    X, y = client.learning
    if asked == "scales" and config.find_clips:
        return noisy(
            *(context, config, {"scales": scale_counts(config.loss, X, y)}),
            what=SCALES,
            sensitivity=SCALES_SENSITIVITY[config.loss],
            ratio=scales_ratio(config),
            server_round=server_round,
        )
    if asked == "score" and config.held_out:
        X, y = client.samples.X[client.held], client.samples.y[client.held]
        width = wire.number(order, "width", *_SCALES)
        return noisy(
            *(context, config, {"score": score_terms(config.loss, X, y, models[cluster], width)}),
            what=SCORES,
            sensitivity=SCORE_SENSITIVITY[config.loss],
            ratio=scoring_ratio(config),
            server_round=server_round,
        )
    if asked != "moments":
        raise PrivacyRefused(f"{asked!r}: not what such a run adds up")
    question = Question(
        models,
        wire.number(order, "length", *_SCALES),
        wire.number(order, "width", *_SCALES),
        wire.number(order, "weight", 0.0, 1.0),
        order.get("whole") is True,
    )
    return noisy(
        *(context, config, moments(config.loss, X, y, cluster, question)),
        what=TEACHES,
        sensitivity=SENSITIVITY,
        ratio=teaching_ratio(config),
        server_round=server_round,
        releases=config.exchange_count,
    )


register(app, summands)


@personal(app)
def own(message: Message, context: Context) -> Personal:
    """Return what this client is left with: a model of its own, or its cluster's."""
    # Late: no other message needs these.
    from trellis.apps.common.evaluation.measures import THIS
    from trellis.apps.server_graph.owner.result import raw_model

    from .owner.result import description, from_server, held_out_scores, in_words
    from .private.own import own_model

    run, client = _memory.run(context), _memory.client(context).standardised(message)
    config, samples = run.config, client.samples
    if not config.at_home:
        model = _array(message, "model", (samples.X.shape[1],))
        place = int(wire.number(_order(message), "cluster"))
        return from_server(config.loss, model, place, samples, client.held, config.ridge)
    models = _models(message, config, client)
    pulls = _array(message, "pulls", (len(models),))
    cluster = _slot(config, run.seed, client, context)
    found = own_model(config.loss, *client.learning, models, pulls, cluster, config.ridge)

    def scores() -> Scores:
        compared = {THIS: found.model, "the cluster's model": models[found.cluster]}
        terms = samples, client.held, config.ridge
        return held_out_scores(config.loss, compared, *terms, own_units=config.units() == "noisy")

    choice = np.array([found.cluster, found.scale, found.pull])
    kept = {"model": found.model, "choice": choice, "cluster_model": models[found.cluster]}
    return Personal(
        kept | raw_model(found.model, samples.scaling),
        variables=samples.columns,
        summary={
            "cluster": float(found.cluster),
            "scale of the cluster's model": found.scale,
            "pull towards it": found.pull,
            "mean loss of samples left out": found.loss,
            "the same, learning alone": found.alone,
            "the same, the cluster's model as it is": found.cluster_loss,
        },
        words=in_words(
            config.loss, len(samples.columns), "your own, pulled towards that of your cluster"
        ),
        model=description(config.loss, samples.scaling),
        scores=scores if client.held.any() else None,
    )


def _models(message: Message, config: ClusterAdmmConfig, client: _Client) -> Array:
    """Return the server's models (Q, d), checked."""
    return _array(message, "models", (config.task_count, client.samples.X.shape[1]))


def _slot(config: ClusterAdmmConfig, seed: int, client: _Client, context: Context) -> int:
    """Return the slot of this client's cluster."""
    return 0 if config.task_count == 1 else cluster_of(config, seed, client.node, context)


def _step(
    config: ClusterAdmmConfig, client: _Client, rho: float, share: float, held_out: float
) -> Step:
    """Return the factorised step (4)."""
    key = (rho, share, held_out)
    known = client.steps.get(key)
    if known is None:
        X, y = client.learning
        kept = ~held_out_rows(len(y), held_out)
        X, y = bounded(config, X[kept], y[kept])
        make = SureStep if config.privacy == "sound" else primal_step
        known = make(config.loss, X, y, config.ridge, share, rho)
        if len(client.steps) >= _MOST_STEPS_KEPT:
            client.steps.clear()
        client.steps[key] = known
    return known


def _array(message: Message, name: str, shape: tuple[int | None, ...]) -> Array:
    return wire.received(message.content.get("arrays"), name, shape)


def _order(message: Message) -> ConfigRecord:
    found = message.content.get("order")  # `config_records` would copy all records
    return found if isinstance(found, ConfigRecord) else ConfigRecord()
