"""The server of joint-precision among clients that are absent, slow or lost."""

from __future__ import annotations

import numpy as np
import pytest

from tests.strategies.joint_precision.federations import (
    BOTH,
    COUNTS,
    SMALL,
    STUDY,
    TIGHT,
    assert_close,
    without,
)
from trellis.apps import run
from trellis.apps.joint_precision.solver import solve_joint
from trellis.sim.faults import Drop, Late, Raise
from trellis.strategies.core.enrolment import StudyError


@BOTH
def test_a_sample_of_the_clients_reaches_the_certified_solution_of_all(penalty, healthy):
    settings = {**SMALL, "method": penalty, "sample": 2}
    result = run(STUDY, {**settings, "tolerance": 1e-6})
    assert result.headline["gap"] <= 1e-6
    assert np.isfinite(result.headline["gap"])
    assert len(result.metrics) < 120
    asked = [row["clients"] for row in result.metrics]
    assert asked[0] == 4.0  # the screening
    assert all(row["clients"] == (4 if row["round"] % 10 == 0 else 2) for row in result.metrics[1:])
    # A gap needs everyone's word.
    known = [row["round"] for row in result.metrics if np.isfinite(row["gap"])]
    # A gap needs everyone, and is not asked for while it cannot be small.
    assert known
    assert all(number % 10 == 0 for number in known)
    assert known[-1] == result.metrics[-1]["round"]
    tight = run(STUDY, {**settings, "tolerance": 0.0, "rounds": 300})
    assert_close(tight, healthy[penalty])
    assert all(client["rounds"] < 300 for client in tight.clients)


@BOTH
@pytest.mark.parametrize(
    "fault",
    [
        pytest.param(Drop(category="train", at=frozenset({4, 5})), id="two rounds"),
        pytest.param(Drop(category="train", at=frozenset(range(4, 12))), id="eight rounds"),
        pytest.param(Drop(category="train", at=frozenset({1, 2})), id="two tries of the screening"),
        pytest.param(Raise(category="train", at=frozenset({5}), text="disk on fire"), id="raises"),
    ],
)
def test_a_client_that_comes_back_changes_nothing_in_the_end(penalty, fault, healthy):
    result = run(STUDY, {**SMALL, **TIGHT, "method": penalty}, faults={1: fault})
    assert_close(result, healthy[penalty])
    assert result.clients[1]["failures"] == len(fault.at)
    np.testing.assert_array_equal(result.arrays["answered"], len(result.metrics))


def test_a_client_that_was_given_up_is_taken_back_and_both_are_said(caplog, healthy):
    fault = Drop(category="train", at=frozenset(range(3, 9)))
    result = run(STUDY, {**SMALL, **TIGHT}, faults={2: fault})
    assert "client 3 missed 3 rounds in a row" in caplog.text
    assert "client 3 is back" in caplog.text
    assert_close(result, healthy["group"])
    # The rounds in which the problem changed have no certificate, nor have those with a gap in it.
    known = {int(row["round"]) for row in result.metrics if np.isfinite(row["gap"])}
    assert not {3, 4, 5, 9} & known
    assert {6, 7, 8, 10} <= known


@BOTH
@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        (Drop(category="train", since=4), "code 5"),
        (Raise(category="train", since=6, text="disk on fire"), "disk on fire"),
        (Late(category="train", since=4, rounds=1000), "no reply within"),
    ],
)
def test_one_lost_for_good_leaves_the_others_their_own_problem(penalty, fault, reason, matrices):
    settings = {**SMALL, "method": penalty, "timeout": 0.01}
    result = run(STUDY, {**settings, "rounds": 60, "tolerance": 0.0}, faults={1: fault})
    kept, expected = without(matrices, 1, penalty)
    np.testing.assert_allclose(result.arrays["sparse"][kept], expected.sparse, rtol=0, atol=1e-8)
    np.testing.assert_allclose(
        result.arrays["precision"][kept], expected.precision, rtol=0, atol=1e-8
    )
    rounds = len(result.metrics)
    answered = [rounds, fault.since - 1, rounds, rounds]
    np.testing.assert_array_equal(result.arrays["answered"], answered)
    assert result.status == "completed"
    assert any("client-2" in note and reason in note for note in result.notes)
    assert np.isfinite(result.arrays["sparse"][1]).all()


@BOTH
@pytest.mark.parametrize("since", [2, 3, 4, 5, 8])
def test_no_gap_is_certified_that_is_not_there(penalty, since, matrices):
    fault = {1: Drop(category="train", since=since)}
    result = run(STUDY, {**SMALL, "method": penalty}, faults=fault)
    kept, expected = without(matrices, 1, penalty)
    assert 0.0 <= result.headline["gap"] <= 1e-6
    assert result.metrics[-1]["objective"] - expected.objective <= 1e-6
    assert result.metrics[-1]["round"] >= since + 3  # three misses, then a certificate
    assert not any(row["gap"] < -1e-9 for row in result.metrics)
    np.testing.assert_allclose(result.arrays["sparse"][kept], expected.sparse, atol=2e-3)


@BOTH
@pytest.mark.parametrize(
    "at",
    [
        pytest.param(None, id="never there"),
        # Its entries of S were not seen when the blocks were made.
        pytest.param(frozenset({1, 2, 3}), id="there too late"),
    ],
)
def test_who_never_answers_the_screening_has_no_part(penalty, at, matrices, caplog):
    settings = {**SMALL, **TIGHT, "method": penalty}
    result = run(STUDY, settings, faults={0: Drop(category="train", at=at)})
    kept, expected = without(matrices, 0, penalty, screening=False)
    np.testing.assert_allclose(result.arrays["sparse"][kept], expected.sparse, rtol=0, atol=1e-8)
    np.testing.assert_array_equal(result.arrays["sparse"][0], np.eye(12))
    assert result.arrays["answered"][0] == 0
    assert result.clients[0]["rounds"] == 0
    assert np.isnan(result.arrays["smallest_eigenvalue"][0])
    assert "client 1 missed 3 rounds in a row" in caplog.text
    assert any("client-1" in note for note in result.notes)
    # The mean is over the graphs that there are.
    edges = np.count_nonzero(np.triu(expected.sparse, 1), axis=(1, 2))
    assert result.headline["edges"] == pytest.approx(edges.mean())


def test_a_sample_of_someone_who_was_never_there_is_not_waited_for():
    settings = {**SMALL, "clients": 2, "samples": "60", "sample": 1}
    result = run(STUDY, settings, faults={1: Drop(category="train")})
    assert result.status == "completed"
    assert result.headline["gap"] <= 1e-6


def test_who_is_lost_on_a_path_keeps_the_points_it_saw(matrices):
    settings = {**SMALL, "path": 3, "tolerance": 1e-9}
    whole = run(STUDY, settings)
    rounds = [row["round"] for row in whole.metrics if row.get("lambda1", 9.0) > 0.15 * 1.01]
    lost = {3: Drop(category="train", since=int(rounds[-1]) + 1)}
    result = run(STUDY, settings, faults=lost)
    np.testing.assert_array_equal(
        result.arrays["path_support"][:2], whole.arrays["path_support"][:2]
    )
    kept, expected = without(matrices, 3)
    assert np.all(result.arrays["path_gap"] <= 1e-9)
    np.testing.assert_array_equal(
        result.arrays["path_edges"][2, kept],
        np.count_nonzero(np.triu(expected.sparse, 1), axis=(1, 2)),
    )


def test_a_round_without_any_reply_stops_with_every_reason():
    lost = {i: Raise(category="train", since=3, text=f"reason {i}") for i in range(4)}
    with pytest.raises(StudyError, match=r"round 3: no usable reply.*client-1.*reason 0.*reason 3"):
        run(STUDY, SMALL, faults=lost)


@pytest.mark.parametrize("method", ["glasso", "pooled"])
def test_who_does_not_answer_a_baseline_is_asked_again_and_then_left_out(method, matrices):
    settings = {**SMALL, "method": method, "tolerance": 1e-10}
    whole = run(STUDY, settings)
    late = run(STUDY, settings, faults={1: Drop(category="train", at=frozenset({1}))})
    assert [row["clients"] for row in late.metrics] == [3.0, 1.0]  # the others are not asked again
    np.testing.assert_array_equal(late.arrays["sparse"], whole.arrays["sparse"])
    np.testing.assert_array_equal(late.arrays["answered"], [1, 2, 1, 1])
    lost = run(STUDY, settings, faults={1: Drop(category="train")})
    assert [row["clients"] for row in lost.metrics] == [3.0, 0.0, 0.0]
    np.testing.assert_array_equal(lost.arrays["answered"], [1, 0, 1, 1])
    np.testing.assert_array_equal(lost.arrays["sparse"][1], np.eye(12))
    assert any("1 clients missing" in note for note in lost.notes)
    kept = [0, 2, 3]
    if method == "glasso":
        np.testing.assert_array_equal(lost.arrays["sparse"][kept], whole.arrays["sparse"][kept])
    else:  # weights are those of the clients whose data there are
        weights = COUNTS[kept] / COUNTS[kept].mean()
        expected = solve_joint(matrices[kept], 0.15, 0.05, weights=weights, tolerance=1e-10)
        np.testing.assert_allclose(lost.arrays["sparse"][kept], expected.sparse, atol=1e-9)


@pytest.mark.parametrize("method", ["glasso", "pooled"])
def test_a_baseline_that_nobody_answers_stops_with_every_reason(method):
    lost = {i: Raise(category="train", text=f"reason {i}") for i in range(4)}
    with pytest.raises(StudyError, match=r"round 1: no usable reply.*reason 0.*reason 3"):
        run(STUDY, {**SMALL, "method": method}, faults=lost)


def test_a_run_that_lost_a_client_resumes_without_it(tmp_path, matrices):
    lost = {1: Drop(category="train", since=3)}
    run(STUDY, {**SMALL, "rounds": 12, "tolerance": 0.0}, faults=lost, out=tmp_path, report=False)
    result = run(
        STUDY,
        {**SMALL, "rounds": 120, "tolerance": 0.0},
        faults={1: Drop(category="train")},
        out=tmp_path,
        resume=True,
        report=False,
    )
    kept, expected = without(matrices, 1)
    np.testing.assert_allclose(result.arrays["sparse"][kept], expected.sparse, rtol=0, atol=1e-8)
    assert result.arrays["answered"][1] == 2
