"""A result in hand: its graphs, its tables, and itself in a notebook."""

from __future__ import annotations

import copy
import pickle

import networkx as nx
import numpy as np
import pytest

import trellis
from tests.studies import told

from .wards import SETTINGS, STUDIES, assert_same

MAIN = {
    "consensus-graph": "consensus",
    "joint-precision": "common",
    "server-graph": "servers",
    "cluster-admm": "servers",
    "gromov-wasserstein": "neighbours",
    **told("MAIN_GRAPH"),
}


@pytest.fixture(scope="module")
def runs() -> dict[str, trellis.Result]:
    return {study: trellis.run(study, SETTINGS[study], seed=2) for study in STUDIES}


@pytest.mark.parametrize("study", STUDIES)
def test_the_main_graph_comes_first_and_without_a_name(runs, study):
    result = runs[study]
    assert list(result.to_frame().shape) > [0, 0]
    if MAIN[study] is None:
        assert result.graphs == []
        return
    assert result.graphs[0] == MAIN[study]
    graph = result.graph()
    assert isinstance(graph, nx.Graph)
    assert graph.name == MAIN[study]
    assert nx.utils.graphs_equal(graph, result.graph(MAIN[study]))


def test_the_consensus_and_every_client_s_graph(runs):
    result = runs["consensus-graph"]
    assert result.graphs == ["consensus", "client-1", "client-2", "client-3"]
    for name, weights in zip(
        result.graphs, [result.arrays["consensus"], *result.arrays["weights"]], strict=True
    ):
        matrix = result.graph(name).to_sparse().toarray()
        found = matrix[np.triu_indices(6, 1)]
        assert np.array_equal(found, np.where(weights > 1e-4 * weights.max(), weights, 0.0))
    assert list(result.graph("client-2").nodes) == result.variables
    assert result.to_frame().loc["v1", "v2"] == result.arrays["consensus"][0]
    with pytest.raises(KeyError, match="no such graph in this run; there are: 'consensus', 'cl"):
        result.graph("berlin")


def test_a_client_may_be_called_consensus():
    rng = np.random.default_rng(0)
    data = {"consensus": rng.normal(size=(20, 4)), "b": rng.normal(size=(20, 4))}
    result = trellis.run("consensus-graph", data=data, rounds=3)
    assert result.graphs == ["consensus", "client consensus", "b"]


def test_what_all_clients_share_is_in_every_client_s_graph(runs):
    result = runs["joint-precision"]
    assert result.graphs == ["common", "client-1", "client-2", "client-3"]
    graphs = [result.graph(name) for name in result.graphs[1:]]
    everywhere = set.intersection(*({frozenset(e) for e in graph.edges} for graph in graphs))
    assert {frozenset(edge) for edge in result.graph("common").edges} == everywhere
    u, v, known = next(iter(graphs[0].edges(data=True)))
    a, b = result.variables.index(u), result.variables.index(v)
    assert known["weight"] == result.arrays["partial"][0][a, b]
    assert known["precision"] == result.arrays["precision"][0][a, b]
    assert result.to_frame().loc["client-2: v1", "v1"] == result.arrays["sparse"][1][0, 0]


def test_a_noisy_sum_s_consensus_has_a_name_too():
    settings = {**SETTINGS["joint-precision"], "privacy": "dp", "epsilon": 50.0}
    result = trellis.run("joint-precision", settings)
    assert result.graphs[:2] == ["consensus", "common"]
    matrix = result.graph("consensus").to_sparse().toarray()
    partial = result.arrays["consensus_partial"] * (1 - np.eye(6))
    np.testing.assert_allclose(matrix, partial, rtol=1e-12)


def test_servers_and_models(runs):
    result = runs["server-graph"]
    assert list(result.graph("servers").nodes) == ["server-0", "server-1"]
    assert result.graph().edges["server-0", "server-1"]["weight"] == pytest.approx(
        result.arrays["combination"][0, 1]
    )
    frame = result.to_frame()
    assert list(frame.index) == ["server-0", "server-1", "centroid"]
    assert list(frame.columns) == ["h1", "h2"]
    assert np.array_equal(frame.to_numpy()[:2], result.arrays["models"])
    clusters = runs["cluster-admm"].to_frame()
    assert list(clusters.index) == [f"client-{k}" for k in range(1, 5)]
    assert np.array_equal(clusters.to_numpy(), runs["cluster-admm"].arrays["clients"])


def test_near_graphs_are_neighbours(runs):
    result = runs["gromov-wasserstein"]
    frame, graph = result.to_frame(), result.graph("neighbours")
    assert np.array_equal(frame.to_numpy(), result.arrays["distances"])
    assert list(graph.nodes) == list(frame.index)
    for node in graph:
        nearest = frame[node].drop(node)
        assert min(graph[node][other]["weight"] for other in graph[node]) == nearest.min()
        assert len(graph[node]) >= 3
    assert {own["owner"] for _, own in graph.nodes(data=True)} == {
        "client-1", "client-2", "client-3",
    }  # fmt: skip


def test_lists_as_tables(runs):
    result = runs["server-graph"]
    assert result.frame().index.tolist() == [1.0, 2.0, 3.0]
    assert result.frame("clients").loc["client-2", "count"] == 12
    assert result.frame("headline").loc["spectral-gap", "value"] == result.headline["spectral-gap"]
    with pytest.raises(ValueError, match="use one of metrics, clients, headline"):
        result.frame("rounds")


@pytest.mark.parametrize("study", STUDIES)
def test_results_are_copied_pickled_kept_and_shown(runs, study, tmp_path):
    result = runs[study]
    result.save(tmp_path)
    for other in (
        copy.deepcopy(result),
        pickle.loads(pickle.dumps(result)),
        trellis.load(tmp_path),
        trellis.load(str(tmp_path)),
    ):
        assert type(other) is trellis.Result
        assert_same(result, other)
    assert repr(result) == result.summary()
    assert study in result._repr_html_()
    result.folder = None


def test_a_notebook_shows_text_and_no_markup(runs):
    result = copy.deepcopy(runs["consensus-graph"])
    result.notes.append("<script>alert(1)</script>")
    result.variables[0] = "<b>dose</b>"
    result.headline["<u>"] = 1.0
    result.scores = {
        "measures": ["<em>"],
        "main": "<em>",
        "clients": [{"name": "<i>", "count": 3, "rows": {"alone": [0.25], "this run": [0.75]}}],
        "mean": {"alone": [0.25], "this run": [0.75]},
    }
    shown = result._repr_html_()
    for tag in ("<script", "<b>dose", "<u>", "<em>", "<i>"):
        assert tag not in shown
    for text in ("&lt;script&gt;", "this run", "0.75", "left out of learning"):
        assert text in shown


def test_a_run_without_a_result_says_so(tmp_path):
    result = trellis.Result("consensus-graph", 1, "local", {}, status="failed", notes=["no"])
    assert result.graphs == []
    with pytest.raises(KeyError, match="there are: none"):
        result.graph()
    with pytest.raises(ValueError, match="nothing to show: it is failed"):
        result.to_frame()
    assert "failed" in result._repr_html_()
    with pytest.raises(FileNotFoundError, match="holds no run"):
        trellis.load(tmp_path)


def test_a_result_predicts_and_scores_new_data():
    data = trellis.sample("server-graph", clients=6, features=3, samples="40")
    result = trellis.run(
        "server-graph", data=data, servers=2, topology="ring", rounds=30, method="none"
    )
    new = data["ward-1"]
    found = result.predict(new.drop(columns="y"))
    assert set(np.unique(found)) <= {-1, 1}
    right = float(np.mean(found == np.where(new["y"] > 0, 1, -1)))
    assert result.score(new) == pytest.approx(right)
    assert result.score(new.drop(columns="y"), new["y"]) == pytest.approx(right)
    assert list(result.predictions(new).columns) == ["predicted", "probability of 1"]
    with pytest.raises(ValueError, match="no targets"):
        result.score(new.drop(columns="y"))
    assert result.scores["mean"]
    assert "On records that were left out of learning" in result._repr_html_()


def test_networks_tell_the_classes_of_networkx_graphs():
    data = trellis.sample("gromov-wasserstein", clients=3, graphs=18)
    result = trellis.run(
        "gromov-wasserstein", data=data, rounds=1, task="graph", model="gin", downstream=""
    )
    new = next(iter(data.values()))
    assert result.predict(new).shape == (len(new),)
    assert 0.0 <= result.score(new) <= 1.0
