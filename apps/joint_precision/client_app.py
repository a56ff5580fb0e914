"""The client of joint-precision: message in, message out.

Which function answers is the method's (`methods`): ``train`` in the clear here, the noisy secure
sums of the private methods and the last message, which brings the result, in `private.device`. Here
are also enrolment and the screening before the joint methods' first step.

Stateless but for one thing: the client's correlation matrix S (`local`), so the data is read once.
"""

from __future__ import annotations

import time
from dataclasses import replace

import numpy as np
from flwr.app import Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from numpy.typing import NDArray

from trellis.apps.common.enrolment import enrolment, introduction
from trellis.apps.common.node import Node
from trellis.apps.common.private.afford import check_budget
from trellis.apps.common.private.personal import personal
from trellis.apps.common.tables import require_variation
from trellis.privacy.accounting.budget import Policy
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
from .large.client import (
    keep_blocks,
    kept_blocks,
    screened_table,
    solve_alone_streamed,
    table_blocks,
)
from .local import (
    computed,
    correlation_of,
    note_streamed,
    samples_of,
    settings_of,
    streamed,
    streamed_size,
    subsample_of,
)
from .methods import METHODS
from .problem import LocalProblem, step_of
from .solver import clime_alone, glasso_alone

app = ClientApp()
METHODS.answer_train(app, settings_of)


@app.train("screen")
def screen(message: Message, context: Context) -> Message:
    """Return the entries of S that may connect two variables, for the joint methods."""
    config = settings_of(context)
    if METHODS.row(config.method, config.privacy).client != "client_app:step":
        raise ValueError(f"method={config.method!r}, privacy={config.privacy!r}: no screening")
    cut = wire.number(message.content.get("config"), "cut", 0.0)
    if (table := streamed(config, context)) is not None:
        return Message(screened_table(config, table, cut), reply_to=message)
    return Message(_entries(config, context, cut), reply_to=message)


def step(message: Message, context: Context) -> Message:
    """Return Omega (14) and this client's terms of the certificate."""
    config = settings_of(context)
    if streamed_size(context) is not None or streamed(config, context) is not None:
        return Message(_step_on_blocks(config, message.content, context), reply_to=message)
    known = correlation_of(config, context)
    began = time.perf_counter()
    order = read_step_order(message.content, len(known.matrix), config.wire)
    if order.replicate:
        if not config.subsamples:
            raise ValueError("the run declares no subsamples")
        known = subsample_of(config, context, order.replicate)
    problem = LocalProblem(known.matrix, order.blocks)
    found = problem.step(order.psi, order.point, order.ratio, order.certify)
    seconds = time.perf_counter() - began
    omega = clipped(found.omega, order.psi, config.norm_bound)
    reply = Stepped(omega, found.loss, found.log_det, known.smallest, seconds)
    return Message(step_reply(reply, known.count, config.wire), reply_to=message)


def _step_on_blocks(
    config: JointPrecisionConfig, asked: RecordDict, context: Context
) -> RecordDict:
    """Take a step if S is known on the blocks of the problem only."""
    began = time.perf_counter()
    size = streamed_size(context)
    assert size is not None  # it was large a moment ago
    order = read_step_order(asked, size[0], config.wire)
    known = kept_blocks(context.state, order.blocks)
    if known is None:
        table = streamed(config, context)
        assert table is not None
        known = keep_blocks(context.state, order.blocks, *table_blocks(config, table, order.blocks))
    packed, smallest = known
    found = step_of(packed, order.blocks, order.psi, order.point, order.ratio, order.certify)
    omega = clipped(found.omega, order.psi, config.norm_bound)
    seconds = time.perf_counter() - began
    reply = Stepped(omega, found.loss, found.log_det, smallest, seconds)
    return step_reply(reply, size[1], config.wire)


def glasso(message: Message, context: Context) -> Message:
    """Return this client's own matrices at every point of the path, by the graphical lasso."""
    config, lambdas = settings_of(context), _lambdas(message)
    if (table := streamed(config, context)) is not None:
        found = solve_alone_streamed(config, table, lambdas)
        return _alone(message, found, len(table.values))
    known = correlation_of(config, context)
    solved = glasso_alone(config, known.matrix, lambdas)
    return _alone(message, {**solved, "smallest": np.array(known.smallest)}, known.count)


def clime(message: Message, context: Context) -> Message:
    """Return this client's own matrices at every point of the path, by CLIME."""
    known = correlation_of(settings_of(context), context)
    solved = clime_alone(known.matrix, _lambdas(message))
    return _alone(message, {**solved, "smallest": np.array(known.smallest)}, known.count)


def _lambdas(message: Message) -> NDArray[np.float64]:
    points = wire.received(message.content.get("arrays"), "points", (None, 2))
    return np.asarray(points[:, 0])


def _alone(message: Message, arrays: dict[str, NDArray[np.generic]], count: int) -> Message:
    metrics = MetricRecord({"num-examples": count})
    content = RecordDict({"arrays": wire.record(arrays), "metrics": metrics})
    return Message(content, reply_to=message)


def correlations(message: Message, context: Context) -> Message:
    """Return all of S: the method ``one-shot``."""
    return Message(_entries(settings_of(context), context, 0.0), reply_to=message)


def _entries(config: JointPrecisionConfig, context: Context, cut: float) -> RecordDict:
    known = correlation_of(config, context)
    return screening_reply(known.matrix, cut, known.smallest, known.count, config.wire)


def data(message: Message, context: Context) -> Message:
    """Return the raw data: the method ``pooled``, in a simulation only."""
    _, learned, _ = samples_of(settings_of(context), context)
    return _alone(message, {"data": np.ascontiguousarray(learned.values)}, len(learned.values))


@enrolment(app)
def enrol(message: Message, context: Context) -> Message:
    """Return who this client is: name, number of samples, names of the variables.

    The number is of the samples that are learned from, unless a result is made on the device.
    """
    config, node = settings_of(context), Node.of(context)
    whole, learned, held = samples_of(config, context)
    check_budget(config, node, Policy.from_node_config(context.node_config))
    if not METHODS.row(config.method, config.privacy).client:
        return introduction(message, node, len(whole.values), whole.columns)
    if len(held) and node.data_path is not None:
        # What is constant now has no correlation.
        require_variation(replace(learned, source=f"{learned.source} without its held-out rows"))
    if config.streams(len(learned.columns)):
        note_streamed(context, learned)
    elif not config.sends_data:
        # While the data is at hand: no later message needs to read it.
        computed(config, learned).keep(context.state)
    return introduction(message, node, len(learned.values), learned.columns)


summands = METHODS.in_sums("summands", settings_of)
score = METHODS.in_sums("score", settings_of)
register(app, summands, score)

# The last message: this client's own matrices, made here or by the server, stay on its device.
personal(app)(METHODS.own(settings_of))
