"""Real runs: what tuning finds on some records is better on others that no run has seen."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.datasets import load_breast_cancer

from trellis.apps import run
from trellis.apps.common.evaluation.scores import judged
from trellis.apps.tuning.judging import NoMeasure, judge
from trellis.apps.tuning.tuner import tune

STUDY = "server-graph"
SETTINGS = {
    "loss": "least-squares",
    "method": "none",
    "servers": 2,
    "topology": "ring",
    "rounds": 15,
    "ridge": 1e-6,
    "standardise": "none",
    "step": 0.1,
}
NOISE = 0.1  # of a target; half its square is the least mean loss that there can be
UNIT = 0.02  # features are in small units: a step that suits those of unit size hardly moves


def clients(folder, seed):
    """Write four clients' files: one linear model, features in a small unit."""
    folder.mkdir()
    rng = np.random.default_rng(seed)
    for name in range(4):
        X = UNIT * rng.normal(size=(60, 3))
        y = X @ (np.array([1.0, -2.0, 0.5]) / UNIT) + NOISE * rng.normal(size=60)
        np.savez(folder / f"client-{name}.npz", X=X, y=y)
    return folder


@pytest.fixture(scope="module")
def tuned(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tuned")
    data = clients(folder / "data", seed=1)
    return tune(STUDY, {"step": "0.1:1e6:log:8"}, SETTINGS, data=data, splits=2, workers=1)


def test_a_poor_step_is_found_out_and_a_better_one_is_better_on_fresh_data(tuned, tmp_path):
    assert tuned.lower
    assert tuned.measure == "mean loss"
    assert tuned.best["step"] != tuned.plan.default[0] == 0.1
    fresh = clients(tmp_path / "fresh", seed=2)
    before, after = (
        judged(run(STUDY, settings, data=fresh, seed=11)) for settings in (SETTINGS, tuned.best)
    )
    # Before, nothing is learned: the loss is half the targets' variance, (1 + 4 + 0.25) / 2.
    assert before.value > 2.0
    assert after.value < 0.1 * before.value
    assert all(after.of_clients[name] < before.of_clients[name] for name in before.of_clients)
    assert after.value > 0.5 * 0.5 * NOISE**2


def test_settings_that_beat_the_defaults_for_own_data_do_so_on_records_of_another_seed(tmp_path):
    """The cell features of breast-cancer data, dealt to eight hospitals."""
    X = load_breast_cancer().data[:320, :8]
    for k in range(8):
        np.savez(tmp_path / f"hospital-{k + 1}.npz", X=X[k::8])
    found = tune("joint-precision", {"method": "group,fused"}, data=tmp_path, splits=2, workers=1)
    assert found.plan.default == ("group",)
    assert found.best["method"] == "fused"
    before, after = (
        judged(run("joint-precision", settings, data=tmp_path, seed=11))
        for settings in ({}, found.best)
    )
    assert after.value > before.value > before.alone - 0.5
    assert after.value > after.alone


def test_a_step_that_is_far_too_long_does_not_end_the_others(tuned):
    worst = tuned.rows()[-1]
    assert worst["step"] == 1e6
    assert worst["mean"] is None or worst["mean"] > tuned.default_value


def test_every_split_holds_out_other_records_and_the_settings_before_are_a_plain_run(tuned):
    default = tuned.default_trial
    assert default.found[1].value != default.found[2].value
    again = judged(run(STUDY, SETTINGS, data=tuned.plan.data, seed=2))
    assert again.value == default.found[2].value
    assert again.alone == default.found[2].alone


@pytest.fixture(scope="module")
def result():
    return run("consensus-graph", {"nodes": 5, "rounds": 2, "held-out": 0.2})


def test_a_run_is_judged_by_a_score_or_by_a_headline_number(result):
    score = judge(result)
    assert score.scored
    assert score.value == judged(result).value
    assert judge(result, score.measure) == judge(result, "likelihood") == score
    mcc = judge(result, "mcc")
    assert (mcc.value, mcc.lower, mcc.scored) == (result.headline["mcc"], False, False)
    assert judge(result, "re").lower
    assert judge(result, "mcc", lower=True).lower


def test_a_number_that_is_not_there_or_has_no_direction_is_refused(result):
    with pytest.raises(NoMeasure, match=r"--by mccc: no such number; use one of likelihood.*mcc"):
        judge(result, "mccc")
    with pytest.raises(NoMeasure, match="--better lower or --better higher"):
        judge(result, "consensus-edges")
    assert judge(result, "consensus-edges", lower=True).lower
    bare = run("consensus-graph", {"nodes": 5, "rounds": 2})
    with pytest.raises(NoMeasure, match=r"set held-out above 0, or judge --by one of.*mcc"):
        judge(bare)
