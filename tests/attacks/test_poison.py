"""One client that sends 1e9: what it cannot do where a bound is declared.

Adversary: one of the clients. It chooses its replies, whatever it was asked; the server and the
other clients are honest.
"""

from __future__ import annotations

import numpy as np
import pytest
from flwr.app import Message, RecordDict

from trellis import apps
from trellis.apps.common.results import RunResult
from trellis.apps.common.runner import make_run_config, run
from trellis.sim.faults import Drop, Nonsense
from trellis.sim.grid import run_local
from trellis.strategies.core import wire

LIAR = 4
NAME = f"client-{LIAR + 1}"
SERVERS = {"servers": 3, "topology": "complete", "clients": 30}
# By name: study, settings, the array of the result that is the model.
STUDIES = {
    "cluster-admm": (
        "cluster-admm",
        {**SERVERS, "rounds": 12, "features": 5, "clusters": "2"},
        "models",
    ),
    "server-graph": (
        "server-graph",
        {**SERVERS, "rounds": 12, "secure-aggregation": "off"},
        "centroid",
    ),
    "fedgl": ("consensus-graph", {"clients": 30, "rounds": 8, "nodes": 8}, "consensus"),
    "fedavg": (
        "consensus-graph",
        {"clients": 30, "rounds": 8, "nodes": 8, "method": "fedavg"},
        "consensus",
    ),
    "joint-precision": (
        "joint-precision",
        {"clients": 6, "rounds": 12, "variables": 12, "samples": "60"},
        "precision",
    ),
    "gromov-wasserstein": (
        "gromov-wasserstein",
        {
            "clients": 6,
            "rounds": 4,
            "graphs": 12,
            "local-epochs": 1,
            "dirichlet": 100.0,
            "downstream": "none",
        },
        "weights",
    ),
}
MEANS = [name for name in STUDIES if name != "joint-precision"]
# Joint-precision's first message asks for correlations, which have their own bound.
FIRST = {"joint-precision": 2}


def lie(value: float, since: int = 1) -> Nonsense:
    """Answer with arrays full of one number; scalars stay as they are."""

    def change(reply: Message) -> RecordDict:
        for record in reply.content.array_records.values():
            for name, array in list(record.items()):
                x = wire.unpack(array)
                if x.dtype == np.float64 and x.size > 1 and name not in ("items", "correct"):
                    record[name] = wire.pack(np.full_like(x, value))
        return reply.content

    return Nonsense(change=change, category="train", since=since)


def play(name: str, value: float = 0.0, **settings: object) -> RunResult:
    """Run a study with its settings and more; with a liar where ``value`` is given."""
    study, own, _ = STUDIES[name]
    faults = {LIAR: lie(value, FIRST.get(name, 1))} if value else None
    return run(study, {**own, **settings}, seed=3, faults=faults)


def model(name: str, result: RunResult) -> np.ndarray:
    return result.arrays[STUDIES[name][2]]


def notes_of(result: RunResult) -> str:
    return " ".join(note for note in result.notes if NAME in note)


@pytest.mark.parametrize("name", list(STUDIES))
def test_a_liar_beyond_the_bound_is_as_one_that_never_answers(name):
    study, own, _ = STUDIES[name]
    gone = run(study, own, seed=3, faults={LIAR: Drop(category="train", since=FIRST.get(name, 1))})
    poisoned = play(name, 1e9, **{"norm-bound": 1e4})
    np.testing.assert_array_equal(model(name, poisoned), model(name, gone))


@pytest.mark.parametrize("rule", ["none", "clip"])
@pytest.mark.parametrize("name", list(STUDIES))
def test_a_liar_is_named_and_left_out_after_three_replies(name, rule):
    result = play(name, 1e9, **{"norm-bound": 1.0, "robust": rule})
    told = notes_of(result)
    assert f"Client {NAME} sent 3 replies beyond norm-bound=1; it was left out for good" in told
    rows = result.metrics[2 + FIRST.get(name, 1) :]
    assert rows
    assert {row["clients"] for row in rows} == {float(STUDIES[name][1]["clients"] - 1)}
    assert {row["failed"] for row in rows} == {0.0}


@pytest.mark.parametrize("name", list(STUDIES))
def test_a_generous_bound_changes_no_bit(name):
    plain = play(name)
    for rule in ("none", "clip"):
        bounded = play(name, **{"norm-bound": 1e6, "robust": rule})
        assert set(bounded.arrays) == set(plain.arrays)
        for key, array in plain.arrays.items():
            np.testing.assert_array_equal(bounded.arrays[key], array)
        assert bounded.notes == plain.notes


# Where a round is one mean over all clients, every client with the same weight in it.
ONE_MEAN = {
    "cluster-admm": {"method": "gfl", "servers": 1},
    "server-graph": {"method": "none", "servers": 1},
    "fedgl": {},
    "fedavg": {},
}


@pytest.mark.parametrize("value", [50.0, 1e9, 1e99])
@pytest.mark.parametrize("name", list(ONE_MEAN))
def test_one_of_thirty_moves_a_round_s_mean_by_the_declared_bound_at_most(name, value):
    bound, clients = 0.6, 30
    settings = {**ONE_MEAN[name], "rounds": 1, "norm-bound": bound, "robust": "clip"}
    honest, poisoned = play(name, **settings), play(name, value, **settings)
    moved = np.linalg.norm(model(name, poisoned) - model(name, honest))
    # Both the honest reply and the clipped one are within the bound of what was sent.
    assert 0.0 < moved <= 2.0 * bound / clients * (1 + 1e-9)
    if value == 1e9:
        unbounded = play(name, value, **{**settings, "norm-bound": 0.0, "robust": "none"})
        assert np.linalg.norm(model(name, unbounded) - model(name, honest)) > 10.0 * moved


def test_weighted_by_their_items_one_moves_the_mean_by_the_bound_at_most():
    settings = {"rounds": 1, "norm-bound": 0.05, "robust": "clip"}
    honest = play("gromov-wasserstein", **settings)
    poisoned = play("gromov-wasserstein", 1e9, **settings)
    moved = np.linalg.norm(poisoned.arrays["weights"] - honest.arrays["weights"])
    assert 0.0 < moved <= 0.05


def test_through_the_penalty_one_matrix_moves_all_by_its_step_at_most():
    settings = {"rounds": 2, "norm-bound": 0.5, "robust": "clip"}
    honest = play("joint-precision", **settings)
    poisoned = play("joint-precision", 1e9, **settings)
    moved = np.linalg.norm(poisoned.arrays["precision"] - honest.arrays["precision"])
    # A relaxed step of 1.8 (Omega - Psi), of which a prox makes no more; packed, off-diagonal
    # entries count once.
    assert moved <= np.sqrt(2.0) * 1.8 * 2.0 * 0.5


@pytest.mark.parametrize("rule", ["median", "trimmed"])
@pytest.mark.parametrize("name", MEANS)
def test_what_an_outlier_says_does_not_matter(name, rule):
    honest = play(name, robust=rule)
    first, second = play(name, 1e7, robust=rule), play(name, 1e9, robust=rule)
    # Beyond all others is beyond all others.
    np.testing.assert_allclose(model(name, first), model(name, second), rtol=1e-6, atol=1e-9)
    moved = np.linalg.norm(model(name, first) - model(name, honest))
    assert moved < 0.5 * np.linalg.norm(model(name, honest))


def test_without_a_rule_the_attack_works():
    # Or the tests above would show nothing.
    for name in ("cluster-admm", "server-graph", "fedavg", "gromov-wasserstein"):
        assert np.linalg.norm(model(name, play(name, 1e9))) > 1e5


def test_a_liar_s_weight_in_the_sums_is_what_it_enrolled_with():
    def heavy(reply: Message) -> RecordDict:
        record = reply.content.array_records["arrays"]
        for key, array in list(record.items()):
            record[key] = wire.pack(wire.unpack(array) * 1e6)
        return reply.content

    study, own, _ = STUDIES["fedavg"]
    settings = {**own, "norm-bound": 1e4}
    result = run(study, settings, seed=3, faults={LIAR: Nonsense(change=heavy, category="train")})
    assert "reply rejected" in notes_of(result)
    np.testing.assert_array_equal(
        model("fedavg", result), model("fedavg", play("fedavg", 1e9, **{"norm-bound": 1e4}))
    )


def test_a_resumed_run_remembers_who_was_out_of_range(tmp_path):
    study, own, key = STUDIES["cluster-admm"]
    settings = {**own, "norm-bound": 1.0, "robust": "clip"}
    whole = run(study, settings, seed=3, faults={LIAR: lie(1e9)})
    for rounds, resume in ((2, False), (4, True), (own["rounds"], True)):
        result = run(
            study,
            {**settings, "rounds": rounds},
            seed=3,
            out=tmp_path,
            resume=resume,
            report=False,
            faults={LIAR: lie(1e9)},
        )
    assert notes_of(result) == notes_of(whole)
    np.testing.assert_array_equal(result.arrays[key], whole.arrays[key])


SECURE = {
    "server-graph": {"secure-aggregation": "on"},
    "fedavg": {"secure-aggregation": True},
    "gromov-wasserstein": {"secure-aggregation": True},
}


@pytest.mark.parametrize("name", list(SECURE))
def test_devices_clip_before_they_mask(name):
    settings = {"rounds": 2, "norm-bound": 0.02}
    clear, secure = play(name, **settings), play(name, **settings, **SECURE[name])
    # Fixed point on one side, and the clipping shows.
    np.testing.assert_allclose(model(name, secure), model(name, clear), rtol=0, atol=1e-5)
    assert np.max(np.abs(model(name, play(name, rounds=2)) - model(name, clear))) > 1e-3


def test_a_device_keeps_the_bound_by_itself(tmp_path):
    rng = np.random.default_rng(1)
    nodes = []
    for number in range(3):
        path = tmp_path / f"{number}.npz"
        np.savez(path, X=rng.normal(size=(20, 4)), y=rng.choice([-1.0, 1.0], 20))
        nodes.append({"data-path": str(path), "server": 0})
    sent: list[np.ndarray] = []

    def listen(reply: Message) -> RecordDict:
        sent.append(wire.unpack(reply.content.array_records["arrays"]["model"]).copy())
        return reply.content

    settings = {
        "clients": 3,
        "servers": 1,
        "topology": "complete",
        "method": "none",
        "rounds": 3,
        "step": 5.0,
        "norm-bound": 0.25,
    }
    run_config = make_run_config("server-graph", settings)
    run_config["out"] = str(tmp_path / "out")
    listening = Nonsense(change=listen, category="train")
    run_local(apps.server_app, apps.client_app, nodes, run_config, faults={0: listening})
    result = RunResult.load(tmp_path / "out")
    assert len(sent) == 3
    np.testing.assert_allclose(np.linalg.norm(sent[0]), 0.25, rtol=1e-12)  # from zero
    assert not any("norm-bound" in note for note in result.notes)
