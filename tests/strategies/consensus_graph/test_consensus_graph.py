from __future__ import annotations

import cvxpy as cp
import numpy as np
import pytest
from flwr.app import ConfigRecord, MetricRecord, RecordDict

from trellis.apps import run
from trellis.sim import faults
from trellis.sim.faults import Drop, Late, Nonsense, Raise
from trellis.strategies.consensus_graph.strategy import (
    consensus_update,
    gamma_update,
    joint_objective,
    read_graph,
)
from trellis.strategies.core import wire
from trellis.strategies.core.enrolment import StudyError
from trellis.strategies.core.wire import BadReply

STUDY = "consensus-graph"
SMALL = {"nodes": 6, "clients": 4, "signals": "20", "rounds": 6, "tolerance": 0.0}


def test_consensus_update_solves_17():
    rng = np.random.default_rng(0)
    weights, gamma = rng.random((4, 9)), rng.random(4) + 0.1
    w = cp.Variable(9)
    fit = sum(0.7 * g / 2 * cp.sum_squares(w - v) for g, v in zip(gamma, weights, strict=True))
    cp.Problem(cp.Minimize(fit + 0.9 * cp.norm(w, 1))).solve(solver=cp.CLARABEL)
    np.testing.assert_allclose(consensus_update(weights, gamma, 0.7, 0.9), w.value, atol=1e-6)


def test_gamma_update_is_20():
    weights = np.array([[1.0, 0.0], [0.0, 0.0]])
    np.testing.assert_allclose(
        gamma_update(weights, np.zeros(2)), [1 / (1 + 1e-6), 1e6], rtol=1e-12
    )


def test_joint_objective_is_8():
    weights, consensus = np.array([[3.0, 4.0], [0.0, 1.0]]), np.array([0.0, 0.0])
    assert joint_objective(np.array([10.0, 20.0]), weights, consensus, 2.0, 5.0) == 30 + 2 * 6.0
    value = joint_objective(np.array([0.0, 0.0]), weights, np.array([0.0, 1.0]), 0.0, 5.0)
    assert value == 5.0


def reply(weights, objective=1.0) -> RecordDict:
    content = RecordDict({"arrays": wire.record({"weights": np.asarray(weights)})})
    content["metrics"] = MetricRecord({"objective": objective})
    return content


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (reply([1.0, np.nan, 1.0]), "not finite"),
        (reply([1.0, np.inf, 1.0]), "not finite"),
        (reply([1.0, -0.1, 1.0]), "negative"),
        (reply([1.0, 1e200, 1.0]), "entry of size"),
        (reply([1.0, 1.0]), "shape"),
        (reply(np.ones((3, 1))), "shape"),
        (reply(np.ones(3, dtype=np.float32)), "float32"),
        (reply([1.0, 1.0, 1.0], objective=float("nan")), "objective"),
        (RecordDict({"arrays": ConfigRecord()}), "missing"),
        (RecordDict({"arrays": wire.record({})}), "missing"),
    ],
)
def test_a_bad_reply_is_rejected_with_a_reason(content, reason):
    with pytest.raises(BadReply, match=reason):
        read_graph(content, 3)


def test_a_good_reply_is_read():
    read = read_graph(reply([1.0, 0.0, 2.0], 3.5), 3)
    np.testing.assert_array_equal(read.weights, [1.0, 0.0, 2.0])
    assert read.objective == 3.5


@pytest.mark.parametrize(
    "change",
    [
        faults.not_a_number,
        faults.infinite,
        faults.huge,
        faults.wrong_shape,
        faults.lying_shape,
        faults.without_arrays,
        faults.without_records,
    ],
)
def test_nonsense_from_one_node_is_rejected_by_name_and_the_round_goes_on(change, caplog):
    fault = {1: Nonsense(change=change, category="train", at=frozenset({2, 3}))}
    result = run(STUDY, SMALL, faults=fault)
    assert [row["failed"] for row in result.metrics] == [0, 1, 1, 0, 0, 0]
    assert [c["failures"] for c in result.clients] == [0, 2, 0, 0]
    assert "client-2" in caplog.text
    assert any("client-2" in note and "reply rejected" in note for note in result.notes)
    assert np.all(np.isfinite(result.arrays["consensus"]))


def test_a_node_that_always_answers_nonsense_has_no_part_in_the_consensus():
    healthy = run(STUDY, {**SMALL, "method": "fedavg"})
    fault = {3: Nonsense(change=faults.not_a_number, category="train")}
    faulty = run(STUDY, {**SMALL, "method": "fedavg"}, faults=fault)
    three = run(STUDY, {**SMALL, "method": "fedavg", "clients": 3})
    assert not np.allclose(healthy.arrays["consensus"], faulty.arrays["consensus"])
    np.testing.assert_allclose(faulty.arrays["consensus"], three.arrays["consensus"], atol=1e-9)


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        (Drop(category="train", since=3), "has stopped answering (Flower error code 5)"),
        (Raise(category="train", since=3, text="disk on fire"), "disk on fire"),
        (Late(category="train", since=3), "no reply within"),
    ],
)
def test_a_lost_node_is_left_out_and_reported(fault, reason):
    result = run(STUDY, {**SMALL, "timeout": 0.2}, faults={2: fault})
    assert result.status == "completed"
    assert result.clients[2]["rounds"] == 2
    assert result.clients[2]["failures"] == 4
    assert reason in result.clients[2]["last_failure"]
    # Its last graph stays in the result, and in the sum.
    assert np.all(np.isfinite(result.arrays["weights"][2]))


def test_a_late_node_comes_back():
    fault = {0: Late(category="train", at=frozenset({2}), rounds=1)}
    result = run(STUDY, {**SMALL, "timeout": 0.2}, faults=fault)
    assert result.clients[0]["failures"] == 2  # busy for one more round, as in Flower
    assert result.clients[0]["rounds"] == 4


def test_a_lost_node_does_not_keep_the_others_from_converging():
    settings = {**SMALL, "rounds": 200, "tolerance": 1e-3}
    result = run(STUDY, settings, faults={2: Drop(category="train", since=2)})
    assert 4 < len(result.metrics) < 150
    assert result.metrics[-1]["change"] <= 1e-3


def release_of_nonsense(message):
    record = dict(message.content["privacy.round-3"])
    message.content["privacy.again"] = ConfigRecord({**record, "name": "again", "sigma": 0.0})
    return message


def test_a_client_that_reports_a_nonsensical_release_is_rejected_and_the_result_kept():
    fault = {1: Nonsense(change=release_of_nonsense, category="train", at=frozenset({3}))}
    noised = {"privacy": "paper", "local-steps": 2, "epsilon": 50.0}
    result = run(STUDY, {**SMALL, **noised}, faults=fault)
    assert result.status == "completed"
    assert result.clients[1]["failures"] == 1
    assert "sigma=0.0" in result.clients[1]["last_failure"]
    assert {e["name"] for e in result.ledger["clients"][1]["events"]} >= {"round-1", "round-2"}


def test_a_round_without_any_reply_stops_with_every_reason():
    lost = {i: Raise(category="train", since=2, text=f"reason {i}") for i in range(4)}
    with pytest.raises(StudyError, match=r"round 2: no usable reply.*client-1.*reason 0.*reason 3"):
        run(STUDY, SMALL, faults=lost)


def test_a_node_that_cannot_be_enrolled_is_named():
    with pytest.raises(StudyError, match=r"3 of 4 clients could be enrolled.*no such table"):
        run(STUDY, SMALL, faults={1: Raise(category="query", text="no such table")})


def test_a_client_that_lies_about_its_partition_does_not_stop_the_run():
    def far_away(message):
        message.content["client"]["partition"] = 10**6
        return message

    fault = {1: Nonsense(change=far_away, category="query")}
    result = run(STUDY, SMALL, faults=fault)
    assert result.status == "completed"
    assert [c["name"] for c in result.clients][-1] == "client-2"
    assert "mcc" not in result.headline  # the truth about such a client is not known


def test_a_forgetful_node_answers_as_before():
    kept = run(STUDY, SMALL)
    restarted = run(
        STUDY, SMALL, faults={1: Drop(category="train", at=frozenset({2}), forget=True)}
    )
    assert restarted.clients[1]["failures"] == 1
    assert restarted.clients[1]["rounds"] == 5
    np.testing.assert_allclose(restarted.arrays["weights"], kept.arrays["weights"], atol=0.05)
