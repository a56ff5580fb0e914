"""A client's own result as files: arrays, what they are, GraphML, a table of edges, a small page.

With nothing but numpy and the standard library: a device has neither networkx nor Jinja2.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as xml

import numpy as np
from numpy.typing import NDArray

from trellis.apps.common.metrics import LOOSE_EDGE_THRESHOLD
from trellis.privacy.device.state import write_private

from .kept import ABOUT, ARRAYS, PAGE
from .page import clean, page_of


def documents(
    about: Mapping[str, Any],
    arrays: Mapping[str, NDArray[Any]],
    graph: NDArray[np.float64] | None,
    coefficients: NDArray[np.float64] | None = None,
) -> dict[str, bytes]:
    """Return all files of a result by name, the page last.

    Parameters
    ----------
    about : what the result is, see `personal.keep`
    arrays : by name
    graph : (p,) edge weights in ``numpy.triu_indices(d, 1)`` order; None where there is none
    coefficients : (d,) of a linear model, for the page
    """
    variables = about["variables"]
    buffer = io.BytesIO()
    kept: dict[str, Any] = {"variables": np.array(variables, dtype=str), **arrays}
    np.savez_compressed(buffer, **kept)
    found = {ARRAYS: buffer.getvalue(), ABOUT: json.dumps(about, indent=1).encode()}
    rows = None
    if graph is not None:
        rows = edges_of(graph, variables)
        found |= {"graph.graphml": graphml(rows, variables), "edges.csv": edge_table(rows)}
    found[PAGE] = page_of(about, rows, coefficients, list(found))
    return found


def write_documents(folder: Path, found: Mapping[str, bytes]) -> None:
    """Write all files into ``folder``, each whole or not at all, for its owner only."""
    for name, content in found.items():
        write_private(folder / name, content)


def edges_of(graph: NDArray[np.float64], variables: Sequence[str]) -> list[tuple[str, str, float]]:
    """Return the edges (a, b, weight), strongest first.

    A pair is one where its weight's size exceeds a small share of the largest.
    """
    d = len(variables)
    if graph.shape != (d * (d - 1) // 2,):
        raise ValueError(f"a graph of {graph.size} pairs does not fit {d} variables")
    a, b = np.triu_indices(d, 1)
    size = np.abs(graph)
    there = np.flatnonzero(size > LOOSE_EDGE_THRESHOLD * size.max(initial=0.0))
    order = there[np.argsort(-size[there], kind="stable")]
    return [(str(variables[a[k]]), str(variables[b[k]]), float(graph[k])) for k in order]


def graphml(rows: Sequence[tuple[str, str, float]], variables: Sequence[str]) -> bytes:
    """Return an undirected weighted graph as GraphML."""
    root = xml.Element("graphml", xmlns="http://graphml.graphdrawing.org/xmlns")
    xml.SubElement(
        root, "key", {"id": "w", "for": "edge", "attr.name": "weight", "attr.type": "double"}
    )
    whole = xml.SubElement(root, "graph", edgedefault="undirected")
    for variable in variables:
        xml.SubElement(whole, "node", id=clean(str(variable)))
    for a, b, weight in rows:
        edge = xml.SubElement(whole, "edge", {"source": clean(a), "target": clean(b)})
        xml.SubElement(edge, "data", key="w").text = repr(weight)
    return xml.tostring(root, encoding="utf-8", xml_declaration=True)


def edge_table(rows: Sequence[tuple[str, str, float]]) -> bytes:
    """Return the edges as csv."""
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(("from", "to", "weight"))
    writer.writerows((a, b, repr(weight)) for a, b, weight in rows)
    return text.getvalue().encode()
