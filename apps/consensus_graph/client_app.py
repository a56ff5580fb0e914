"""The client of consensus-graph: message in, message out.

Stateless but for one thing: the client's statistic zbar, computed from its data at enrolment, stays
in ``context.state``, so the data is read once. With ``privacy = "sound"`` what stays there is
already noised and nothing else is ever computed from the data: every message is post-processing of
that one release, whatever the number of rounds and steps, and whether the device answers does not
depend on any one signal.

FedAvg's clients tell their slope and their objective once, in the first exchange; later replies
are computed from the mean slope that the server sends and so tell nothing of the client's data. A
client that masks what it sends does not tell its own terms twice in a run: sums over changing sets
of clients would give them away.

Where noise goes into one secure sum and graphs stay at home (``release = "sum"``), none of that is
used: `private.device` answers.
"""

from __future__ import annotations

import numpy as np
from flwr.app import ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from apps.common.enrolment import enrolment, introduction
from apps.common.node import Node
from apps.common.private.afford import check_budget
from apps.common.private.once import tell_once
from apps.common.private.personal import personal
from apps.common.release import Statistic, noise_of
from privacy.accounting.budget import Policy
from privacy.accounting.events import PrivacyEvent
from privacy.secagg.client import Summands, register
from strategies.consensus_graph.bound import clipped_terms, sent_terms
from strategies.consensus_graph.start import first_of
from strategies.core import wire
from strategies.core.robust import clipped

from .config import ConsensusGraphConfig
from .data import client_table, in_units
from .private.device import own_graph, sum_of
from .private.score import split
from .problem import Vector, node_count, objective
from .release import load_momentum, paper_noise, release_statistic, save_momentum
from .solver import accelerated_steps, solve

app = ClientApp()


def settings_of(context: Context) -> ConsensusGraphConfig:
    """Return the run's settings, with numbers in place of auto; pulls come from the server."""
    return ConsensusGraphConfig.from_run_config(context.run_config).resolved()


@app.train()
def train(message: Message, context: Context) -> Message:
    """Update this client's graph: (13), from the consensus and the pull the server sent."""
    config = settings_of(context)
    if config.sums or config.at_home:
        raise ValueError("the run asks for noisy sums only; this reply would be in the clear")
    if config.exchanges_once:
        known = _statistic(config, context)
        arrays = wire.record({"statistic": known.values})
        return Message(RecordDict({"arrays": arrays, **known.event_records()}), reply_to=message)
    if config.method == "fedavg":
        reply = summands(message, context)
        content = RecordDict({"arrays": wire.record(reply.arrays), **dict(reply.clear)})
        return Message(content, reply_to=message)
    statistic, w, events = _update(config, message, context)
    content = RecordDict({"arrays": wire.record({"weights": w}), **_as_records(events)})
    if config.privacy != "paper":  # there the objective would tell of the raw data
        value = objective(w, statistic.values, config.alpha, config.beta)
        content["metrics"] = MetricRecord({"objective": value})
    return Message(content, reply_to=message)


@enrolment(app, opening=train)
def enrol(message: Message, context: Context) -> Message:
    """Tell who this client is: name, number of signals, names of the variables.

    Where no score is made of held-out signals in a sum, those that are learned from count.
    """
    config = settings_of(context)
    node, seed = Node.of(context), int(context.run_config["seed"])
    policy = permitted(config, node, context)
    table = client_table(config, seed, node)
    check_budget(config, node, policy)
    if not (config.sums or config.at_home):
        table, _, _ = in_units(config, *split(table, config.held_out, node, seed, config.privacy))
        # While the data is at hand: no later message needs to read it.
        release_statistic(config, seed, node, table, policy).keep(context.state)
    return introduction(message, node, int(table.values.shape[0]), table.columns)


def summands(message: Message, context: Context) -> Summands:
    """Return what this client adds to a sum.

    With ``release = "sum"`` its statistic, to be noised; else fedavg's, everything times its number
    of signals: its graph; and where the server does not send a mean slope yet, its own slope and
    objective.
    """
    config = settings_of(context)
    if config.sums:
        return sum_of(message, context)
    if config.at_home:
        raise ValueError("the run has clients learn alone, at home; nothing is summed")
    statistic, w, events = _update(config, message, context)
    sent = _sent(message, statistic)
    first = "slope" not in sent
    count = float(statistic.count)
    slope = 2.0 * statistic.values if first else None
    terms = sent_terms(sent["consensus"], sent.get("slope"), has_slope=first)
    own = clipped_terms((w, slope), terms, config.beta, config.norm_bound)
    arrays = {"weights": count * own[0]}
    if first and own[1] is not None:
        if config.secure_aggregation and config.privacy != "sound":
            tell_once(context, "slope")
        value = objective(w, statistic.values, config.alpha, config.beta)
        arrays |= {"slope": count * own[1], "objective": np.array([count * value])}
    return Summands(arrays, RecordDict({**_as_records(events)}))


# The same sums, masked, for the server that asks for them by secure aggregation.
register(app, summands)

# Where the server sends the consensus: this client's own graph, which stays on its device.
personal(app)(own_graph)


def permitted(config: ConsensusGraphConfig, node: Node, context: Context) -> Policy:
    """Return the owner's policy where it allows the run; to be asked before the data is read."""
    policy = Policy.from_node_config(context.node_config)
    policy.permit(config.privacy)
    if config.privacy == "sound" and not config.sums:
        noise_of(config.noise, node)
    return policy


def _update(
    config: ConsensusGraphConfig, message: Message, context: Context
) -> tuple[Statistic, Vector, list[PrivacyEvent]]:
    """Return this client's new graph, and what was released on the way."""
    if config.secure_aggregation and not message.metadata.message_type.startswith("train.secagg"):
        raise ValueError("the run asks for secure aggregation; this reply would be in the clear")
    statistic = _statistic(config, context)
    arrays = _sent(message, statistic)
    order = message.content.get("order")
    server_round, pull = int(wire.number(order, "round")), wire.number(order, "pull", 0.0)

    # FedAvg replaces the slope of this client's data by the mean slope.
    z = 0.5 * arrays["slope"] if "slope" in arrays else statistic.values
    events = list(statistic.events)
    if config.local_steps == 0:
        w = solve(z, config.alpha, config.beta, pull, arrays["consensus"]).w
    else:
        w, event = _gradient_steps(config, context, statistic, z, arrays, pull, server_round)
        events += [event] if event is not None else []
    if config.method != "fedavg":  # whose slopes are bounded with its graphs
        w = clipped(w, arrays["consensus"], config.norm_bound)
    return statistic, w, events


def _sent(message: Message, statistic: Statistic) -> dict[str, Vector]:
    """Return the arrays of a question; one without any is of the first round, from `first_of`."""
    size, record = statistic.values.size, message.content.get("arrays")
    if record is None:
        return {"consensus": first_of(node_count(size))}
    names = ["consensus", *(name for name in ("own", "slope") if name in record)]
    return {name: wire.received(record, name, (size,)) for name in names}


def _as_records(events: list[PrivacyEvent]) -> dict[str, ConfigRecord]:
    return {f"privacy.{event.name}": ConfigRecord(event.as_record()) for event in events}


def _statistic(config: ConsensusGraphConfig, context: Context) -> Statistic:
    """Return zbar from ``context.state``, or from the data where a restart has emptied that."""
    if "statistic" in context.state:
        return Statistic.from_records(context.state)
    node, seed = Node.of(context), int(context.run_config["seed"])
    policy = permitted(config, node, context)
    table = client_table(config, seed, node)
    table, _, _ = in_units(config, *split(table, config.held_out, node, seed, config.privacy))
    statistic = release_statistic(config, seed, node, table, policy)
    statistic.keep(context.state)
    return statistic


def _gradient_steps(
    config: ConsensusGraphConfig,
    context: Context,
    statistic: Statistic,
    z: Vector,
    arrays: dict[str, Vector],
    pull: float,
    server_round: int,
) -> tuple[Vector, PrivacyEvent | None]:
    """Run K steps of (14)-(16); with ``privacy = "paper"`` as (25)-(27), noise on the last one."""
    noise, event, previous = None, None, None
    if config.privacy == "paper":
        node, seed = Node.of(context), int(context.run_config["seed"])
        noise, event = paper_noise(config, seed, node, statistic, server_round)
        previous = load_momentum(node, context, server_round)
    w, before = accelerated_steps(
        arrays["own"],
        z,
        config.alpha,
        config.beta,
        pull,
        arrays["consensus"],
        config.local_steps,
        previous=previous,
        last_gradient_noise=noise,
        step=config.step,
    )
    if config.privacy == "paper":
        save_momentum(node, context, server_round, np.asarray(before))
    return w, event
