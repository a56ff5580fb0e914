"""Combination matrices by rule: by hand, in closed form, and which names are refused."""

from __future__ import annotations

import math

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trellis.strategies.topology.graph import topology
from trellis.strategies.topology.weights import combination

from .cases import assert_doubly_stochastic, assert_same, graph_of


def test_metropolis_weights_of_a_star_by_hand():
    # The hub has 3 neighbours: 1 / (1 + 3) on every edge, 1 - 3/4 at the hub, 1 - 1/4 at leaves.
    a = np.array([[1, 1, 1, 1], [1, 3, 0, 0], [1, 0, 3, 0], [1, 0, 0, 3]]) / 4
    t = topology("star", 4)
    assert_same(t.weights, a)
    # Leaves' differences are eigenvectors with 3/4, the rest of the spectrum is 1 and 0.
    assert t.spectral_radius == pytest.approx(0.75)
    assert t.spectral_gap == pytest.approx(0.25)


def test_metropolis_weights_of_a_path_by_hand():
    expected = np.array([[2, 1, 0, 0], [1, 1, 1, 0], [0, 1, 1, 1], [0, 0, 1, 2]]) / 3
    np.testing.assert_allclose(topology("path", 4).weights, expected, atol=1e-15)


@given(st.integers(5, 25), st.integers(0, 10**6))
@settings(max_examples=30, deadline=None)
def test_both_rules_agree_with_networkx(servers, seed):
    t = topology("random:3", servers, seed=seed)
    oracle = graph_of(t)
    for m, p in oracle.edges:
        assert t.weights[m, p] == 1 / (1 + max(oracle.degree[m], oracle.degree[p]))
    most = max(dict(oracle.degree).values())
    lap = nx.laplacian_matrix(oracle).toarray()
    for rule, eps in (("laplacian", 1 / (1 + most)), (f"laplacian:{0.9 / most}", 0.9 / most)):
        a = topology("random:3", servers, seed=seed, weights=rule).weights
        np.testing.assert_allclose(a, np.eye(servers) - eps * lap, atol=1e-15)
        assert_doubly_stochastic(a)


def test_the_spectral_gap_of_a_ring_is_in_closed_form():
    expected = 1 - (1 + 2 * math.cos(2 * math.pi / 9)) / 3
    assert topology("ring", 9).spectral_gap == pytest.approx(expected)
    assert topology("complete", 9).spectral_gap == pytest.approx(1.0)


@pytest.mark.parametrize("name", ["neighbourhood", "averaging", "uniform"])
def test_plain_averages_are_refused_by_name(name):
    with pytest.raises(ValueError, match=f"weights = '{name}': plain averages .* doubly stochast"):
        topology("star", 4, weights=name)


@pytest.mark.parametrize(("weights", "match"), [
    ("metropolos", "did you mean 'metropolis'"), ("zzz", "Known: metropolis, laplacian, own"),
    ("laplacian:x", "eps must be a positive number"), ("laplacian:-1", "eps must be a positive"),
    ("laplacian:0.34", r"a\[0, 0\] = -0.02 at a server with 3 neighbours; take eps < 0.333333"),
    ("own", "graph 'star' has none"),
])  # fmt: skip
def test_wrong_weights_are_refused_by_name(weights, match):
    with pytest.raises(ValueError, match=match):
        topology("star", 4, weights=weights)


def test_a_one_way_graph_has_no_combination_matrix():
    with pytest.raises(ValueError, match="server 0 is joined to 1 but 1 not to 0"):
        combination([[False, True], [False, False]], "metropolis")
    with pytest.raises(ValueError, match="a graph has none of its own"):
        combination([[False, True], [True, False]], "own")
