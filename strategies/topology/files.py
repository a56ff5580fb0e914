"""Graphs of servers from files: edge lists, GraphML and combination matrices.

=================  ==============================================================================
``.csv``, ``.txt``  an edge a line, two names or numbers of servers and perhaps the weight a_mp; or
                    a square table of numbers, perhaps under a line of names: a matrix
``.graphml``        an undirected graph, perhaps with the edge attribute ``weight``
``.npz``            a matrix ``A``, perhaps with ``names``
=================  ==============================================================================

A text file is a matrix where it has another number of columns than two or three, or a number with
a fraction in one of the first two: a combination matrix of a connected graph always has one there,
and the number of a server never. What is read is not judged here; `strategies.topology.graph` does.

Not by networkx: its readers pass over short lines, let the last of two weights win, add nodes that
an edge misspells and keep the first of several graphs; their errors name neither file nor line.
"""

from __future__ import annotations

import csv
import io
import math
import xml.etree.ElementTree as ElementTree
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

SUFFIXES = (".csv", ".txt", ".graphml", ".npz")
_HEADERS = (("source", "target"), ("from", "to"), ("server", "neighbour"), ("server", "neighbor"))

Line = tuple[int, list[str]]  # its number in the file, its cells
Edge = tuple[str, str, float | None, str]  # two servers, the weight, where it was read


@dataclass(frozen=True)
class GraphFile:
    """What a file says.

    Attributes
    ----------
    names : P names of servers
    adjacency : (P, P), bool, symmetric but for a matrix that is not
    weights : (P, P), or None where the file has none; a list's diagonal is the rest to one
    is_matrix : whether the file is a matrix of weights rather than a graph
    """

    names: tuple[str, ...]
    adjacency: NDArray[np.bool_]
    weights: NDArray[np.float64] | None
    is_matrix: bool


def read_graph(path: Path) -> GraphFile:
    """Read a graph or a combination matrix.

    Raises
    ------
    ValueError
        Naming the file, the line or the edge, and what to do.
    """
    if not path.is_file():
        raise ValueError(f"graph file {path} is not there (looked in {Path.cwd()})")
    if path.suffix.lower() == ".npz":
        return _read_npz(path)
    if path.suffix.lower() == ".graphml":
        return _read_graphml(path)
    lines = _lines(path)
    if not lines:
        raise ValueError(f"{path}: no edges; write one a line, as 'rome,milan'")
    return _matrix_of(path, lines) if _is_matrix(lines) else _edge_list(path, lines)


def _lines(path: Path) -> list[Line]:
    try:
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path}: not UTF-8 text ({error}); save it as UTF-8") from None
    kept = [
        (number, line)
        for number, line in enumerate(text.splitlines(), 1)
        if line.strip() and not line.lstrip().startswith("#")
    ]
    separator = next((mark for mark in ",;\t" if kept and mark in kept[0][1]), None)
    if separator is None:
        return [(number, line.split()) for number, line in kept]
    return [
        (number, [cell.strip() for cell in next(csv.reader([line], delimiter=separator))])
        for number, line in kept
    ]


def _number(cell: str) -> float | None:
    try:
        return float(cell)
    except ValueError:
        return None


def _is_matrix(lines: Sequence[Line]) -> bool:
    body = lines[1:] if any(_number(cell) is None for cell in lines[0][1]) else lines
    if len(lines[0][1]) not in (2, 3):
        return True
    if body is not lines and lines[0][1][0] == "":  # a corner over a column of names
        return True
    heads = (_number(cell) for _, cells in body for cell in cells[:2])
    return any(head is not None and not head.is_integer() for head in heads)


def _matrix_of(path: Path, lines: Sequence[Line]) -> GraphFile:
    header = lines[0][1] if any(_number(cell) is None for cell in lines[0][1]) else None
    body = list(lines[1:] if header is not None else lines)
    if header is not None and header[0] == "":
        header, body = header[1:], [(number, cells[1:]) for number, cells in body]
    if not body:
        raise ValueError(
            f"{path}, line {lines[0][0]}: {lines[0][1]}, and nothing follows; a list of edges has "
            f"two or three columns, a matrix a row of numbers for each server"
        )
    for number, cells in body:
        if len(cells) != len(body):
            raise ValueError(
                f"{path}, line {number}: {len(cells)} numbers in a matrix of {len(body)} rows; a "
                f"matrix is square, a list of edges has two or three columns"
            )
        wrong = next((cell for cell in cells if _number(cell) is None), None)
        if wrong is not None:
            raise ValueError(f"{path}, line {number}: {wrong!r} is not a number")
    matrix = np.array([[float(cell) for cell in cells] for _, cells in body])
    return _from_matrix(path, matrix, header)


def _from_matrix(path: Path, matrix: NDArray[np.float64], names: Iterable[str] | None) -> GraphFile:
    if matrix.ndim != 2 or len(matrix) != matrix.shape[1] or not matrix.size:
        raise ValueError(f"{path}: the matrix has shape {matrix.shape}; a square one is needed")
    labels = tuple(str(i) for i in range(len(matrix))) if names is None else tuple(names)
    if len(labels) != len(matrix):
        raise ValueError(f"{path}: {len(labels)} names for a matrix of {len(matrix)} servers")
    adjacency = (matrix != 0.0) & ~np.eye(len(matrix), dtype=bool)
    return GraphFile(labels, adjacency, matrix, is_matrix=True)


def _read_npz(path: Path) -> GraphFile:
    try:
        with np.load(path, allow_pickle=False) as arrays:
            if "A" not in arrays:
                raise ValueError(f"has no array 'A' but {arrays.files}; numpy.savez(file, A=...)")
            names = [str(name) for name in arrays["names"]] if "names" in arrays else None
            matrix = np.asarray(arrays["A"], dtype=np.float64)
    except (ValueError, TypeError, OSError, EOFError, AttributeError, zipfile.BadZipFile) as error:
        raise ValueError(f"{path}: {error}") from None
    return _from_matrix(path, matrix, names)


def _edge_list(path: Path, lines: Sequence[Line]) -> GraphFile:
    head = tuple(cell.lower() for cell in lines[0][1][:2])
    body = lines[1:] if head in _HEADERS else lines
    columns = len(lines[0][1])
    if not body:
        raise ValueError(f"{path}: no edges below the header; write one a line, as 'rome,milan'")
    edges: list[Edge] = []
    for number, cells in body:
        if len(cells) != columns or not all(cells):
            raise ValueError(
                f"{path}, line {number}: {cells}, but the first line has {columns} columns; write "
                f"two servers and, on every line or on none, a weight"
            )
        where = f"line {number}"
        weight = _weight(path, where, cells[2] if columns == 3 else None)
        edges.append((cells[0], cells[1], weight, where))
    names = list(dict.fromkeys(name for edge in edges for name in edge[:2]))
    if all(name.isdecimal() for name in names):
        names.sort(key=int)
    return _from_edges(path, names, edges)


def _read_graphml(path: Path) -> GraphFile:
    try:
        root = ElementTree.parse(io.BytesIO(path.read_bytes())).getroot()
    except ElementTree.ParseError as error:
        raise ValueError(f"{path}: not XML ({error}); export the graph as GraphML again") from None
    for element in root.iter():
        element.tag = element.tag.rpartition("}")[2]  # programs differ in the namespace
    graphs = root.findall("graph")
    if len(graphs) != 1:
        raise ValueError(f"{path}: {len(graphs)} graphs; keep the one of the servers")
    keys = {
        (scope, key.get("attr.name", "").lower()): key.get("id", "")
        for key in root.findall("key")
        for scope in (("node", "edge") if key.get("for") == "all" else (key.get("for", ""),))
    }
    nodes = graphs[0].findall("node")
    names = {node.get("id", ""): node.get("id", "") for node in nodes}
    if len(names) != len(nodes) or not nodes:
        raise ValueError(f"{path}: {len(nodes)} nodes with {len(names)} different ids; every "
                         f"server is a node with an id of its own")  # fmt: skip
    for title in ("name", "label"):
        titles = [_attribute(node, keys, title) for node in nodes]
        if all(titles) and len(set(titles)) == len(nodes):
            names = dict(zip(names, map(str, titles), strict=True))
            break
    default = graphs[0].get("edgedefault", "undirected") == "directed"
    one_way: dict[tuple[str, str], str] = {}
    edges: list[Edge] = []
    for edge in graphs[0].findall("edge"):
        ends = edge.get("source", ""), edge.get("target", "")
        lost = next((end for end in ends if end not in names), None)
        where = f"edge {ends[0]!r} -> {ends[1]!r}"
        if lost is not None:
            raise ValueError(f"{path}, {where}: there is no node {lost!r}")
        weight = _weight(path, where, _attribute(edge, keys, "weight"))
        if edge.get("directed", "true" if default else "false") == "true":
            one_way[ends] = where
        edges.append((names[ends[0]], names[ends[1]], weight, where))
    for ends, where in one_way.items():
        if ends[::-1] not in one_way:
            raise ValueError(f"{path}, {where}: goes one way; servers talk both ways, make the "
                             f"graph undirected")  # fmt: skip
    return _from_edges(path, list(names.values()), edges)


def _attribute(
    element: ElementTree.Element, keys: Mapping[tuple[str, str], str], name: str
) -> str | None:
    key = keys.get((element.tag, name))
    found = (data.text for data in element.findall("data") if data.get("key") == key)
    text = next(found, None) if key is not None else None
    return text.strip() if text and text.strip() else None


def _weight(path: Path, where: str, text: str | None) -> float | None:
    weight = None if text is None else _number(text)
    if text is not None and (weight is None or not math.isfinite(weight)):
        raise ValueError(f"{path}, {where}: weight {text!r} is not a finite number")
    return weight


def _from_edges(path: Path, names: Sequence[str], edges: Sequence[Edge]) -> GraphFile:
    place = {name: i for i, name in enumerate(names)}
    seen: dict[frozenset[str], tuple[float | None, str]] = {}
    weights = np.zeros((len(names), len(names)))
    adjacency = np.zeros(weights.shape, dtype=bool)
    for first, second, weight, where in edges:
        if first == second:
            raise ValueError(
                f"{path}, {where}: server {first!r} is joined to itself; remove it, a server's "
                f"weight for itself is the rest to one"
            )
        before = seen.setdefault(frozenset((first, second)), (weight, where))
        if before[0] != weight:
            raise ValueError(
                f"{path}, {where}: weight {weight}, but {before[0]} in {before[1]} for the same "
                f"two servers; keep one"
            )
        m, p = place[first], place[second]
        adjacency[m, p] = adjacency[p, m] = True
        weights[m, p] = weights[p, m] = math.nan if weight is None else weight
    complete = not np.isnan(weights).any()
    np.fill_diagonal(weights, 1.0 - weights.sum(axis=1))
    return GraphFile(tuple(names), adjacency, weights if complete else None, is_matrix=False)
