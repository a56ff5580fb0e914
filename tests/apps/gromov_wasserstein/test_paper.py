"""The paper's table and figures on small synthetic graphs, and what makes their numbers honest."""

from __future__ import annotations

import csv
import tomllib
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch_geometric")
pytest.importorskip("ot")

from apps.common.tables import DataError
from apps.experiments.figures import figure
from apps.gromov_wasserstein import paper
from apps.gromov_wasserstein.config import GromovWassersteinConfig
from apps.gromov_wasserstein.downstream.classify import Grid
from apps.gromov_wasserstein.graphs import Graph, k_hop, labels_of, undirected
from apps.gromov_wasserstein.paper import epsilon as paper_epsilon
from apps.gromov_wasserstein.paper import model as paper_model
from apps.gromov_wasserstein.paper import removals as paper_removals
from apps.gromov_wasserstein.paper import scores as paper_scores
from apps.gromov_wasserstein.paper import subgraphs as paper_subgraphs
from apps.gromov_wasserstein.paper import table as paper_table
from apps.gromov_wasserstein.paper.scores import (
    DEFAULT,
    NONE,
    Embedded,
    accuracy,
    drawn_distances,
    node_budget,
    released,
)
from apps.gromov_wasserstein.release import code_of
from apps.gromov_wasserstein.synthetic import synthetic_graphs
from strategies.gromov_wasserstein.pair import gromov_wasserstein
from tests.apps.datasets import needs

FAST = GromovWassersteinConfig(rounds=2, local_epochs=1, clients=3)
SMALL_MODELS = {
    "GCN": {"model": "gcn", "rounds": 2, "clients": 3},
    "GIN": {"model": "gin", "rounds": 1, "local-epochs": 1, "clients": 3},
}


def two_classes(count: int) -> list[Graph]:
    found = synthetic_graphs(2 * count, np.random.default_rng(7))
    return [graph for graph in found if graph.label < 2][:count]


def citations(name: str, count: int, hops: int, seed: int = 1) -> tuple[list[Graph], list[Graph]]:
    """Return subgraphs of a small random graph whose labels follow its features."""
    rng = np.random.default_rng(3)
    n = 120
    labels = rng.integers(0, 3, n)
    edges = undirected(rng.integers(0, n, (220, 2)), n, symmetrise=True)
    edges = edges[labels[edges[:, 0]] == labels[edges[:, 1]]]
    big = Graph(edges, np.eye(3, dtype=np.float32)[labels], -1, labels, "small")
    big = replace(big, edges=undirected(edges, n, symmetrise=True))
    known = replace(big, node_labels=np.where(np.arange(n) < 20, labels, -1))
    training = [k_hop(known, centre, hops) for centre in range(20)]
    return training, [k_hop(big, centre, hops) for centre in range(20, 20 + count)]


def here(function, items, console, title, longest_chunk=16):
    return [function(item) for item in items]


@pytest.fixture(autouse=True)
def small(monkeypatch):
    monkeypatch.setattr(paper_model, "MODELS", SMALL_MODELS)
    for module in (paper_table, paper_epsilon, paper_subgraphs):
        monkeypatch.setattr(module, "on_all_cores", here)
        monkeypatch.setattr(module, "MODELS", SMALL_MODELS)
    monkeypatch.setattr(paper_removals, "on_all_cores", here)


def read(path: Path) -> list[dict[str, str]]:
    with path.open() as file:
        return list(csv.DictReader(file))


def drawn(folder: Path, *stems: str) -> None:
    there = {path.name for path in folder.iterdir()}
    for stem in stems:
        assert {f"{stem}.png", f"{stem}.svg"} <= there


def test_every_table_and_figure_has_a_command():
    wanted = {"table1", "fig2", "fig3", "fig4", "fig5", "fig7", "fig11", "fig12"}
    assert set(paper.FIGURES) == wanted | {"privacy-utility"}
    assert set(paper.ON_REQUEST) == {"table1-full"}


def test_the_paper_s_settings_are_valid():
    path = Path(paper.__file__).with_name("settings.toml")
    content = tomllib.loads(path.read_text())
    config = GromovWassersteinConfig.from_settings(content["gromov-wasserstein"])
    assert (config.clients, config.rounds, config.privacy) == (10, 200, "sound")


def test_without_data_the_error_names_the_variable(tmp_path, monkeypatch, console):
    monkeypatch.setenv("TRELLIS_DATA", str(tmp_path))
    for name in ("fig3", "fig11", "table1"):
        with pytest.raises(DataError, match="TRELLIS_DATA"):
            figure("gromov-wasserstein", name)(tmp_path, console)


def test_the_default_budget_is_one_over_n_a_row_and_one_a_graph():
    for n in (1, 7, 30):
        assert code_of(DEFAULT.config(), 5, n).eps_row == pytest.approx(1.0 / n)
        assert code_of(node_budget(0.1).config(), 5, n).eps_row == pytest.approx(0.1)
    assert NONE.config().privacy == "none"


def test_draws_of_an_embedding_and_of_the_constant_one_are_paired():
    rows = [np.random.default_rng(1).dirichlet(np.ones(4), 9)]
    part = Embedded(np.arange(1), rows, np.zeros(1, dtype=np.int64))
    config = node_budget(3.0).config()
    ours, control = (released(config, p.rows, 2)[0][0] for p in (part, part.constant()))
    np.testing.assert_array_equal(ours != 0, control != 0)
    assert not np.array_equal(released(config, rows, 3)[0][0], ours)
    np.testing.assert_allclose(part.constant().rows[0], 0.25)


def test_no_model_of_graph_labels_embeds_a_graph_whose_label_it_saw(monkeypatch):
    graphs = two_classes(24)
    seen: list[set[str]] = []
    real = paper_model.federated_model

    def spy(config, given, classes, seed):
        seen.append({graph.source for graph in given})
        return real(config, given, classes, seed)

    monkeypatch.setattr(paper_model, "federated_model", spy)
    parts = paper_model.embedded(replace(FAST, task="graph"), graphs, 1)
    assert sorted(np.concatenate([part.places for part in parts])) == list(range(24))
    for part, trained_on in zip(parts, seen, strict=True):
        assert not trained_on & {graphs[place].source for place in part.places}
        np.testing.assert_array_equal(part.labels, labels_of(graphs)[part.places])


def test_labels_of_graphs_do_not_reach_the_model_of_node_labels():
    # With one client nothing is dealt by label, so any difference would be a leak.
    graphs = two_classes(6)
    config = replace(FAST, clients=1)
    turned = [replace(graph, label=1 - graph.label) for graph in graphs]
    first, second = (paper_model.embedded(config, given, 1)[0] for given in (graphs, turned))
    for a, b in zip(first.rows, second.rows, strict=True):
        np.testing.assert_allclose(a, b, atol=1e-9)


def test_fedavg_in_one_round_is_the_mean_of_what_clients_learn_by_their_items():
    graphs = two_classes(8)
    config = replace(FAST, rounds=1, local_epochs=2)
    found = paper_model.weights(paper_model.federated_model(config, graphs, 3, 1))
    rng = paper_model.generator(1, "split")
    dealt = paper_model.dirichlet_split(labels_of(graphs), 3, 1.0, rng)
    draw = int(paper_model.generator(1, "model").integers(2**62))
    each, items = [], []
    for client, part in enumerate(dealt):
        model = paper_model.build_model("gcn", 3, 3, "node", 16, seed=draw)
        own = [graphs[place] for place in part]
        seed = int(paper_model.generator(1, "training", client, 1).integers(2**62))
        start = paper_model.weights(model)
        done = paper_model.local_training(
            model, own, start, "node", 2, 0, config.rate, config.weight_decay, 0.0, seed
        )
        each.append(done.weights)
        items.append(sum(graph.nodes for graph in own))
    np.testing.assert_allclose(found, np.average(each, axis=0, weights=items), rtol=1e-12)


def test_the_scale_of_distances_does_not_matter():
    rng = np.random.default_rng(5)
    points = rng.normal(size=(30, 2)) + 2.0 * (np.arange(30) % 2)[:, None]
    d = np.linalg.norm(points[:, None] - points[None], axis=2)
    labels = np.arange(30) % 2
    big, tiny = (accuracy([scale * d], [labels], "svm-quick") for scale in (1.0, 1e-9))
    np.testing.assert_allclose(big.per_fold, tiny.per_fold)
    assert big.mean > 0.8


def test_parts_are_cross_validated_each_for_itself():
    d = np.abs(np.subtract.outer(np.arange(20.0), np.arange(20.0)))
    labels = (np.arange(20) >= 10).astype(np.int64)
    one = accuracy([d], [labels], "knn3")
    two = accuracy([d, d], [labels, labels], "knn3")
    np.testing.assert_array_equal(two.per_fold, np.tile(one.per_fold, 2))


def test_at_a_vanishing_budget_the_embedding_does_not_matter():
    part = rows_that_differ(two_classes(12))
    gaps = {}
    for epsilon in (1e-6, 50.0):
        config = node_budget(epsilon).config()
        found = [
            [drawn_distances((config, p.rows, draw)).mean() for draw in range(15)]
            for p in (part, part.constant())
        ]
        gap = np.subtract(*found)
        gaps[epsilon] = abs(gap.mean()) / (gap.std(ddof=1) / np.sqrt(15))
    assert gaps[1e-6] < 4.0
    assert gaps[50.0] > 6.0


def test_table_1_has_the_paper_s_rows_and_the_controls(tmp_path, console, monkeypatch):
    sets = {"MUTAG": two_classes(16), "IMDB-BINARY": []}
    sets["IMDB-BINARY"] = [replace(graph, node_labels=None) for graph in sets["MUTAG"]]
    for module in (paper_table, paper_model):
        monkeypatch.setattr(module, "collection", lambda name, most=0, seed=1: sets[name])
    monkeypatch.setattr(paper_table, "SAMPLE", dict.fromkeys(sets, 0))
    monkeypatch.setattr(paper_table, "FOLDS", 2)
    monkeypatch.setattr(paper_table, "DRAWS", 2)
    monkeypatch.setattr(paper_model, "CENTRAL_EPOCHS", 5)
    monkeypatch.setattr(paper_scores, "QUICK", Grid((1.0, 10.0), (1.0,)))
    paper_table.table_1(tmp_path, console)
    rows = read(tmp_path / "table1.csv")
    for data in sets:
        names = {row["row"] for row in rows if row["data"] == data}
        assert set(paper_table.PAPER) <= names
        assert {
            "majority",
            "number of nodes",
            "GIN",
            "W_H(GCN)",
            "GW_H(GIN, random weights)",
        } <= names
        assert sum(name.startswith("constant in place of H") for name in names) == 4
    printed = {(row["data"], row["row"]): row["paper"] for row in rows}
    assert printed["MUTAG", "GW_H(GIN)"] == "93.08 ± 3.35"
    assert printed["IMDB-BINARY", "GCN"] == ""
    gains = [row["H* - constant"] for row in rows if row["row"].startswith("GW_H*")]
    assert len(gains) == 8
    assert all("±" in gain for gain in gains)


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


def rows_that_differ(graphs: list[Graph]) -> Embedded:
    rng = np.random.default_rng(2)
    rows = []
    for graph in graphs:
        share = rng.dirichlet(np.ones(3))
        rows.append(np.eye(3)[rng.choice(3, graph.nodes, p=share)])
    return Embedded(np.arange(len(rows)), rows, labels_of(graphs))


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


@needs("CiteSeer")
def test_compared_subgraphs_of_citeseer_have_centres_no_model_saw():
    training, others = paper_model.neighbourhoods("CiteSeer", 30, 1)
    known = {
        graph.features[node].tobytes()
        for graph in training
        for node in np.flatnonzero(graph.node_labels >= 0)
    }
    assert len(others) == 30
    assert all(graph.label >= 0 for graph in others)
    assert not any(graph.features[0].tobytes() in known for graph in others)


@needs("MUTAG")
def test_a_sample_of_mutag_is_the_same_every_time():
    first, second = (paper_model.collection("MUTAG", 20) for _ in range(2))
    assert [graph.source for graph in first] == [graph.source for graph in second]
    assert len(first) == 20
    assert len(paper_model.collection("MUTAG")) == 188
