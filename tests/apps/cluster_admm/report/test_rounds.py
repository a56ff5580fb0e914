"""The rounds, the choice of Q, and the methods side by side."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.apps.cluster_admm.report.reading import (
    METHODS,
    PRIVACY,
    ROUNDS,
    shown,
    table,
)
from trellis.apps.cluster_admm.report import page as report
from trellis.apps.cluster_admm.report.compare import COMPARED


def test_a_tau_that_falls_is_drawn_and_a_constant_one_is_not(pgfl, paper):
    assert "tau, pull" in shown(pgfl, ROUNDS).lower()
    assert "tau, pull" not in shown(paper, ROUNDS).lower()


def test_the_methods_side_by_side_have_the_run_s_own_number(pgfl, paper):
    for result, each in ((pgfl, 12), (paper, 8)):
        rows = table(result, METHODS, "method")
        assert list(rows) == list(COMPARED)
        last = result.metrics[-1]["nmsd-servers"]
        assert rows["pgfl"]["NMSD of servers' models, dB"] == pytest.approx(last, abs=0.006)
        assert rows["fedavg"]["clients a round"] == rows["gfl"]["clients a round"] == each
        assert rows["local"]["clients a round"] == 0
    assert "noise of privacy = paper" in shown(paper, METHODS)


def test_a_comparison_with_fewer_rounds_than_the_run_says_so(pgfl, monkeypatch):
    monkeypatch.setattr(report, "affordable", lambda config: 4)
    monkeypatch.setattr(report, "FEWEST_ROUNDS", 2)
    text = shown(pgfl, METHODS)
    assert "4 rounds" in text
    assert "The run itself had 8" in text
    monkeypatch.setattr(report, "FEWEST_ROUNDS", 20)
    assert "would take long" in shown(pgfl, METHODS)


def test_what_cannot_be_simulated_is_left_out_with_the_reason(pgfl):
    logistic = replace(pgfl, config={**pgfl.config, "loss": "logistic"})
    assert "logistic" in shown(logistic, METHODS)
    other = replace(pgfl, seed=2)
    assert "cannot be made again" in shown(other, METHODS)
    file = replace(pgfl, config={**pgfl.config, "topology": "gone.csv"})
    assert "No numbers for pgfl" in shown(file, METHODS)
    assert "gone.csv" in shown(file, METHODS)


def test_clusters_that_were_found_are_given_in_the_comparison(pgfl):
    auto = replace(pgfl, config={**pgfl.config, "clusters": "auto:3"})
    assert "the run had to find them" in shown(auto, METHODS)
    assert "without noise" in shown(auto, PRIVACY)
