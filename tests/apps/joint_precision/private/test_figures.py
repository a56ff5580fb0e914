"""The figures of the private modes, small: that they run, and say what they should."""

from __future__ import annotations

import csv

import joblib
import pytest

from tests.apps.experiments.making import make
from trellis.apps.experiments.figures import figure_names

STUDY = "joint-precision"
SMALL = {"variables": 54, "scored": 3, "points": 5, "samples": 150}


@pytest.fixture(autouse=True)
def _in_this_process():
    with joblib.parallel_config(n_jobs=1):
        yield


def rows_of(path):
    with path.open(newline="") as file:
        return [{k: float(v) for k, v in row.items()} for row in csv.DictReader(file)]


def test_the_table_puts_private_results_beside_alone_and_each(tmp_path, console):
    expected = [[60, 150, 0.9, 0.85]]
    (found,) = make(STUDY, "private", tmp_path, console, **SMALL, seeds=2, expected=expected)
    (row,) = rows_of(tmp_path / "private.csv")
    assert row["device"] > row["alone"] > row["each, dp"]
    assert row["device, none"] > row["device"]
    assert row["device mcc"] > row["alone mcc"]
    assert 0.0 <= row["using it"] <= 1.0
    assert f"own graph {row['device']:.3f}" in found.found


def test_the_curves_rise_with_the_clients_and_say_where_they_cross(tmp_path, console):
    changes = {"seeds": 1, "clients": [4, 60], "epsilons": [3.0]}
    (found,) = make(STUDY, "break-even", tmp_path, console, **SMALL, **changes)
    few, many = rows_of(tmp_path / "break-even.csv")
    assert many["consensus 3"] > few["consensus 3"]
    assert many["device 3"] > many["alone"]
    # Where the consensus is noise, devices are what they are alone.
    assert few["device 3"] > few["alone"] - 0.03
    assert "ahead of alone from 60 clients on" in found.found
    assert (tmp_path / "break-even.svg").is_file()


def test_both_are_figures_of_the_study():
    assert {"private", "break-even"} <= set(figure_names(STUDY))
