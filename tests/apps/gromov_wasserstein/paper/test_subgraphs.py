"""Figures of subgraphs and of removals on small graphs."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("torch_geometric")
pytest.importorskip("ot")

from apps.gromov_wasserstein.graphs import Graph, undirected
from apps.gromov_wasserstein.paper import removals as paper_removals
from apps.gromov_wasserstein.paper import subgraphs as paper_subgraphs
from apps.gromov_wasserstein.paper.scores import (
    DEFAULT,
    node_budget,
)
from strategies.gromov_wasserstein.pair import gromov_wasserstein

from .samples import FAST, citations, drawn, read, two_classes


def test_figure_2_scores_clusters_beside_controls(tmp_path, console, monkeypatch):
    monkeypatch.setattr(paper_subgraphs, "neighbourhoods", citations)
    monkeypatch.setattr(paper_subgraphs, "SUBGRAPHS", 20)
    monkeypatch.setattr(paper_subgraphs, "CLUSTER_DRAWS", 2)
    monkeypatch.setattr(paper_subgraphs, "CLUSTER_BUDGETS", (DEFAULT, node_budget(200.0)))
    monkeypatch.setattr(paper_subgraphs, "NODE_TASK", FAST)
    paper_subgraphs.figure_2(tmp_path, console)
    rows = {row["embedding"]: row for row in read(tmp_path / "fig2.csv")}
    assert {"H, no LDP", "H*, 1/|V| a node", "one cluster", "argmax of the centre's row"} <= set(
        rows
    )
    assert float(rows["one cluster"]["ARI"]) == 0.0
    assert rows["H*, 200 a node"]["ARI of constant"] not in ("", "nan")
    drawn(tmp_path, "fig2")


def five(name: str, count: int, hops: int, seed: int = 1) -> tuple[list[Graph], list[Graph]]:
    """Return five graphs as the figure wants them, in another order, with three that do not fit."""
    edges = {
        "path": [(0, 1), (1, 2), (2, 3)],
        "path turned": [(0, 2), (1, 2), (1, 3)],
        "star": [(0, 1), (0, 2), (0, 3), (0, 4)],
        "ring": [(0, 1), (1, 2), (2, 3), (3, 4), (0, 4)],
        "clique": [(i, j) for i in range(6) for j in range(i + 1, 6)],
        "edge": [(0, 1)],
    }
    labels = {"edge": 3, "path": 0, "path turned": 3, "star": 0, "ring": 1, "clique": 2}
    found = []
    for shape, label in labels.items():
        pairs = np.array(edges[shape])
        n = int(pairs.max()) + 1
        features = np.eye(4, dtype=np.float32)[(np.arange(n) + label) % 4]
        ordered = undirected(pairs, n, symmetrise=True)
        found.append(Graph(ordered, features, label, np.full(n, label), shape))
    return found, found


def test_five_subgraphs_are_as_the_figure_says():
    graphs = five("", 0, 1)[1]
    chosen = [graphs[place] for place in paper_subgraphs.five_graphs(graphs)]
    assert chosen[0].label == chosen[1].label
    assert chosen[0].nodes == chosen[4].nodes
    assert {chosen[0].source, chosen[4].source} == {"path", "path turned"}
    assert len({graph.label for graph in chosen[1:]}) == 4
    with pytest.raises(ValueError, match="no five"):
        paper_subgraphs.five_graphs(graphs[:3])


def test_figures_4_and_11_compare_five_subgraphs(tmp_path, console, monkeypatch):
    monkeypatch.setattr(paper_subgraphs, "neighbourhoods", five)
    monkeypatch.setattr(paper_subgraphs, "NODE_TASK", FAST)
    monkeypatch.setattr(paper_subgraphs, "FIGURE_4_DRAWS", 3)
    paper_subgraphs.figure_4(tmp_path, console)
    rows = read(tmp_path / "fig4.csv")
    assert len(rows) == 7
    assert float(rows[0]["correlation with no LDP"]) == pytest.approx(1.0)
    assert rows[0]["paper"] == "2.38 ± 2.22"
    paper_subgraphs.figure_11(tmp_path, console)
    pairs = {row["pair"]: row for row in read(tmp_path / "fig11.csv")}
    assert len(pairs) == 10
    # Isomorphic: topology cannot tell them apart, features can.
    assert float(pairs["1-5"]["GED"]) == float(pairs["1-5"]["GW_A"]) == 0.0
    assert float(pairs["1-5"]["FGW_AX"]) > 0.0
    assert sorted(int(row["rank of GW_H"]) for row in pairs.values())[0] == 1
    drawn(tmp_path, "fig4", "fig11")


def test_removals_are_counted_and_bridges_known():
    path = Graph(np.array([[0, 1], [1, 2]]), np.ones((3, 1)))
    ring = Graph(np.array([[0, 1], [0, 2], [1, 2]]), np.ones((3, 1)))
    edges, nodes, bridges = paper_removals.removal_job(path)
    assert len(edges) == 2
    assert len(nodes) == 3
    assert bridges.all()
    assert not paper_removals.removal_job(ring)[2].any()
    # Without an end, the path 0-1-2 is the path 0-1: GW by the definition, from POT's start.
    whole = np.array([[0.0, 1, 2], [1, 0, 1], [2, 1, 0]])
    expected = gromov_wasserstein(whole, np.array([[0.0, 1], [1, 0]])).value
    assert nodes[0] == pytest.approx(expected)


def test_figure_12_is_drawn(tmp_path, console, monkeypatch):
    monkeypatch.setattr(paper_removals, "collection", lambda name, most=0: two_classes(4))
    paper_removals.figure_12(tmp_path, console)
    rows = read(tmp_path / "fig12.csv")
    assert [row["removed"] for row in rows] == ["one edge", "one node", "two molecules"]
    assert int(rows[1]["cases"]) == sum(graph.nodes for graph in two_classes(4))
    drawn(tmp_path, "fig12")
