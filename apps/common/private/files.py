"""A client's own result as files: arrays, GraphML, a table of edges, a small page.

With nothing but numpy and the standard library: a device has neither networkx nor Jinja2.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as xml

import numpy as np
from numpy.typing import NDArray

from apps.common.metrics import LOOSE_EDGE_THRESHOLD
from privacy.device.state import write_private

_NOT_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_SHOWN = 50

STYLE = (
    "body{font:16px/1.5 system-ui,sans-serif;max-width:44rem;margin:2rem auto;padding:0 1rem}"
    "table{border-collapse:collapse}td,th{padding:.2rem .8rem .2rem 0;text-align:left}"
)
KEPT_HERE = (
    "Computed on this device from its own raw data and the result that all clients share. It was "
    "not sent to anybody."
)


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
    page = page_of(f"{study}: the result of {name}", summary, rows, graph is not None, variables)
    write_private(folder / "result.html", page)


def page_of(
    title: str,
    summary: Mapping[str, float | str],
    rows: Sequence[tuple[str, str, float]],
    is_graph: bool,
    variables: Sequence[str],
) -> bytes:
    """Return the owner's page; built as a tree, so that no text of the data is markup."""
    root = xml.Element("html", lang="en")
    head, body = xml.SubElement(root, "head"), xml.SubElement(root, "body")
    xml.SubElement(head, "meta", charset="utf-8")
    _text(head, "title", title)
    _text(head, "style", STYLE)
    _text(body, "h1", title)
    _text(body, "p", KEPT_HERE)
    _text(body, "h2", "In short")
    _table(body, [(str(key), _shown(value)) for key, value in summary.items()])
    if is_graph:
        _text(body, "h2", "Edges")
        count = f"{len(rows)} edges between {len(variables)} variables"
        some = f"; the {_SHOWN} strongest" if len(rows) > _SHOWN else ""
        _text(body, "p", f"{count}, with their weights{some}.")
        _table(body, [(f"{a} and {b}", _shown(weight)) for a, b, weight in rows[:_SHOWN]])
    others = ", graph.graphml, edges.csv" if is_graph else ""
    _text(body, "p", f"Files beside this page: result.npz{others}.")
    return b"<!doctype html>\n" + xml.tostring(root, encoding="utf-8", method="html")


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


def _table(parent: xml.Element, rows: Sequence[tuple[str, str]]) -> None:
    table = xml.SubElement(parent, "table")
    for name, value in rows:
        row = xml.SubElement(table, "tr")
        _text(row, "th", name)
        _text(row, "td", value)


def _text(parent: xml.Element, tag: str, text: str) -> None:
    xml.SubElement(parent, tag).text = _NOT_XML.sub("\ufffd", text)


def _shown(value: float | str) -> str:
    return value if isinstance(value, str) else f"{value:.4g}"
