"""npz files of graphs: what is written is read; bad ones are refused by array and row."""

from __future__ import annotations

import logging

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trellis.apps.common.tables import DataError
from trellis.apps.gromov_wasserstein.files.npz import read_graphs, write_graphs
from trellis.apps.gromov_wasserstein.graphs import Graph, undirected


def same(a: Graph, b: Graph) -> bool:
    return (
        np.array_equal(a.edges, b.edges)
        and np.array_equal(a.features, b.features)
        and np.array_equal(a.node_labels, b.node_labels)
        and a.label == b.label
    )


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
