"""Figures over the budget on small graphs."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("torch_geometric")
pytest.importorskip("ot")

from apps.gromov_wasserstein.paper import epsilon as paper_epsilon
from apps.gromov_wasserstein.paper import model as paper_model
from apps.gromov_wasserstein.paper.scores import (
    DEFAULT,
    Embedded,
    node_budget,
)

from .samples import SMALL_MODELS, citations, drawn, read, rows_that_differ, two_classes


def test_figure_3_shows_h_star_beside_a_constant_embedding(tmp_path, console, monkeypatch):
    graphs = two_classes(24)
    monkeypatch.setattr(paper_epsilon, "collection", lambda name, most=0: graphs)
    monkeypatch.setattr(paper_epsilon, "NEIGHBOURS", (3, 5))
    monkeypatch.setattr(paper_epsilon, "ROW_BUDGETS", (DEFAULT, node_budget(200.0)))
    paper_epsilon.figure_3(tmp_path, console)
    rows = read(tmp_path / "fig3.csv")
    assert [(row["k"], row["epsilon"]) for row in rows] == [
        (k, name) for k in ("3", "5") for name in ("1/|V| a node", "200 a node")
    ]
    for row in rows:
        gap = float(row["accuracy"]) - float(row["constant"])
        assert float(row["gain"]) == pytest.approx(gap, abs=1e-9)
    drawn(tmp_path, "fig3-k3", "fig3-k5")


def test_the_privacy_utility_curve_rises_for_the_embedding_only(tmp_path, console, monkeypatch):
    graphs = two_classes(16)
    monkeypatch.setattr(paper_epsilon, "collection", lambda name, most=0: graphs)
    monkeypatch.setattr(paper_model, "MODELS", SMALL_MODELS)
    budgets = {"node": (node_budget(0.01), node_budget(2000.0))}
    monkeypatch.setattr(paper_epsilon, "UTILITY_BUDGETS", budgets)
    sharp = rows_that_differ(graphs)
    monkeypatch.setattr(paper_epsilon, "embedded", lambda config, given, seed: (sharp,))
    paper_epsilon.privacy_utility(tmp_path, console)
    rows = read(tmp_path / "privacy-utility.csv")
    found = {(r["estimator"], r["epsilon"]): float(r["spearman"]) for r in rows}
    for estimator in ("raw", "rectified", "double", "simplex"):
        assert abs(found[estimator, "0.01"]) < 0.5
        # Rows at the corners of the simplex lose nothing when nothing is flipped.
        assert found[estimator, "2000.0"] > 0.9
    assert abs(found["constant", "2000.0"]) < 0.5
    drawn(tmp_path, "privacy-utility-node")


def test_the_simplex_estimator_gets_two_bits_where_one_would_be_best():
    part = Embedded(np.arange(1), [np.full((9, 4), 0.25)], np.zeros(1, dtype=np.int64))
    assert paper_epsilon.estimator_settings(node_budget(1.0), "simplex", part).bits == 2
    assert paper_epsilon.estimator_settings(node_budget(50.0), "simplex", part).bits == 0


def test_figure_5_and_its_starts(tmp_path, console, monkeypatch):
    monkeypatch.setattr(paper_epsilon, "neighbourhoods", citations)
    monkeypatch.setattr(paper_epsilon, "FIGURE_5_GRAPHS", {1: 8, 2: 6})
    monkeypatch.setattr(paper_epsilon, "FIGURE_5_DRAWS", 2)
    paper_epsilon.figure_5(tmp_path, console)
    starts = read(tmp_path / "fig5-starts.csv")
    assert [row["start"] for row in starts[:5]][::4] == ["p q'", "random vertex"]
    assert float(starts[0]["lower than p q'"]) == 0.0 == float(starts[0]["higher"])
    assert {row["hops"] for row in read(tmp_path / "fig5.csv")} == {"1", "2"}
    drawn(tmp_path, "fig5-1hop", "fig5-2hop")


def test_a_random_start_is_a_coupling():
    rng = np.random.default_rng(1)
    for n, m in ((1, 1), (3, 7), (6, 4), (5, 5)):
        plan = paper_epsilon._random_vertex(n, m, rng)
        np.testing.assert_allclose(plan.sum(axis=1), 1.0 / n)
        np.testing.assert_allclose(plan.sum(axis=0), 1.0 / m)
        assert np.count_nonzero(plan) <= n + m - 1
