"""Graphs by name: what they are, how they are drawn, and which settings are refused."""

from __future__ import annotations

import logging
import math
import subprocess
import sys

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trellis.privacy.mechanisms.homomorphic import check_combination_matrix
from trellis.strategies.topology import named as topology_graphs
from trellis.strategies.topology.graph import topology

from .cases import FIXED, RANDOM, assert_doubly_stochastic, assert_same, graph_of


@given(st.sampled_from(FIXED + RANDOM), st.integers(5, 40), st.integers(0, 10**6))
@settings(max_examples=80, deadline=None)
def test_every_graph_is_connected_and_satisfies_assumption_1(setting, servers, seed):
    t = topology(setting, servers, seed=seed)
    assert_doubly_stochastic(t.weights)
    oracle = graph_of(t)
    assert nx.is_connected(oracle)
    assert t.is_connected
    assert [p.tolist() for p in t.components] == [list(range(servers))]
    assert t.diameter == nx.diameter(oracle)
    np.testing.assert_array_equal(t.laplacian, nx.laplacian_matrix(oracle).toarray())
    np.testing.assert_array_equal(t.adjacency, nx.to_numpy_array(oracle) > 0)
    np.testing.assert_array_equal(t.degree, [oracle.degree[p] for p in range(servers)])
    for p in range(servers):
        assert t.neighbours(p).tolist() == sorted(oracle[p])
    assert t.spectral_radius == pytest.approx(check_combination_matrix(t.weights), abs=1e-12)
    assert 0.0 < t.spectral_gap <= 1.0 + 1e-12


@pytest.mark.parametrize("servers", [1, 2, 3, 7, 12, 16])
def test_the_fixed_graphs_are_as_defined(servers):
    m, p = np.indices((servers, servers))
    apart = np.abs(m - p)
    oracles = {
        "ring": np.minimum(apart, servers - apart) == 1,
        "path": apart == 1,
        "star": (m != p) & (np.minimum(m, p) == 0),
        "complete": m != p,
    }
    for name, expected in oracles.items():
        np.testing.assert_array_equal(topology(name, servers).adjacency, expected, err_msg=name)


@pytest.mark.parametrize(("setting", "servers", "columns"), [
    ("grid", 12, 4), ("grid", 16, 4), ("grid:2,6", 12, 6), ("grid:5,1", 5, 1), ("grid", 2, 2),
    ("grid", 1, 1), ("grid", 5, 3), ("grid", 13, 4),
])  # fmt: skip
def test_neighbours_in_a_grid_are_one_step_apart(setting, servers, columns):
    row, column = np.divmod(np.arange(servers), columns)
    steps = np.abs(np.subtract.outer(row, row)) + np.abs(np.subtract.outer(column, column))
    np.testing.assert_array_equal(topology(setting, servers).adjacency, steps == 1)


def test_a_grid_of_a_prime_number_is_no_path():
    # 0 1 2 3
    # 4 5 6 7
    # 8 9 10
    t = topology("grid", 11)
    assert t.neighbours(10).tolist() == [6, 9]
    assert t.neighbours(7).tolist() == [3, 6]
    assert len(t.edges) == 15


@given(st.integers(2, 60), st.floats(0.0, 1.0), st.integers(0, 10**6))
@settings(max_examples=60, deadline=None)
def test_the_average_degree_is_as_wanted_up_to_rounding(servers, share, seed):
    least, most = 2 * (servers - 1) / servers, servers - 1
    wanted = least + share * (most - least)
    t = topology(f"random:{wanted}", servers, seed=seed)
    assert abs(t.degree.mean() - wanted) <= 1 / servers + 1e-9
    assert t.is_connected


def test_random_is_uniform_over_the_connected_graphs():
    rng = np.random.default_rng(0)
    counts: dict[bytes, int] = {}
    for _ in range(1600):  # 4 servers, 3 edges: 16 trees
        key = topology("random:1.5", 4, seed=rng).adjacency.tobytes()
        counts[key] = counts.get(key, 0) + 1
    assert len(counts) == 16
    chi_square = sum((count - 100) ** 2 / 100 for count in counts.values())
    assert chi_square < 37.7  # 0.999 quantile of 15 degrees of freedom


def test_a_sparse_random_graph_of_many_servers_is_joined_by_a_tree(caplog):
    with caplog.at_level(logging.INFO, logger="trellis.topology"):
        t = topology("random:2", 60)
    assert (t.is_connected, len(t.edges)) == (True, 60)
    assert "joined by a random tree" in caplog.text


def test_erdos_renyi_draws_each_pair_with_its_probability():
    rng = np.random.default_rng(1)
    share = np.mean([topology("erdos-renyi:0.5", 30, seed=rng).degree.mean() / 29
                     for _ in range(40)])  # fmt: skip
    assert abs(share - 0.5) < 4 * math.sqrt(0.25 / (40 * 435))


def test_a_small_world_keeps_its_edges_and_rewires_its_share():
    assert_same(topology("small-world:4,0", 20).adjacency,
                nx.to_numpy_array(nx.watts_strogatz_graph(20, 4, 0)) > 0)  # fmt: skip
    near = topology("small-world:4,0", 200).adjacency
    moved = []
    for seed in range(20):
        t = topology("small-world:4,0.25", 200, seed=seed)
        assert len(t.edges) == 400
        moved.append(1 - (t.adjacency & near).sum() / near.sum())
    # A moved end lands on a near server again with probability below 2%.
    assert 0.25 * 0.97 - 0.02 < np.mean(moved) < 0.25 + 0.02


@pytest.mark.parametrize("setting", RANDOM)
def test_a_seed_fixes_the_graph_and_another_changes_it(setting):
    first, again, other = (topology(setting, 15, seed=seed) for seed in (3, 3, 4))
    assert_same(first.weights, again.weights)
    assert not np.array_equal(first.adjacency, other.adjacency)
    assert_same(first.weights, topology(setting, 15, seed=np.random.default_rng(3)).weights)


@pytest.mark.parametrize(("setting", "servers", "edges"), [
    ("erdos-renyi:0.4", 6, "02 04 05 13 34 35"),
    ("random:3", 6, "01 02 04 05 13 23 24 35 45"),
    ("small-world:2,0.5", 6, "01 02 12 24 25 34"),
    ("small-world:4,0.3", 7, "01 02 05 06 12 14 16 24 25 34 35 45 46 56"),
])  # fmt: skip
def test_a_seed_gives_the_graph_it_always_gave(setting, servers, edges):
    """Results of old runs can be had again only as long as the draws stay as they are."""
    assert " ".join(f"{m}{p}" for m, p in topology(setting, servers, seed=1).edges) == edges


@pytest.mark.parametrize("setting", [*FIXED, "erdos-renyi:0.3"])
@pytest.mark.parametrize("rule", ["metropolis", "laplacian"])
def test_one_server_and_two_servers_work(setting, rule):
    alone, pair = (topology(setting, servers, weights=rule) for servers in (1, 2))
    assert_same(alone.weights, [[1.0]])
    assert (alone.spectral_gap, alone.diameter, alone.edges.shape) == (1.0, 0.0, (0, 2))
    assert_same(pair.weights, [[0.5, 0.5], [0.5, 0.5]])
    assert pair.without([0]).weights.tolist() == [[1.0]]


@pytest.mark.parametrize(("setting", "servers", "match"), [
    ("rnig", 5, r"graph 'rnig': unknown; did you mean 'ring'\?"),
    ("Erdos_Renyi:0.3", 5, "did you mean 'erdos-renyi'"),
    ("smallworld:4,0.1", 5, "did you mean 'small-world'"),
    ("xyzzy", 5, "Known are ring, path"), ("", 5, "unknown"),
    ("ring:3", 5, "graph 'ring:3': write it as 'ring'"),
    ("erdos-renyi", 5, "needs the probability of an edge: 'erdos-renyi:0.3'"),
    ("erdos-renyi:", 5, "needs the probability"), ("random", 5, "needs the average degree"),
    ("small-world:4", 5, "write it as 'small-world:4,0.1'"),
    ("random:four", 5, "write it as 'random:4'"), ("random:nan", 5, "write it as 'random:4'"),
    ("ring:x", 5, "write it as 'ring'"),
    ("erdos-renyi:1.5", 5, r"probability 1.5 is not in \(0, 1\]"),
    ("erdos-renyi:0", 5, "is not in"),
    ("erdos-renyi:0.001", 30, r"not connected in 1000 draws; .*log\(P\) / P = 0.11"),
    ("random:5", 5, "average degree of 5 is above P - 1 = 4"),
    ("random:1", 10, "5 edges, too few to connect the servers; take at least 1.8"),
    ("small-world:3,0.1", 9, "3 nearest servers; an even number"),
    ("small-world:4,0.1", 4, "4 nearest servers, but each has 3 others"),
    ("small-world:2.5,0.1", 9, "2.5 nearest servers; a whole number"),
    ("small-world:4,1.1", 9, "rewiring probability 1.1"),
    ("grid:2,3", 7, "2 rows of 3 make 6 servers"), ("grid:-1,-4", 4, "make 4 servers"),
    ("ring", 0, "servers = 0"),
])  # fmt: skip
def test_a_wrong_setting_is_refused_by_name(setting, servers, match):
    with pytest.raises(ValueError, match=match):
        topology(setting, servers)


def test_a_small_world_that_falls_apart_is_drawn_again_or_refused(monkeypatch):
    monkeypatch.setattr(topology_graphs, "_MOST_DRAWS", 1)
    with pytest.raises(
        ValueError, match="not connected in 1 draws; take more nearest servers than"
    ):
        topology("small-world:2,1", 60, seed=2)
    monkeypatch.undo()
    assert topology("small-world:2,1", 60, seed=2).is_connected


def test_no_framework_is_loaded_and_networkx_only_where_it_makes_the_graph(tmp_path):
    nx.write_graphml_xml(nx.path_graph(3), tmp_path / "g.graphml")
    code = (
        "import sys; from trellis.strategies.topology.graph import topology\n"
        "heavy = {'flwr', 'networkx', 'torch', 'sklearn'}\n"
        f"topology({str(tmp_path / 'g.graphml')!r}); topology('random:3', 8)\n"
        "topology('erdos-renyi:0.5', 8); topology('complete', 1)\n"
        "print(sorted(heavy & set(sys.modules)))\n"
        "topology('ring', 8)\n"
        "print(sorted(heavy & set(sys.modules)))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["[]", "['networkx']"]


@pytest.mark.parametrize("setting", ["ring", "path", "star", "grid", "grid:2,4", RANDOM[2]])
def test_a_graph_that_networkx_makes_says_how_to_get_it(setting, monkeypatch):
    monkeypatch.setitem(sys.modules, "networkx", None)
    with pytest.raises(ImportError, match=r"need networkx: pip install '\.\[laptop\]'"):
        topology(setting, 8)


@pytest.mark.parametrize("setting", ["complete", "erdos-renyi:0.3", "random:4"])
def test_the_graphs_named_in_that_error_do_without_networkx(setting, monkeypatch):
    monkeypatch.setitem(sys.modules, "networkx", None)
    assert topology(setting, 8).is_connected
