"""Baselines on raw graphs against slow loops, networkx and answers known by hand."""

from __future__ import annotations

from collections import Counter
from itertools import combinations

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trellis.apps.common.tables import DataError
from trellis.apps.gromov_wasserstein.downstream import baselines
from trellis.apps.gromov_wasserstein.downstream.baselines import (
    centralised_accuracy,
    edit_distances,
    fused_inputs,
    shortest_path_kernel,
    topology_matrices,
)
from trellis.apps.gromov_wasserstein.downstream.tasks import kernel_svm_accuracy, knn_accuracy
from trellis.apps.gromov_wasserstein.graphs import Graph, undirected


def graph(nodes, edges, labels=None, label=-1, features=None, source="graph"):
    ordered = sorted((min(e), max(e)) for e in edges)
    features = np.zeros((nodes, 1)) if features is None else np.asarray(features)
    node_labels = np.full(nodes, -1) if labels is None else np.asarray(labels)
    return Graph(np.array(ordered, dtype=np.int64), features, label, node_labels, source)


def path(nodes, **more):
    return graph(nodes, [(i, i + 1) for i in range(nodes - 1)], **more)


def cycle(nodes, **more):
    return graph(nodes, [(i, (i + 1) % nodes) for i in range(nodes)], **more)


def as_networkx(one):
    copy = nx.Graph()
    copy.add_nodes_from(range(one.nodes))
    copy.add_edges_from(one.edges.tolist())
    return copy


@st.composite
def graphs(draw):
    nodes = draw(st.integers(1, 8))
    pairs = list(combinations(range(nodes), 2))
    chosen = draw(st.lists(st.sampled_from(pairs), unique=True)) if pairs else []
    labels = draw(st.lists(st.integers(-1, 2), min_size=nodes, max_size=nodes))
    return graph(nodes, chosen, labels)


def counted(one, node_labels):
    """Count the triples by networkx and a loop."""
    lengths = dict(nx.all_pairs_shortest_path_length(as_networkx(one)))
    triples = Counter()
    for u, v in combinations(range(one.nodes), 2):
        if v in lengths[u]:
            ends = (int(one.node_labels[u]), int(one.node_labels[v])) if node_labels else (0, 0)
            triples[(*sorted(ends), lengths[u][v])] += 1
    return triples


@settings(max_examples=60, deadline=None)
@given(st.lists(graphs(), min_size=1, max_size=5), st.booleans())
def test_the_shortest_path_kernel_is_that_of_a_slow_loop(some, node_labels):
    kernel = shortest_path_kernel(some, node_labels=node_labels, normalise=False)
    counts = [counted(one, node_labels) for one in some]
    slow = [[sum(a[t] * b[t] for t in a) for b in counts] for a in counts]
    assert np.array_equal(kernel, np.array(slow, dtype=float))


@settings(max_examples=40, deadline=None)
@given(st.lists(graphs(), min_size=1, max_size=6), st.randoms(use_true_random=False))
def test_the_normalised_kernel_is_a_kernel_and_blind_to_the_order_of_nodes(some, random):
    kernel = shortest_path_kernel(some)
    assert np.array_equal(np.diag(kernel), np.ones(len(some)))
    assert np.array_equal(kernel, kernel.T)
    assert kernel.min() >= 0.0
    assert kernel.max() <= 1.0 + 1e-12
    assert np.linalg.eigvalsh(kernel).min() > -1e-9
    shuffled = []
    for one in some:
        order = list(range(one.nodes))
        random.shuffle(order)
        place = np.argsort(order)
        shuffled.append(graph(one.nodes, place[one.edges].tolist(), one.node_labels[order]))
    assert np.allclose(shortest_path_kernel(some + shuffled)[: len(some), len(some) :], kernel)


def test_the_kernel_of_a_path_and_a_triangle_by_hand():
    # path of 3: two pairs at 1, one at 2; triangle: three pairs at 1
    some = [path(3), cycle(3)]
    assert np.array_equal(shortest_path_kernel(some, normalise=False), [[5.0, 6.0], [6.0, 9.0]])
    assert shortest_path_kernel(some)[0, 1] == pytest.approx(6 / np.sqrt(45))


def test_labels_tell_graphs_apart_that_distances_do_not():
    some = [path(3, labels=[0, 0, 1]), path(3, labels=[1, 0, 0]), path(3, labels=[0, 1, 0])]
    with_labels, without = shortest_path_kernel(some), shortest_path_kernel(some, node_labels=False)
    assert np.allclose(without, 1.0)
    assert with_labels[0, 1] == pytest.approx(1.0)  # the same path from its other end
    assert with_labels[0, 2] < 0.9


def test_graphs_without_an_edge_are_alike_and_unlike_the_others():
    kernel = shortest_path_kernel([graph(1, []), graph(4, []), path(3)])
    assert np.array_equal(kernel, [[1.0, 1.0, 0.0], [1.0, 1.0, 0.0], [0.0, 0.0, 1.0]])
    with pytest.raises(ValueError, match="none to compare"):
        shortest_path_kernel([])


def test_paths_and_stars_are_told_apart_by_the_kernel():
    stars = [graph(n, [(0, leaf) for leaf in range(1, n)]) for n in range(6, 18)]
    kernel = shortest_path_kernel([path(n) for n in range(6, 18)] + stars)
    assert kernel_svm_accuracy(kernel, np.repeat([0, 1], 12), seed=1, folds=4).mean == 1.0


# --- models trained in one place ----------------------------------------------------------------


def by_cycles(training, seed):
    """A trainer that learns which class has as many edges as nodes."""
    assert seed == 5
    loops = {one.label for one in training if len(one.edges) == one.nodes}
    (closed,) = loops
    (other,) = {one.label for one in training} - loops
    return lambda unseen: np.array([closed if len(g.edges) == g.nodes else other for g in unseen])


def test_a_trainer_sees_training_graphs_only_and_classifies_the_rest():
    some = [path(n, label=0) for n in range(3, 13)] + [cycle(n, label=1) for n in range(3, 13)]
    some.append(path(4))
    trained, asked = [], []

    def trainer(training, seed):
        trained.append({id(one) for one in training})
        predict = by_cycles(training, seed)

        def watched(unseen):
            assert all(one.label == -1 for one in unseen)
            asked.append(len(unseen))
            return predict(unseen)

        return watched

    result = centralised_accuracy(some, trainer, seed=5, folds=5)
    assert result.mean == 1.0
    assert result.predicted.tolist() == [0] * 10 + [1] * 10 + [-1]
    assert result.notes == ("1 of 21 graphs have no label (-1) and were left out",)
    assert asked == [4] * 5
    everyone = {id(one) for one in some[:-1]}
    missed = [everyone - seen for seen in trained]
    assert all(seen < everyone for seen in trained)
    assert set.union(*missed) == everyone
    assert sum(map(len, missed)) == 20


def test_the_folds_are_those_of_the_other_classifiers():
    labels = [0, 1] * 10
    some = [path(n + 2, label=label) for n, label in enumerate(labels)]
    heard = []

    def trainer(training, _seed):
        heard.append(sorted(one.nodes - 2 for one in training))
        return lambda unseen: np.zeros(len(unseen), dtype=int)

    result = centralised_accuracy(some, trainer, seed=3, folds=4)
    splits, _ = baselines.outer_folds(np.array(labels), 4, 3)
    assert heard == [train.tolist() for train, _ in splits]
    distances = np.abs(np.subtract.outer(np.arange(20.0), np.arange(20.0)))
    assert len(knn_accuracy(distances, labels, 3, seed=3, folds=4).per_fold) == 4
    assert result.mean == 0.5


def test_a_predictor_with_too_few_answers_is_refused():
    some = [path(3, label=n % 2) for n in range(8)]
    with pytest.raises(ValueError, match=r"gave shape \(1,\) for 4 graphs"):
        centralised_accuracy(some, lambda *_: lambda _: np.zeros(1), seed=1, folds=2)


# --- inputs of Gromov-Wasserstein ---------------------------------------------------------------


@settings(max_examples=40, deadline=None)
@given(graphs())
def test_topology_matrices_are_networkx_s_distances_and_finite(one):
    (matrix,) = topology_matrices([one])
    lengths = dict(nx.all_pairs_shortest_path_length(as_networkx(one)))
    longest = max(max(row.values()) for row in lengths.values())
    expected = [
        [lengths[u].get(v, longest + 1) for v in range(one.nodes)] for u in range(one.nodes)
    ]
    assert np.array_equal(matrix, np.array(expected, dtype=float))


def test_fused_inputs_carry_the_squared_distances_of_features():
    rng = np.random.default_rng(0)
    some = [path(n, features=rng.standard_normal((n, 3))) for n in (2, 5)]
    fused = fused_inputs(some)
    cost = fused.cost(0, 1)
    assert cost.shape == (2, 5)
    for u in range(2):
        for v in range(5):
            gap = some[0].features[u].astype(float) - some[1].features[v]
            assert cost[u, v] == pytest.approx(float(gap @ gap))
    assert np.diag(fused.cost(1, 1)) == pytest.approx(np.zeros(5), abs=1e-12)
    assert fused.structures[0].tolist() == [[0.0, 1.0], [1.0, 0.0]]


def test_features_of_different_lengths_name_both_graphs():
    some = [
        path(2, features=np.ones((2, 3)), source="hospital-a graph 1"),
        path(2, features=np.ones((2, 4)), source="hospital-b graph 1"),
    ]
    with pytest.raises(DataError, match="hospital-b graph 1: 4 features, hospital-a graph 1 has 3"):
        fused_inputs(some)
    with pytest.raises(DataError, match="no features; compare topologies"):
        fused_inputs([path(2, features=np.ones((2, 0)))])


# --- graph edit distance ------------------------------------------------------------------------


def test_edit_distances_of_small_graphs_by_hand():
    # an edge more; a node and an edge more; renumbered
    some = [path(4), cycle(4), path(5), graph(4, [(2, 0), (0, 3), (3, 1)]), graph(1, [])]
    found = edit_distances(some)
    assert found.exact.all()
    assert found.values.tolist() == [
        [0.0, 1.0, 2.0, 0.0, 6.0],
        [1.0, 0.0, 3.0, 1.0, 7.0],
        [2.0, 3.0, 0.0, 2.0, 8.0],
        [0.0, 1.0, 2.0, 0.0, 6.0],
        [6.0, 7.0, 8.0, 6.0, 0.0],
    ]


@settings(max_examples=15, deadline=None)
@given(graphs().filter(lambda g: g.nodes <= 5), graphs().filter(lambda g: g.nodes <= 5))
def test_edit_distances_are_those_of_an_unbounded_search(one, two):
    found = edit_distances([one, two], seconds=60.0)
    assert found.values[0, 1] == nx.graph_edit_distance(as_networkx(one), as_networkx(two))
    assert found.exact.all()


def test_a_search_out_of_time_gives_a_bound_and_says_so():
    rng = np.random.default_rng(0)
    pairs = np.array(list(combinations(range(14), 2)))
    some = [graph(14, pairs[rng.choice(len(pairs), 40, replace=False)].tolist()) for _ in range(2)]
    found = edit_distances(some, seconds=1e-6)
    assert not found.exact[0, 1]
    assert not found.exact[1, 0]
    assert found.exact[0, 0]
    assert found.values[0, 1] == found.values[1, 0]
    assert 0.0 < found.values[0, 1] <= 80.0
    with pytest.raises(ValueError, match="seconds=0"):
        edit_distances(some, seconds=0)


def test_isomorphic_graphs_are_at_distance_zero_without_a_search(monkeypatch):
    monkeypatch.setattr(nx, "graph_edit_distance", None)  # a call would fail
    petersen = np.array(nx.petersen_graph().edges)
    order = np.random.default_rng(0).permutation(10)
    pairs = np.concatenate([order[petersen], order[petersen][:, ::-1]])
    turned = Graph(undirected(pairs, 10), np.zeros((10, 1), dtype=np.float32))
    found = edit_distances([graph(10, petersen.tolist()), turned])
    assert not found.values.any()
    assert found.exact.all()
