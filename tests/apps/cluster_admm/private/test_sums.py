"""Runs whose noise is in secure sums: what is learned, what is sent, what stays on devices."""

from __future__ import annotations

import json
from functools import partial

import numpy as np
import pytest

from trellis import apps
from trellis.apps import run
from trellis.apps.cluster_admm.config import ClusterAdmmConfig
from trellis.apps.cluster_admm.data import synthetic_table, synthetic_truth
from trellis.apps.cluster_admm.private.simulate import own_models, summed
from trellis.apps.cluster_admm.problem import nmsd
from trellis.apps.cluster_admm.simulate import client_tables
from trellis.apps.cluster_admm.steps import alone
from trellis.apps.common.results import RunResult
from trellis.apps.common.runner import make_run_config
from trellis.apps.common.settings import ConfigError
from trellis.sim.faults import Raise
from trellis.sim.grid import LocalGrid, run_local

STUDY = "cluster-admm"
SOME = {
    "privacy": "dp", "clients": 12, "clusters": "2",
    "features": 4, "samples": "60-90", "similarity": 0.5,
}  # fmt: skip

study = partial(run, STUDY, report=False)


@pytest.fixture
def heard(monkeypatch):
    """All that clients say, by the kind of message."""
    said, receive = [], LocalGrid._receive

    def noted(grid, reply, asked):
        said.append((asked.message_type, reply.content if not reply.has_error() else reply.error))
        return receive(grid, reply, asked)

    monkeypatch.setattr(LocalGrid, "_receive", noted)
    return said


# --- what is learned -----------------------------------------------------------------------------


def test_moments_are_the_default_of_sound_and_beat_learning_alone():
    result = study(
        {**SOME, "samples": "4-9", "clients": 150, "features": 5, "clusters": "3"}, seed=2
    )
    config = ClusterAdmmConfig.from_settings(result.config)
    assert (config.method, config.sums) == ("moments", True)
    assert config.at_home
    tables = client_tables(config, 2)
    truth = synthetic_truth(config, 2)
    by_itself = nmsd(alone("ridge", tables, config.ridge), truth.models[truth.clusters])
    assert result.headline["nmsd-servers"] < by_itself - 3.0
    assert result.headline["nmsd"] < by_itself - 3.0
    assert result.headline["epsilon"] <= 1.0 + 1e-9
    assert len(result.metrics) == 5


def test_the_run_is_what_its_arithmetic_without_messages_gives_but_for_the_noise():
    # With next to no noise both are the same.
    settings = {**SOME, "epsilon": 1e7, "exchanges": 2, "find-clips": False}
    result = study(settings, seed=3)
    config = ClusterAdmmConfig.from_settings(result.config)
    made = [synthetic_table(config, 3, k) for k in range(config.clients)]
    tables = [(one.X, one.y) for one in made]
    strategy = summed(config, 3, tables, synthetic_truth(config, 3).clusters)
    np.testing.assert_allclose(result.arrays["models"][0], strategy.releases.models, atol=1e-2)
    own = own_models(config, strategy, tables, range(config.clients))
    np.testing.assert_allclose(result.arrays["clients"], own, atol=0.05)


def test_one_seed_gives_one_result_and_held_out_samples_score_it():
    first, again = (study({**SOME, "held-out": 0.2}, seed=4) for _ in range(2))
    assert first.arrays["models"].tobytes() == again.arrays["models"].tobytes()
    assert first.headline["score"] == again.headline["score"]
    assert first.headline["score-error"] > 0.0
    assert first.headline["epsilon"] <= 1.0 + 1e-9
    clear = study({**SOME, "held-out": 0.2, "epsilon": 1e6}, seed=4)
    assert 0.5 < clear.headline["score"] <= 1.0


def test_labels_take_one_exchange():
    result = study({**SOME, "loss": "logistic", "clients": 30}, seed=5)
    assert len(result.metrics) == 2  # one for clips
    truth = result.arrays["truth"][result.arrays["true_clusters"]]
    found = result.arrays["clients"]
    cosines = np.sum(found * truth, axis=1) / np.linalg.norm(found, axis=1)
    assert np.mean(cosines / np.linalg.norm(truth, axis=1)) > 0.8


def test_one_model_for_all_needs_no_clusters():
    result = study({**SOME, "clusters": "1"}, seed=6)
    assert result.arrays["models"].shape == (1, 1, 4)


def test_a_run_that_was_stopped_goes_on_with_the_sums_it_has(tmp_path):
    whole = study(SOME, seed=7, out=tmp_path / "whole")
    again = study(SOME, seed=7, out=tmp_path / "whole", resume=True)
    assert again.arrays["models"].tobytes() == whole.arrays["models"].tobytes()


def test_an_exchange_that_fails_leaves_the_models_of_those_before():
    # More than may drop out say nothing from the third exchange on: that one is made again without
    # them, so that the last would be one more than devices allow.
    gone = {k: Raise(category="train", since=3) for k in range(4)}
    result = study(SOME, seed=8, faults=gone)
    assert result.status == "completed"
    assert any("exchange 5 failed" in note for note in result.notes)
    assert [row["clients"] for row in result.metrics] == [12.0, 12.0, 8.0, 8.0, 0.0]
    assert np.any(result.arrays["models"])
    assert result.headline["epsilon"] <= 1.0 + 1e-9


# --- what is sent --------------------------------------------------------------------------------


def test_nothing_is_said_but_masked_words_and_what_the_noise_cost(heard):
    study({**SOME, "held-out": 0.2})
    kinds = [kind for kind, _ in heard]
    assert set(kinds) == {
        "query.enrol", "query.secagg_keys", "query.secagg_meet", "train.secagg_masked",
        "query.secagg_agree", "query.secagg_unmask",
        "evaluate",  # of simulated clients; devices are sent query.personal, see below
    }  # fmt: skip
    for kind, content in heard:
        if kind == "train.secagg_masked":
            event = set(content) - {"secagg", "masked", "metrics"}
            assert set(content["metrics"]) == {"num-examples"}
            assert len(event) == 1
            assert event.pop().startswith("privacy.sum-")
    # enrolment, keys of all; three for each of 6 sums; the models
    assert len(heard) == 12 * (3 + 3 * 6 + 1)


def test_one_exchange_takes_seven_messages(heard):
    study({**SOME, "exchanges": 1, "find-clips": False})
    assert len(heard) == 12 * 7


# --- devices -------------------------------------------------------------------------------------


@pytest.fixture
def devices(tmp_path):
    rng = np.random.default_rng(0)
    nodes, w = [], np.array([1.0, -1.0, 0.5])
    for k in range(6):
        path = tmp_path / f"{k}.npz"
        X = rng.standard_normal((40, 3))
        np.savez(path, X=X, y=X @ w + 0.1 * rng.standard_normal(40))
        node = {"data-path": str(path), "state-path": str(tmp_path / f"state-{k}")}
        node |= {"server": k % 2, "cluster": k % 2, "partition-id": k, "count-noise-of": "anyone"}
        nodes.append(node)
    return nodes


def start(nodes, out, **settings) -> RunResult:
    wanted = {**SOME, "features": 3, "clients": len(nodes), **settings}
    run_config = make_run_config(STUDY, wanted, seed=1) | {"out": str(out)}
    run_local(apps.server_app, apps.client_app, nodes, run_config)
    return RunResult.load(out)


def test_devices_keep_their_own_models_and_their_ledgers_have_every_sum(devices, tmp_path, heard):
    result = start(devices, tmp_path / "out", **{"held-out": 0.1})
    assert result.status == "completed"
    assert not np.isfinite(result.arrays["choices"]).any()
    public = result.arrays["models"][0][result.arrays["clusters"]]
    np.testing.assert_array_equal(result.arrays["clients"], public)
    for kind, content in heard:
        if kind == "query.personal":
            assert {name: dict(record) for name, record in content.items()} == {
                "personal": {"came": True}
            }
    for node in devices:
        state = tmp_path / node["state-path"].rsplit("/", 1)[-1]
        entries = json.loads((state / "ledger.json").read_text())["entries"].values()
        events = [entry["event"] for entry in entries]
        assert len(events) == 6
        assert {event["mechanism"] for event in events} == {"summed-gaussian"}
        (folder,) = (state / "results").iterdir()
        with np.load(folder / "result.npz") as kept:
            assert np.linalg.norm(kept["model"] - [1.0, -1.0, 0.5]) < 0.2


def test_what_devices_say_depends_on_a_sample_through_the_sums_alone(devices, tmp_path, heard):
    """A sample of wild values, in place of an ordinary one, changes no message but masked words."""

    def shapes():
        told = []
        for kind, content in heard:
            clear = {name: r for name, r in content.items() if name not in ("secagg", "masked")}
            told.append((kind, sorted(content), sorted(str(sorted(r)) for r in clear.values())))
            for name, record in clear.items():
                if name.startswith("privacy."):
                    kept = {k: v for k, v in dict(record).items() if k != "name"}
                    told.append((kind, "event", str(sorted(kept.items()))))
        heard.clear()
        return sorted(map(str, told))

    start(devices, tmp_path / "first")
    before = shapes()
    path = devices[2]["data-path"]
    with np.load(path) as file:
        X, y = file["X"], file["y"]
    for row, target in (([1e300, -1e300, 0.0], np.inf), ([np.nan, np.inf, 1e-320], -1e308)):
        X[5], y[5] = row, target
        np.savez(path, X=X, y=y)
        for node in devices:
            node["state-path"] += "-again"
        result = start(devices, tmp_path / f"second-{target}")
        assert result.status == "completed"
        assert shapes() == before


def test_a_server_gets_no_model_from_a_device_in_such_a_run(devices):
    from tests.attacks.server_studies import ask

    chosen = {**SOME, "clients": 6, "features": 3}
    order = {"round": 1, "rho": 1.0, "share": 1.0}
    reply = ask(STUDY, chosen, devices[0], "train", {"v": np.zeros(3)}, **order)
    assert reply.has_error()
    assert "device error E4" in reply.error.reason
    assert ask(
        STUDY, chosen, devices[0], "evaluate.losses", {"models": np.zeros((2, 3))}
    ).has_error()


# --- settings ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"clients": 2}, "three at least"),
        ({"clusters": "auto:2"}, "give every client its cluster"),
        ({"sample": 2}, "sample has no effect with method='moments'"),
        ({"norm_bound": 1.0}, "norm-bound has no effect"),
        ({"rho": 2.0}, "rho has no effect with method='moments' and privacy='dp'"),
        ({"tau": 0.1}, "tau has no effect"),
        ({"mixing": "exact"}, "mixing has no effect"),
        ({"topology": "ring"}, "topology has no effect"),
        ({"method": "pgfl"}, "'dp' has method=moments or local"),
        ({"clip_features": 1e9}, "clip-features"),
    ],
)
def test_what_cannot_be_summed_is_refused_by_name(settings, why):
    with pytest.raises(ConfigError, match=why):
        ClusterAdmmConfig(**{**SOME, **settings})


def test_clients_that_learn_alone_send_nothing(heard):
    result = study({**SOME, "method": "local"}, seed=2)
    assert {kind for kind, _ in heard} == {"query.enrol", "query.personal"}
    assert result.arrays["clients"].shape == (12, 4)
    assert result.headline["nmsd"] < 0.0
    assert "epsilon" not in result.headline
    plain = {k: v for k, v in SOME.items() if k != "privacy"} | {"method": "local"}
    other = study(plain, seed=2)
    np.testing.assert_allclose(result.arrays["clients"], other.arrays["clients"], atol=1e-6)
