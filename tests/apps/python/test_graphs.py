"""Graphs in and out: networkx, torch_geometric, tables, matrices, pictures."""

from __future__ import annotations

import copy
import pickle

import matplotlib
import networkx as nx
import numpy as np
import pytest
import scipy.sparse
import torch
from torch_geometric.data import Data
from torch_geometric.utils import from_networkx, to_networkx

import trellis
from trellis.apps.pages.named import DISTANCE, NamedGraph
from trellis.apps.python.graphs import client_graphs, graph_of

matplotlib.use("Agg")
NAMES = ["a", "b", "<i>c</i>", "d"]
PAIRS = np.array([[0, 1], [0, 2], [2, 3]])


@pytest.fixture
def graph() -> trellis.LearnedGraph:
    named = NamedGraph(
        NAMES, PAIRS, np.array([0.5, -2.0, 1.0]), edge_data={"sure": PAIRS[:, 0] > 0}
    )
    return trellis.LearnedGraph.of(named, "consensus")


def test_a_learned_graph_is_a_networkx_graph(graph):
    assert isinstance(graph, nx.Graph)
    assert list(graph.nodes) == NAMES
    assert graph["a"]["<i>c</i>"] == {"weight": -2.0, "sure": False}
    assert nx.shortest_path(graph, "b", "d", weight=None) == ["b", "a", "<i>c</i>", "d"]
    plain = graph.to_networkx()
    assert type(plain) is nx.Graph
    assert nx.utils.graphs_equal(plain, graph)


def test_copies_subgraphs_and_pickles_are_learned_graphs(graph):
    for other in (graph.copy(), copy.deepcopy(graph), pickle.loads(pickle.dumps(graph))):
        assert type(other) is trellis.LearnedGraph
        assert nx.utils.graphs_equal(other, graph)
    part = graph.subgraph(["a", "b"]).copy()
    assert part.to_frame().to_dict("records") == [
        {"from": "a", "to": "b", "weight": 0.5, "sure": False}
    ]


def test_a_table_has_the_strongest_edge_first(graph):
    frame = graph.to_frame()
    assert list(frame.columns) == ["from", "to", "weight", "sure"]
    assert frame["weight"].tolist() == [-2.0, 1.0, 0.5]
    near = trellis.LearnedGraph.of(NamedGraph(NAMES, PAIRS, np.array([3.0, 1.0, 2.0]), DISTANCE))
    assert near.to_frame()["weight"].tolist() == [1.0, 2.0, 3.0]
    empty = trellis.LearnedGraph.of(NamedGraph(NAMES, PAIRS[:0], np.zeros(0)))
    assert list(empty.to_frame().columns) == ["from", "to", "weight"]
    assert len(empty.to_frame()) == 0


def test_a_sparse_matrix_is_symmetric_and_in_the_nodes_order(graph):
    matrix = graph.to_sparse()
    assert scipy.sparse.issparse(matrix)
    dense = matrix.toarray()
    assert np.array_equal(dense, dense.T)
    assert (dense[0, 1], dense[0, 2], dense[2, 3], dense[1, 3]) == (0.5, -2.0, 1.0, 0.0)


def test_to_torch_geometric_and_back(graph):
    data = graph.to_pyg()
    assert data.is_undirected()
    assert data.num_nodes == 4
    assert data.names == NAMES
    back = nx.relabel_nodes(
        to_networkx(data, edge_attrs=["edge_weight"], to_undirected=True), dict(enumerate(NAMES))
    )
    assert {frozenset(e) for e in back.edges} == {frozenset(e) for e in graph.edges}
    assert back["a"]["<i>c</i>"]["edge_weight"] == -2.0
    lone = trellis.LearnedGraph.of(NamedGraph(["x"], PAIRS[:0], np.zeros(0))).to_pyg()
    assert tuple(lone.edge_index.shape) == (2, 0)


def test_the_title_of_a_picture_is_clear_of_names():
    for name in ("pulse", "a very long name of a node"):
        names = [name, "b", "c", "d"]
        axes = trellis.LearnedGraph.of(NamedGraph(names, PAIRS, np.ones(3)), "consensus").plot()
        axes.figure.canvas.draw()
        title = axes.title.get_window_extent()
        assert [text for text in axes.texts if text.get_window_extent().overlaps(title)] == []
        matplotlib.pyplot.close("all")


def test_a_picture_and_what_a_notebook_shows(graph):
    axes = graph.plot()
    assert axes.get_title() == "consensus"
    _, mine = matplotlib.pyplot.subplots()
    assert graph.plot(mine) is mine
    shown = graph._repr_html_()
    assert "<i>c" not in shown
    assert "&lt;i&gt;c" in shown
    assert "consensus: 4 nodes, 3 edges" in shown
    assert "<svg" in shown
    matplotlib.pyplot.close("all")
    assert "0 edges" in trellis.LearnedGraph()._repr_html_()


def study_graph() -> nx.Graph:
    made = nx.Graph(label=2)
    for node, (row, label) in enumerate([([1.0, 0.0], 1), ([0.0, 2.5], 0), ([3.0, 1.0], 1)]):
        made.add_node(f"n{node}", x=row, y=label)
    made.add_edges_from([("n2", "n0"), ("n0", "n1")])
    return made


def test_a_networkx_graph_as_the_study_knows_it():
    graph = graph_of(study_graph())
    assert graph.edges.tolist() == [[0, 1], [0, 2]]
    assert graph.features.tolist() == [[1.0, 0.0], [0.0, 2.5], [3.0, 1.0]]
    assert (graph.label, graph.node_labels.tolist()) == (2, [1, 0, 1])
    bare = graph_of(nx.path_graph(3))
    assert (bare.label, bare.node_labels.tolist()) == (-1, [-1, -1, -1])
    assert bare.features.shape == (3, 0)


def test_torch_geometric_data_as_the_study_knows_it():
    data = from_networkx(study_graph(), group_node_attrs=["x"])
    data.y = torch.tensor([2])
    ours = graph_of(data)
    same = graph_of(study_graph())
    assert np.array_equal(ours.edges, same.edges)
    assert np.array_equal(ours.features, same.features)
    assert ours.label == 2
    data.y = torch.tensor([1, 0, 1])
    assert (graph_of(data).label, graph_of(data).node_labels.tolist()) == (-1, [1, 0, 1])
    one_way = Data(edge_index=torch.tensor([[1, 2], [0, 0]]), num_nodes=3)
    assert np.array_equal(graph_of(one_way).edges, same.edges)
    data.y = torch.tensor([1, 2])
    with pytest.raises(ValueError, match="y has 2 numbers for 3 nodes"):
        graph_of(data)
    assert len(client_graphs("a", study_graph())) == 1


def test_a_study_of_torch_geometric_graphs_is_that_of_networkx_graphs():
    graphs = trellis.sample("gromov-wasserstein", clients=2, graphs=6)
    as_data = {}
    for name, own in graphs.items():
        as_data[name] = []
        for graph in own:
            rows = [graph.nodes[node]["x"] for node in graph]
            ends = torch.tensor(list(graph.edges)).T
            made = Data(x=torch.tensor(rows), edge_index=torch.cat([ends, ends.flip(0)], 1))
            made.y = torch.tensor([graph.graph["y"]])
            as_data[name].append(made)
    settings = {"task": "graph", "rounds": 1, "downstream": "none"}
    one, other = (
        trellis.run("gromov-wasserstein", settings, data=data) for data in (graphs, as_data)
    )
    assert np.array_equal(one.arrays["distances"], other.arrays["distances"])
