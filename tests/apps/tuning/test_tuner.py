"""Settings are tried on every split, kept as they come, and gone on with."""

from __future__ import annotations

import json
import math

import joblib
import numpy as np
import pytest

import trellis
from trellis.apps.common.settings import ConfigError
from trellis.apps.tuning.outcome import in_words
from trellis.apps.tuning.runs import Found
from trellis.apps.tuning.tuner import Interrupted, tune

from .toys import BEST_RHO, STUDY, failing, hill, slow_at_first, valley

OVER = {"rho": "0.03,0.3,10", "lambda": "0.1,1"}


def test_the_best_is_found_and_what_it_gained():
    found = tune(STUDY, OVER, {"nodes": 6}, evaluate=hill, workers=1)
    assert found.best == {"nodes": 6, "rho": 0.3, "lambda": 0.1}
    values = [hill(found.plan.run((0.3, 0.1), seed)).value for seed in (1, 2, 3)]
    assert found.value == pytest.approx(np.mean(values), abs=1e-12)
    assert found.best_trial.error == pytest.approx(np.std(values, ddof=1) / math.sqrt(3))
    default = 1.0 - math.log10(1.0 / BEST_RHO) ** 2 - math.log10(3.0) ** 2
    assert found.default_value == pytest.approx(default, abs=0.01)
    # The luck of a split is the same for all settings, and is not in the gain.
    assert found.gain.mean == pytest.approx(1.0 - default, abs=1e-12)
    assert found.gain.error == pytest.approx(0.0, abs=1e-12)


def test_less_may_be_better():
    found = tune(STUDY, OVER, evaluate=valley, workers=1)
    assert found.lower
    assert found.best == {"rho": 0.3, "lambda": 0.1}
    assert found.gain.mean > 0.0


def test_the_table_has_every_setting_the_best_first():
    found = tune(STUDY, OVER, evaluate=hill, workers=1)
    rows = found.rows()
    assert len(rows) == 7
    means = [row["mean"] for row in rows]
    assert means == sorted(means, reverse=True)
    assert rows[0]["remark"] == "best"
    assert [row["rho"] for row in rows if row["remark"] == "the settings before"] == [1.0]
    assert {row["learning alone"] for row in rows} == {0.5}
    table = found.table()
    assert list(table.columns)[:3] == ["rho", "lambda", "mean"]
    assert len(table) == 7
    assert "the settings before" in found._repr_html_()


def nearly(run):
    wobble = {1: 0.02, 2: -0.01, 3: 0.0}[run.seed] if run.values["rho"] == 0.3 else 0.0
    worse = {0.3: 0.0, 1.0: 0.0, 10.0: 0.5}[run.values["rho"]]
    return Found(value=0.5 + wobble - worse, measure="accuracy")


def test_what_the_splits_cannot_tell_from_the_best_is_marked():
    found = tune(STUDY, {"rho": "0.3,1,10"}, evaluate=nearly, workers=1)
    remarks = {row["rho"]: row["remark"] for row in found.rows()}
    assert remarks[0.3] == "best"
    assert remarks[1.0].startswith("within one standard error of the best")
    assert remarks[10.0] == ""


def test_side_by_side_gives_what_one_after_the_other_does():
    serial = tune(STUDY, OVER, evaluate=slow_at_first, workers=1)
    with joblib.parallel_config(backend="loky", n_jobs=2):
        parallel = tune(STUDY, OVER, evaluate=slow_at_first)
    with joblib.parallel_config(backend="threading", n_jobs=3):
        threads = tune(STUDY, OVER, evaluate=slow_at_first)
    assert parallel.rows() == serial.rows() == threads.rows()


def test_a_run_that_fails_is_in_the_table_and_the_others_go_on(tmp_path):
    found = tune(STUDY, OVER, evaluate=failing, workers=1, out=tmp_path)
    assert found.best == {"rho": 0.3, "lambda": 0.1}
    remarks = [row["remark"] for row in found.rows() if row["rho"] == 10.0]
    assert remarks == ["failed on 3 of 3 splits: DataError: no such luck"] * 2
    assert "no such luck" in (tmp_path / "trials.csv").read_text()
    # Called again it tries them again: whatever was missing may be there now.
    again = tune(STUDY, OVER, evaluate=hill, workers=1, out=tmp_path)
    assert [row["remark"] for row in again.rows() if row["rho"] == 10.0] == ["", ""]


def broken(run):
    return Found(error="no luck at all")


def test_where_all_fail_it_says_why():
    with pytest.raises(ConfigError, match=r"no setting was run to its end.*no luck at all"):
        _ = tune(STUDY, OVER, evaluate=broken, workers=1).best


def hopeless(run):
    return Found(error="--by mccc: no such number", hopeless=True)


def test_a_number_that_no_run_has_ends_it_at_once():
    with pytest.raises(ConfigError, match="no such number"):
        tune(STUDY, OVER, evaluate=hopeless, workers=1)


class Stopping:
    """Stops as Ctrl-C does, after some runs; counts them."""

    def __init__(self, after: int) -> None:
        self.after, self.count = after, 0

    def __call__(self, run):
        if self.count == self.after:
            raise KeyboardInterrupt
        self.count += 1
        return hill(run)


@pytest.mark.parametrize("after", [0, 1, 11, 20])
def test_an_interrupted_tuning_goes_on_to_the_same_table(tmp_path, after):
    whole = tune(STUDY, OVER, evaluate=hill, workers=1, out=tmp_path / "whole")
    with pytest.raises(Interrupted) as stopped:
        tune(STUDY, OVER, evaluate=Stopping(after), workers=1, out=tmp_path / "cut")
    assert not stopped.value.tuning.complete
    assert (tmp_path / "cut" / "trials.csv").is_file()
    assert not (tmp_path / "cut" / "best.toml").exists()
    assert sum(len(t.found) for t in stopped.value.tuning.trials) == after
    rest = Stopping(10**6)
    again = tune(STUDY, OVER, evaluate=rest, workers=1, out=tmp_path / "cut")
    assert rest.count == 21 - after
    assert again.rows() == whole.rows()
    for name in ("trials.csv", "best.toml", "tuning.svg", "trials.jsonl", "tuning.json"):
        assert (tmp_path / "cut" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()


def test_other_arguments_are_refused_and_named(tmp_path):
    tune(STUDY, OVER, evaluate=hill, workers=1, out=tmp_path)
    kept = (tmp_path / "trials.jsonl").read_bytes()
    with pytest.raises(ConfigError, match=r"seeds was \[1, 2, 3\], is \[1, 2\].*--force"):
        tune(STUDY, OVER, evaluate=hill, workers=1, out=tmp_path, splits=2)
    assert (tmp_path / "trials.jsonl").read_bytes() == kept
    tune(STUDY, OVER, evaluate=hill, workers=1, out=tmp_path, splits=2, force=True)
    lines = [json.loads(line) for line in (tmp_path / "trials.jsonl").read_text().splitlines()]
    assert {line["seed"] for line in lines} == {1, 2}


def test_how_far_it_is_is_told():
    told = []
    tune(
        STUDY,
        {"rho": "0.3,10"},
        evaluate=hill,
        workers=1,
        watch=lambda done, total, best: told.append((done, total, best)),
    )
    assert [done for done, _, _ in told] == list(range(10))
    assert {total for _, total, _ in told} == {9}
    assert told[0][2] is None
    assert told[-1][2] > 0.99


def test_from_python_it_is_one_name():
    with pytest.raises(ConfigError, match="--better up"):
        trellis.tune(STUDY, {"rho": [1.0, 2.0]}, better="up")
    found = trellis.tune(STUDY, {"lambda_": [0.1, 1.0]}, evaluate=hill, workers=1)
    assert found.best == {"lambda": 0.1}


def idle(run):
    return Found(value=0.7 + 1e-15 * run.values["rho"], measure="accuracy")


def test_a_setting_that_changes_nothing_stays_as_it_was():
    found = tune(STUDY, {"rho": "0.1,1,10"}, evaluate=idle, workers=1)
    assert found.best == {"rho": 1.0}
    assert found.rows()[0]["remark"] == "best, the settings before"


def test_a_best_value_at_the_end_of_its_range_is_pointed_out():
    end = tune(STUDY, {"rho": "1:10:log"}, {"rho": 10.0}, evaluate=hill, workers=1)
    assert any("at an end of what was tried" in line for line in in_words(end))
    inside = tune(STUDY, {"rho": "0.03:10:log"}, evaluate=hill, workers=1)
    assert not any("at an end" in line for line in in_words(inside))
