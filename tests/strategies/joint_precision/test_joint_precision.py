"""What the server of joint-precision sends, how it reads replies, and that it resumes."""

from __future__ import annotations

import numpy as np
import pytest
from flwr.app import ConfigRecord, Error, Message
from flwr.clientapp import ClientApp

from tests.strategies.joint_precision.federations import GOOD, SMALL, STUDY, read, step, strategy
from trellis.apps import run
from trellis.apps.joint_precision.problem import LocalProblem
from trellis.sim.grid import LocalGrid
from trellis.strategies.core import wire
from trellis.strategies.joint_precision.messages import read_step_order, screening_reply
from trellis.strategies.joint_precision.strategy import JointPrecision


@pytest.fixture(autouse=True)
def _messages_can_be_made():
    with LocalGrid(ClientApp(), [], {}):
        yield


class Nodes:
    """A grid that has these nodes, and nothing else."""

    def __init__(self, *nodes):
        self.nodes = nodes

    def get_node_ids(self):
        return self.nodes


def sent(made, server_round=1, nodes=(1, 2)):
    """Return the messages of a round, by node."""
    messages = made.configure_train(server_round, wire.record({}), ConfigRecord(), Nodes(*nodes))
    return {message.metadata.dst_node_id: message for message in messages}


def test_what_is_sent_is_what_the_client_reads():
    made = strategy(dtype="float32")
    made.split.z += np.random.default_rng(0).normal(size=made.split.z.shape)
    made.split.penalise(0.5, 0.2)
    message = sent(made, 3)[2]
    assert message.metadata.message_type == "train"
    assert message.content["config"]["server-round"] == 3
    order = read_step_order(message.content, 3, "float32")
    np.testing.assert_array_equal(order.psi, made.split.psi[1].astype(np.float32))
    np.testing.assert_array_equal(order.point, made.split.point(1).astype(np.float32))
    assert np.any(order.psi == 0.0)
    assert order.ratio == made.split.ratio(1)
    assert order.replicate == 0


def test_screening_asks_for_no_more_than_can_matter():
    message = sent(strategy(screened=False))[1]
    assert message.metadata.message_type == "train.screen"
    assert message.content["config"]["cut"] == pytest.approx(0.1)
    reply = screening_reply(np.array([[1.0, 0.09], [0.09, 1.0]]), 0.1, 0.5, 10, "float64")
    assert wire.arrays(reply["arrays"])["pairs"].size == 0


@pytest.mark.parametrize(("second", "blocks"), [(0.15, 1), (0.05, 2)])
def test_a_fused_pair_is_judged_by_everyones_entries_however_small(second, blocks):
    # Alone neither 0.3 - 0.12 nor 0.15 passes lambda1 = 0.2; drawn together, 0.225 does.
    made = JointPrecision("fused", 0.2, 0.12, rounds=10, tolerance=0.0)
    made.describe({1: 10, 2: 10}, 2)
    replies = []
    for (_, message), value in zip(sent(made).items(), (0.3, second), strict=True):
        cut = message.content["config"]["cut"]
        matrix = np.array([[1.0, value], [value, 1.0]])
        content = screening_reply(matrix, cut, 0.5, 10, "float64")
        replies.append(Message(content, reply_to=message))
    made.aggregate_train(1, replies)
    assert np.unique(made.split.blocks.labels).size == blocks


def test_an_error_among_the_replies_moves_only_the_others():
    made = strategy()
    messages = sent(made)
    assert sorted(messages) == [1, 2]
    good = Message(step(), reply_to=messages[2])
    bad = Message(Error(2, "<class 'ValueError'>:<'boom'>"), reply_to=messages[1])
    arrays, _ = made.aggregate_train(1, [bad, good])
    assert "boom" in made.rejected[1]
    identity = np.eye(3)[np.triu_indices(3)]
    np.testing.assert_allclose(made.split.z[1], identity * -0.8 + 1.8 * np.array(GOOD))
    np.testing.assert_array_equal(made.split.z[0], identity)
    np.testing.assert_array_equal(wire.unpack(arrays["sparse"]), made.split.psi)


def test_a_node_that_is_dropped_is_asked_no_more():
    made = strategy()
    sent(made)
    made.drop(2)
    assert list(sent(made, 2)) == [1]
    other = strategy()
    other.load_state_dict(made.state_dict())
    assert list(sent(other, 2)) == [1]


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
    replies = []
    for node, message in sent(made).items():
        order = read_step_order(message.content, 3)
        found = LocalProblem(parts[node - 1], blocks).step(order.psi, order.point, order.ratio)
        content = step(found.omega, loss=found.loss, **{"log-det": found.log_det})
        assert read(made, content).loss == found.loss
        replies.append(Message(content, reply_to=message))
    _, row = made.aggregate_train(1, replies)
    # At the start Psi = I and U = 0: the gap is sum of trace(S) - log det S - p = -log det S.
    expected = -sum(np.linalg.slogdet(s)[1] for s in parts)
    assert row["gap"] == pytest.approx(expected, abs=1e-12)
    assert row["objective"] == pytest.approx(6.0)
