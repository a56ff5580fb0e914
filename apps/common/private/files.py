"""A client's own result as files: arrays, GraphML, a table of edges, a small page.

With nothing but numpy and the standard library: a device has neither networkx nor Jinja2.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from string import Template
from typing import Any
from xml.etree import ElementTree as xml

import numpy as np
from numpy.typing import NDArray

from apps.common.metrics import LOOSE_EDGE_THRESHOLD
from privacy.device.state import write_private

_NOT_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_SHOWN = 50

PAGE = Template("""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>$title</title>
<style>body{font:16px/1.5 system-ui,sans-serif;max-width:44rem;margin:2rem auto;padding:0 1rem}
table{border-collapse:collapse}td,th{padding:.2rem .8rem .2rem 0;text-align:left}</style></head>
<body><h1>$title</h1>
<p>Computed on this device from its own raw data and the result that all clients share. It was not
sent to anybody.</p>
<h2>In short</h2><table>$summary</table>
$edges
<p>Files beside this page: result.npz$files.</p></body></html>
""")


def write_files(
    folder: Path,
    study: str,
    name: str,
    arrays: Mapping[str, NDArray[Any]],
    graph: NDArray[np.float64] | None,
    variables: Sequence[str],
    summary: Mapping[str, float | str],
) -> None:
    """Write everything into ``folder``, each file whole or not at all, for its owner only."""
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    buffer = io.BytesIO()
    kept: dict[str, Any] = {"variables": np.array(list(variables), dtype=str), **arrays}
    np.savez_compressed(buffer, **kept)
    write_private(folder / "result.npz", buffer.getvalue())
    rows: list[tuple[str, str, float]] = []
    if graph is not None:
        rows = edges_of(graph, variables)
        write_private(folder / "graph.graphml", graphml(rows, variables))
        write_private(folder / "edges.csv", edge_table(rows))
    page = PAGE.substitute(
        title=escape(f"{study}: the result of {name}"),
        summary=_rows(summary.items()),
        edges=_edges(rows, len(variables)) if graph is not None else "",
        files=", graph.graphml, edges.csv" if graph is not None else "",
    )
    write_private(folder / "result.html", page.encode())


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
        xml.SubElement(whole, "node", id=_NOT_XML.sub("\ufffd", str(variable)))
    for a, b, weight in rows:
        ends = {"source": _NOT_XML.sub("\ufffd", a), "target": _NOT_XML.sub("\ufffd", b)}
        edge = xml.SubElement(whole, "edge", ends)
        xml.SubElement(edge, "data", key="w").text = repr(weight)
    return xml.tostring(root, encoding="utf-8", xml_declaration=True)


def edge_table(rows: Sequence[tuple[str, str, float]]) -> bytes:
    """Return the edges as csv."""
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(("from", "to", "weight"))
    writer.writerows((a, b, repr(weight)) for a, b, weight in rows)
    return text.getvalue().encode()


def _rows(items: Any) -> str:
    shown = [(k, v if isinstance(v, str) else f"{v:.4g}") for k, v in items]
    return "".join(f"<tr><th>{escape(str(k))}</th><td>{escape(v)}</td></tr>" for k, v in shown)


def _edges(rows: Sequence[tuple[str, str, float]], nodes: int) -> str:
    strongest = [(f"{a} and {b}", weight) for a, b, weight in rows[:_SHOWN]]
    more = f"<p>The {_SHOWN} strongest of {len(rows)}.</p>" if len(rows) > _SHOWN else ""
    return (
        f"<h2>Edges</h2><p>{len(rows)} edges between {nodes} variables, with their weights.</p>"
        f"<table>{_rows(strongest)}</table>{more}"
    )
