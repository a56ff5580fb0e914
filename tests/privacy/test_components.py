"""Connected components are scipy's, whatever the graph and the order of its edges."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from trellis.privacy.components import component_labels, matrix_components


def by_scipy(nodes, first, second):
    links = coo_array((np.ones(len(first)), (first, second)), shape=(nodes, nodes))
    return connected_components(links, directed=False)[1]


@given(st.data())
def test_labels_are_scipy_s(data):
    nodes = data.draw(st.integers(1, 30))
    node = st.integers(0, nodes - 1)
    pairs = np.array(data.draw(st.lists(st.tuples(node, node), max_size=60)), dtype=int)
    first, second = pairs.reshape(-1, 2).T
    assert np.array_equal(component_labels(nodes, first, second), by_scipy(nodes, first, second))


def orders(nodes):
    rng = np.random.default_rng(2)
    path, some = rng.permutation(nodes), rng.integers(0, nodes, (2, nodes // 2))
    return {
        "a path": (np.arange(nodes - 1), np.arange(1, nodes)),
        "a path backwards": (np.arange(1, nodes)[::-1], np.arange(nodes - 1)[::-1]),
        "a path in no order": (path[:-1], path[1:]),
        "a star whose centre comes last": (np.full(nodes - 1, nodes - 1), np.arange(nodes - 1)),
        "pieces": (some[0], some[1]),
        "nothing": (np.zeros(0, dtype=int), np.zeros(0, dtype=int)),
    }


@pytest.mark.parametrize("name", list(orders(4)))
def test_labels_of_large_graphs_are_scipy_s(name):
    nodes = 20_000
    first, second = orders(nodes)[name]
    assert np.array_equal(component_labels(nodes, first, second), by_scipy(nodes, first, second))


def test_of_a_matrix():
    rng = np.random.default_rng(3)
    for share in (0.0, 0.01, 0.05, 0.5):
        drawn = np.triu(rng.random((60, 60)) < share)  # loops among them
        adjacency = drawn | drawn.T
        assert np.array_equal(
            matrix_components(adjacency), connected_components(adjacency, directed=False)[1]
        )
    assert matrix_components(np.zeros((0, 0), dtype=bool)).shape == (0,)
