"""Figures over the budget on small graphs."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("torch_geometric")
pytest.importorskip("ot")

from tests.apps.experiments.making import make
from trellis.apps.gromov_wasserstein.paper import epsilon as paper_epsilon
from trellis.apps.gromov_wasserstein.paper import metric as paper_metric
from trellis.apps.gromov_wasserstein.paper import model as paper_model
from trellis.apps.gromov_wasserstein.paper.scores import Embedded, node_budget

from .samples import citations, drawn, read, rows_that_differ, two_classes

STUDY = "gromov-wasserstein"


def test_figure_3_shows_h_star_beside_a_constant_embedding(tmp_path, console, monkeypatch):
    graphs = two_classes(24)
    monkeypatch.setattr(paper_model, "collection", lambda name, most=0: graphs)
    found = make(STUDY, "fig3", tmp_path, console, seeds=2, draws=2)
    rows = read(tmp_path / "fig3.csv")
    assert [(row["k"], row["epsilon"]) for row in rows] == [
        (k, name) for k in ("3", "5") for name in ("1/n a node", "200 a node")
    ]
    for row in rows:
        gap = float(row["accuracy"]) - float(row["constant"])
        assert float(row["less constant"]) == pytest.approx(gap, abs=1e-9)
    drawn(tmp_path, "fig3-k3", "fig3-k5")
    assert [one.claim for one in found] == ["fig3-stable", "fig3-hurts", "fig3-helps"]


BUDGETS = [paper_epsilon.named_budget("1/|V|"), node_budget(10.0)]


def verdicts_3(small, large, plain, constant):
    """Verdicts on accuracies that three seeds agree on."""
    shape = (2, 3, 2, 1)
    drawn_ = np.zeros(shape)
    drawn_[0, :, 0], drawn_[1, :, 0], drawn_[:, :, 1] = small, large, constant
    drawn_ += 1e-4 * np.arange(3)[None, :, None, None]
    found = paper_epsilon._figure_3_verdicts(BUDGETS, [5], drawn_, np.full((3, 1), plain), 3)
    return {one.claim.removeprefix("fig3-"): one.verdict for one in found}


def test_the_verdicts_on_figure_3_follow_from_the_numbers():
    as_the_paper_says = verdicts_3(small=0.9, large=0.7, plain=0.88, constant=0.6)
    assert as_the_paper_says == {
        "stable": "reproduced",
        "hurts": "reproduced",
        "helps": "reproduced",
    }
    as_a_constant = verdicts_3(small=0.7, large=0.9, plain=0.69, constant=0.7)
    assert as_a_constant == {"stable": "partly", "hurts": "refuted", "helps": "reproduced"}
    nothing = verdicts_3(small=0.6, large=0.6, plain=0.8, constant=0.6)
    assert nothing == {"stable": "refuted", "hurts": "refuted", "helps": "refuted"}
    assert verdicts_3(0.8, 0.8, 0.7, 0.8)["helps"] == "partly"


def test_the_privacy_utility_curve_rises_for_the_embedding_only(tmp_path, console, monkeypatch):
    graphs = two_classes(16)
    monkeypatch.setattr(paper_epsilon, "collection", lambda name, most=0: graphs)
    sharp = rows_that_differ(graphs)
    monkeypatch.setattr(paper_epsilon, "embedded", lambda config, given, seed: (sharp,))
    budgets = {"of-a-graph": [1.0], "of-a-node": [0.01, 2000.0]}
    (headline,) = make(STUDY, "privacy-utility", tmp_path, console, **budgets)
    rows = read(tmp_path / "privacy-utility.csv")
    found = {(r["estimator"], r["epsilon"]): float(r["rank correlation"]) for r in rows}
    for estimator in ("raw", "rectified", "double", "simplex"):
        assert abs(found[estimator, "0.01"]) < 0.5
        # Rows at the corners of the simplex lose nothing when nothing is flipped.
        assert found[estimator, "2000.0"] > 0.9
    assert abs(found["constant", "2000.0"]) < 0.5
    drawn(tmp_path, "privacy-utility-node", "privacy-utility-graph")
    assert headline.verdict in ("reproduced", "refuted")


def test_the_simplex_estimator_gets_two_bits_where_one_would_be_best():
    part = Embedded(np.arange(1), [np.full((9, 4), 0.25)], np.zeros(1, dtype=np.int64))
    assert paper_epsilon.estimator_settings(node_budget(1.0), "simplex", part).bits == 2
    assert paper_epsilon.estimator_settings(node_budget(50.0), "simplex", part).bits == 0


def test_figure_5_and_its_starts(tmp_path, console, monkeypatch):
    monkeypatch.setattr(paper_model, "neighbourhoods", citations)
    counts = {"1": 8, "2": 6}
    found = make(STUDY, "fig5", tmp_path, console, seeds=2, subgraphs=counts)
    starts = read(tmp_path / "fig5-starts.csv")
    assert [row["start"] for row in starts[:5]][::4] == ["p q'", "random vertex"]
    assert float(starts[0]["lower than from p q'"]) == 0.0 == float(starts[0]["higher"])
    assert {row["hops"] for row in read(tmp_path / "fig5.csv")} == {"1", "2"}
    drawn(tmp_path, "fig5-1hop", "fig5-2hop")
    assert [one.claim for one in found] == ["fig5-lower", "fig5-rises", "fig5-saddle"]


def test_figures_8_to_10_take_the_training_nodes(tmp_path, console, monkeypatch):
    seen = []

    def spy(name, count, hops, seed=1):
        seen.append((name, count))
        return citations(name, count, hops, seed)

    monkeypatch.setattr(paper_model, "neighbourhoods", spy)
    for number, data in ((8, "CiteSeer"), (9, "Cora"), (10, "PubMed")):
        (found,) = make(STUDY, f"fig{number}", tmp_path, console, seeds=2, hops=[1, 2])
        assert found.claim == f"fig{number}-pattern"
        assert set(seen) == {(data, 0)}
        seen.clear()
        drawn(tmp_path, f"fig{number}-1hop", f"fig{number}-2hop-mean")


def measured(means, plain, kept, kept_control=0.0):
    seeds = 1e-4 * np.arange(3)
    grow = np.array(means)[:, None] + seeds
    flat = np.zeros_like(grow)
    order, control = (np.full_like(grow, value) + seeds for value in (kept, kept_control))
    epsilons = np.array([0.1, 10.0])
    return paper_metric.Measured(
        1, np.full(3, plain), grow, flat, grow, order, control, epsilons, tuple(BUDGETS)
    )


def test_the_verdicts_on_gw_follow_from_the_numbers():
    lower = paper_metric._lower([measured([0.1, 0.5], 0.2, 0.0)], 3)
    assert lower.verdict == "reproduced"
    assert paper_metric._lower([measured([0.3, 0.5], 0.2, 0.0)], 3).verdict == "refuted"
    assert paper_metric._rises([measured([0.1, 0.5], 0.2, 0.0)], 3).verdict == "reproduced"
    assert paper_metric._rises([measured([0.5, 0.1], 0.2, 0.0)], 3).verdict == "refuted"
    kept = paper_metric._pattern("fig8", [measured([0.1, 0.5], 0.2, 0.9)], 3)
    assert kept.verdict == "reproduced"
    as_a_constant = paper_metric._pattern("fig8", [measured([0.1, 0.5], 0.2, 0.9, 0.9)], 3)
    assert as_a_constant.verdict == "refuted"
    rng = np.random.default_rng(1)
    values = rng.uniform(1.0, 1.1, (50, 5))
    assert paper_metric._saddles([1], [values], 3).verdict == "refuted"
    values[:, 2] -= 0.5
    assert paper_metric._saddles([1], [values], 3).verdict == "reproduced"


def test_a_random_start_is_a_coupling():
    rng = np.random.default_rng(1)
    for n, m in ((1, 1), (3, 7), (6, 4), (5, 5)):
        plan = paper_metric.random_vertex(n, m, rng)
        np.testing.assert_allclose(plan.sum(axis=1), 1.0 / n)
        np.testing.assert_allclose(plan.sum(axis=0), 1.0 / m)
        assert np.count_nonzero(plan) <= n + m - 1
