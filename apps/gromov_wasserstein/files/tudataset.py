"""Graphs from the raw text files of TUDataset (MUTAG, PROTEINS, IMDB-BINARY and many more).

For a data set called NAME; nodes and graphs count from 1, over all graphs:

    NAME_A.txt                  ``u, v`` a line, every edge in both directions
    NAME_graph_indicator.txt    the graph of every node
    NAME_graph_labels.txt       the label of every graph (may be missing)
    NAME_node_labels.txt        the label of every node (may be missing)
    NAME_node_attributes.txt    numbers of every node (may be missing)

torch-geometric's `read_tu_data` finds the same graphs, but takes directed edges, edges between
graphs, missing labels and NaN without a word, and fails on one graph: the tests compare both.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trellis.apps.common.tables import DataError, graph_folder

from ..graphs import UNKNOWN, Graph, Integers, undirected
from .npz import cut, refuse_bridges


def read_tudataset(
    folder: Path, *, attributes: bool = False, relabel: bool = True, symmetrise: bool = False
) -> list[Graph]:
    """Read all graphs of a folder, or of its sub-folder ``raw``.

    Features are the one-hot node labels; attributes where there are no labels.

    Parameters
    ----------
    folder : holds the files of one data set
    attributes : put the node attributes before the one-hot labels
    relabel : number graph labels 0, 1, ... in their order and node labels from their smallest, as
        torch-geometric does. Where every client has a folder of its own, numbers that depend on
        what else is in it would not agree: ``False`` keeps them as they stand, -1 of a pair -1
        and 1 becoming 0
    symmetrise : take directed edges as undirected ones

    Raises
    ------
    DataError
        For a missing or malformed file, with the line where there is one.
    """
    place = graph_folder(folder) or folder
    heads = sorted(place.glob("*_A.txt"))
    if len(heads) != 1:
        raise DataError(f"{place}: {len(heads)} files NAME_A.txt; one data set a folder")
    stem = str(heads[0]).removesuffix("_A.txt")
    owner_file = Path(f"{stem}_graph_indicator.txt")
    owner = _numbers(owner_file, np.int64)
    if owner.shape[1] != 1:
        raise DataError(f"{owner_file}: line 1 has {owner.shape[1]} numbers; one graph a node")
    sizes = _sizes(owner_file, owner[:, 0])
    # Nodes of a graph need not stand together: order them by graph.
    order = np.argsort(owner[:, 0], kind="stable")
    place_of = np.empty_like(order)
    place_of[order] = np.arange(len(order))

    pairs = _numbers(heads[0], np.int64)
    if len(pairs) and pairs.shape[1] != 2:
        raise DataError(f"{heads[0]}: line 1 has {pairs.shape[1]} numbers; two nodes an edge")

    def where(row: int) -> str:
        return f"{heads[0]}: line {_line(heads[0], row)}"

    found = undirected(pairs, len(owner), where, first=1, symmetrise=symmetrise)
    refuse_bridges(pairs, owner[:, 0], where, first=1)
    edges = undirected(place_of[found], len(owner), symmetrise=True)

    labels = np.full(len(sizes), UNKNOWN)
    label_file = Path(f"{stem}_graph_labels.txt")
    if label_file.exists():
        given = _numbers(label_file, np.int64)
        _refuse_count(label_file, len(given), len(sizes), "graphs")
        labels = _graph_labels(label_file, given[:, 0], relabel)
    node_labels, features = _node_columns(stem, len(owner), attributes, relabel)
    return cut(sizes, edges, features[order], labels, node_labels[order], f"{stem}: graph")


def _refuse_count(path: Path, lines: int, needed: int, things: str) -> None:
    if lines != needed:
        raise DataError(f"{path}: {lines} lines, {needed} {things}; one line each is needed")


def _sizes(path: Path, owner: Integers) -> Integers:
    if len(owner) == 0:
        raise DataError(f"{path}: no nodes")
    if owner.min() < 1:
        row = int(np.flatnonzero(owner < 1)[0])
        raise DataError(f"{path}: line {_line(path, row)}: graph {owner[row]}; they count from 1")
    if owner.max() > len(owner):
        row = int(owner.argmax())
        raise DataError(
            f"{path}: line {_line(path, row)}: graph {owner[row]}, but there are {len(owner)} "
            "nodes in all"
        )
    sizes = np.bincount(owner)[1:]
    if sizes.min() < 1:
        raise DataError(f"{path}: graph {int(sizes.argmin()) + 1} has no nodes; leave it out")
    return sizes


def _graph_labels(path: Path, given: Integers, relabel: bool) -> Integers:
    if relabel:
        return np.unique(given, return_inverse=True)[1].astype(np.int64)
    if np.isin(given, (-1, 1)).all():
        return np.maximum(given, 0)
    if given.min() < 0:
        row = int(np.flatnonzero(given < 0)[0])
        raise DataError(
            f"{path}: line {_line(path, row)}: label {given[row]}; number the classes from 0, the "
            "same for every client"
        )
    return given


def _node_columns(
    stem: str, nodes: int, attributes: bool, relabel: bool
) -> tuple[Integers, NDArray[np.float64]]:
    """Return the nodes' labels (n,) and features (n, f)."""
    labels, columns = np.full(nodes, UNKNOWN), []
    label_file, number_file = Path(f"{stem}_node_labels.txt"), Path(f"{stem}_node_attributes.txt")
    if number_file.exists() and (attributes or not label_file.exists()):
        numbers = _numbers(number_file, np.float64)
        _refuse_count(number_file, len(numbers), nodes, "nodes")
        bad = np.flatnonzero(~np.isfinite(numbers).all(axis=1))
        if bad.size:
            raise DataError(
                f"{number_file}: line {_line(number_file, int(bad[0]))} is not finite "
                f"({bad.size} such lines); fill in missing values first"
            )
        columns.append(numbers)
    if label_file.exists():
        given = _numbers(label_file, np.int64)
        _refuse_count(label_file, len(given), nodes, "nodes")
        given = given - given.min(axis=0) if relabel else given
        if given.min() < 0:
            row = int(np.flatnonzero((given < 0).any(axis=1))[0])
            raise DataError(
                f"{label_file}: line {_line(label_file, row)}: {given[row].min()}; number node "
                "labels from 0, the same for every client"
            )
        if given.max() >= max(nodes, 10_000):
            raise DataError(f"{label_file}: label {given.max()}; labels are numbers of classes")
        # A node may have several labels; the first is the one to learn.
        labels = given[:, 0]
        columns += [np.eye(int(column.max()) + 1)[column] for column in given.T]
    return labels, np.concatenate(columns, axis=1) if columns else np.zeros((nodes, 0))


def _numbers(path: Path, dtype: type[np.generic]) -> NDArray[Any]:
    """Return the table of numbers in a text file, commas between columns."""
    try:
        lines = [line for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
    except UnicodeDecodeError:
        raise DataError(f"{path}: not a text file in UTF-8") from None
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror or error})") from None
    if not lines:
        return np.empty((0, 1 if "indicator" in path.name else 2), dtype=dtype)
    try:
        return np.loadtxt(lines, delimiter=",", dtype=dtype, ndmin=2, comments=None)
    except ValueError:
        raise DataError(_first_bad_line(path, lines, dtype)) from None


def _first_bad_line(path: Path, lines: list[str], dtype: type[np.generic]) -> str:
    width = lines[0].count(",") + 1
    for row, line in enumerate(lines):
        cells = line.split(",")
        place = f"{path}: line {_line(path, row)}"
        if len(cells) != width:
            return f"{place} has {len(cells)} numbers, the first line {width}"
        try:
            for cell in cells:
                np.array(cell.strip()).astype(dtype)
        except ValueError:
            kind = "a whole number" if dtype is np.int64 else "a number"
            return f"{place} is {line.strip()!r}; {kind} is needed in every column"
    return f"{path}: not a table of numbers"


def _line(path: Path, row: int) -> int:
    """Return the line, from 1, of a file's row, from 0; empty lines are no rows."""
    text = path.read_text(encoding="utf-8").splitlines()
    return [number for number, line in enumerate(text, start=1) if line.strip()][row]
