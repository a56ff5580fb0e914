"""Graphs are checked, cut and dealt as they claim; the odd ones work too."""

from __future__ import annotations

import logging
from collections import deque

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trellis.apps.common.tables import DataError
from trellis.apps.gromov_wasserstein.graphs import (
    Graph,
    degree_features,
    dirichlet_split,
    induced,
    k_hop,
    largest_component,
    shortest_paths,
    undirected,
)
from trellis.apps.gromov_wasserstein.synthetic import CLASSES, synthetic_graphs


def graph(pairs, n: int, **more) -> Graph:
    return Graph(undirected(pairs, n, symmetrise=True), np.ones((n, 2)), **more)


@st.composite
def random_graphs(draw) -> Graph:
    n = draw(st.integers(1, 9))
    node = st.integers(0, n - 1)
    pairs = draw(st.lists(st.tuples(node, node).filter(lambda p: p[0] != p[1]), max_size=14))
    return graph(np.array(pairs, dtype=int).reshape(-1, 2), n, node_labels=np.arange(n))


def walk(g: Graph, start: int) -> dict[int, int]:
    """Steps from ``start`` to every node it reaches, by a plain search."""
    near = {u: set() for u in range(g.nodes)}
    for u, v in g.edges.tolist():
        near[u].add(v)
        near[v].add(u)
    steps, queue = {start: 0}, deque([start])
    while queue:
        u = queue.popleft()
        for v in near[u] - set(steps):
            steps[v] = steps[u] + 1
            queue.append(v)
    return steps


@pytest.mark.parametrize(
    ("edges", "features", "labels", "message"),
    [
        ([[0, 0]], np.ones((2, 1)), None, "without loops"),
        ([[1, 0]], np.ones((2, 1)), None, "u < v"),
        ([[0, 1], [0, 1]], np.ones((2, 1)), None, "each once"),
        ([[0, 2]], np.ones((2, 1)), None, "outside 0 to 1"),
        ([[-1, 1]], np.ones((2, 1)), None, "outside 0 to 1"),
        ([[0.5, 1.0]], np.ones((2, 1)), None, "whole numbers"),
        ([], np.ones((0, 1)), None, "no nodes"),
        ([], np.ones(3), None, r"\(n, f\)"),
        ([], [[1.0], [np.nan]], None, "feature 1 of node 1 is nan"),
        ([], [[np.inf], [1.0]], None, "feature 1 of node 0 is inf"),
        ([], np.ones((2, 1)), [0, 1, 0], "labels of nodes, 2 nodes"),
        ([], np.ones((2, 1)), [0, -2], "labels count from 0"),
    ],
)
def test_a_graph_that_is_none_is_refused_by_name(edges, features, labels, message):
    with pytest.raises(DataError, match=message) as error:
        Graph(np.array(edges), features, 0, labels, "ward.npz: graph 3")
    assert "ward.npz: graph 3" in str(error.value)


def test_one_node_no_edges_isolated_nodes_and_pieces_are_graphs():
    one = graph([], 1)
    assert (one.nodes, len(one.edges), one.label, one.node_labels.tolist()) == (1, 0, -1, [-1])
    np.testing.assert_array_equal(shortest_paths(one), [[0.0]])
    np.testing.assert_array_equal(shortest_paths(graph([], 3)), 1.0 - np.eye(3))
    pieces = graph([[0, 1], [1, 2], [3, 4]], 6)
    lengths = shortest_paths(pieces)
    assert lengths[0, 2] == 2.0
    assert lengths[0, 3] == lengths[5, 4] == 3.0
    assert largest_component(pieces).tolist() == [0, 1, 2]
    assert largest_component(one).tolist() == [0]
    for alone in (one, k_hop(pieces, 5, 2)):
        assert degree_features(alone, 3).features.tolist() == [[1.0, 0.0, 0.0, 0.0]]


def test_edges_in_both_directions_become_one_and_repeats_count_once():
    pairs = [[2, 1], [1, 2], [0, 2], [2, 0], [0, 2]]
    assert undirected(pairs, 3).tolist() == [[0, 2], [1, 2]]
    assert undirected(np.array(pairs) + 1, 3, first=1).tolist() == [[0, 2], [1, 2]]
    assert undirected([[0, 2], [0, 1]], 3, once=True).tolist() == [[0, 1], [0, 2]]


@pytest.mark.parametrize("once", [False, True])
def test_a_directed_graph_is_refused_unless_asked_otherwise(once):
    pairs = [[0, 1], [1, 0], [2, 1]]
    with pytest.raises(DataError, match=r"pair 2: edge \(2, 1\) is there.*directed graph.*symm"):
        undirected(pairs, 3, once=once)
    assert undirected(pairs, 3, once=once, symmetrise=True).tolist() == [[0, 1], [1, 2]]


def test_loops_are_dropped_with_a_warning(caplog):
    with caplog.at_level(logging.WARNING, "trellis"):
        assert undirected([[0, 0], [0, 1], [1, 0], [1, 1]], 2).tolist() == [[0, 1]]
    assert "pair 0: 2 self-loops dropped" in caplog.text


def test_a_node_that_is_not_there_is_named():
    with pytest.raises(DataError, match=r"pair 1: edge \(4, 1\) names a node outside 1 to 3"):
        undirected([[1, 2], [4, 1]], 3, first=1)


@given(random_graphs())
def test_paths_are_those_of_a_plain_search(g):
    lengths = shortest_paths(g)
    steps = [walk(g, u) for u in range(g.nodes)]
    beyond = 1 + max(max(found.values()) for found in steps)
    for u, found in enumerate(steps):
        assert lengths[u].tolist() == [found.get(v, beyond) for v in range(g.nodes)]


@given(random_graphs(), st.data())
def test_a_neighbourhood_is_what_a_plain_search_reaches(g, data):
    centre = data.draw(st.integers(0, g.nodes - 1))
    hops = data.draw(st.integers(1, 3))
    part = k_hop(g, centre, hops)
    near = {v for v, step in walk(g, centre).items() if step <= hops}
    names = part.node_labels  # node i of g is labelled i
    assert part.label == names[0] == centre
    assert names[1:].tolist() == sorted(near - {centre})
    kept = {tuple(sorted(edge)) for edge in names[part.edges].tolist()}
    assert kept == {(u, v) for u, v in g.edges.tolist() if u in near and v in near}


@given(random_graphs(), st.randoms())
def test_an_induced_graph_of_all_nodes_is_the_graph_renumbered(g, random):
    order = random.sample(range(g.nodes), g.nodes)
    same = induced(g, order, 0)
    A, B = g.adjacency.toarray(), same.adjacency.toarray()
    np.testing.assert_array_equal(A[np.ix_(order, order)], B)
    np.testing.assert_array_equal(A, A.T)


@given(random_graphs(), st.integers(0, 4))
def test_degree_features_are_one_hot_capped_degrees(g, most):
    with_degrees = degree_features(g, most)
    degrees = g.adjacency.toarray().sum(axis=1)
    assert with_degrees.features.shape == (g.nodes, most + 1)
    assert with_degrees.features.argmax(axis=1).tolist() == np.minimum(degrees, most).tolist()
    assert (with_degrees.features.sum(axis=1) == 1.0).all()


@given(
    st.lists(st.integers(-1, 3), min_size=1, max_size=40),
    st.integers(1, 12),
    st.sampled_from([1e-3, 0.1, 1.0, 100.0]),
    st.integers(0, 99),
)
def test_every_graph_is_dealt_once_and_no_client_is_left_without(labels, clients, alpha, seed):
    rng = np.random.default_rng(seed)
    if len(labels) < clients:
        with pytest.raises(DataError, match=f"{len(labels)} graphs for clients={clients}"):
            dirichlet_split(labels, clients, alpha, rng)
        return
    parts = dirichlet_split(labels, clients, alpha, rng)
    assert len(parts) == clients
    assert min(len(part) for part in parts) >= 1
    assert sorted(np.concatenate(parts).tolist()) == list(range(len(labels)))


def test_small_concentrations_deal_unevenly_and_large_ones_evenly():
    labels = np.arange(1200) % 3

    def sizes(alpha):
        rng = np.random.default_rng(7)
        parts = dirichlet_split(labels, 6, alpha, rng)
        return np.array([np.bincount(labels[part], minlength=3) for part in parts])

    even, uneven = sizes(1e4), sizes(0.05)
    assert np.abs(even - 1200 / 18).max() < 10
    assert uneven.max() > 200
    assert np.sort(uneven, axis=None)[:6].sum() < 20


def test_synthetic_graphs_are_what_their_class_says():
    graphs = synthetic_graphs(90, np.random.default_rng(3))
    labels = np.array([g.label for g in graphs])
    assert np.bincount(labels).tolist() == [30] * CLASSES
    for g in graphs:
        assert 8 <= g.nodes <= 16
        assert len(largest_component(g)) == g.nodes
        roles = np.minimum(g.degrees(), 3) - 1
        assert g.node_labels.tolist() == roles.tolist()
        if g.label == 0:  # a ring and chords: nobody is an end
            assert g.degrees().min() == 2
            assert len(g.edges) > g.nodes
        elif g.label == 1:
            assert len(g.edges) == g.nodes - 1
    right = np.concatenate([g.features.argmax(axis=1) == g.node_labels for g in graphs])
    assert 0.82 < right.mean() < 0.91  # noise 0.2, a third of which hits the truth


def test_a_community_hangs_on_one_bridge():
    for g in synthetic_graphs(30, np.random.default_rng(5)):
        if g.label != 2:
            continue
        halves = []
        for bridge in range(len(g.edges)):
            without = Graph(np.delete(g.edges, bridge, axis=0), g.features)
            halves.append(len(largest_component(without)))
        assert (g.nodes + 1) // 2 in halves


def test_synthetic_graphs_come_from_the_generator_alone():
    first, again, other = (synthetic_graphs(12, np.random.default_rng(s)) for s in (1, 1, 2))
    for a, b in zip(first, again, strict=True):
        np.testing.assert_array_equal(a.edges, b.edges)
        np.testing.assert_array_equal(a.features, b.features)
    assert any(a.edges.shape != b.edges.shape for a, b in zip(first, other, strict=True))
