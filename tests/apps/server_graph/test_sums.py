"""Runs with noise in sums: the numbers, the account, clients that drop out, devices."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from tests.apps.server_graph.federations import far, of_method, study
from tests.crashing import crashing_after
from trellis import apps
from trellis.apps.common.runner import make_run_config
from trellis.apps.common.settings import ConfigError
from trellis.apps.server_graph.config import ServerGraphConfig
from trellis.apps.server_graph.private import Terms
from trellis.apps.server_graph.simulate import simulate
from trellis.privacy.accounting.budget import DeviceLedger
from trellis.privacy.accounting.sampled import spent
from trellis.sim.faults import Drop
from trellis.sim.grid import run_local
from trellis.strategies.core.checkpoint import CheckpointError

SMALL = {
    "servers": 4, "topology": "ring", "clients": 16, "samples": "20", "rounds": 6,
    "privacy": "dp",
}  # fmt: skip


def config(**more):
    return ServerGraphConfig.from_settings({**SMALL, **more})


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"batch": 0, "average": 0.0},
        {"held-out": 0.2, "samples": ",".join(str(15 + k) for k in range(16))},
        {"sample": 3, "failures": "1:2-3"},
        {"failures": "1:2-3", "on-server-loss": "rehome", "loss": "least-squares"},
        {"method": "fedavg", "dropout": 0.2, "colluding": 0.2},
    ],
    ids=str,
)
def test_a_run_has_the_models_of_the_arithmetic_without_messages(more):
    settings = of_method({**SMALL, **more}, more.get("method", "hybrid"), "dp")
    result = study(settings, seed=3)
    found = simulate(ServerGraphConfig.from_settings(settings), 3)
    assert far(result.arrays["models"], found.models) < 1e-12
    assert result.metrics[-1]["epsilon"] == pytest.approx(found.epsilon)
    np.testing.assert_allclose([row["msd"] for row in result.metrics], found.msd, atol=1e-9)


def test_one_draw_a_sum_has_the_noise_of_all_shares():
    settings = config(batch=0, rounds=60, samples="40")
    spread = []
    for shares in (True, False):
        runs = [simulate(settings, seed, shares=shares) for seed in range(1, 13)]
        spread.append(np.std([run.models - run.truth for run in runs]))
    assert spread[1] == pytest.approx(spread[0], rel=0.35)


def test_every_row_tells_epsilon_and_the_run_keeps_to_it():
    result = study({**SMALL, "rounds": 12, "epsilon": 0.7})
    told = [row["epsilon"] for row in result.metrics]
    terms = Terms.of(config(rounds=12, epsilon=0.7))
    rates, ratio = terms.rates(20), terms.ratio(20)
    expected = [spent(ratio, n, 1e-5, rates.sampling) for n in range(1, 13)]
    np.testing.assert_allclose(told, expected, rtol=1e-3)
    assert told[-1] < 0.7 < spent(ratio, terms.releases + 1, 1e-5, rates.sampling) * 1.01
    ledger = result.ledger
    assert ledger["epsilon"] == pytest.approx(told[-1], rel=1e-6)
    assert {len(entry["events"]) for entry in ledger["clients"]} == {12}
    assert ledger["clients"][0]["epsilon_pld"] <= ledger["epsilon"]
    assert "its own server included" in ledger["claim"]
    assert ledger["claim"].startswith("Simulated")
    assert ledger["neighbouring"].startswith("One record")


@pytest.mark.parametrize("method", ["iid", "none", "masked"])
def test_other_methods_between_servers_are_refused_as_they_would_be_hybrid(method):
    with pytest.raises(ConfigError, match=r"privacy='dp'.*'dp' has method=hybrid or fedavg"):
        config(method=method)


def test_the_result_is_the_mean_of_the_last_models():
    last = study({**SMALL, "average": 0.0}).arrays["models"]
    half = study({**SMALL, "average": 0.5}).arrays["models"]
    shorter = [simulate(config(average=0.0), 1, rounds).models for rounds in (4, 5, 6)]
    assert far(last, shorter[-1]) < 1e-12
    assert far(half, np.mean(shorter, axis=0)) < 1e-12


def test_the_score_is_a_noisy_sum_of_its_own_within_the_budget():
    result = study({**SMALL, "samples": "100", "held-out": 0.3, "epsilon": 5.0, "rounds": 10})
    assert 0.0 <= result.headline["score"] <= 1.0
    noise = 1.0 / Terms.of(config(**{"held-out": 0.3, "epsilon": 5.0})).score_ratio
    assert result.headline["score-noise"] == pytest.approx(noise / 480.0, rel=0.2)
    assert result.ledger["epsilon"] <= 5.0
    kinds = {event["what"] for event in result.ledger["clients"][0]["events"]}
    assert kinds == {"clipped gradients", "the score of held-out samples"}


def test_a_client_that_drops_out_costs_a_release_and_not_the_run(tmp_path):
    settings = make_run_config("server-graph", SMALL) | {"out": str(tmp_path), "report": False}
    nodes = [{"partition-id": k, "num-partitions": 16, "simulation": True} for k in range(16)]
    gone = Drop(category="train", at=frozenset({3}), forget=False)
    run_local(apps.server_app, apps.client_app, nodes, settings, faults={5: gone})
    ledger = json.loads((tmp_path / "run.json").read_text())["ledger"]
    releases = {e["name"]: len(e["events"]) for e in ledger["clients"]}
    others = [releases[f"client-{k}"] for k in (5, 7, 8)]
    assert others == [7, 7, 7]  # of server 1: round 3 was made again, without client 6
    assert releases["client-6"] == 5
    assert releases["client-1"] == 6
    assert ledger["epsilon"] <= 1.0


def test_personal_models_are_gathered_in_a_simulation_and_marked_so():
    result = study({**SMALL, "samples": "40"})
    assert result.arrays["personal"].shape == (16, 2)
    assert "gathered for evaluation" in result.ledger["personal"]


def test_a_report_says_what_privacy_cost(tmp_path):
    study({**SMALL, "held-out": 0.2}, out=tmp_path, report=True)
    page = (tmp_path / "report.html").read_text()
    for words in ("Privacy: noise in every sum", "a client by itself", "gathered for evaluation",
                  "Below 1 it pays to learn together", "Score of the private model"):  # fmt: skip
        assert words in page


def test_a_resumed_run_goes_on_with_models_and_account(tmp_path):
    whole = study(SMALL)
    with crashing_after(4):
        study(SMALL, out=tmp_path)
    resumed = study(SMALL, out=tmp_path, resume=True)
    assert [row["round"] for row in resumed.metrics] == [1, 2, 3, 4, 5, 6]
    assert resumed.metrics[-1]["epsilon"] > resumed.metrics[3]["epsilon"] > 0.0
    assert {len(entry["events"]) for entry in resumed.ledger["clients"]} == {6}
    assert resumed.ledger["epsilon"] == whole.ledger["epsilon"]
    assert np.array_equal(resumed.arrays["models"], whole.arrays["models"])


def test_noise_for_some_rounds_is_not_enough_for_more(tmp_path):
    study({**SMALL, "rounds": 2}, out=tmp_path)
    with pytest.raises(CheckpointError, match="made with rounds=2, this run has rounds=4"):
        study({**SMALL, "rounds": 4}, out=tmp_path, resume=True)


# --- devices -------------------------------------------------------------------------------------


@pytest.fixture
def devices(tmp_path):
    rng = np.random.default_rng(0)
    nodes = []
    for k in range(4):
        path = tmp_path / f"site{k}.npz"
        X = rng.normal(size=(30, 2)) + 1.0
        np.savez(path, X=X, y=rng.choice([-1.0, 1.0], 30))
        nodes.append(
            {
                "data-path": str(path), "state-path": str(tmp_path / f"state{k}"), "server": 0,
                "partition-id": k, "max-epsilon": 1.0, "require-privacy": True,
                "count-noise-of": "anyone",
            }
        )  # fmt: skip
    return nodes


ON_DEVICES = {
    "method": "fedavg", "clients": 4, "rounds": 3, "privacy": "dp",
    "samples": "30",
}  # fmt: skip


def on_devices(devices, out: Path, **more):
    settings = make_run_config("server-graph", {**ON_DEVICES, **more})
    settings |= {"out": str(out), "report": False}
    run_local(apps.server_app, apps.client_app, devices, settings)
    return json.loads((out / "run.json").read_text())


def test_devices_with_a_budget_take_part_count_and_keep_their_models(devices, tmp_path):
    record = on_devices(devices, tmp_path / "out")
    assert record["status"] == "completed"
    assert not record["ledger"]["claim"].startswith("Simulated")
    assert "in its state folder" in record["ledger"]["personal"].replace("\n", " ")
    with np.load(tmp_path / "out" / "result.npz") as arrays:
        assert "personal" not in arrays.files
        centroid = arrays["centroid"]
    for node in devices:
        state = Path(node["state-path"])
        events = DeviceLedger(state).events()
        assert len(events) == 3
        assert {e.noisers for e in events} == {4}
        assert {e.sampling for e in events} == {10 / 30}
        (kept,) = (state / "results").glob("*/result.npz")
        with np.load(kept) as mine:
            np.testing.assert_array_equal(mine["private-model"], centroid)
            assert mine["model"].shape == (2,)


def test_two_runs_on_devices_have_other_noise(devices, tmp_path):
    for node in devices:
        node["max-epsilon"] = 10.0
    models = []
    for name in ("one", "two"):
        on_devices(devices, tmp_path / name)
        with np.load(tmp_path / name / "result.npz") as arrays:
            models.append(arrays["centroid"])
    assert far(*models) > 1e-3


def test_a_budget_that_is_spent_ends_it(devices, tmp_path):
    on_devices(devices, tmp_path / "one")
    with pytest.raises(Exception, match="E4"):
        on_devices(devices, tmp_path / "two")
    for node in devices:
        assert DeviceLedger(Path(node["state-path"])).spent() <= 1.0
