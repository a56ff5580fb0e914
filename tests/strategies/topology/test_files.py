"""Graphs of servers from files: what is read, and what is refused by file, line and remedy."""

from __future__ import annotations

import networkx as nx
import numpy as np
import pytest

from trellis.strategies.topology.graph import topology

from .cases import assert_doubly_stochastic, assert_same

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
