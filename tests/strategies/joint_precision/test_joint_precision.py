"""The server of joint-precision among clients that are absent, lost, slow, mistaken or hostile."""

from __future__ import annotations

import numpy as np
import pytest
from flwr.app import ConfigRecord, Error, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from apps import run
from apps.common.threads import one_blas_thread
from apps.joint_precision.problem import LocalProblem
from apps.joint_precision.solver import solve_joint
from sim import faults
from sim.faults import Drop, Late, Nonsense, Raise
from sim.grid import LocalGrid
from strategies.core import wire
from strategies.core.base import BadReply, Client, RoundPlan, StudyError
from strategies.joint_precision.messages import read_step_order, screening_reply
from strategies.joint_precision.strategy import JointPrecision, PrecisionTask
from tests.apps.joint_precision.federations import correlations

STUDY = "joint-precision"
SMALL = {"variables": 12, "blocks": 2, "samples": "60,80,100,80", "clients": 4, "lambda1": 0.15}
COUNTS = np.array([60.0, 80.0, 100.0, 80.0])
TIGHT = {"tolerance": 0.0, "rounds": 60}
BOTH = pytest.mark.parametrize("penalty", ["group", "fused"])


@pytest.fixture(autouse=True)
def _one_thread():
    with one_blas_thread():
        yield


@pytest.fixture(scope="module")
def matrices() -> np.ndarray:
    return correlations(12, 2, "60,80,100,80", clients=4)


@pytest.fixture(scope="module")
def healthy():
    return {penalty: run(STUDY, {**SMALL, **TIGHT, "method": penalty}) for penalty in PENALTIES}


PENALTIES = ("group", "fused")


def without(matrices, client: int, penalty: str = "group", screening: bool = True):
    """Return the solution of the others' problem, their weights as in the whole."""
    kept = [i for i in range(4) if i != client]
    return kept, solve_joint(
        matrices[kept],
        0.15,
        0.05,
        penalty,
        weights=(COUNTS / COUNTS.mean())[kept],
        tolerance=0.0,
        rounds=300,
        screening=screening,
    )


def assert_close(one, other, atol=1e-8):
    for name in ("precision", "sparse"):
        np.testing.assert_allclose(
            one.arrays[name], other.arrays[name], rtol=0, atol=atol, err_msg=name
        )


# --- not everyone every time ---------------------------------------------------------------------


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
    assert "client client-3 missed 3 rounds in a row" in caplog.text
    assert "client client-3 is back" in caplog.text
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
    assert "client client-1 missed 3 rounds in a row" in caplog.text
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


# --- hostile replies -----------------------------------------------------------------------------


def strategy(screened: bool = True, dtype: str = "float64") -> JointPrecision:
    task = PrecisionTask("group", 0.1, 0.05, 1.0, 10, screening=not screened, dtype=dtype)
    made = JointPrecision(RoundPlan(13, 0.0, 2), task=task)
    made.clients = [Client(n, i, 10, ["a", "b", "c"], i) for i, n in enumerate("xy")]
    made.begin(made.clients)
    return made


GOOD = [1.0, 0.1, 0.0, 2.0, -0.3, 1.5]  # (a, a), (a, b), (a, c), (b, b), (b, c), (c, c)


def step(omega=GOOD, **metrics) -> RecordDict:
    content = RecordDict({"arrays": wire.record({"omega": np.asarray(omega)})})
    known = {"loss": 1.0, "log-det": 0.5, "smallest-eigenvalue": 0.1, "seconds": 0.0}
    content["metrics"] = MetricRecord({**known, **metrics})
    return content


def screening(pairs=(0, 2), values=(0.5, -0.4), kind=np.int32, **metrics) -> RecordDict:
    arrays = {"pairs": np.asarray(pairs, dtype=kind), "correlations": np.asarray(values)}
    content = RecordDict({"arrays": wire.record(arrays)})
    content["metrics"] = MetricRecord({"smallest-eigenvalue": 0.1, **metrics})
    return content


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
        strategy().read_reply(0, content)


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
    ],
)
def test_an_impossible_screening_is_rejected_with_a_reason(content, reason):
    with pytest.raises(BadReply, match=reason):
        strategy(screened=False).read_reply(0, content)


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
        strategy(screened).read_reply(0, content)


def test_good_replies_are_read():
    read = strategy().read_reply(0, step(loss=np.inf, **{"log-det": -np.inf}))
    np.testing.assert_array_equal(read.omega, GOOD)
    assert read.loss == np.inf  # a Psi that is not positive definite: honest
    single = strategy(dtype="float32").read_reply(0, step(np.float32(GOOD)))
    assert single.omega.dtype == np.float64
    np.testing.assert_array_equal(single.omega, np.float32(GOOD))
    with pytest.raises(BadReply, match="shape"):
        strategy(dtype="float32").read_reply(0, step(np.float32(GOOD[:3])))
    seen = strategy(screened=False).read_reply(0, screening())
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


# --- how it fits in ------------------------------------------------------------------------------


def test_what_is_sent_is_what_the_client_reads():
    made = strategy(dtype="float32")
    made.split.z += np.random.default_rng(0).normal(size=made.split.z.shape)
    made.split.penalise(0.5, 0.2)
    order = read_step_order(made.payload(3, 1), 3)
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
