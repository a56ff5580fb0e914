"""What a tuning leaves: settings that can be run, a picture, a page."""

from __future__ import annotations

import math
import tomllib
from dataclasses import replace

import pytest

from trellis.apps.command import main
from trellis.apps.command.given import settings_file
from trellis.apps.common.results import RunResult
from trellis.apps.tuning.best import text
from trellis.apps.tuning.picture import draw, worst_drawn
from trellis.apps.tuning.runs import Found
from trellis.apps.tuning.tuner import tune

from .toys import STUDY, failing, hill

QUICK = {"nodes": 5, "signals": "12", "rounds": 2}


def test_best_settings_go_back_in_through_config(tmp_path):
    out = tmp_path / "tuning"
    found = tune(
        STUDY,
        {"rho": "0.1,0.3", "method": "fedgl,igl"},
        {**QUICK, "secure-aggregation": False},
        evaluate=hill,
        workers=1,
        out=out,
    )
    path = out / "best.toml"
    assert settings_file(path, STUDY) == found.best
    assert found.best["rho"] == 0.3
    run = tmp_path / "run"
    assert main(["run", STUDY, "--config", str(path), "--out", str(run)]) == 0
    config = RunResult.load(run).config
    assert {key: config[key] for key in found.best} == found.best
    text = path.read_text()
    assert text.startswith(f"# Settings of {STUDY}, found by trellis tune.")
    assert "20% of every client's records" in text
    assert "The settings before have" in " ".join(text.replace("#", " ").split())


def test_any_setting_survives_toml():
    odd = {"topology": 'a "quoted" \\ and é', "servers": 2, "ridge": 1e-7}
    found = tune(STUDY, {"rho": "0.1,0.3"}, evaluate=hill, workers=1)
    plan = replace(found.plan, given={**odd, "screening": True})
    settings = tomllib.loads(text(replace(found, plan=plan)))[STUDY]
    assert settings == {**odd, "screening": True, "rho": 0.3}


@pytest.mark.parametrize(
    ("over", "axes"),
    [
        ({"rho": "0.1:10:log"}, 1),
        ({"method": "fedgl,igl", "rho": "0.3,1"}, 2),  # a map and its scale
        ({"rho": "0.1:10:log:3", "lambda": "0.1,1", "method": "fedgl,igl"}, 3),
    ],
)
def test_the_picture_is_drawn_for_any_number_of_settings(tmp_path, over, axes):
    found = tune(STUDY, over, evaluate=hill, workers=1, out=tmp_path)
    assert (tmp_path / "tuning.png").read_bytes().startswith(b"\x89PNG")
    svg = (tmp_path / "tuning.svg").read_text()
    for key in over:
        assert f">{key}<" in svg
    assert "accuracy" in svg
    assert "(more is better)" in svg
    visible = [one for one in draw(found).axes if one.axison]
    assert len(visible) == axes


def test_proposals_off_the_grid_are_drawn_as_panels(tmp_path):
    over = {"rho": "0.1:10:log", "lambda": "0.1:1:log"}
    found = tune(STUDY, over, evaluate=hill, workers=1, search="optuna", trials=8, splits=1)
    assert len(draw(found).axes) == 2


def test_one_split_and_failures_are_drawn(tmp_path):
    over = {"rho": "0.1,0.3,10"}
    found = tune(STUDY, over, evaluate=failing, workers=1, splits=1, out=tmp_path)
    assert math.isnan(found.best_trial.error)  # there is none of one number
    assert "no such luck" in (tmp_path / "tuning.html").read_text()


def test_the_page_says_what_was_found_and_loads_nothing(tmp_path):
    found = tune(
        STUDY, {"rho": "0.1,0.3,10", "sample": "0,4"}, {"clients": 4}, evaluate=hill, workers=1,
        out=tmp_path,
    )  # fmt: skip
    page = (tmp_path / "tuning.html").read_text()
    assert "within one standard error of the best" in page
    assert "--seed 4" in page  # a split that judged nothing
    assert "best.toml" in page
    assert "src=" not in page
    assert found.measure in page


def diverging(run):
    return Found(value={0.1: 1.0, 1.0: 2.0, 10.0: 3.0, 100.0: 1e30}[run.values["rho"]], lower=True)


@pytest.mark.parametrize("more", [{}, {"lambda": "0.1,0.3"}, {"lambda": "0.1", "alpha": "1,2"}])
def test_a_setting_that_diverges_does_not_hide_the_others(tmp_path, more):
    over = {"rho": "0.1,1,10,100", **more}
    found = tune(STUDY, over, evaluate=diverging, workers=1, splits=2, out=tmp_path)
    axes = draw(found).axes[0]
    low, high = axes.get_ylim() if len(over) != 2 else axes.images[0].get_clim()
    assert low <= 1.0
    assert 3.0 < high < 10.0
    assert "far worse lie outside" in (tmp_path / "tuning.html").read_text()
    assert worst_drawn(tune(STUDY, {"rho": "0.1,1,10"}, evaluate=hill, workers=1)) is None
