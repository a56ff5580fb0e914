"""The paper's claims, small; the numbers at full size are in the study's page."""

from __future__ import annotations

import csv
import tomllib
from pathlib import Path

import numpy as np
import pytest

from tests.apps.experiments.making import make
from trellis.apps.server_graph import client_app
from trellis.apps.server_graph.config import ServerGraphConfig
from trellis.apps.server_graph.paper import (
    cancellation,
    methods,
    setting,
    speed,
    synthetic,
    theorem1,
)
from trellis.apps.server_graph.paper.second_order import disagreement, shift, variances
from trellis.apps.server_graph.simulate import simulate
from trellis.privacy.secagg.protocol import Member
from trellis.privacy.servers.masks import ServerMasks
from trellis.strategies.topology.graph import topology

STUDY = "server-graph"


def read(path: Path) -> list[dict[str, str]]:
    with path.open() as file:
        return list(csv.DictReader(file))


def verdicts(findings):
    return {finding.claim: finding.verdict for finding in findings}


def test_the_settings_of_the_paper_s_file_are_the_paper_s():
    with Path(setting.__file__).with_name("settings.toml").open("rb") as file:
        told = tomllib.load(file)
    assert told["study"] == ServerGraphConfig.study
    config = ServerGraphConfig.from_settings(told[ServerGraphConfig.study])
    figures = ServerGraphConfig.from_settings(setting.PAPER)
    for name in ("servers", "clients", "samples", "features", "step", "ridge", "topology", "batch"):
        assert getattr(config, name) == getattr(figures, name)
    assert (config.method, config.sigma, config.sample) == ("hybrid", 0.2, figures.sample)


def test_the_paper_s_setting_without_noise_is_near_the_expected_level():
    # A fifth of the clients, half of them a round: the level of one seed moves by many dB.
    job = {**setting.PAPER, "method": "none", "rounds": 700, "sample": 5, "clients": 100}
    runs = [setting.of_seed(((tuple(job.items()),), seed))[0] for seed in range(1, 7)]
    level = setting.decibel(setting.power([run.msd for run in runs], slice(500, 700)))
    assert level == pytest.approx(synthetic.EXPECTED[10, 0.2][0], abs=6.0)


def test_table_db_has_every_cell_and_masks_cost_nothing_without_leaves(tmp_path, console):
    make(STUDY, "table-db", tmp_path, console, seeds=2)
    rows = read(tmp_path / "table-db.csv")
    assert len(rows) == len(synthetic.EXPECTED) * len(synthetic.METHODS) + 2 * 3
    over = next(name for name in rows[0] if name.startswith("20-40") and name.endswith("over none"))
    for row in rows:
        if row["method"] == "masked" and row["graphs-with-leaves"] == "0":
            assert abs(float(row[over])) < 1e-6
        if row["method"] == "none":
            assert float(row[over]) == 0.0
    leafless = [row for row in rows if row["graph"] == synthetic.LEAFLESS]
    assert {row["graphs-with-leaves"] for row in leafless} == {"0"}


def test_figure_2_draws_both_noises_and_refutes_that_hybrid_is_as_good(tmp_path, console):
    size = {"clients": 60, "servers": 6, "samples": "40", "sample": 5, "rounds": 400}
    found = make(STUDY, "fig2", tmp_path, console, seeds=2, **size)
    names = {path.name for path in tmp_path.iterdir()}
    assert {"fig2.csv", "fig2-0.2.png", "fig2-0.2.svg", "fig2-1.png", "fig2-1.svg"} <= names
    last = read(tmp_path / "fig2.csv")[-1]
    assert float(last["iid 1"]) > float(last["none 1"])
    assert verdicts(found)["fig2-more-noise"] != "reproduced"


def test_methods_tells_utility_cost_and_what_neighbours_learn(tmp_path, console):
    make(STUDY, "methods", tmp_path, console, seeds=2)
    rows = {row["method"]: row for row in read(tmp_path / "methods.csv")}
    assert set(rows) == {*synthetic.METHODS, "fedavg"}
    assert float(rows["masked"]["key-bytes"]) > 0.0 == float(rows["hybrid"]["key-bytes"])
    # A word of the ring is as long as a float.
    assert rows["masked"]["bytes"] == rows["none"]["bytes"]
    assert float(rows["fedavg"]["messages"]) == 0.0
    assert all(row["neighbour-learns"] for row in rows.values())


def test_failures_compares_with_a_run_that_never_had_the_servers(tmp_path, console):
    size = {"first-seed": 2, "seeds": 1, "rounds": 1050}
    make(STUDY, "failures", tmp_path, console, **size)
    rows = read(tmp_path / "failures.csv")
    assert len(rows) == 6
    quiet = [row for row in rows if row["method"] == "none"]
    assert all(abs(float(row["difference"])) < 1.0 for row in quiet)
    assert (tmp_path / "failures.svg").is_file()


def test_servers_are_taken_out_only_where_the_others_stay_connected():
    assert methods.removable(topology("path", 4), 1) == (0,)
    assert methods.removable(topology("star", 5), 3) == (1, 2, 3)
    with pytest.raises(ValueError, match="ring"):
        methods.removable(topology("ring", 3), 3)


# --- theorems and lemmas -------------------------------------------------------------------------


SMALLER = {**setting.PAPER, "clients": 60, "servers": 6, "samples": "40", "sample": 0, "batch": 0}


def test_the_second_order_predicts_how_far_servers_are_apart():
    """Against a simulation of e = A e + (A - I) g, and against the study itself."""
    config = ServerGraphConfig.from_settings(
        {**SMALLER, "method": "hybrid", "sigma": 0.3, "step": 0.02, "rounds": 1500}
    )
    run = simulate(config, 1)
    A = run.topology.weights
    rng, e, seen = np.random.default_rng(0), np.zeros((6, 4000)), []
    for i in range(150):
        e = A @ e + (A - np.eye(6)) @ rng.laplace(scale=0.3 / np.sqrt(2.0), size=e.shape)
        if i >= 100:
            seen.append(np.mean(e**2, axis=1))
    np.testing.assert_allclose(np.mean(seen, axis=0), variances(A, 0.3), rtol=0.03)
    assert np.mean(run.disagreement[200:]) == pytest.approx(disagreement(A, 0.3, 2), rel=0.1)


@pytest.mark.parametrize("step", [0.4, 0.1])
def test_hybrid_noise_moves_the_logistic_centroid_by_the_second_order_at_any_step(step):
    settings = {**SMALLER, "sigma": 0.2, "step": step, "rounds": round(200 / step)}
    plain = {**settings, "method": "none"}
    del plain["sigma"]
    runs = {
        "none": simulate(ServerGraphConfig.from_settings(plain), 1),
        "hybrid": simulate(ServerGraphConfig.from_settings({**settings, "method": "hybrid"}), 1),
    }
    half = slice(round(100 / step), None)
    moved = (runs["hybrid"].centroids[half] - runs["none"].centroids[half]).mean(axis=0)
    quiet = runs["none"]
    config = ServerGraphConfig.from_settings(settings)
    b, least = shift(config, 1, quiet.truth, variances(quiet.topology.weights, 0.2))
    assert least > config.ridge
    assert np.linalg.norm(moved - b) < 0.35 * np.linalg.norm(b)


def test_theorem_1_is_refuted_for_the_logistic_loss_and_exact_for_one_hessian(tmp_path, console):
    size = {"steps": [0.4, 0.2, 0.1], "walk": 80, "quadratic-walk": 20, "sample": 3, "clients": 60}
    found = make(STUDY, "theorem1", tmp_path, console, seeds=2, **size)
    told = verdicts(found)
    assert told["theorem1-hybrid"] in ("refuted", "partly")
    assert told["theorem1-hybrid-inverse"] == "reproduced"
    assert told["theorem1-quadratic"] == "reproduced"
    rows = read(tmp_path / "theorem1.csv")
    assert {row["case"] for row in rows} == set(theorem1.CASES)
    common = [row for row in rows if row["case"] == theorem1.COMMON]
    assert all(float(row["hybrid moved, dB"]) < -250.0 for row in common)
    assert all(float(row["iid moved, dB"]) > -60.0 for row in common)


def test_lemma_1_holds_with_the_constant_of_the_second_order(tmp_path, console):
    size = {"steps": [0.2, 0.1], "walk": 40}
    found = make(STUDY, "lemma1", tmp_path, console, seeds=3, **size)
    assert verdicts(found) == {"lemma1": "reproduced", "lemma1-close": "partly"}


def test_theorem_2_is_refuted_and_what_it_rests_on_is_not(tmp_path, console):
    found = make(STUDY, "theorem2", tmp_path, console, seeds=1)
    assert verdicts(found) == {
        "sensitivity": "reproduced",
        "theorem2": "refuted",
        "theorem2-growth": "reproduced",
        "theorem2-own-clients": "refuted",
        "gradient-bound": "partly",
        "gradient-leaks": "reproduced",
    }
    first, *_, last = read(tmp_path / "theorem2.csv")
    assert float(first["printed"]) == pytest.approx(1.414, abs=1e-3)
    assert float(last["printed"]) == pytest.approx(7.14e3, rel=1e-3)
    assert 1.42 < float(first["shown by attack, M = 2"]) <= 2.0


def test_noise_and_masks_cancel_and_plain_averages_do_not(tmp_path, console):
    found = make(STUDY, "cancellation", tmp_path, console, seeds=1)
    assert set(verdicts(found).values()) == {"reproduced"}
    assert cancellation.averaging("star", 1.0, 1) > 1e-3
    assert cancellation.averaging("ring", 1.0, 1) < 1e-12  # there averages are doubly stochastic


def test_drift_grows_with_the_local_steps(tmp_path, console):
    make(STUDY, "local-steps", tmp_path, console, seeds=1, walk=60)
    rows = [row for row in read(tmp_path / "local-steps.csv") if row["run"] == "drift alone"]
    assert [row["local-steps"] for row in rows] == ["1", "2", "5", "10"]
    servers = [float(row["single server, dB"]) for row in rows]
    assert servers == sorted(servers)
    assert servers[-1] > servers[0] + 5.0


def test_an_exponent_is_found_with_its_error():
    x = [0.1, 0.2, 0.4]
    exact = np.outer(np.ones(8), np.array(x) ** 1.5)
    assert setting.slope(x, exact) == pytest.approx((1.5, 0.0), abs=1e-12)
    rng = np.random.default_rng(1)
    fit, wide = setting.slope(x, exact * np.exp(0.3 * rng.standard_normal((8, 3))))
    assert 0.02 < wide < 0.4
    assert abs(fit - 1.5) < 3.0 * wide
    assert np.isnan(setting.slope(x, -exact)[0])


def test_means_are_of_powers():
    runs = [np.array([0.0, -10.0]), np.array([-20.0, -20.0])]
    assert setting.power(runs) == pytest.approx((1.0 + 0.1 + 0.01 + 0.01) / 4)
    assert setting.decibel(0.0) == -np.inf


# --- speed ---------------------------------------------------------------------------------------


def test_speed_splits_the_time_and_leaves_every_function_as_it_was(tmp_path, console):
    kept = client_app.local_steps, ServerMasks.message, vars(Member)["enter"]
    make(STUDY, "speed", tmp_path, console)
    off, on = read(tmp_path / "speed.csv")
    for row in (off, on):
        parts = [float(value) for name, value in row.items() if name.startswith("share")]
        assert sum(parts) == pytest.approx(1.0)
        assert min(parts) >= 0.0
    assert float(off["share, masks of clients"]) == 0.0 < float(on["share, masks of clients"])
    assert (client_app.local_steps, ServerMasks.message, vars(Member)["enter"]) == kept


def test_a_piece_inside_another_is_counted_once():
    watch = speed.Stopwatch()
    inner = watch.around("masks of clients", lambda: sum(range(200_000)))
    outer = watch.around("clients' arithmetic", lambda: inner())
    outer()
    assert 0.0 < watch.seconds["clients' arithmetic"] < watch.seconds["masks of clients"]
