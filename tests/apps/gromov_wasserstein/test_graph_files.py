"""Files give the graphs that other readers find in them; bad ones are refused by file and line."""

from __future__ import annotations

import logging
import os
import pickle
from collections import OrderedDict, defaultdict
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse

from apps.common.tables import DataError
from apps.experiments.datasets import dataset
from apps.gromov_wasserstein.files.npz import read_graphs, write_graphs
from apps.gromov_wasserstein.files.planetoid import read_planetoid
from apps.gromov_wasserstein.files.tudataset import read_tudataset
from apps.gromov_wasserstein.graphs import Graph, undirected

# Graph 1 is a path 1-2-3, graph 2 one node, graph 3 an edge and an isolated node.
TINY = {
    "A": "1, 2\n2, 1\n2, 3\n3, 2\n5, 6\n6, 5\n",
    "graph_indicator": "1\n1\n1\n2\n3\n3\n3\n",
    "graph_labels": "-1\n1\n1\n",
    "node_labels": "3\n1\n3\n1\n4\n1\n1\n",
    "node_attributes": "0.5, 1\n1, 2\n2, 3\n3, 4\n4, 5\n5, 6\n6, 7\n",
}


def tiny(folder: Path, **changes) -> Path:
    for name, text in (TINY | changes).items():
        if text is not None:
            (folder / f"TINY_{name}.txt").write_text(text)
    return folder


def real(name: str) -> Path:
    try:
        return dataset(name)
    except DataError as error:
        pytest.skip(str(error))


def same(a: Graph, b: Graph) -> bool:
    return (
        np.array_equal(a.edges, b.edges)
        and np.array_equal(a.features, b.features)
        and np.array_equal(a.node_labels, b.node_labels)
        and a.label == b.label
    )


# TUDataset


def test_a_small_data_set_is_read_as_written(tmp_path):
    first, second, third = read_tudataset(tiny(tmp_path))
    assert first.edges.tolist() == [[0, 1], [1, 2]]
    assert [g.nodes for g in (first, second, third)] == [3, 1, 3]
    assert (len(second.edges), third.edges.tolist()) == (0, [[0, 1]])
    assert [g.label for g in (first, second, third)] == [0, 1, 1]
    assert first.node_labels.tolist() == [2, 0, 2]
    assert first.features.tolist() == [[0, 0, 1, 0], [1, 0, 0, 0], [0, 0, 1, 0]]
    assert third.source == f"{tmp_path}/TINY: graph 3"
    with_numbers = read_tudataset(tmp_path, attributes=True)[0]
    assert with_numbers.features[0].tolist() == [0.5, 1, 0, 0, 1, 0]


def test_the_files_may_lie_in_raw(tmp_path):
    (tmp_path / "raw").mkdir()
    tiny(tmp_path / "raw")
    assert len(read_tudataset(tmp_path)) == 3


def test_what_may_be_missing_may_be_missing(tmp_path):
    found = read_tudataset(tiny(tmp_path, node_labels=None, graph_labels=None))
    assert [g.label for g in found] == [-1, -1, -1]
    assert found[0].node_labels.tolist() == [-1, -1, -1]
    assert found[0].features.tolist() == [[0.5, 1], [1, 2], [2, 3]]
    (tmp_path / "TINY_node_attributes.txt").unlink()
    assert read_tudataset(tmp_path)[0].features.shape == (3, 0)


def test_no_edges_at_all_are_fine(tmp_path):
    assert [len(g.edges) for g in read_tudataset(tiny(tmp_path, A="\n"))] == [0, 0, 0]


def test_nodes_of_a_graph_need_not_stand_together(tmp_path):
    # The same graphs with node numbers 1..7 moved to 7, 2, 5, 1, 3, 6, 4.
    moved = dict(zip(range(1, 8), (7, 2, 5, 1, 3, 6, 4), strict=True))
    edges = [line.split(", ") for line in TINY["A"].splitlines()]
    texts = {"A": "".join(f"{moved[int(u)]}, {moved[int(v)]}\n" for u, v in edges)}
    for name in ("graph_indicator", "node_labels", "node_attributes"):
        lines = TINY[name].splitlines()
        back = sorted(moved, key=moved.get)
        texts[name] = "".join(f"{lines[old - 1]}\n" for old in back)
    plain = read_tudataset(tiny(tmp_path), attributes=True)
    (tmp_path / "moved").mkdir()
    for before, after in zip(
        plain, read_tudataset(tiny(tmp_path / "moved", **texts), attributes=True), strict=True
    ):
        # Attributes tell which node is which.
        order = [before.features[:, 0].tolist().index(x) for x in after.features[:, 0]]
        np.testing.assert_array_equal(
            before.adjacency.toarray()[np.ix_(order, order)], after.adjacency.toarray()
        )
        np.testing.assert_array_equal(before.node_labels[order], after.node_labels)


def test_a_clients_own_labels_keep_their_numbers(tmp_path):
    found = read_tudataset(tiny(tmp_path), relabel=False)
    assert [g.label for g in found] == [0, 1, 1]  # of -1 and 1
    assert found[0].node_labels.tolist() == [3, 1, 3]
    assert found[0].features.shape == (3, 5)
    tiny(tmp_path, graph_labels="1\n1\n1\n")
    assert [g.label for g in read_tudataset(tmp_path, relabel=False)] == [1, 1, 1]
    tiny(tmp_path, graph_labels="5\n2\n2\n")
    assert [g.label for g in read_tudataset(tmp_path, relabel=False)] == [5, 2, 2]
    assert [g.label for g in read_tudataset(tmp_path)] == [1, 0, 0]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"A": "1, 2\n2, 1\n\n2, 3\n"}, r"TINY_A.txt: line 4: edge \(2, 3\) is there.*directed"),
        ({"A": "1, 2\n2, 1\n8, 1\n1, 8\n"}, r"TINY_A.txt: line 3: edge \(8, 1\).*outside 1 to 7"),
        ({"A": "0, 1\n1, 0\n"}, r"TINY_A.txt: line 1.*outside 1 to 7"),
        ({"A": "3, 4\n4, 3\n"}, r"TINY_A.txt: line 1.*joins graph 1 and graph 2"),
        ({"A": "1, 2\n2, x\n"}, r"TINY_A.txt: line 2 is '2, x'; a whole number"),
        ({"A": "1, 2\n2\n"}, r"TINY_A.txt: line 2 has 1 numbers, the first line 2"),
        ({"A": "1, 2, 3\n"}, r"TINY_A.txt: line 1 has 3 numbers"),
        ({"graph_indicator": None}, r"TINY_graph_indicator.txt: cannot be read \(No such file"),
        ({"graph_indicator": ""}, r"TINY_graph_indicator.txt: no nodes"),
        ({"graph_indicator": "1\n1\n1\n3\n3\n3\n3\n"}, r"indicator.txt: graph 2 has no nodes"),
        ({"graph_indicator": "1\n1\n1\n0\n3\n3\n3\n"}, r"indicator.txt: line 4: graph 0"),
        ({"graph_indicator": "1\n1\n1\n9\n3\n3\n3\n"}, r"indicator.txt: line 4: graph 9"),
        ({"graph_labels": "1\n1\n"}, r"TINY_graph_labels.txt: 2 lines, 3 graphs"),
        ({"graph_labels": "1\n1.5\n2\n"}, r"TINY_graph_labels.txt: line 2 is '1.5'"),
        ({"node_labels": "1\n1\n"}, r"TINY_node_labels.txt: 2 lines, 7 nodes"),
        ({"node_labels": "1\n" * 6 + "900000\n"}, r"TINY_node_labels.txt: label 899999"),
        ({"node_attributes": "1\n" * 6 + "nan\n"}, r"TINY_node_attributes.txt: line 7 is not fin"),
        ({"node_attributes": "1\n" * 6 + "\xff"}, r"TINY_node_attributes.txt: line 7 is"),
        ({"node_attributes": "1\n" * 6 + "1e300\n"}, r"TINY: graph 3: feature 1 of node 2 is inf"),
    ],
)
def test_a_bad_data_set_is_refused_by_file_and_line(tmp_path, changes, message):
    with pytest.raises(DataError, match=message):
        read_tudataset(tiny(tmp_path, **changes), attributes=True)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"graph_labels": "0\n-1\n2\n"}, r"graph_labels.txt: line 2: label -1; number the classes"),
        ({"node_labels": "1\n" * 6 + "-1\n"}, r"node_labels.txt: line 7: -1; number node labels"),
    ],
)
def test_a_client_cannot_number_its_classes_below_0(tmp_path, changes, message):
    with pytest.raises(DataError, match=message):
        read_tudataset(tiny(tmp_path, **changes), relabel=False)


def test_one_folder_holds_one_data_set(tmp_path):
    tiny(tmp_path)
    (tmp_path / "OTHER_A.txt").write_text("1, 2\n")
    with pytest.raises(DataError, match=r"2 files NAME_A\.txt"):
        read_tudataset(tmp_path)


def test_a_directed_data_set_is_taken_as_undirected_when_asked(tmp_path):
    tiny(tmp_path, A="1, 2\n3, 2\n5, 6\n")
    plain = read_tudataset(tmp_path, symmetrise=True)
    assert [g.edges.tolist() for g in plain] == [[[0, 1], [1, 2]], [], [[0, 1]]]


@pytest.mark.parametrize("name", ["MUTAG", "PROTEINS", "IMDB-BINARY"])
def test_real_data_sets_are_those_of_torch_geometric(name):
    io = pytest.importorskip("torch_geometric.io")
    folder = real(name)
    data, slices, _ = io.read_tu_data(str(folder / "raw"), name)
    found = read_tudataset(folder, attributes=True)
    assert len(found) == len(data.y)
    assert [g.label for g in found] == data.y.tolist()
    if data.x is not None:
        features = np.concatenate([g.features for g in found])
        np.testing.assert_array_equal(features, data.x.numpy())
    for number, g in enumerate(found):
        theirs = data.edge_index[:, slices["edge_index"][number] : slices["edge_index"][number + 1]]
        u, v = theirs.numpy()
        np.testing.assert_array_equal(g.edges, np.column_stack([u, v])[u < v])


# npz


@st.composite
def many_graphs(draw) -> list[Graph]:
    width = draw(st.integers(0, 3))
    graphs = []
    for _ in range(draw(st.integers(1, 5))):
        n = draw(st.integers(1, 6))
        node = st.integers(0, n - 1)
        pairs = draw(st.lists(st.tuples(node, node).filter(lambda p: p[0] != p[1]), max_size=8))
        edges = undirected(np.array(pairs, dtype=int).reshape(-1, 2), n, symmetrise=True)
        features = np.arange(n * width).reshape(n, width) / 7
        graphs.append(
            Graph(edges, features, draw(st.integers(-1, 2)), draw(st.just(np.arange(n) - 1)))
        )
    return graphs


@given(many_graphs())
def test_what_is_written_is_read(tmp_path_factory, graphs):
    path = tmp_path_factory.mktemp("npz") / "a.npz"
    write_graphs(path, graphs)
    found = read_graphs(path)
    assert len(found) == len(graphs)
    assert all(same(a, b) for a, b in zip(graphs, found, strict=True))
    # The same edges in both directions, and in another order.
    with np.load(path) as file:
        arrays = dict(file)
    both = np.concatenate([arrays["edges"][::-1, ::-1], arrays["edges"]])
    np.savez(path, **arrays | {"edges": both})
    assert all(same(a, b) for a, b in zip(graphs, read_graphs(path), strict=True))


def test_sizes_and_edges_are_all_a_file_needs(tmp_path):
    np.savez(tmp_path / "a.npz", sizes=[2, 1], edges=[[0, 1]])
    first, second = read_graphs(tmp_path / "a.npz")
    assert (first.label, first.node_labels.tolist(), first.features.shape) == (-1, [-1, -1], (2, 0))
    assert (second.nodes, len(second.edges)) == (1, 0)
    np.savez(tmp_path / "a.npz", sizes=[2, 1], edges=[])
    assert [len(g.edges) for g in read_graphs(tmp_path / "a.npz")] == [0, 0]


def test_loops_in_a_file_are_dropped_with_its_name(tmp_path, caplog):
    np.savez(tmp_path / "a.npz", sizes=[2], edges=[[0, 1], [1, 1]])
    with caplog.at_level(logging.WARNING, "trellis"):
        assert read_graphs(tmp_path / "a.npz")[0].edges.tolist() == [[0, 1]]
    assert "a.npz: edges, row 1: 1 self-loops dropped" in caplog.text


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"sizes": None}, "holds edges, features, labels, node_labels; needs 'sizes'"),
        ({"edges": None}, "needs 'edges'"),
        ({"sizes": np.array([], int)}, "no graphs"),
        ({"sizes": [3, 0]}, "graph 2 has 0 nodes"),
        ({"sizes": [1.0, 2.0]}, "sizes is float64"),
        ({"sizes": [[1], [2]]}, r"sizes is int64 \(2, 1\); whole numbers \(any\)"),
        ({"edges": [[0, 1, 2]]}, r"edges is int64 \(1, 3\); whole numbers \(any, 2\)"),
        ({"edges": [[0, 9]]}, r"edges, row 0: edge \(0, 9\) names a node outside 0 to 2"),
        ({"edges": [[1, 2]]}, r"edges, row 0: edge \(1, 2\) joins graph 1 and graph 2"),
        ({"edges": [[1, 0]]}, r"edges, row 0: edge \(1, 0\) is there and \(0, 1\) is not.*direct"),
        ({"features": np.ones((2, 2))}, r"features is float64 \(2, 2\); numbers \(3, f\)"),
        ({"features": [["a"], ["b"], ["c"]]}, "features is <U1"),
        ({"features": [[1.0], [1.0], [np.nan]]}, "a.npz: graph 2: feature 1 of node 0 is nan"),
        ({"labels": [0]}, r"labels is int64 \(1,\); whole numbers \(2\)"),
        ({"labels": [0, -2]}, "labels, row 1 is -2"),
        ({"node_labels": [0.0, 1.0, np.nan]}, "node_labels is float64"),
    ],
)
def test_a_bad_npz_is_refused_by_array_and_row(tmp_path, changes, message):
    arrays = {
        "sizes": [2, 1],
        "edges": [[0, 1]],
        "features": np.ones((3, 2)),
        "labels": [0, 1],
        "node_labels": [0, 1, 0],
    }
    kept = {key: value for key, value in (arrays | changes).items() if value is not None}
    path = tmp_path / "a.npz"
    np.savez(path, **kept)
    with pytest.raises(DataError, match=message) as error:
        read_graphs(path)
    assert str(path) in str(error.value)


def test_a_file_that_is_no_npz_is_refused(tmp_path):
    with pytest.raises(DataError, match="cannot be read"):
        read_graphs(tmp_path / "nowhere.npz")
    (tmp_path / "text.npz").write_text("not an archive")
    with pytest.raises(DataError, match="not a readable npz"):
        read_graphs(tmp_path / "text.npz")
    np.savez(tmp_path / "o.npz", sizes=np.array([1], dtype=object), edges=[[0, 1]])
    with pytest.raises(DataError, match="not a readable npz"):
        read_graphs(tmp_path / "o.npz")


def test_graphs_of_different_widths_do_not_fit_in_one_file(tmp_path):
    graphs = [Graph(np.empty((0, 2), int), np.ones((1, f))) for f in (2, 3)]
    with pytest.raises(DataError, match=r"graphs have \[2, 3\] features"):
        write_graphs(tmp_path / "a.npz", graphs)


# Planetoid


def planetoid(folder: Path, **changes) -> Path:
    """Write 504 known nodes, test nodes 504, 505 and 507; 506 has no record."""
    rng = np.random.default_rng(1)
    labels = np.eye(2, dtype=np.int32)[rng.integers(0, 2, 504)]
    links = defaultdict(list, {i: [i + 1] for i in range(504)})
    links[3].append(3)
    files = {
        "x": sparse.csr_matrix(np.ones((4, 3), dtype=np.float32)),
        "y": labels[:4],
        "allx": sparse.csr_matrix(rng.integers(0, 2, (504, 3)).astype(np.float32)),
        "ally": labels,
        "tx": sparse.csr_matrix(np.array([[7.0, 0, 0], [4, 0, 0], [5, 0, 0]])),
        "ty": np.array([[0, 1], [1, 0], [0, 1]]),
        "graph": links,
    } | changes
    for name, value in files.items():
        data = value if isinstance(value, bytes) else pickle.dumps(value, protocol=3)
        (folder / f"ind.small.{name}").write_bytes(data)
    (folder / "ind.small.test.index").write_text("507\n504\n505\n")
    return folder


def test_a_citation_graph_has_its_test_nodes_in_their_places(tmp_path):
    found = read_planetoid(planetoid(tmp_path))
    assert found.graph.nodes == 508
    assert found.graph.features[504:, 0].tolist() == [4, 5, 0, 7]
    assert found.graph.node_labels[504:].tolist() == [0, 1, -1, 1]
    assert found.graph.edges.tolist() == [[i, i + 1] for i in range(504)]
    assert [int(m.sum()) for m in (found.train, found.validation, found.test)] == [4, 500, 3]
    part = found.largest_component()
    assert part.graph.nodes == 505
    assert np.flatnonzero(part.test).tolist() == [504]


class Runs:
    def __init__(self, call, *arguments):
        self.parts = (call, arguments)

    def __reduce__(self):
        return self.parts


@pytest.mark.parametrize("name", ["allx", "graph", "y"])
@pytest.mark.parametrize(
    "attack",
    [
        Runs(os.system, "touch {}/owned"),
        Runs(eval, "open('{}/owned', 'w')"),
        Runs(np.load, "{}/owned.npy"),
        Runs(np.save, "{}/owned", np.ones(1)),
        Runs(getattr, np, "save"),
        OrderedDict(),
    ],
)
def test_a_pickle_that_wants_more_than_arrays_is_refused_unrun(tmp_path, name, attack):
    if isinstance(attack, Runs):
        call, arguments = attack.parts
        filled = [a.format(tmp_path) if isinstance(a, str) else a for a in arguments]
        attack = Runs(call, *[a for a in filled if not isinstance(a, type(np))])
    planetoid(tmp_path, **{name: attack})
    with pytest.raises(DataError, match=f"ind.small.{name}: asks for .*; the file may be mal"):
        read_planetoid(tmp_path)
    assert not list(tmp_path.glob("owned*"))


def test_a_pickle_cannot_change_the_classes_of_scipy(tmp_path):
    # The class itself, then BUILD with a state that sets its attributes.
    change = b"\x80\x02cscipy.sparse.csr\ncsr_matrix\nN}U\x05shapec__builtin__\nlist\ns\x86b."
    planetoid(tmp_path, allx=change)
    before = sparse.csr_matrix.shape
    with pytest.raises(DataError, match="allx: not a table"):
        read_planetoid(tmp_path)
    assert sparse.csr_matrix.shape is before
    assert sparse.csr_matrix((2, 2)).shape == (2, 2)


def broken_matrix() -> sparse.csr_matrix:
    matrix = sparse.csr_matrix(np.ones((504, 3), dtype=np.float32))
    matrix.indices = matrix.indices.copy()
    matrix.indices[5] = 10_000_000  # toarray would write far outside
    return matrix


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"allx": b"\x80\x02]"}, "ind.small.allx: not a readable pickle"),
        ({"allx": b""}, "ind.small.allx: not a readable pickle"),
        ({"allx": broken_matrix()}, "ind.small.allx: not a table"),
        ({"allx": [1, 2]}, "ind.small.allx: not a table"),
        ({"ally": np.eye(2)[[0, 1]]}, r"ind.small.allx: 504 rows, and 2 in ally"),
        ({"ty": np.eye(2)}, r"ind.small.tx: 3 rows, and 2 in ty"),
        ({"tx": sparse.csr_matrix(np.ones((3, 4)))}, r"tx: \(3, 4\) for 3 test nodes and 3 feat"),
        ({"graph": [[1, 2]]}, "ind.small.graph: not a dictionary of neighbours"),
        ({"graph": {0: [9999]}}, r"ind.small.graph: citation 1: edge \(0, 9999\) names a node"),
    ],
)
def test_a_damaged_citation_graph_is_refused_by_file(tmp_path, changes, message):
    with pytest.raises(DataError, match=message):
        read_planetoid(planetoid(tmp_path, **changes))


def test_a_missing_file_of_a_citation_graph_is_named(tmp_path):
    (planetoid(tmp_path) / "ind.small.tx").unlink()
    with pytest.raises(DataError, match=r"ind.small.tx: cannot be read \(No such file"):
        read_planetoid(tmp_path)
    (tmp_path / "ind.small.test.index").write_text("504\n504\n")
    with pytest.raises(DataError, match="a node twice"):
        read_planetoid(tmp_path)


@pytest.mark.parametrize(
    ("name", "unrecorded", "component"),
    [("Cora", 0, (2485, 5069)), ("CiteSeer", 15, (2120, 3679)), ("PubMed", 0, (19717, 44324))],
)
def test_real_citation_graphs_are_those_of_torch_geometric(name, unrecorded, component):
    io = pytest.importorskip("torch_geometric.io")
    folder = real(name)
    theirs = io.read_planetoid_data(str(folder / "raw"), name.lower())
    found = read_planetoid(folder)
    u, v = theirs.edge_index.numpy()
    assert found.graph.edges.tolist() == sorted(np.column_stack([u, v])[u < v].tolist())
    np.testing.assert_array_equal(found.graph.features, theirs.x.numpy())
    known = found.graph.node_labels >= 0
    assert int((~known).sum()) == unrecorded
    np.testing.assert_array_equal(found.graph.node_labels[known], theirs.y.numpy()[known])
    for ours, mask in (
        (found.train, theirs.train_mask),
        (found.validation, theirs.val_mask),
        (found.test, theirs.test_mask),
    ):
        np.testing.assert_array_equal(ours, mask.numpy())
    part = found.largest_component().graph
    assert (part.nodes, len(part.edges)) == component  # Table 2 of the paper
