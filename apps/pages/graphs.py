"""Learned graphs as files other tools open: GraphML, for Gephi, Cytoscape, igraph or networkx."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any
from xml.sax.saxutils import escape, quoteattr

import numpy as np
from numpy.typing import NDArray

from trellis.apps.common.metrics import LOOSE_EDGE_THRESHOLD, Vector, edges
from trellis.apps.common.results import write_atomically
from trellis.install import pip_install

# XML 1.0 has no way to write these, not even escaped.
_NOT_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_NOT_FILE_NAME = re.compile(r"[^\w.-]+")


def write_graphml(
    path: Path,
    weights: Vector,
    variables: Sequence[str],
    attributes: Mapping[str, NDArray[Any]] | None = None,
    threshold: float = LOOSE_EDGE_THRESHOLD,
) -> int:
    """Write one undirected weighted graph as GraphML and return its number of edges.

    Parameters
    ----------
    path : Path
        The file, written whole or not at all.
    weights : (p,)
        Edge weights, the upper triangle in ``numpy.triu_indices(d, 1)`` order.
    variables : d names
        The nodes; all of them are written, with or without an edge.
    attributes : name -> (p,)
        What else is known of every pair, such as ``shared`` : bool. Kept for the edges only.
    threshold : float
        A pair is an edge where its weight exceeds this share of the largest.

    Raises
    ------
    ValueError
        Where two nodes bear one name, or a vector's length does not fit the number of nodes.
    """
    names = node_names(variables)
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"variable {twice!r} occurs twice; a graph's nodes need different names")
    columns = {"weight": np.asarray(weights), **(attributes or {})}
    pairs = len(names) * (len(names) - 1) // 2
    for name, column in columns.items():
        if column.shape != (pairs,):
            raise ValueError(
                f"{name} has shape {column.shape}; {len(names)} nodes have {pairs} pairs"
            )
    chosen = np.flatnonzero(edges(columns["weight"], threshold))
    ends = np.column_stack([ends[chosen] for ends in np.triu_indices(len(names), 1)])
    known = {name: column[chosen] for name, column in columns.items()}
    write_graph(path, names, ends, known, about={"threshold": float(threshold)})
    return int(chosen.size)


def networkx_for(what: str) -> ModuleType:
    """Return networkx, or say what needs it. Late: it is slow to import, and a device has none."""
    try:
        import networkx
    except ImportError as error:
        raise ImportError(f"{what} need networkx: {pip_install('laptop')}") from error
    return networkx


def node_names(names: Sequence[str]) -> list[str]:
    """Return the names with a mark for every character that XML cannot hold."""
    return [_NOT_XML.sub("\ufffd", name) for name in names]


def write_graph(
    path: Path,
    names: Sequence[str],
    ends: NDArray[np.intp],
    edge_data: Mapping[str, NDArray[Any]] | None = None,
    node_data: Mapping[str, Sequence[Any]] | None = None,
    about: Mapping[str, Any] | None = None,
) -> None:
    """Write an undirected graph as GraphML, whole or not at all.

    Text is joined as it is: an XML element a node, an edge and a value takes twenty times as long.

    Parameters
    ----------
    names : d `node_names`, all different
    ends : (E, 2) places of the edges' ends
    edge_data : name -> (E,) numbers or truth values
    node_data : name -> d values; None where a node has none
    about : name -> what is known of the whole graph
    """
    of_edges, of_nodes, of_graph = edge_data or {}, node_data or {}, about or {}
    kinds = [
        *(("graph", name, [value]) for name, value in of_graph.items()),
        *(("node", name, list(values)) for name, values in of_nodes.items()),
        # tolist gives Python's own bool, int and float, the types GraphML knows.
        *(("edge", name, np.asarray(values).tolist()) for name, values in of_edges.items()),
    ]
    keys = {(what, name): f"d{k}" for k, (what, name, _) in enumerate(kinds)}
    head = [
        f'  <key id="{keys[what, name]}" for="{what}" attr.name={quoteattr(name)} '
        f'attr.type="{_kind(values)}" />\n'
        for what, name, values in kinds
    ]
    told = {(what, name): values for what, name, values in kinds}
    ids = [quoteattr(name) for name in names]
    nodes = [f"    <node id={name} />\n" for name in ids]
    if of_nodes:
        lines = [_data(keys["node", name], told["node", name]) for name in of_nodes]
        inner = ["".join(known) for known in zip(*lines, strict=True)]
        nodes = [
            f"    <node id={name}>\n{text}    </node>\n" if text else f"    <node id={name} />\n"
            for name, text in zip(ids, inner, strict=True)
        ]
    begin = [
        f"    <edge source={ids[a]} target={ids[b]}" for a, b in np.asarray(ends, int).tolist()
    ]
    if of_edges:
        columns = [_data(keys["edge", name], told["edge", name]) for name in of_edges]
        joined = zip(begin, *columns, strict=True)
        links = [f"{line}>\n{''.join(data)}    </edge>\n" for line, *data in joined]
    else:
        links = [f"{line} />\n" for line in begin]
    whole = [
        line[2:] for name in of_graph for line in _data(keys["graph", name], told["graph", name])
    ]
    text = "".join([_HEAD, *head, _OPEN, *nodes, *links, *whole, _CLOSE])
    write_atomically(path, text.encode())


_HEAD = """<?xml version='1.0' encoding='utf-8'?>
<graphml xmlns="http://graphml.graphdrawing.org/xmlns" \
xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance" \
xsi:schemaLocation="http://graphml.graphdrawing.org/xmlns \
http://graphml.graphdrawing.org/xmlns/1.0/graphml.xsd">
"""
_OPEN = '  <graph edgedefault="undirected">\n'
_CLOSE = "  </graph>\n</graphml>\n"


def _data(key: str, values: Sequence[Any]) -> list[str]:
    """Return the lines that say what nodes or edges have; empty where one has none."""
    opening = f'      <data key="{key}">'
    if values and isinstance(values[0], str):
        values = [escape(value) for value in values]
    return ["" if value is None else f"{opening}{value}</data>\n" for value in values]


def _kind(values: Sequence[Any]) -> str:
    """Return GraphML's name for the type of the values."""
    known = next((value for value in values if value is not None), 0.0)
    for kind, name in ((bool, "boolean"), (int, "long"), (float, "double")):
        if isinstance(known, kind):
            return name
    return "string"


def file_stems(names: Sequence[str], reserved: Sequence[str] = ()) -> list[str]:
    """Return one safe, distinct file name (without suffix) for every name.

    Letters, digits, ``.``, ``-`` and ``_`` stay; names that would meet in one file, on a file
    system that ignores case as well, are numbered.
    """
    taken = {name.casefold() for name in reserved}
    stems = []
    for name in names:
        stem = _NOT_FILE_NAME.sub("_", name).strip("._")[:80] or "client"
        candidate, count = stem, 1
        while candidate.casefold() in taken:
            count += 1
            candidate = f"{stem}-{count}"
        taken.add(candidate.casefold())
        stems.append(candidate)
    return stems
