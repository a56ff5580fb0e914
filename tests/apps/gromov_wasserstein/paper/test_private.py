"""The figures of differential privacy, small."""

from __future__ import annotations

import math

import numpy as np
import pytest

pytest.importorskip("torch_geometric")
pytest.importorskip("ot")

from tests.apps.experiments.making import make
from trellis.apps.gromov_wasserstein.paper import break_even, private
from trellis.apps.gromov_wasserstein.paper.break_even import BreakEvenJob
from trellis.apps.gromov_wasserstein.paper.private import (
    Case,
    PrivateJob,
    private_cases,
    private_job,
)
from trellis.apps.gromov_wasserstein.synthetic import synthetic_graphs


def test_trained_lines_have_half_of_epsilon_for_their_bits():
    whole, half = (Case(way, "gcn", 2.0).budget for way in ("untrained", "trained"))
    assert (whole.epsilon, half.epsilon) == (2.0, 1.0)
    assert Case("trained", "gcn").budget.epsilon == 0.0
    cases = private_cases((0.3, 1.0, 3.0, 10.0))
    assert len(set(cases)) == len(cases)
    for per in ("graph", "node"):
        assert {c.epsilon for c in cases if c.per == per and c.epsilon} == {0.3, 1.0, 3.0, 10.0}


def test_every_line_of_the_table_is_an_accuracy(monkeypatch, tmp_path, console):
    graphs = synthetic_graphs(24, np.random.default_rng(1))
    monkeypatch.setattr(private, "collection", lambda name, most: graphs)
    (found,) = make("gromov-wasserstein", "private", tmp_path, console, seeds=2, graphs=24)
    assert found.claim == "private"
    lines = (tmp_path / "private.csv").read_text().splitlines()
    assert len(lines) == 1 + 2 + 3 + 2 * 4
    assert (tmp_path / "private-graph.svg").is_file()


def test_private_training_moves_the_model_of_a_half(monkeypatch):
    graphs = synthetic_graphs(18, np.random.default_rng(1))
    monkeypatch.setattr(private, "collection", lambda name, most: graphs)
    cases = [Case(way, "gcn", 1e6, "node") for way in ("trained", "untrained")]
    found = [private_job(PrivateJob(case, 18, 1)) for case in cases]
    assert all(0.0 <= value <= 1.0 for value in found)


def test_crossings_are_where_a_lead_begins_to_stay():
    clients = (10, 30, 100, 300)
    count, columns = len(clients), len(break_even.COLUMNS)
    means = np.zeros((2, count, columns))
    means[0, :, 0] = 0.5  # alone
    means[0, :, 1] = [0.6, 0.4, 0.7, 0.8]  # shared: a lead that does not stay, and one that does
    means[0, :, 2] = 0.6  # kept
    means[0, :, 3] = 0.3
    means[0, :, 4] = 0.3  # no better than untrained
    means[1, :, 2:] = math.nan  # not looked at
    told = break_even.crossings((1.0, math.inf), clients, means)
    assert f"epsilon 1: shared beats alone from {clients[2]} clients" in told
    assert f"epsilon 1: kept beats alone from {clients[0]} clients" in told
    assert (
        f"epsilon 1: bits, shared beats bits, untrained never up to {clients[-1]} clients" in told
    )
    assert not any("no noise: bits" in line or "no noise: kept" in line for line in told)


def test_without_noise_many_clients_beat_one():
    alone, shared, *_ = break_even.break_even_job(BreakEvenJob(60, math.inf, 1))
    assert shared > alone
    assert shared > 0.7


def test_our_headlines_follow_from_the_numbers():
    sizes, seeds = np.full(3, 0.8), 1e-4 * np.arange(3)
    by_case = {
        Case("constant", "gcn", 1.0): 0.7 + seeds,
        Case("untrained", "gcn", 1.0): 0.7 + seeds,
    }
    assert private._verdict(by_case, sizes, 3).verdict == "reproduced"
    by_case[Case("untrained", "gcn", 1.0)] = 0.9 + 2.0 * seeds
    assert private._verdict(by_case, sizes, 3).verdict == "partly"
    values = np.zeros((1, 1, 3, len(break_even.COLUMNS)))
    values[..., 1] = 0.2 + seeds
    assert break_even._verdict(values, [1.0], [300], [], 3).verdict == "reproduced"
    values[..., 0] = 0.4
    assert break_even._verdict(values, [1.0], [300], [], 3).verdict == "refuted"
