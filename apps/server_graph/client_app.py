"""The client of server-graph: message in, message out.

A client gets its server's model w_{p,i-1} and returns w_{p,k,i} after its mini-batch steps (6): in
the clear, or masked so that the server learns the sum over its clients only. Nothing is kept from
round to round but the parsed data, in memory and for this run only: another run, other settings or
a changed file are read anew.

In simulation mini-batches come from the run's seed. On a device they come from the operating
system: no server knows which samples were drawn.

With noise in sums (``privacy = "sound"``, `private`) a server learns one noisy sum over its clients
in a round, which the device counts in its own ledger, and a device with a budget takes part. At the
end every device is sent the private model, and makes one of its own of it that stays there
(`personal_model`).

Otherwise: without masks a server learns every w_{p,k,i}, which for one step tells the mean gradient
of the batch, (w_{p,i-1} - w_{p,k,i}) / mu. With ``release = "each"`` servers add noise to what they
tell each other: it does not protect a client from its own server, and no device can check it. So a
device whose owner has set a budget (``max-epsilon``) refuses it; with ``require-privacy`` it takes
part under ``privacy = "sound"``, and by secure aggregation only: its server learns sums, and what
sums tell is not bounded. It also keeps to `RANGES`, so that a server cannot choose steps that carry
one sample's gradient past all others. Under ``sound`` no sample makes a client refuse or fail: see
`data` and `trellis.privacy.mechanisms.clipping`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from flwr.app import ArrayRecord, Context, Message, RecordDict
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
from trellis.privacy.secagg.client import Summands, register
from trellis.strategies.core import wire
from trellis.strategies.core.robust import clipped

from .config import ServerGraphConfig
from .data import Samples, client_table, server_of
from .losses import Loss, loss_by_name
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
from .spending import settled

if TYPE_CHECKING:
    from trellis.apps.common.evaluation.measures import Scores

app = ClientApp()

Array = NDArray[np.float64]

# What a device takes whose owner requires privacy.
RANGES = {
    "clip": (1e-6, 1e6),
    "step": (1e-9, 1e3),
    "ridge": (0.0, 1e6),
    "sigma": (1e-9, 1e9),
    "local_steps": (1, 10_000),
}


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


@app.train()
def train(message: Message, context: Context) -> Message:
    """Return this client's model after its steps from the server's."""
    content = RecordDict({"arrays": wire.record({"model": _update(message, context)})})
    return Message(content, reply_to=message)


def summands(message: Message, context: Context) -> Summands:
    """Return what this client adds to its server's sums.

    Its model, and one; with noise in sums its clipped gradients, or its score of a public model;
    before all that, where features are standardised, sums or counts of their sizes.
    """
    config = _memory.run(context).config
    if config.sums:
        return _noisy_summands(message, context)
    if "order" in message.content and message.content["order"].get("units") is True:
        if config.units() != "summed":
            raise ValueError("the run does not ask for sums of features")
        tell_once(context, "sums of features")
        return Summands(units.summands(_memory.client(context).columns))
    return Summands({"model": _update(message, context), "count": np.ones(1)})


# The same model, masked, for the server that asks for the sum by secure aggregation.
register(app, summands)


def _noisy_summands(message: Message, context: Context) -> Summands:
    """Return this client's u, or the sum of its held-out samples' terms, with noise to come."""
    run, client = _memory.run(context), _memory.client(context)
    terms, order = Terms.of(run.config), message.content["order"]
    if order.get("settings") != digest(run.config):
        raise PrivacyRefused("the order is of other settings than this device was given")
    if order.get("units") is True:
        return _noisy_units(context, run.config, client, terms)
    client = client.standardised(message)
    w, samples = _model(message, client), client.samples
    number, count = int(wire.number(order, "round")), len(samples.y)
    held_out = client.held
    if order.get("score") is True:
        if not held_out.any():
            raise ValueError("the run holds no samples out: there is no score")
        scored = score_terms(client.loss, w, samples.X[held_out], samples.y[held_out])
        return noisy(
            *(context, run.config, {"terms": np.array([scored.sum()])}),
            what=SCORE,
            sensitivity=1.0,
            ratio=terms.score_ratio,
            server_round=number,
            releases=SCORE_RELEASES,
        )
    sensitivity, rates = terms.sensitivity(count), terms.rates(count)
    deviation = _enough(float(order["deviation"]), terms.needed_deviation(count))  # type: ignore[arg-type]
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


def _noisy_units(
    context: Context, config: ServerGraphConfig, client: _Client, terms: Terms
) -> Summands:
    """Return counts of the sizes of this client's features, with noise to come."""
    if not terms.units:
        raise PrivacyRefused("the run does not ask for the scale of features")
    columns = client.columns
    return noisy(
        *(context, config, {units.COUNTS: units.sign_counts(columns)}),
        what=units.WHAT,
        sensitivity=units.sensitivity_of_counts(columns.shape[1]),
        ratio=terms.units_ratio,
    )


def _enough(deviation: float, needed: float) -> float:
    """Return the noise that all clients of a sum were told, where it is enough for this one."""
    if not needed * (1.0 - 1e-12) <= deviation < math.inf:
        raise PrivacyRefused(
            f"the server asks for noise of {deviation:g} in the sum; with this number of samples "
            f"this device needs {needed:g}"
        )
    return max(deviation, needed)


@personal(app)
def own_model(message: Message, context: Context) -> Personal:
    """Return what this client is left with: a model of its own, or its server's."""
    # Late: no other message needs these.
    from trellis.apps.common.evaluation.measures import THIS

    from .owner.personal import personal_model
    from .owner.result import (
        SHARED,
        description,
        from_server,
        held_out_scores,
        in_words,
        raw_model,
    )

    run, client = _memory.run(context), _memory.client(context).standardised(message)
    config, loss, samples = run.config, client.loss, client.samples
    received = _model(message, client)
    if not config.at_home:
        centroid = _model(message, client, "centroid") if _brings(message, "centroid") else None
        terms = samples, client.held, config.ridge
        return from_server(config.loss, loss, received, centroid, *terms)
    centroid = received
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
    if config.masks_clients and not message.metadata.message_type.startswith("train.secagg"):
        raise ValueError("the run asks for secure aggregation; this reply would be in the clear")
    client = _memory.client(context).standardised(message)
    w = _model(message, client)
    server_round = int(wire.number(message.content.get("order"), "round"))
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
            f"this device has a budget (max-epsilon {policy.max_epsilon:g}); with release='each' "
            "the servers add the noise, so a device can count nothing against it. It takes part in "
            "noisy sums (privacy='sound', release='sum'); to take part by secure sums alone, set "
            "require-privacy=true in place of max-epsilon"
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
        if config.sums and name != "clip":
            continue  # with noise in sums a device takes no step, and servers add no noise
        if name == "step" and config.is_auto("step"):
            continue  # this device's own choice
        # Of sigma=auto the least that it can be: that of a model of one parameter.
        value = config.bound if name == "clip" else getattr(settled(config, 1, 1), name)
        if not low <= value <= high:
            raise PrivacyRefused(
                f"this device takes {name.replace('_', '-')} from {low:g} to {high:g}: {value:g}"
            )
