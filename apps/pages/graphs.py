"""Learned graphs as files other tools open: GraphML, for Gephi, Cytoscape, igraph or networkx."""

from __future__ import annotations

import io
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from apps.common.metrics import LOOSE_EDGE_THRESHOLD, Vector, edges
from apps.common.results import write_atomically
from privacy.install import LAPTOP

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
    first, second = (ends[chosen].tolist() for ends in np.triu_indices(len(names), 1))
    # tolist gives Python's own bool, int and float, the types GraphML knows.
    values = zip(*(column[chosen].tolist() for column in columns.values()), strict=True)
    graph = networkx_for("GraphML files").Graph(threshold=float(threshold))
    graph.add_nodes_from(names)
    graph.add_edges_from(
        (names[a], names[b], dict(zip(columns, value, strict=True)))
        for a, b, value in zip(first, second, values, strict=True)
    )
    write_graph(path, graph)
    return int(chosen.size)


def networkx_for(what: str) -> ModuleType:
    """Return networkx, or say what needs it. Late: it is slow to import, and a device has none."""
    try:
        import networkx
    except ImportError as error:
        raise ImportError(f"{what} need networkx: {LAPTOP}") from error
    return networkx


def node_names(names: Sequence[str]) -> list[str]:
    """Return the names with a mark for every character that XML cannot hold."""
    return [_NOT_XML.sub("\ufffd", name) for name in names]


def write_graph(path: Path, graph: Any) -> None:
    """Write a graph of networkx, whose nodes are `node_names`, as GraphML, whole or not at all."""
    buffer = io.BytesIO()
    # The pure-Python writer: the file's bytes must not depend on lxml being installed.
    networkx_for("GraphML files").write_graphml_xml(graph, buffer)
    write_atomically(path, buffer.getvalue())


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
