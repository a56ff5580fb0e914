"""The topology as an object, and what is left of it when servers fail."""

from __future__ import annotations

import json
import logging
import math

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trellis.privacy.mechanisms.homomorphic import check_combination_matrix, combined_noise
from trellis.strategies.topology.graph import Topology, topology

from .cases import FIXED, RANDOM, assert_doubly_stochastic, assert_same, graph_of

RULES = ["metropolis", "laplacian", "laplacian:0.01", "own"]


def with_rule(setting: str, servers: int, rule: str, seed: int = 0) -> Topology:
    """Return a topology by any rule; the own matrix is an average that no rule gives."""
    if rule != "own":
        return topology(setting, servers, weights=rule, seed=seed)
    t = topology(setting, servers, seed=seed)
    return Topology(t.names, 0.3 * np.eye(servers) + 0.7 * t.weights)


# --- the object ------------------------------------------------------------------------------


def test_nothing_in_a_topology_changes():
    given_weights = topology("ring", 5).weights.copy()
    t = Topology(tuple("abcde"), given_weights)
    given_weights[:] = 0.0
    assert_doubly_stochastic(t.weights)
    for array in (t.weights, t.adjacency, t.edges, t.degree, t.laplacian):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 0
    with pytest.raises(AttributeError):
        t.rule = "metropolis"


def test_servers_are_found_by_name_or_place():
    t = topology("path", names=["rome", "milan", "oslo"])
    assert t.neighbours("rome").tolist() == t.neighbours(0).tolist() == [1]
    with pytest.raises(ValueError, match="no server is called 'milano'; did you mean 'milan'"):
        t.index("milano")
    with pytest.raises(ValueError, match="numbered 0 to 2"):
        t.index(-1)
    with pytest.raises(ValueError, match="2 names for 3 servers"):
        topology("path", 3, names=["a", "b"])
    with pytest.raises(ValueError, match="'a' occurs twice"):
        topology("path", names=["a", "b", "a"])


def test_a_fresh_topology_that_is_apart_is_refused():
    apart = np.kron(np.eye(2), np.full((2, 2), 0.5))
    with pytest.raises(ValueError, match="2 components"):
        Topology(tuple("abcd"), apart)


def test_a_report_gets_plain_numbers():
    told = topology("ring", 10, weights="laplacian").describe()
    gap = told.pop("spectral-gap")
    assert gap == pytest.approx((2 - 2 * math.cos(2 * math.pi / 10)) / 3)
    assert json.loads(json.dumps(told)) == {
        "graph": "ring", "servers": 10, "edges": 10, "mean-degree": 2.0,
        "weights": "laplacian", "components": 1,
    }  # fmt: skip


# --- failures --------------------------------------------------------------------------------


@given(
    st.sampled_from(FIXED + RANDOM), st.sampled_from(RULES), st.integers(5, 20),
    st.integers(0, 10**6), st.data(),
)  # fmt: skip
@settings(max_examples=120, deadline=None)
def test_survivors_keep_a_doubly_stochastic_matrix(setting, rule, servers, seed, data):
    t = with_rule(setting, servers, rule, seed)
    lost = data.draw(st.sets(st.integers(0, servers - 1), min_size=1, max_size=servers - 1))
    kept = [p for p in range(servers) if p not in lost]
    rest = t.without(lost)
    assert_doubly_stochastic(rest.weights)
    assert rest.names == tuple(t.names[p] for p in kept)
    oracle = graph_of(t).subgraph(kept)
    assert_same(rest.adjacency, nx.to_numpy_array(oracle, nodelist=kept) > 0)
    parts = sorted(sorted(kept.index(p) for p in part) for part in nx.connected_components(oracle))
    assert [part.tolist() for part in rest.components] == parts
    if len(parts) > 1:
        assert rest.spectral_gap == 0.0
        assert rest.spectral_radius == pytest.approx(1.0)
        assert rest.diameter == math.inf
    for part in parts:  # every component satisfies Assumption 1 by itself, so (25) holds in it
        block = rest.weights[np.ix_(part, part)]
        check_combination_matrix(block)
        assert abs(combined_noise(block, np.ones((len(part), 1)) * 3.0).sum()) < 1e-12
    one_by_one = t
    for p in lost:
        one_by_one = one_by_one.without([t.names[p]])
    np.testing.assert_allclose(one_by_one.weights, rest.weights, atol=1e-15)


def test_an_own_matrix_gives_lost_weight_to_the_diagonal():
    a = np.array([[0.5, 0.2, 0.3], [0.2, 0.7, 0.1], [0.3, 0.1, 0.6]])
    rest = Topology(tuple("abc"), a).without(["b"])
    np.testing.assert_allclose(rest.weights, [[0.7, 0.3], [0.3, 0.7]], atol=1e-15)


def test_weights_by_a_rule_are_those_of_the_survivors_graph(caplog):
    assert_same(topology("ring", 6).without([0]).weights, topology("path", 5).weights)
    rest = topology("star", 5, weights="laplacian").without([1, 2])
    assert_same(rest.weights, topology("star", 3, weights="laplacian").weights)
    rest = topology("star", 5, weights="laplacian:0.1").without([1, 2])
    assert_same(rest.weights, topology("star", 3, weights="laplacian:0.1").weights)
    assert not caplog.records


def test_survivors_that_fall_apart_are_named(caplog):
    t = topology("path", names=["a", "b", "c", "d", "e"])
    rest = t.without(["c"])
    assert not rest.is_connected
    assert rest.describe()["components"] == 2
    assert not rest.weights[:2, 2:].any()
    message = caplog.records[0].getMessage()
    assert caplog.records[0].name == "trellis.topology"
    assert caplog.records[0].levelno == logging.WARNING
    assert message == (
        "without c the 4 other servers fall into 2 components, each of which learns by itself: "
        "a, b; d, e"
    )


def test_at_least_one_server_survives():
    t = topology("ring", 3)
    assert t.without([]) is t
    with pytest.raises(ValueError, match="all 3 servers fail"):
        t.without([0, 1, 2])
    with pytest.raises(ValueError, match="no server 7"):
        t.without([7])
