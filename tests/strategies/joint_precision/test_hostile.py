"""The server of joint-precision among clients that are mistaken or hostile."""

from __future__ import annotations

import numpy as np
import pytest
from flwr.app import ConfigRecord, MetricRecord, RecordDict

from tests.strategies.joint_precision.federations import (
    GOOD,
    SMALL,
    STUDY,
    TIGHT,
    assert_close,
    read,
    screening,
    step,
    strategy,
)
from trellis.apps import run
from trellis.sim import faults
from trellis.sim.faults import Nonsense
from trellis.strategies.core import wire
from trellis.strategies.core.wire import BadReply


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (step([np.nan, *GOOD[1:]]), "not finite"),
        (step([np.inf, *GOOD[1:]]), "not finite"),
        (step([1e200, *GOOD[1:]]), "entry of size"),
        (step(GOOD[:5]), "shape"),
        (step([*GOOD, 1.0]), "shape"),
        (step(np.reshape(GOOD, (2, 3))), "shape"),
        (step(np.float32(GOOD)), "float32"),
        (step(np.array(GOOD, dtype=complex)), "complex128"),
        (step(np.array([1, 0, 0, 1, 0, 1])), "int64"),
        (step([-1.0, *GOOD[1:]]), "-1 on its diagonal"),
        (step([0.0, *GOOD[1:]]), "0 on its diagonal"),
        (step([1.0, 1.5, *GOOD[2:]]), "larger than a positive definite"),
        (step([1.0, -1.5, *GOOD[2:]]), "larger than a positive definite"),
        (step(loss=-np.inf), "certificate are -inf"),
        (step(loss=np.nan), "certificate are nan"),
        (step(**{"log-det": np.inf}), "and inf"),
        (step(**{"log-det": np.nan}), "and nan"),
        (step(**{"smallest-eigenvalue": np.nan}), "smallest-eigenvalue"),
        (RecordDict({"arrays": wire.record({}), "metrics": step()["metrics"]}), "omega is missing"),
    ],
)
def test_an_impossible_step_is_rejected_with_a_reason(content, reason):
    with pytest.raises(BadReply, match=reason):
        read(strategy(), content)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (screening(values=(0.5, 1.1)), "a correlation of 1.1"),
        (screening(values=(0.5, -2.0)), "a correlation of 2"),
        (screening(values=(0.5, np.nan)), "not finite"),
        (screening(values=(0.5,)), "shape"),
        (screening(values=np.float32([0.5, 0.4])), "float32"),
        (screening(pairs=(0, 3)), "pairs must rise from 0 or more to 2 or less"),
        (screening(pairs=(-1, 2)), "pairs must rise"),
        (screening(pairs=(1, 1)), "pairs must rise"),
        (screening(pairs=(2, 0)), "pairs must rise"),
        (screening(pairs=(0, 1), kind=np.float64), "pairs is float64"),
        (screening(pairs=(0, 1), kind=np.uint8), "pairs is uint8"),
        (screening(pairs=((0, 1),)), r"shape \(1, 2\)"),
        (screening(pairs=(0, 1, 2, 2), values=(0.1,) * 4), "pairs is int32 of shape"),
        (screening(**{"smallest-eigenvalue": np.inf}), "smallest-eigenvalue"),
        (screening(**{"num-examples": 0}), "num-examples is 0"),
        (screening(**{"variables": 4}), "variables is 4, not 3"),
    ],
)
def test_an_impossible_screening_is_rejected_with_a_reason(content, reason):
    with pytest.raises(BadReply, match=reason):
        read(strategy(screened=False), content)


@pytest.mark.parametrize(
    "content",
    [
        RecordDict(),
        RecordDict({"arrays": ConfigRecord(), "metrics": step()["metrics"]}),
        RecordDict({"arrays": step()["arrays"]}),
        RecordDict({"arrays": step()["arrays"], "metrics": MetricRecord({"loss": 1.0})}),
        RecordDict({"arrays": step()["arrays"], "metrics": ConfigRecord({"loss": "low"})}),
    ],
)
@pytest.mark.parametrize("screened", [True, False])
def test_a_reply_without_its_records_raises(content, screened):
    with pytest.raises((BadReply, KeyError, ValueError, TypeError)):
        read(strategy(screened), content)


def test_good_replies_are_read():
    found = read(strategy(), step(loss=np.inf, **{"log-det": -np.inf}))
    np.testing.assert_array_equal(found.omega, GOOD)
    assert found.loss == np.inf  # a Psi that is not positive definite: honest
    single = read(strategy(dtype="float32"), step(np.float32(GOOD)))
    assert single.omega.dtype == np.float64
    np.testing.assert_array_equal(single.omega, np.float32(GOOD))
    with pytest.raises(BadReply, match="shape"):
        read(strategy(dtype="float32"), step(np.float32(GOOD[:3])))
    seen = read(strategy(screened=False), screening())
    np.testing.assert_array_equal(seen.pairs, [0, 2])
    np.testing.assert_array_equal(seen.correlations, [0.5, -0.4])


def _changed_omega(change):
    def apply(reply):
        arrays = wire.arrays(reply.content["arrays"])
        if "omega" in arrays:
            reply.content["arrays"] = wire.record({"omega": change(arrays["omega"].copy())})
        return reply

    return apply


def _changed_metric(name, value):
    def apply(reply):
        reply.content["metrics"][name] = value
        return reply

    return apply


def _negative(omega):
    omega[0] = -omega[0]
    return omega


def _too_large(omega):
    omega[1] = 1e3
    return omega


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (faults.not_a_number, "not finite"),
        (faults.infinite, "not finite"),
        (faults.huge, "entry of size"),
        (faults.wrong_shape, "shape"),
        (faults.lying_shape, "bytes"),
        (faults.without_arrays, "arrays"),
        (faults.without_records, "metrics"),
        (_changed_omega(np.float32), "float32"),
        (_changed_omega(_negative), "on its diagonal"),
        (_changed_omega(_too_large), "larger than a positive definite"),
        (_changed_metric("loss", -np.inf), "certificate"),
        (_changed_metric("log-det", np.inf), "certificate"),
    ],
)
def test_a_hostile_step_is_rejected_by_name_and_the_run_goes_on(change, reason, healthy, caplog):
    fault = {1: Nonsense(change=change, category="train", at=frozenset({4, 5}))}
    result = run(STUDY, {**SMALL, **TIGHT}, faults=fault)
    assert [c["failures"] for c in result.clients] == [0, 2, 0, 0]
    assert [row["failed"] for row in result.metrics[:6]] == [0, 0, 0, 1, 1, 0]
    assert reason in result.clients[1]["last_failure"]
    assert "client client-2 left out: reply rejected" in caplog.text
    assert any("client-2" in note and "reply rejected" in note for note in result.notes)
    assert_close(result, healthy["group"])


def _screening_with(pairs=None, correlations=None):
    def apply(reply):
        arrays = {k: v.copy() for k, v in wire.arrays(reply.content["arrays"]).items()}
        if "pairs" in arrays:
            arrays["pairs"] = pairs(arrays["pairs"]) if pairs else arrays["pairs"]
            if correlations:
                arrays["correlations"] = correlations(arrays["correlations"])
            reply.content["arrays"] = wire.record(arrays)
        return reply

    return apply


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (_screening_with(correlations=lambda v: 3.0 * v), "a correlation of"),
        (_screening_with(pairs=lambda q: q + 1000), "pairs must rise"),
        (_screening_with(pairs=np.zeros_like), "pairs must rise"),
        (_screening_with(pairs=lambda q: q[::-1].copy()), "pairs must rise"),
    ],
)
def test_a_hostile_screening_is_rejected_by_name_and_asked_again(change, reason, healthy):
    once = run(
        STUDY,
        {**SMALL, **TIGHT},
        faults={1: Nonsense(change=change, category="train", at=frozenset({1}))},
    )
    assert reason in once.clients[1]["last_failure"]
    assert once.clients[1]["failures"] == 1
    assert_close(once, healthy["group"])
    always = run(STUDY, SMALL, faults={1: Nonsense(change=change, category="train")})
    assert always.clients[1]["failures"] == 3
    assert always.arrays["answered"][1] == 0
    assert always.headline["gap"] <= 1e-6


def test_a_client_that_lies_about_its_partition_does_not_stop_the_run():
    def far_away(message):
        message.content["client"]["partition"] = 10**6
        return message

    result = run(STUDY, SMALL, faults={1: Nonsense(change=far_away, category="query")})
    assert result.status == "completed"
    assert [c["name"] for c in result.clients][-1] == "client-2"
    assert "mcc" not in result.headline  # the truth about such a client is not known
    assert "truth" not in result.arrays
