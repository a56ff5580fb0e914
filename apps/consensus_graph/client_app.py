"""The client of consensus-graph: message in, message out.

Which function answers ``train`` is the method's (`methods`); the others of a ClientApp are here:
enrolment, the noisy secure sums of the private methods (`private.device`), and the last message,
which brings the result.
"""

from __future__ import annotations

import numpy as np
from flwr.app import Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from trellis.apps.common.enrolment import enrolment, introduction
from trellis.apps.common.node import Node, seed_of
from trellis.apps.common.private.afford import check_budget
from trellis.apps.common.private.once import tell_once
from trellis.apps.common.private.personal import personal
from trellis.privacy.accounting.budget import Policy
from trellis.privacy.secagg.client import Summands, register, weighted_summands
from trellis.strategies.consensus_graph.bound import clipped_terms, sent_terms
from trellis.strategies.core import wire
from trellis.strategies.core.robust import clipped

from .data import client_table
from .local import local_graph, sent_graphs, sent_numbers, settings_of, statistic_of
from .methods import METHODS
from .private.device import own_graph, score_terms, statistic_terms
from .problem import objective

app = ClientApp()


@app.train()
def train(message: Message, context: Context) -> Message:
    """Answer as the run's method does."""
    config = settings_of(context)
    if config.masked:
        raise ValueError("the run asks for secure sums only; this reply would be in the clear")
    reply: Message = METHODS.load(METHODS.row(config.method, config.privacy).client)(
        message, context
    )
    return reply


@app.train("statistic")
def train_statistic(message: Message, context: Context) -> Message:
    """Answer ``train.statistic``, of which there is one in a run of the method ``one-shot``."""
    config = settings_of(context)
    if config.method != "one-shot":
        raise ValueError(f"method={config.method!r} sends no statistic")
    return statistic(message, context)


def graph(message: Message, context: Context) -> Message:
    """Return this client's graph: (13), from the consensus and the pull the server sent."""
    config = settings_of(context)
    known = statistic_of(config, context)
    sent = sent_graphs(message, known.values.size)
    server_round, pull = sent_numbers(message)
    w = local_graph(config, context, known.values, sent, pull, server_round)
    w = clipped(w, sent["consensus"], config.norm_bound)
    value = objective(w, known.values, config.alpha, config.beta)
    metrics = MetricRecord({"objective": value, "num-examples": known.count})
    content = RecordDict({"arrays": wire.record({"weights": w}), "metrics": metrics})
    return Message(content, reply_to=message)


def averaged_graph(message: Message, context: Context) -> Message:
    """Return this client's term of one graph for all; until there is a mean slope, its slope too.

    Slope and objective are sent once, in the first exchange; later replies are computed from the
    mean slope that the server sends, and tell nothing of the client's data.
    """
    config = settings_of(context)
    known = statistic_of(config, context)
    sent = sent_graphs(message, known.values.size)
    first = "slope" not in sent
    # FedAvg replaces the slope of this client's data by the mean slope.
    z = known.values if first else 0.5 * sent["slope"]
    server_round, _ = sent_numbers(message)
    w = local_graph(config, context, z, sent, 0.0, server_round)
    slope = 2.0 * known.values if first else None
    terms = sent_terms(sent["consensus"], sent.get("slope"), has_slope=first)
    own = clipped_terms((w, slope), terms, config.beta, config.norm_bound)
    arrays = {"weights": own[0]}
    if own[1] is not None:
        value = objective(w, known.values, config.alpha, config.beta)
        arrays |= {"slope": own[1], "objective": np.array([value])}
    metrics = MetricRecord({"num-examples": known.count})
    content = RecordDict({"arrays": wire.record(arrays), "metrics": metrics})
    return Message(content, reply_to=message)


def statistic(message: Message, context: Context) -> Message:
    """Return this client's statistic as it is: the method ``one-shot``."""
    known = statistic_of(settings_of(context), context)
    arrays = wire.record({"statistic": known.values})
    metrics = MetricRecord({"num-examples": known.count})
    return Message(RecordDict({"arrays": arrays, "metrics": metrics}), reply_to=message)


def sums_only(message: Message, context: Context) -> Message:
    """Refuse: this method answers in noisy secure sums only, or not at all."""
    raise ValueError("the run asks for noisy sums only; this reply would be in the clear")


def summands(message: Message, context: Context) -> Summands:
    """Return what this client adds to a secure sum: its private terms, or FedAvg's, weighted."""
    config = settings_of(context)
    if config.sums:
        return statistic_terms(message, context)
    if not config.masked:
        raise ValueError("the run asks for no secure sums")
    if "slope" not in message.content.array_records["arrays"]:
        # Sums of slopes over changing sets of clients would give single ones away.
        tell_once(context, "slope")
    return weighted_summands(averaged_graph(message, context))


@enrolment(app)
def enrol(message: Message, context: Context) -> Message:
    """Tell who this client is: name, number of signals, names of the variables.

    Where no score is made of held-out signals in a sum, those that are learned from count.
    """
    config = settings_of(context)
    node, seed = Node.of(context), seed_of(context)
    policy = Policy.from_node_config(context.node_config)
    policy.permit(config.privacy)
    table = client_table(config, seed, node)
    check_budget(config, node, policy)
    count = int(table.values.shape[0])
    if not (config.sums or config.at_home):
        # While the data is at hand: no later message needs to read it.
        count = statistic_of(config, context).count
    return introduction(message, node, count, table.columns)


register(app, summands, score_terms)

# The last message: this client's own graph, made here or by the server, which stays on its device.
personal(app)(own_graph)
