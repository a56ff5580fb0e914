"""The figures of the private modes, small: that they run, and say what they should."""

from __future__ import annotations

import csv

import numpy as np
import pytest
from rich.console import Console

from apps.joint_precision.paper import FIGURES
from apps.joint_precision.paper import private as figures


@pytest.fixture
def small(monkeypatch):
    """Return a console that keeps what is printed; federations are few and small."""
    monkeypatch.setattr(figures, "on_all_cores", lambda work, items, *_: [work(i) for i in items])
    monkeypatch.setattr(figures, "SEEDS", range(1, 3))
    monkeypatch.setattr(figures, "BREAK_EVEN_SEEDS", range(1, 2))
    monkeypatch.setattr(figures, "SCORED", 3)
    monkeypatch.setattr(figures, "LAMBDAS", np.geomspace(0.5, 0.05, 5))
    monkeypatch.setattr(figures, "TABLE", {(60, 150): (0.9, 0.85)})
    monkeypatch.setattr(figures, "SIZES", (4, 60))
    monkeypatch.setattr(figures, "EPSILONS", (3.0,))
    return Console(record=True, width=200)


def rows_of(path):
    with path.open(newline="") as file:
        return [{k: float(v) for k, v in row.items()} for row in csv.DictReader(file)]


def test_the_table_puts_private_results_beside_alone_and_each(small, tmp_path):
    figures.table_private(tmp_path, small)
    (row,) = rows_of(tmp_path / "private.csv")
    assert row["device"] > row["alone"] > row["each, sound"]
    assert row["device, none"] > row["device"]
    assert row["device mcc"] > row["alone mcc"]
    assert 0.0 <= row["using it"] <= 1.0


def test_the_curves_rise_with_the_clients_and_say_where_they_cross(small, tmp_path):
    figures.figure_break_even(tmp_path, small)
    few, many = rows_of(tmp_path / "break-even.csv")
    assert many["consensus 3"] > few["consensus 3"]
    assert many["device 3"] > many["alone"]
    # Where the consensus is noise, devices are what they are alone.
    assert few["device 3"] > few["alone"] - 0.03
    assert "device from 60 clients" in small.export_text()
    assert (tmp_path / "break-even.svg").is_file()


def test_both_are_figures_of_the_study():
    assert {"private", "break-even"} <= set(FIGURES)
