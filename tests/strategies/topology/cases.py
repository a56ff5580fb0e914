"""Graphs of servers that tests share, and what must hold of every one."""

from __future__ import annotations

import networkx as nx
import numpy as np

from trellis.strategies.topology.graph import Topology

FIXED = ["ring", "path", "star", "complete", "grid"]
RANDOM = ["erdos-renyi:0.4", "random:4", "small-world:4,0.3"]


def assert_doubly_stochastic(a):
    np.testing.assert_array_equal(a, a.T)
    np.testing.assert_allclose(a.sum(axis=0), 1.0, rtol=0, atol=1e-14)
    assert a.min() >= 0.0
    assert np.diagonal(a).min() > 0.0


def assert_same(left, right):
    np.testing.assert_array_equal(left, right)


def graph_of(t: Topology) -> nx.Graph:
    found = nx.Graph()
    found.add_nodes_from(range(t.servers))
    found.add_edges_from(t.edges.tolist())
    return found
