"""Citation graphs are those that torch-geometric finds, and no pickle runs code."""

from __future__ import annotations

import os
from collections import OrderedDict
from contextlib import suppress

import numpy as np
import pytest
from scipy import sparse

from trellis.apps.common.tables import DataError
from trellis.apps.gromov_wasserstein.files.planetoid import read_planetoid

from ..graph_files import planetoid, real


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


def test_torch_geometric_runs_what_a_pickle_asks_for(tmp_path):
    # Why its reader is not used; no more is needed where it refuses.
    io = pytest.importorskip("torch_geometric.io")
    planetoid(tmp_path, allx=Runs(os.mkdir, f"{tmp_path}/owned"))
    with suppress(Exception):
        io.read_planetoid_data(str(tmp_path), "small")
    assert (tmp_path / "owned").is_dir()


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
        ({"graph": {0: [1.5]}}, "graph: not a dictionary of neighbours .papers are whole numbers"),
        ({"graph": {(0, 1): []}}, "graph: not a dictionary of neighbours .papers are whole number"),
        ({"graph": {"0": [1]}}, "graph: not a dictionary of neighbours .papers are whole numbers"),
        ({"graph": {0: [2**70]}}, "ind.small.graph: not a dictionary of neighbours"),
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
