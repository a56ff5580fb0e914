"""Optuna finds what is there to be found, the same with every call."""

from __future__ import annotations

import math

import joblib
import pytest

from trellis.apps.tuning.tuner import Interrupted, tune

from .test_tuner import Stopping
from .toys import BEST_RHO, STUDY, hill, valley

pytest.importorskip("optuna")
OVER = {"rho": "0.001:1000:log", "lambda": "0.1,1,10"}


@pytest.mark.parametrize("evaluate", [hill, valley])
def test_proposals_come_near_the_best(evaluate):
    found = tune(STUDY, OVER, evaluate=evaluate, workers=1, search="optuna", trials=60, splits=1)
    assert found.best["lambda"] == 0.1
    # Six decades are searched; a grid of 20 x 3 has points 0.3 decades apart.
    assert abs(math.log10(found.best["rho"] / BEST_RHO)) < 0.2
    assert len(found.trials) <= 60
    assert found.trials[0].values == found.plan.default


def test_whole_numbers_are_proposed_whole():
    found = tune(STUDY, {"local-steps": "1:9"}, evaluate=hill, workers=1, search="optuna", trials=9)
    assert all(type(value) is int for trial in found.trials for value in trial.values)


def test_proposals_do_not_depend_on_how_many_run_side_by_side():
    options = {"evaluate": hill, "search": "optuna", "trials": 12, "splits": 2}
    serial = tune(STUDY, OVER, workers=1, **options)
    with joblib.parallel_config(backend="threading", n_jobs=3):
        parallel = tune(STUDY, OVER, **options)
    assert parallel.rows() == serial.rows()
    other = tune(STUDY, OVER, workers=1, seed=7, **options)
    assert [t.values for t in other.trials] != [t.values for t in serial.trials]


def test_an_interrupted_search_goes_on_with_the_same_proposals(tmp_path):
    options = {"search": "optuna", "trials": 12, "splits": 2, "workers": 1}
    whole = tune(STUDY, OVER, evaluate=hill, **options)
    with pytest.raises(Interrupted):
        tune(STUDY, OVER, evaluate=Stopping(15), out=tmp_path, **options)
    rest = Stopping(10**6)
    again = tune(STUDY, OVER, evaluate=rest, out=tmp_path, **options)
    assert again.rows() == whole.rows()
    assert rest.count == sum(len(t.found) for t in whole.trials) - 15


def test_settings_that_are_refused_cost_a_trial_and_no_run():
    over = {"sample": "0,4", "clients": "3,5", "rho": "0.1:10:log"}
    found = tune(STUDY, over, evaluate=hill, workers=1, search="optuna", trials=25, splits=1)
    refused = [trial for trial in found.trials if trial.refused]
    assert refused
    assert {trial.values[:2] for trial in refused} == {(4, 3)}
    assert not any(trial.found for trial in refused)
