"""The graph of servers: generators, weights, files, and what is left when servers fail."""

from __future__ import annotations

import json
import logging
import math
import subprocess
import sys

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from privacy.mechanisms.homomorphic import check_combination_matrix, combined_noise
from strategies.topology import named as topology_graphs
from strategies.topology.graph import Topology, topology
from strategies.topology.weights import combination

FIXED = ["ring", "path", "star", "complete", "grid"]
RANDOM = ["erdos-renyi:0.4", "random:4", "small-world:4,0.3"]
RULES = ["metropolis", "laplacian", "laplacian:0.01", "own"]


def assert_doubly_stochastic(a):
    np.testing.assert_array_equal(a, a.T)
    np.testing.assert_allclose(a.sum(axis=0), 1.0, rtol=0, atol=1e-14)
    assert a.min() >= 0.0
    assert np.diagonal(a).min() > 0.0


def graph_of(t: Topology) -> nx.Graph:
    found = nx.Graph()
    found.add_nodes_from(range(t.servers))
    found.add_edges_from(t.edges.tolist())
    return found


def with_rule(setting: str, servers: int, rule: str, seed: int = 0) -> Topology:
    """Return a topology by any rule; the own matrix is an average that no rule gives."""
    if rule != "own":
        return topology(setting, servers, weights=rule, seed=seed)
    t = topology(setting, servers, seed=seed)
    return Topology(t.names, 0.3 * np.eye(servers) + 0.7 * t.weights)


# --- generators ------------------------------------------------------------------------------


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
def test_the_fixed_graphs_are_those_of_networkx(servers):
    oracles = {
        "ring": nx.cycle_graph(servers) if servers > 1 else nx.empty_graph(1),
        "path": nx.path_graph(servers),
        "star": nx.star_graph(servers - 1),
        "complete": nx.complete_graph(servers),
    }
    for name, oracle in oracles.items():
        expected = nx.to_numpy_array(oracle, nodelist=range(servers)) > 0
        np.testing.assert_array_equal(topology(name, servers).adjacency, expected, err_msg=name)


@pytest.mark.parametrize(("setting", "rows", "columns"), [
    ("grid", 3, 4), ("grid", 4, 4), ("grid:2,6", 2, 6), ("grid:5,1", 5, 1), ("grid", 1, 2),
])  # fmt: skip
def test_a_full_grid_is_that_of_networkx(setting, rows, columns):
    oracle = nx.to_numpy_array(nx.grid_2d_graph(rows, columns), nodelist=[
        (r, c) for r in range(rows) for c in range(columns)]) > 0  # fmt: skip
    np.testing.assert_array_equal(topology(setting, rows * columns).adjacency, oracle)


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


def assert_same(left, right):
    np.testing.assert_array_equal(left, right)


@pytest.mark.parametrize("setting", RANDOM)
def test_a_seed_fixes_the_graph_and_another_changes_it(setting):
    first, again, other = (topology(setting, 15, seed=seed) for seed in (3, 3, 4))
    assert_same(first.weights, again.weights)
    assert not np.array_equal(first.adjacency, other.adjacency)
    assert_same(first.weights, topology(setting, 15, seed=np.random.default_rng(3)).weights)


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


# --- weights ---------------------------------------------------------------------------------


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


# --- files -----------------------------------------------------------------------------------

OWN = np.array([[0.5, 0.2, 0.3], [0.2, 0.7, 0.1], [0.3, 0.1, 0.6]])


def written(tmp_path, name, text):
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    return str(path)


@pytest.mark.parametrize(("name", "text", "names"), [
    ("e.csv", "rome,milan\nmilan,oslo\n", ("rome", "milan", "oslo")),
    ("e.csv", "\ufeffsource,target\nrome,milan\noslo,milan\n", ("rome", "milan", "oslo")),
    ("e.csv", "rome; milan\nmilan ;oslo\nmilan;rome", ("rome", "milan", "oslo")),
    ("e.txt", "# cities\n\nrome milan 0.2\nmilan oslo 7\n", ("rome", "milan", "oslo")),
    ("E.TXT", "rome\tmilan\nmilan\toslo\n", ("rome", "milan", "oslo")),
    ("e.csv", '"rome, old",milan\nmilan,oslo\n', ("rome, old", "milan", "oslo")),
    ("e.csv", "9,10\n10,11\n", ("9", "10", "11")),
    ("e.csv", "11,10\n10,9\n", ("9", "10", "11")),
    ("e.csv", "0,1,0.5\n1,2,0.25\n2,1,0.25\n", ("0", "1", "2")),
])  # fmt: skip
def test_edge_lists_are_read(tmp_path, name, text, names):
    t = topology(written(tmp_path, name, text))
    assert t.names == names
    assert t.rule == "metropolis"
    assert_same(t.weights, topology("path", 3).weights)
    assert t.graph == name


def test_a_list_with_weights_can_be_the_own_matrix(tmp_path):
    path = written(tmp_path, "e.csv", "a,b,0.2\na,c,0.3\nc,b,0.1\n")
    t = topology(path, 3, weights="own")
    np.testing.assert_allclose(t.weights, OWN, atol=1e-15)
    assert_doubly_stochastic(t.weights)


@pytest.mark.parametrize("named", [False, True])
def test_matrices_are_read(tmp_path, named):
    names = ("x", "y", "z") if named else ("0", "1", "2")
    np.savez(tmp_path / "m.npz", A=OWN, **({"names": np.array(names)} if named else {}))
    rows = [",".join(f"{value:.17g}" for value in row) for row in OWN]
    corner = [f"{name},{row}" for name, row in zip(names, rows, strict=True)]
    texts = ["\n".join(([",".join(names)] if named else []) + rows)]
    if named:
        texts.append("\n".join(["," + ",".join(names), *corner]))
    paths = [written(tmp_path, f"m{i}.csv", text) for i, text in enumerate(texts)]
    for path in [str(tmp_path / "m.npz"), *paths]:
        t = topology(path)
        assert (t.names, t.rule) == (names, "own")
        np.testing.assert_allclose(t.weights, OWN, atol=1e-15)
        assert_same(topology(path, weights="metropolis").weights, topology("complete", 3).weights)


@pytest.mark.parametrize("servers", [1, 2, 3, 4, 9])
def test_every_combination_matrix_is_told_from_a_list(tmp_path, servers):
    t = topology("ring", servers)
    path = tmp_path / "ring.csv"
    np.savetxt(path, t.weights, delimiter=",", fmt="%.17g")
    np.testing.assert_allclose(topology(str(path)).weights, t.weights, atol=1e-15)


def test_small_errors_of_a_file_do_not_stay_in_the_matrix(tmp_path):
    noisy = OWN + 1e-11 * np.random.default_rng(0).normal(size=(3, 3))
    np.savez(tmp_path / "m.npz", A=noisy)
    assert np.abs(noisy - noisy.T).max() > 1e-12
    assert_doubly_stochastic(topology(str(tmp_path / "m.npz")).weights)


def test_graphml_of_networkx_is_read(tmp_path):
    oracle = nx.relabel_nodes(nx.random_regular_graph(3, 8, seed=1), lambda i: f"city {i}")
    nx.set_edge_attributes(oracle, 0.2, "weight")
    nx.write_graphml_xml(oracle, tmp_path / "g.graphml")
    t = topology(str(tmp_path / "g.graphml"))
    assert t.names == tuple(oracle)
    assert_same(t.adjacency, nx.to_numpy_array(oracle) > 0)
    own = topology(str(tmp_path / "g.graphml"), weights="own")
    np.testing.assert_allclose(own.weights, 0.2 * nx.to_numpy_array(oracle, weight=None)
                               + 0.4 * np.eye(8), atol=1e-15)  # fmt: skip


GRAPHML = (
    '<graphml xmlns="http://graphml.graphdrawing.org/xmlns">'
    '<key id="d0" for="node" attr.name="label" attr.type="string"/>'
    '<key id="d1" for="all" attr.name="weight" attr.type="double"/>'
    '<graph edgedefault="{kind}">'
    '<node id="n0"><data key="d0">rome</data></node><node id="n1"><data key="d0">oslo</data></node>'
    "{edges}</graph></graphml>"
)


def test_graphml_labels_are_the_names_and_both_ways_are_one_edge(tmp_path):
    both = '<edge source="n0" target="n1"/><edge source="n1" target="n0"/>'
    path = written(tmp_path, "g.graphml", GRAPHML.format(kind="directed", edges=both))
    t = topology(path)
    assert t.names == ("rome", "oslo")
    assert_same(t.weights, topology("ring", 2).weights)
    with pytest.raises(ValueError, match=r"g.graphml: weights = 'own', but not every edge"):
        topology(path, weights="own")


@pytest.mark.parametrize(("name", "text", "match"), [
    ("e.csv", "", "e.csv: no edges; write one a line"),
    ("e.csv", "source,target\n", "e.csv: no edges below the header"),
    ("e.csv", "a,b\nb,c,d\n", r"e.csv, line 2: \['b', 'c', 'd'\], but the first line has 2"),
    ("e.csv", "a,b\n# x\n\nb,\n", "e.csv, line 4"),
    ("e.csv", "a,b,1\nb,c,heavy\n", "line 2: weight 'heavy' is not a finite number"),
    ("e.csv", "a,b,1\nb,c,nan\n", "line 2: weight 'nan' is not a finite"),
    ("e.csv", "a,b\nb,b\n", "line 2: server 'b' is joined to itself"),
    ("e.csv", "a,b,0.1\nb,a,0.2\n", r"line 2: weight 0.2, but 0.1 in line 1 for the same"),
    ("e.csv", "a,b\nc,d\nd,e\n", r"2 components \(a, b; c, d, e\); add edges between them"),
    ("e.txt", "a b c d\n", "two or three columns"),
    ("m.csv", "0.5,0.5\n0.5,x\n", "m.csv, line 2: 'x' is not a number"),
    ("m.csv", "0.5,0.5\n0.5\n", "m.csv, line 2: 1 numbers in a matrix of 2 rows"),
    ("m.csv", "0.5,0.5\n0.4,0.6\n", r"m.csv: .*not symmetric, a\[0, 1\] = 0.5 but a\[1, 0\] = 0.4"),
    ("m.csv", "0.5,0.4\n0.4,0.6\n", "row 0 sums to 0.9"),
    ("m.csv", "0,0,0.5,0.5\n0,0,0.5,0.5\n0.5,0.5,0,0\n0.5,0.5,0,0\n", r"a\[0, 0\] = 0"),
    ("m.csv", "0,1,1,0\n1,0,1,0\n1,1,0,1\n0,0,1,0\n", "graph is used with weights = 'metropolis'"),
    ("m.csv", "1,0,0,0\n0,1,0,0\n0,0,1,0\n0,0,0,1\n", "4 components"),
    ("m.csv", "0.333333,0.333333,0.333333\n" * 3, "row 0 sums to 0.999999, not 1; was it rounded"),
    ("g.graphml", "<graphml>", "g.graphml: not XML"),
    ("g.graphml", "<graphml></graphml>", "0 graphs"),
    ("g.graphml", "<graphml><graph></graph></graphml>", "0 nodes"),
    ("g.graphml", GRAPHML.format(kind="directed", edges='<edge source="n0" target="n1"/>'),
     "edge 'n0' -> 'n1': goes one way"),
    ("g.graphml", GRAPHML.format(kind="undirected", edges='<edge source="n0" target="n7"/>'),
     "there is no node 'n7'"),
    ("g.graphml", GRAPHML.format(kind="undirected", edges='<edge source="n0" target="n1">'
     '<data key="d1">much</data></edge>'), "weight 'much' is not a finite number"),
    ("g.graphml", GRAPHML.format(kind="undirected", edges=""), r"2 components \(rome; oslo\)"),
    ("m.npz", "not a zip file", "m.npz: "),
])  # fmt: skip
def test_a_malformed_file_is_refused_by_name(tmp_path, name, text, match):
    with pytest.raises(ValueError, match=match) as refused:
        topology(written(tmp_path, name, text))
    assert name in str(refused.value)


def test_other_wrong_files_are_refused_by_name(tmp_path):
    np.savez(tmp_path / "m.npz", B=OWN)
    with pytest.raises(ValueError, match=r"m.npz: has no array 'A' but \['B'\]"):
        topology(str(tmp_path / "m.npz"))
    np.savez(tmp_path / "m.npz", A=OWN[:2])
    with pytest.raises(ValueError, match=r"m.npz: the matrix has shape \(2, 3\)"):
        topology(str(tmp_path / "m.npz"))
    np.savez(tmp_path / "m.npz", A=OWN, names=["a", "b"])
    with pytest.raises(ValueError, match=r"m.npz: 2 names for a matrix of 3"):
        topology(str(tmp_path / "m.npz"))
    np.savez(tmp_path / "m.npz", A=np.array([[object()]]))
    with pytest.raises(ValueError, match=r"m\.npz: "):
        topology(str(tmp_path / "m.npz"))
    (tmp_path / "e.csv").write_bytes("r\u00f8ros,oslo".encode("latin-1"))
    with pytest.raises(ValueError, match=r"e.csv: not UTF-8"):
        topology(str(tmp_path / "e.csv"))
    with pytest.raises(ValueError, match=r"none.csv is not there \(looked in"):
        topology("none.csv")
    path = written(tmp_path, "e.csv", "a,b\nb,c\n")
    with pytest.raises(ValueError, match=r"servers = 4, but .*e.csv has 3: a, b, c"):
        topology(path, 4)
    with pytest.raises(ValueError, match="names its servers itself"):
        topology(path, names=["x", "y", "z"])
    with pytest.raises(ValueError, match="not every edge has a weight"):
        topology(path, weights="own")


def test_an_adjacency_matrix_serves_as_a_graph(tmp_path):
    t = topology("grid", 6)
    path = tmp_path / "adjacency.csv"
    np.savetxt(path, t.adjacency, delimiter=",", fmt="%d")
    assert_same(topology(str(path), weights="metropolis").weights, t.weights)


def test_no_framework_and_no_networkx_is_loaded(tmp_path):
    nx.write_graphml_xml(nx.path_graph(3), tmp_path / "g.graphml")
    code = (
        "import sys; from strategies.topology.graph import topology\n"
        f"topology({str(tmp_path / 'g.graphml')!r}); topology('random:3', 8)\n"
        "print(sorted({'flwr', 'networkx', 'torch', 'sklearn'} & set(sys.modules)))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
