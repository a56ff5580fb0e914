"""The client of server-graph: message in, message out.

Which function answers ``train`` is the method's (`methods`). A client gets its server's model
w_{p,i-1} and returns w_{p,k,i} after its mini-batch steps (6): in the clear, or masked so that the
server learns the sum over its clients only. Nothing is kept from round to round but the parsed
data, in memory and for this run only: another run, other settings or a changed file are read anew.

In simulation mini-batches come from the run's seed. On a device they come from the operating
system: no server knows which samples were drawn.

With ``privacy = "dp"`` (`private`) a server learns one noisy sum over its clients in a round,
which the device counts in its own ledger, and a device with a budget takes part. At the end every
device is sent the private model, and makes one of its own of it that stays there. No sample makes a
client refuse or fail there: see `data` and `trellis.privacy.mechanisms.clipping`.

Otherwise: without masks a server learns every w_{p,k,i}, which for one step tells the mean gradient
of the batch, (w_{p,i-1} - w_{p,k,i}) / mu. Noise that servers add to what they send each other does
not protect a client from its own server, and no device can check it. So a device whose owner has
set a budget (``max-epsilon``) refuses, and so does one with ``require-privacy``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from numpy.typing import NDArray

from trellis.apps.common.enrolment import enrolment, introduction
from trellis.apps.common.evaluation.holding import held_out_rows
from trellis.apps.common.memory import Memory
from trellis.apps.common.node import Node
from trellis.apps.common.own_data import units
from trellis.apps.common.own_data.scaling import is_apart
from trellis.apps.common.own_data.sent import SampledClient
from trellis.apps.common.private.noisy_sum import noisy
from trellis.apps.common.private.once import tell_once
from trellis.apps.common.private.personal import Personal, personal
from trellis.apps.common.seeds import generator
from trellis.privacy.accounting.budget import Policy, PrivacyRefused
from trellis.privacy.mechanisms.shares import Together
from trellis.privacy.secagg.client import COUNT, Summands, register
from trellis.strategies.core import wire
from trellis.strategies.core.robust import clipped

from .config import ServerGraphConfig
from .data import Samples, client_table, server_of
from .losses import Loss, loss_by_name
from .methods import METHODS
from .private import (
    GRADIENTS,
    SCORE,
    SCORE_RELEASES,
    Terms,
    clipped_mean,
    digest,
    draw_batch,
    score_terms,
)
from .problem import draw_batches, local_steps, takes_all

if TYPE_CHECKING:
    from trellis.apps.common.evaluation.measures import Scores

app = ClientApp()

Array = NDArray[np.float64]

# The bounds on a gradient that a device takes whose owner requires privacy.
CLIPS = 1e-6, 1e6


@dataclass(frozen=True)
class _Client(SampledClient[Samples]):
    """One client, ready to answer."""

    loss: Loss

    @cached_property
    def parameters(self) -> int:
        """The number of a model's parameters."""
        return self.loss.size(self.samples.X.shape[1])


def _read(config: ServerGraphConfig, seed: int, context: Context) -> _Client:
    """Return this node's client, where its owner allows the run."""
    _permit(config, context)
    node = Node.of(context)
    samples = client_table(config, seed, node)
    count = len(samples.y)
    number = Terms.of(config).kept_back(count)
    held = held_out_rows(count, number, node, seed, config.privacy)
    loss = loss_by_name(config.loss)
    numbers = getattr(loss, "targets", "labels") == "numbers"
    return _Client(node, samples, held, numbers, loss)


_memory = Memory(ServerGraphConfig, _read)


@enrolment(app)
def enrol(message: Message, context: Context) -> Message:
    """Tell who this client is, of which server, and how much data it has."""
    run, client = _memory.run(context), _memory.client(context)
    node, samples = client.node, client.samples
    server = server_of(run.config, node, context)
    told = run.config.units(is_apart(context.run_config)) == "told"
    moments = units.own_moments(client.columns) if told else ()
    count = len(samples.y)
    places = {"server": server} | ({"zeros": samples.zeros} if told else {})
    return introduction(message, node, count, samples.columns, moments, **places)


def settings_of(context: Context) -> ServerGraphConfig:
    """Return the run's settings."""
    return _memory.run(context).config


METHODS.answer_train(app, settings_of)


def model(message: Message, context: Context) -> Message:
    """Return this client's model after its steps from the server's."""
    metrics = MetricRecord({"num-examples": len(_memory.client(context).learning[1])})
    arrays = wire.record({"model": _update(message, context)})
    return Message(RecordDict({"arrays": arrays, "metrics": metrics}), reply_to=message)


def masked_model(message: Message, context: Context) -> Summands:
    """Return this client's model after its steps, for its server's secure sum."""
    # Every client counts alike in (7).
    return Summands({"model": _update(message, context), COUNT: np.ones(1)})


def gradient(message: Message, context: Context) -> Summands:
    """Return this client's u, with noise to come."""
    run, client = _memory.run(context), _memory.client(context).standardised(message)
    terms, told = Terms.of(run.config), _told(message, run.config)
    w, count = _model(message, client), len(client.samples.y)
    number = int(wire.number(told, "server-round"))
    sensitivity, rates = terms.sensitivity(count), terms.rates(count)
    deviation = _enough(float(told["deviation"]), terms.needed_deviation(count))  # type: ignore[arg-type]
    if client.node.simulated:
        rng = generator(run.seed, "batch", client.node.partition, number)
    else:
        rng = np.random.default_rng()  # from the operating system's entropy: nobody knows the batch
    X, y = client.learning
    taken = draw_batch(len(y), rates.sampling, rng)
    u = clipped_mean(client.loss, w, X, y, terms.clip, taken, rates.expected)
    return noisy(
        *(context, run.config, {"gradient": u}),
        what=GRADIENTS,
        sensitivity=sensitivity,
        ratio=terms.ratio(count),
        server_round=number,
        sampling=rates.sampling,
        releases=terms.releases,
        together=Together(deviation, terms.least_ratio),
    )


def held_out_terms(message: Message, context: Context) -> Summands:
    """Return the sum of this client's held-out terms under a public model, with noise to come."""
    run, client = _memory.run(context), _memory.client(context).standardised(message)
    terms, told = Terms.of(run.config), _told(message, run.config)
    w, samples, held_out = _model(message, client), client.samples, client.held
    if not run.config.held_out:
        raise ValueError("the run declares no held-out score")
    if not held_out.any():
        raise ValueError("the run holds no samples out: there is no score")
    scored = score_terms(client.loss, w, samples.X[held_out], samples.y[held_out])
    return noisy(
        *(context, run.config, {"terms": np.array([scored.sum()])}),
        what=SCORE,
        sensitivity=1.0,
        ratio=terms.score_ratio,
        server_round=int(wire.number(told, "server-round")),
        releases=SCORE_RELEASES,
    )


def sizes(message: Message, context: Context) -> Summands:
    """Return sums of the sizes of this client's features, or counts of them with noise to come."""
    config, client = _memory.run(context).config, _memory.client(context)
    way, columns = config.units(is_apart(context.run_config)), client.columns
    if way == "summed":
        tell_once(context, "sums of features")
        return Summands(units.summands(columns))
    if way != "noisy":
        raise PrivacyRefused("the run does not ask for the scale of features")
    _told(message, config)
    return noisy(
        *(context, config, {units.COUNTS: units.sign_counts(columns)}),
        what=units.WHAT,
        sensitivity=units.sensitivity_of_counts(columns.shape[1]),
        ratio=Terms.of(config).units_ratio,
    )


summands = METHODS.in_sums("summands", settings_of)
score = METHODS.in_sums("score", settings_of)
register(app, summands, score, units=sizes)

# The last message: this client's model, made here or by its server, stays on its device.
personal(app)(METHODS.own(settings_of))


def _told(message: Message, config: ServerGraphConfig) -> ConfigRecord:
    """Return the record ``config`` of a message, if it is of the settings of this device's run."""
    told = message.content.get("config")
    if not isinstance(told, ConfigRecord) or told.get("settings") != digest(config):
        raise PrivacyRefused("the message is of other settings than this device was given")
    return told


def _enough(deviation: float, needed: float) -> float:
    """Return the noise that all clients of a sum were sent, if it is enough for this one."""
    if not needed * (1.0 - 1e-12) <= deviation < math.inf:
        raise PrivacyRefused(
            f"the server asks for noise of {deviation:g} in the sum; with this number of samples "
            f"this device needs {needed:g}"
        )
    return max(deviation, needed)


def received_model(message: Message, context: Context) -> Personal:
    """Return the model of this client's server."""
    # Late: no other message needs this.
    from .owner.result import from_server

    config, client = _memory.run(context).config, _memory.client(context).standardised(message)
    centroid = _model(message, client, "centroid") if _brings(message, "centroid") else None
    terms = client.samples, client.held, config.ridge
    return from_server(config.loss, client.loss, _model(message, client), centroid, *terms)


def own_model(message: Message, context: Context) -> Personal:
    """Return a model of this client's own, from its raw samples and the private model."""
    # Late: no other message needs these.
    from trellis.apps.common.evaluation.measures import THIS

    from .owner.personal import personal_model
    from .owner.result import SHARED, description, held_out_scores, in_words, raw_model

    config, client = _memory.run(context).config, _memory.client(context).standardised(message)
    loss, samples = client.loss, client.samples
    centroid = _model(message, client)
    found = personal_model(loss, centroid, *client.learning, config.ridge)

    def scores() -> Scores:
        models = {THIS: found.model, SHARED: centroid}
        terms = samples, client.held, config.ridge
        return held_out_scores(loss, models, *terms, own_units=config.units() == "noisy")

    summary: dict[str, float | str] = {
        "pull towards the private model": found.pull,
        "held-out loss of this model": found.loss,
        "held-out loss of the private model": found.private_loss,
        "held-out loss of learning alone": found.alone_loss,
    }
    arrays = {"model": found.model, "private-model": centroid}
    arrays |= raw_model(found.model, samples.scaling)
    return Personal(
        arrays,
        variables=samples.columns,
        summary=summary,
        words=in_words(
            loss, len(samples.columns), "your own, pulled towards the one that all share"
        ),
        model=description(config.loss, loss, samples.scaling),
        scores=scores if client.held.any() else None,
    )


def _update(message: Message, context: Context) -> Array:
    """Return w_{p,k,i}, (6)."""
    run = _memory.run(context)
    config = run.config
    client = _memory.client(context).standardised(message)
    w = _model(message, client)
    server_round = int(wire.number(message.content.get("config"), "server-round"))
    X, y = client.learning
    if takes_all(len(y), config.batch):
        rng = None  # to make one takes longer than a small client's step
    elif client.node.simulated:
        rng = generator(run.seed, "batch", client.node.partition, server_round)
    else:
        rng = np.random.default_rng()  # from the operating system's entropy
    batches = draw_batches(len(y), config.batch, config.local_steps, rng)
    step = config.pace(client.parameters)
    found = local_steps(client.loss, w, X, y, step, config.ridge, config.clip, batches)
    return clipped(found, w, config.norm_bound)


def _brings(message: Message, name: str) -> bool:
    arrays = message.content.get("arrays")
    return isinstance(arrays, ArrayRecord) and name in arrays


def _model(message: Message, client: _Client, name: str = "model") -> Array:
    """Return the server's model (M,), checked."""
    found: Array = wire.received(message.content.get("arrays"), name, (client.parameters,))
    return found


def _permit(config: ServerGraphConfig, context: Context) -> None:
    policy = Policy.from_node_config(context.node_config)
    policy.permit(config.privacy)
    if math.isfinite(policy.max_epsilon) and not config.sums:
        raise PrivacyRefused(
            f"this device has a budget (max-epsilon {policy.max_epsilon:g}); with privacy="
            f"{config.privacy!r} it can count nothing against it. It takes part with "
            "privacy='dp'"
        )
    if policy.require_privacy and not CLIPS[0] <= config.bound <= CLIPS[1]:
        raise PrivacyRefused(
            f"this device takes clip from {CLIPS[0]:g} to {CLIPS[1]:g}: {config.bound:g}"
        )
