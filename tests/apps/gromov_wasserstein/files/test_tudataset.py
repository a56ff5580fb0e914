"""TUDataset folders give the graphs that torch-geometric finds; bad ones are refused by line."""

from __future__ import annotations

import numpy as np
import pytest

from trellis.apps.common.tables import DataError
from trellis.apps.gromov_wasserstein.files.tudataset import read_tudataset

from ..graph_files import TINY, real, tiny


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


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"A": "1, 2\n2, 1\n2, 3\n"}, r"A.txt: line 3: edge \(2, 3\) is there.*directed"),
        ({"A": "1, 2\n2, 1\n5, 8\n"}, r"A.txt: line 3: edge \(5, 8\) names a node outside"),
        ({"A": "3, 4\n4, 3\n"}, r"A.txt: line 1: edge \(3, 4\) joins graph 1 and graph 2"),
        ({"graph_indicator": "1\n1\n1\n3\n3\n3\n3\n"}, "graph 2 has no nodes"),
        ({"graph_labels": "1\n1\n"}, "graph_labels.txt: 2 lines, 3 graphs"),
        ({"node_attributes": "1\n" * 6 + "nan\n"}, "node_attributes.txt: line 7 is not finite"),
    ],
)
def test_what_torch_geometric_takes_without_a_word_is_refused(tmp_path, changes, message):
    # Why its reader is not used: were one of these refused there, it could be.
    io = pytest.importorskip("torch_geometric.io")
    io.read_tu_data(str(tiny(tmp_path, **changes)), "TINY")
    with pytest.raises(DataError, match=message):
        read_tudataset(tmp_path, attributes=True)


def test_what_torch_geometric_cannot_read_is_read(tmp_path):
    io = pytest.importorskip("torch_geometric.io")
    # A last line without its end is lost there, and a client with one graph has none.
    tiny(tmp_path, graph_labels="-1\n1\n1")
    assert io.read_tu_data(str(tmp_path), "TINY")[0].y.tolist() == [0, 1]
    assert [g.label for g in read_tudataset(tmp_path)] == [0, 1, 1]
    one = {"graph_indicator": "1\n1\n", "graph_labels": "1\n", "node_labels": "1\n2\n"}
    (tmp_path / "one").mkdir()
    tiny(tmp_path / "one", A="1, 2\n2, 1\n", node_attributes=None, **one)
    with pytest.raises(IndexError):
        io.read_tu_data(str(tmp_path / "one"), "TINY")
    assert [g.edges.tolist() for g in read_tudataset(tmp_path / "one")] == [[[0, 1]]]


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
