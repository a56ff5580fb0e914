"""One big citation graph from Planetoid's ``ind.*`` files (Cora, CiteSeer, PubMed).

The files are Python pickles, and a pickle can run any code: here none is run (`pickles`).
torch-geometric's reader, which finds the same graphs, runs that code, and knows of test nodes
without a record in CiteSeer only.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from trellis.apps.common.tables import DataError, graph_folder

from .. import graphs
from ..graphs import UNKNOWN, Graph, Integers, undirected
from .pickles import (
    MOST_ENTRIES,
    ForbiddenName,
    UnexpectedPickle,
    UnreadablePickle,
    matrix_of,
    neighbours_of,
    read_pickle,
)

Mask = NDArray[np.bool_]

_REMEDY = "the file may be malicious or damaged, get it from a source you trust"
_VALIDATION = 500  # nodes after the training nodes, as everyone who uses the public split takes


@dataclass(frozen=True, eq=False)
class CitationGraph:
    """One big graph with its public split.

    Attributes
    ----------
    graph : nodes are papers, their labels subjects
    train, validation, test : (n,) which nodes are in which part
    """

    graph: Graph
    train: Mask
    validation: Mask
    test: Mask

    def largest_component(self) -> CitationGraph:
        """Return what lies in the largest connected component, as in Table 2 of [JC]."""
        nodes = graphs.largest_component(self.graph)
        part = graphs.induced(self.graph, nodes, UNKNOWN)
        return CitationGraph(part, self.train[nodes], self.validation[nodes], self.test[nodes])


def read_planetoid(folder: Path) -> CitationGraph:
    """Read the eight ``ind.NAME.*`` files of a folder, or of its sub-folder ``raw``.

    Test nodes that have no record (15 in CiteSeer, all isolated) get features of zero, as in
    torch-geometric; their label is unknown, where torch-geometric says 0.

    Raises
    ------
    DataError
        For a missing or damaged file, and for a pickle that holds anything but arrays.
    """
    place = graph_folder(folder) or folder
    heads = sorted(place.glob("ind.*.graph"))
    if len(heads) != 1:
        raise DataError(f"{place}: {len(heads)} files ind.NAME.graph; one data set a folder")
    name = heads[0].name.removesuffix(".graph")
    index = _test_index(place / f"{name}.test.index")
    training = len(_one_hot(place / f"{name}.y"))
    known, known_labels = _table(place / f"{name}.allx"), _one_hot(place / f"{name}.ally")
    tested, tested_labels = _table(place / f"{name}.tx"), _one_hot(place / f"{name}.ty")
    for kind, rows, labels in (("all", known, known_labels), ("t", tested, tested_labels)):
        if len(rows) != len(labels):
            raise DataError(
                f"{place / name}.{kind}x: {len(rows)} rows, and {len(labels)} in {kind}y"
            )
    if len(index) != len(tested) or known.shape[1] != tested.shape[1]:
        raise DataError(
            f"{place / name}.tx: {tested.shape} for {len(index)} test nodes and "
            f"{known.shape[1]} features in allx"
        )
    n = int(index.max()) + 1
    if index.min() != len(known) or n < training + _VALIDATION:
        raise DataError(f"{place / name}.test.index: starts at {index.min()}, not at {len(known)}")
    if n * known.shape[1] > MOST_ENTRIES:
        raise DataError(
            f"{place / name}.test.index: node {n - 1} of {known.shape[1]} features; no more than "
            f"{MOST_ENTRIES} numbers are read. {_REMEDY.capitalize()}"
        )
    features = np.zeros((n, known.shape[1]), dtype=np.float32)
    labels = np.full(n, UNKNOWN, dtype=np.int64)
    features[: len(known)], labels[: len(known)] = known, known_labels
    # The rows of tx stand in the order of test.index.
    features[index], labels[index] = tested, tested_labels
    nodes = np.arange(n)
    return CitationGraph(
        Graph(_edges(heads[0], n), features, UNKNOWN, labels, str(place / name)),
        nodes < training,
        (nodes >= training) & (nodes < training + _VALIDATION),
        np.isin(nodes, index),
    )


def _load(path: Path) -> object:
    try:
        data = path.read_bytes()
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror or error})") from None
    try:
        return read_pickle(data)
    except ForbiddenName as error:
        raise DataError(f"{path}: {error}, which no citation graph needs; {_REMEDY}") from None
    except UnreadablePickle as error:
        raise DataError(f"{path}: not a readable pickle ({error}); {_REMEDY}") from None


def _table(path: Path) -> NDArray[np.float32]:
    """Return a file's matrix, dense."""
    try:
        return matrix_of(_load(path)).astype(np.float32)
    except UnexpectedPickle as error:
        raise DataError(f"{path}: not a table ({error}); {_REMEDY}") from None


def _one_hot(path: Path) -> Integers:
    """Return the labels of a file's one-hot rows; -1 for a row of zeros."""
    rows = _table(path)
    return np.where(rows.any(axis=1), rows.argmax(axis=1), UNKNOWN).astype(np.int64)


def _test_index(path: Path) -> Integers:
    try:
        index = np.loadtxt(path, dtype=np.int64, ndmin=1)
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror or error})") from None
    except ValueError as error:
        raise DataError(f"{path}: one node number a line is needed ({error})") from None
    if index.size == 0 or len(np.unique(index)) != len(index):
        raise DataError(f"{path}: no node, or a node twice")
    return index


def _edges(path: Path, n: int) -> Integers:
    try:
        neighbours = neighbours_of(_load(path))
    except UnexpectedPickle as error:
        raise DataError(f"{path}: not a dictionary of neighbours ({error}); {_REMEDY}") from None
    papers = np.fromiter(neighbours, np.int64, len(neighbours))
    starts = np.repeat(papers, [len(ends) for ends in neighbours.values()])
    ends = np.fromiter(chain.from_iterable(neighbours.values()), np.int64, len(starts))
    pairs = np.column_stack([starts, ends])
    # A citation is an edge in either direction; papers that cite themselves are known of.
    pairs = pairs[pairs[:, 0] != pairs[:, 1]]
    return undirected(pairs, n, lambda row: f"{path}: citation {row + 1}", symmetrise=True)
