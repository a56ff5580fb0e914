"""The client of joint-precision: message in, message out.

Stateless but for one thing: the client's correlation matrix S, computed from its data at enrolment,
stays in ``context.state``, so the data is read once. With ``privacy = "sound"`` what stays there
comes from a noised tau and nothing else is ever computed from the data; whether the device answers
does not depend on any one sample, and the seconds it reports are of work on the noised matrix.

With ``release = "sum"`` a client answers no `train` at all: it adds its concordances to one noisy
secure sum, and what it makes of the consensus stays with it (`private.client`).
"""

from __future__ import annotations

import time
from dataclasses import replace

import numpy as np
from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp

from trellis.apps.common.enrolment import enrolment, introduction
from trellis.apps.common.node import Node, seed_of
from trellis.apps.common.private.personal import personal
from trellis.apps.common.release import noise_of
from trellis.apps.common.seeds import generator
from trellis.apps.common.tables import Table, require_variation
from trellis.privacy.accounting.budget import Policy, PrivacyRefused
from trellis.privacy.secagg.client import register
from trellis.strategies.core import wire
from trellis.strategies.core.robust import clipped
from trellis.strategies.joint_precision.messages import (
    Stepped,
    read_step_order,
    screening_reply,
    step_reply,
)

from .config import JointPrecisionConfig
from .data import client_table
from .large.client import (
    keep_blocks,
    kept_blocks,
    screened_table,
    solve_alone_streamed,
    table_blocks,
)
from .private.client import learning_part, own_result, summands
from .problem import LocalProblem, step_of
from .release import Correlation, release_correlation, subsample_correlation
from .solver import solve_alone

app = ClientApp()

_STREAMED = "streamed"

# With release = "sum": the one noisy sum, and what a device makes of its result.
register(app, summands)
personal(app)(own_result)


@app.train()
def train(message: Message, context: Context) -> Message:
    """Do what the order asks: show large entries of S, take a step, solve alone, send the data."""
    config = JointPrecisionConfig.from_run_config(context.run_config)
    if config.sums:
        raise ValueError("the run makes one noisy sum; this reply would be a client's own")
    content = _TASKS[str(message.content.config_records["order"]["task"])](
        config, message.content, context
    )
    return Message(content, reply_to=message)


def _first_round(message: Message, context: Context) -> Message:
    """Answer the first round's question with enrolment, where that is soon done."""
    if _STREAMED in context.state:
        # The cut of the round is this client's own, and leaves less to be kept and told.
        raise ValueError("very many variables: to be asked again in the round")
    return train(message, context)


@enrolment(app, opening=_first_round)
def enrol(message: Message, context: Context) -> Message:
    """Tell who this client is: name, number of samples, names of the variables.

    Where no score is made of held-out samples in a sum, those that are learned from count.
    """
    config = JointPrecisionConfig.from_run_config(context.run_config)
    node, seed = Node.of(context), seed_of(context)
    policy = _permitted(config, node, context)
    table = client_table(config, seed, node)
    if not config.sums:
        table, held = learning_part(config, seed, node, table)
        if len(held) and node.data_path is not None and config.privacy != "sound":
            # What is constant now has no correlation.
            require_variation(replace(table, source=f"{table.source} without its held-out rows"))
    if config.streams(len(table.columns)):
        context.state[_STREAMED] = ConfigRecord({"variables": len(table.columns)})
    elif config.method != "pooled" and not config.sums:
        # While the data is at hand: no later message needs to read it.
        release_correlation(config, seed, node, table, policy).keep(context.state)
    return introduction(message, node, int(table.values.shape[0]), table.columns)


def _screen(config: JointPrecisionConfig, asked: RecordDict, context: Context) -> RecordDict:
    """Return the entries of S that may connect two variables."""
    cut = wire.number(asked.get("order"), "cut")
    if (table := _streamed(config, context)) is not None:
        return screened_table(config, table, cut)
    known = _correlation(config, context)
    reply = screening_reply(known.matrix, cut, known.smallest, config.wire)
    return _with_releases(reply, known)


def _step(config: JointPrecisionConfig, asked: RecordDict, context: Context) -> RecordDict:
    """Return Omega (14) and this client's terms of the certificate."""
    if _STREAMED in context.state or _streamed(config, context) is not None:
        return _step_on_blocks(config, asked, context)
    known = _correlation(config, context)
    began = time.perf_counter()
    order = read_step_order(asked, len(known.matrix), config.wire)
    if order.replicate:
        known = _subsample(config, context, order.replicate)
    problem = LocalProblem(known.matrix, order.blocks)
    step = problem.step(order.psi, order.point, order.ratio, order.certify)
    seconds = time.perf_counter() - began
    omega = clipped(step.omega, order.psi, config.norm_bound)
    found = Stepped(omega, step.loss, step.log_det, known.smallest, seconds)
    return _with_releases(step_reply(found, config.wire), known)


def _step_on_blocks(
    config: JointPrecisionConfig, asked: RecordDict, context: Context
) -> RecordDict:
    """Take a step where S is known on the blocks of the problem only."""
    began = time.perf_counter()
    variables = int(context.state.config_records[_STREAMED]["variables"])  # type: ignore[arg-type]
    order = read_step_order(asked, variables, config.wire)
    known = kept_blocks(context.state, order.blocks)
    if known is None:
        table = _streamed(config, context)
        assert table is not None  # it was large a moment ago
        known = keep_blocks(context.state, order.blocks, *table_blocks(config, table, order.blocks))
    packed, smallest = known
    step = step_of(packed, order.blocks, order.psi, order.point, order.ratio, order.certify)
    omega = clipped(step.omega, order.psi, config.norm_bound)
    seconds = time.perf_counter() - began
    found = Stepped(omega, step.loss, step.log_det, smallest, seconds)
    return step_reply(found, config.wire)


def _solve_alone(config: JointPrecisionConfig, asked: RecordDict, context: Context) -> RecordDict:
    """Return this client's own matrices at every point of the path."""
    points = wire.received(asked.get("arrays"), "points", (None, 2))
    if (table := _streamed(config, context)) is not None:
        found = solve_alone_streamed(config, table, points[:, 0])
        return RecordDict({"arrays": wire.record(found)})
    known = _correlation(config, context)
    psi, omega, losses, gaps = solve_alone(config, known.matrix, points[:, 0])
    arrays = {
        "psi": psi,
        "omega": omega,
        "losses": losses,
        "gaps": gaps,
        "smallest": np.array(known.smallest),
    }
    return _with_releases(RecordDict({"arrays": wire.record(arrays)}), known)


def _send_data(config: JointPrecisionConfig, asked: RecordDict, context: Context) -> RecordDict:
    """Return the raw data: in a simulation only."""
    node, seed = Node.of(context), seed_of(context)
    _permit_raw_data(node, Policy.from_node_config(context.node_config))
    table, _ = learning_part(config, seed, node, client_table(config, seed, node))
    return RecordDict({"arrays": wire.record({"data": np.ascontiguousarray(table.values)})})


_TASKS = {"screen": _screen, "step": _step, "alone": _solve_alone, "data": _send_data}


def _permitted(config: JointPrecisionConfig, node: Node, context: Context) -> Policy:
    """Return the owner's policy where it allows the run; to be asked before the data is read."""
    policy = Policy.from_node_config(context.node_config)
    policy.permit(config.privacy)
    if config.method == "pooled" and not config.sums:
        _permit_raw_data(node, policy)
    if config.privacy == "sound":
        noise_of(config.noise, node)
    return policy


def _permit_raw_data(node: Node, policy: Policy) -> None:
    policy.permit("none")
    if not node.simulated:
        raise PrivacyRefused(
            f"{node.name}: method='pooled' asks for the raw data, which never leaves a device; it "
            "is a reference for simulations"
        )


def _correlation(config: JointPrecisionConfig, context: Context) -> Correlation:
    """Return S from ``context.state``, or from the data where a restart has emptied that."""
    if config.method == "pooled":
        raise ValueError("method='pooled' computes no correlation on the client")
    if "statistic" in context.state:
        return Correlation.from_records(context.state)
    node, seed = Node.of(context), seed_of(context)
    policy = _permitted(config, node, context)
    table, _ = learning_part(config, seed, node, client_table(config, seed, node))
    known = release_correlation(config, seed, node, table, policy)
    known.keep(context.state)
    return known


def _streamed(config: JointPrecisionConfig, context: Context) -> Table | None:
    """Return the samples where they have so many variables that S is never held, else None."""
    if not config.may_stream or "statistic" in context.state:
        return None
    node, seed = Node.of(context), seed_of(context)
    _permitted(config, node, context)
    table, _ = learning_part(config, seed, node, client_table(config, seed, node))
    if not config.streams(len(table.columns)):
        return None
    context.state[_STREAMED] = ConfigRecord({"variables": len(table.columns)})
    return table


def _subsample(config: JointPrecisionConfig, context: Context, replicate: int) -> Correlation:
    """Return S of one subsample, kept until another one is asked for."""
    if config.privacy == "sound":
        raise ValueError("a subsample would be another release; privacy='sound' makes one")
    name = "subsample"
    kept = context.state.config_records.get(name)
    if kept is not None and kept["replicate"] == replicate:
        arrays = wire.arrays(context.state.array_records[f"{name}-matrix"])
        return Correlation.of(arrays["matrix"], float(arrays["smallest"]), 1)
    node, seed = Node.of(context), seed_of(context)
    _permitted(config, node, context)
    # By name: a device need not have a partition.
    rng = generator(seed, f"subsample of {node.name}", server_round=replicate)
    table, _ = learning_part(config, seed, node, client_table(config, seed, node))
    known = subsample_correlation(config, table, rng)
    context.state[name] = ConfigRecord({"replicate": replicate})
    context.state[f"{name}-matrix"] = wire.record(
        {"matrix": known.matrix, "smallest": np.array(known.smallest)}
    )
    return known


def _with_releases(content: RecordDict, known: Correlation) -> RecordDict:
    for name, record in known.statistic.event_records().items():
        content[name] = record
    return content
