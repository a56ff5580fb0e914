"""What the server of joint-precision sends, how it fits into Flower's loop, and that it resumes."""

from __future__ import annotations

import numpy as np
import pytest
from flwr.app import ConfigRecord, Error, Message
from flwr.clientapp import ClientApp

from tests.strategies.joint_precision.federations import GOOD, SMALL, STUDY, step, strategy
from trellis.apps import run
from trellis.apps.joint_precision.problem import LocalProblem
from trellis.sim.grid import LocalGrid
from trellis.strategies.core import wire
from trellis.strategies.core.base import Client, RoundPlan
from trellis.strategies.joint_precision.messages import read_step_order, screening_reply
from trellis.strategies.joint_precision.strategy import JointPrecision, PrecisionTask


def test_what_is_sent_is_what_the_client_reads():
    made = strategy(dtype="float32")
    made.split.z += np.random.default_rng(0).normal(size=made.split.z.shape)
    made.split.penalise(0.5, 0.2)
    order = read_step_order(made.payload(3, 1), 3, "float32")
    np.testing.assert_array_equal(order.psi, made.split.psi[1].astype(np.float32))
    np.testing.assert_array_equal(order.point, made.split.point(1).astype(np.float32))
    assert np.any(order.psi == 0.0)
    assert order.ratio == made.split.ratio(1)
    assert order.replicate == 0


def test_screening_asks_for_no_more_than_can_matter():
    made = strategy(screened=False)
    assert made.payload(1, 0)["order"]["cut"] == pytest.approx(0.1)
    reply = screening_reply(np.array([[1.0, 0.09], [0.09, 1.0]]), 0.1, 0.5, "float64")
    assert wire.arrays(reply["arrays"])["pairs"].size == 0


@pytest.mark.parametrize(("second", "blocks"), [(0.15, 1), (0.05, 2)])
def test_a_fused_pair_is_judged_by_everyones_entries_however_small(second, blocks):
    # Alone neither 0.3 - 0.12 nor 0.15 passes lambda1 = 0.2; drawn together, 0.225 does.
    task = PrecisionTask("fused", 0.2, 0.12, 1.0, 10)
    made = JointPrecision(RoundPlan(13, 0.0, 2), task=task)
    made.clients = [Client(n, i, 10, ["a", "b"], i) for i, n in enumerate("xy")]
    made.begin(made.clients)
    replies = {}
    for client, value in enumerate((0.3, second)):
        cut = made.payload(1, client)["order"]["cut"]
        matrix = np.array([[1.0, value], [value, 1.0]])
        content = screening_reply(matrix, cut, 0.5, "float64")
        replies[client] = made.read_reply(client, content)
    made.update(1, replies)
    assert np.unique(made.split.blocks.labels).size == blocks


def test_flowers_own_loop_drives_the_strategy_too():
    made = strategy()
    with LocalGrid(ClientApp(), [], {}) as grid:
        messages = list(made.configure_train(1, wire.record({}), ConfigRecord(), grid))
        assert [m.metadata.dst_node_id for m in messages] == [0, 1]
        for number, message in enumerate(messages):
            message.metadata.__dict__["_message_id"] = f"m{number}"
        good = Message(step(), reply_to=messages[1])
        bad = Message(Error(2, "<class 'ValueError'>:<'boom'>"), reply_to=messages[0])
        arrays, metrics = made.aggregate_train(1, [bad, good])
    assert metrics["clients"] == 1.0
    assert metrics["failed"] == 1.0
    assert made.clients[0].last_failure == "ValueError: boom"
    moved = wire.unpack(arrays["z"])
    np.testing.assert_allclose(
        moved[1], np.eye(3)[np.triu_indices(3)] * -0.8 + 1.8 * np.array(GOOD)
    )
    np.testing.assert_array_equal(moved[0], np.eye(3)[np.triu_indices(3)])


def test_a_run_stopped_by_the_round_limit_goes_on_with_more_rounds(tmp_path):
    settings = {**SMALL, "tolerance": 1e-9}
    long = run(STUDY, {**settings, "rounds": 60}, report=False)
    short = run(STUDY, {**settings, "rounds": 4}, out=tmp_path, report=False)
    assert any("raise rounds for a converged result" in note for note in short.notes)
    assert any("a duality gap of" in note for note in short.notes)
    assert short.headline["gap"] > 1e-9
    assert len(short.metrics) == 5
    longer = run(STUDY, {**settings, "rounds": 60}, out=tmp_path, resume=True, report=False)
    assert longer.headline["gap"] <= 1e-9
    assert not any("raise rounds" in note for note in longer.notes)
    for name in ("precision", "sparse"):
        assert longer.arrays[name].tobytes() == long.arrays[name].tobytes()
    stricter = run(
        STUDY, {**SMALL, "tolerance": 1e-12, "rounds": 60}, out=tmp_path, resume=True, report=False
    )
    assert stricter.headline["gap"] <= 1e-12
    assert len(stricter.metrics) > len(longer.metrics)


def test_a_certificate_of_the_strategy_is_that_of_the_clients_terms(matrices):
    made = strategy()
    blocks = made.split.blocks
    parts = matrices[:2, :3, :3]
    replies = {}
    for client in (0, 1):
        order = read_step_order(made.payload(1, client), 3)
        found = LocalProblem(parts[client], blocks).step(order.psi, order.point, order.ratio)
        replies[client] = made.read_reply(
            client, step(found.omega, loss=found.loss, **{"log-det": found.log_det})
        )
    made._asked = dict.fromkeys(replies)
    row = made.update(1, replies)
    # At the start Psi = I and U = 0: the gap is sum of trace(S) - log det S - p = -log det S.
    expected = -sum(np.linalg.slogdet(s)[1] for s in parts)
    assert row["gap"] == pytest.approx(expected, abs=1e-12)
    assert row["objective"] == pytest.approx(6.0)
