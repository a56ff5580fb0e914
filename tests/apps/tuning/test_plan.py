"""What is asked is checked before anything runs."""

from __future__ import annotations

import pytest

from trellis.apps.common.settings import ConfigError
from trellis.apps.tuning.plan import fingerprint, make_plan

from .toys import STUDY


def test_the_settings_before_come_first_and_the_grid_follows():
    plan = make_plan(STUDY, {"rho": "0.1,1", "lambda": "0.1,0.2"})
    assert [trial.values for trial in plan.candidates] == [
        (1.0, 0.3),  # the study's own
        (0.1, 0.1),
        (0.1, 0.2),
        (1.0, 0.1),
        (1.0, 0.2),
    ]
    assert plan.runs == 5 * 3


def test_the_settings_before_are_those_that_were_given():
    plan = make_plan(STUDY, {"rho": "0.1,2"}, {"rho": 2, "nodes": 6})
    assert [trial.values for trial in plan.candidates] == [(2.0,), (0.1,)]
    assert plan.settings((0.1,)) == {"nodes": 6, "held-out": 0.2, "rho": 0.1}
    assert plan.chosen((0.1,)) == {"nodes": 6, "rho": 0.1}


def test_a_share_of_records_that_was_given_is_kept():
    plan = make_plan(STUDY, {"rho": "0.1,2"}, {"held-out": 0.4})
    assert plan.settings((0.1,))["held-out"] == plan.chosen((0.1,))["held-out"] == 0.4


def test_a_combination_that_the_study_refuses_is_skipped_with_its_reason():
    plan = make_plan(STUDY, {"sample": "0,4", "clients": "3,5"})
    refused = {trial.values: trial.refused for trial in plan.candidates if trial.refused}
    assert list(refused) == [(4, 3)]
    assert "sample=4: more than clients=3" in refused[4, 3]
    assert plan.runs == 3 * 3


def test_a_setting_without_effect_in_a_method_stays_at_its_default_there():
    plan = make_plan(STUDY, {"rho": "0.1,0.3", "method": "fedgl,igl"})
    assert [trial.values for trial in plan.candidates] == [
        (1.0, "fedgl"),  # what auto is
        (0.1, "fedgl"),
        (1.0, "igl"),  # once, whatever rho is
        (0.3, "fedgl"),
    ]
    assert not any(trial.refused for trial in plan.candidates)
    assert plan.settings((0.1, "igl")) == {"held-out": 0.2, "rho": 1.0, "method": "igl"}
    plan = make_plan(STUDY, {"rho": "0.1:1:log", "method": "fedgl,igl"}, search="optuna", trials=9)
    assert not plan.refused((0.5, "igl"))
    with pytest.raises(ConfigError, match=r"--over rho: rho has no effect with method='igl'"):
        make_plan(STUDY, {"rho": "0.1,0.3"}, {"method": "igl"})


def test_a_value_that_is_refused_with_all_others_is_an_error():
    with pytest.raises(ConfigError, match=r"--over rho: -2.0 is refused: rho=-2.0: must be > 0"):
        make_plan(STUDY, {"rho": "-2,1", "lambda": "0.1,0.2"})
    with pytest.raises(ConfigError, match="none of these settings can be run"):
        make_plan(STUDY, {"rho": "0.1,1"}, {"clients": 3, "sample": 4})


def test_options_that_do_not_fit_are_refused():
    over = {"rho": "0.1,1"}
    for options, says in [
        ({"splits": 0}, "--splits 0"),
        ({"search": "luck"}, "--search luck"),
        ({"search": "optuna"}, "--trials"),
        ({"trials": 9}, "--search optuna"),
        ({"spend": 1.0}, "only privacy='dp' spends"),
    ]:
        with pytest.raises(ConfigError, match=says):
            make_plan(STUDY, over, **options)
    with pytest.raises(ConfigError, match="a grid of"):
        make_plan(STUDY, dict.fromkeys(("rho", "lambda", "alpha"), "0.1:1:lin:40"))
    with pytest.raises(ConfigError, match="rho: unknown setting of server-graph"):
        make_plan("server-graph", over)


def test_many_settings_are_no_obstacle_to_proposals():
    over = dict.fromkeys(("rho", "lambda", "alpha"), "0.1:1:lin:40")
    plan = make_plan(STUDY, over, search="optuna", trials=20)
    assert plan.runs == 60


def test_without_held_out_records_own_data_are_one_split(tmp_path):
    for name in "abc":
        (tmp_path / f"{name}.csv").write_text("u,v\n1,2\n2,1\n3,3\n")
    plan = make_plan(STUDY, {"rho": "0.1,1"}, {"held-out": 0.0}, data=tmp_path, splits=5)
    assert plan.seeds == (1,)
    assert make_plan(STUDY, {"rho": "0.1,1"}, data=tmp_path, splits=5).seeds == (1, 2, 3, 4, 5)


def test_a_fingerprint_is_of_what_is_in_the_files(tmp_path):
    (tmp_path / "a.csv").write_text("u\n1\n")
    before = fingerprint(tmp_path)
    assert fingerprint(tmp_path) == before
    (tmp_path / "a.csv").write_text("u\n2\n")
    assert fingerprint(tmp_path) != before
