"""The owner's page of a result: what was learned, how good it is here, what it cost, who asked.

One file without anything from outside: no script, no font, no link. Built as a tree, so that no
text of the data or of a server is ever markup. numpy and the standard library only.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any
from xml.etree import ElementTree as xml

import numpy as np
from numpy.typing import NDArray

from .about import spent_in_words

NOT_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_SHOWN = 50
_MOST_NODES, _MOST_EDGES, _MOST_BARS = 60, 200, 30

STYLE = (
    "body{font:16px/1.5 system-ui,sans-serif;max-width:44rem;margin:2rem auto;padding:0 1rem}"
    "table{border-collapse:collapse}td,th{padding:.2rem .8rem .2rem 0;text-align:left}"
    "svg{max-width:100%}svg text{font-size:11px;fill:#333}"
)
KEPT_HERE = (
    "Computed on this device from its own raw data and the result that all clients share. It was "
    "not sent to anybody."
)
SENT_HERE = (
    "Made by the server from what the clients sent, and stored here as it came. The server has it "
    "too."
)
SCORES_KEPT = "The scores below were computed on this device and sent to nobody."
SCORES_TOLD = (
    "The scores below were computed on this device; the run had no privacy and asked for them."
)
NOT_HELD_OUT = (
    "The run held no data out (held-out=0): there is no score on records that the result has not "
    "seen."
)

Edge = tuple[str, str, float]


def where_it_is(about: Mapping[str, Any]) -> list[str]:
    """Return who else has the result, and who knows its scores."""
    words = [KEPT_HERE if about["made"] == "here" else SENT_HERE]
    if about["scores"] is not None:
        words.append(SCORES_TOLD if about.get("told") else SCORES_KEPT)
    return words


def page_of(
    about: Mapping[str, Any],
    edges: Sequence[Edge] | None,
    coefficients: NDArray[np.float64] | None,
    files: Sequence[str],
) -> bytes:
    """Return the page.

    Parameters
    ----------
    about : as in ``model.json``
    edges : of the result's graph, strongest first; None where it is no graph
    coefficients : (d,) of a linear model, one a variable; None where it is none
    files : names of the files beside the page
    """
    root = xml.Element("html", lang="en")
    head, body = xml.SubElement(root, "head"), xml.SubElement(root, "body")
    title = f"{about['study']}: the result of {about['client']}"
    xml.SubElement(head, "meta", charset="utf-8")
    _text(head, "title", title)
    _text(head, "style", STYLE)
    _text(body, "h1", title)
    for sentence in where_it_is(about):
        _text(body, "p", sentence)
    variables = about["variables"]
    _text(body, "h2", "What was learned")
    for sentence in about["words"]:
        _text(body, "p", sentence)
    _table(body, [(str(key), _shown(value)) for key, value in about["summary"].items()])
    if coefficients is not None and len(coefficients) == len(variables):
        _bars(body, variables, coefficients)
    if edges is not None:
        _graph_part(body, edges, variables)
    _text(body, "h2", "How good it is on your own data")
    _score_part(body, about.get("scores"))
    _text(body, "h2", "What privacy was spent")
    for sentence in spent_in_words(about["spent"], about["privacy"]):
        _text(body, "p", sentence)
    _text(body, "h2", "Who asked")
    _table(body, who_asked(about))
    _text(body, "p", f"Files beside this page: {', '.join(files)}.")
    return b"<!doctype html>\n" + xml.tostring(root, encoding="utf-8", method="html")


def who_asked(about: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return who asked for the result and with which settings, as rows."""
    server = about["server"] or (
        "not known: a SuperNode does not tell; set server-name in the node config to name it"
    )
    settings = ", ".join(f"{key}={value}" for key, value in about["settings"].items())
    return [
        ("server", server),
        ("run", about["run"]),
        ("study", about["study"]),
        ("method", about["method"]),
        ("privacy", about["privacy"]),
        ("settings that are no defaults", settings or "none"),
        ("time", about["time"]),
    ]


def _score_part(body: xml.Element, scores: Mapping[str, Any] | None) -> None:
    if scores is None:
        _text(body, "p", NOT_HELD_OUT)
        return
    if "failed" in scores:
        _text(body, "p", "The score could not be computed; the device's log says why.")
        return
    if not scores["count"]:
        _text(body, "p", "There are too few records to hold one out.")
        return
    if scores.get("words"):
        _text(body, "p", scores["words"])
    _text(body, "p", f"{scores['count']} of your records took no part in learning:")
    table = xml.SubElement(body, "table")
    head = xml.SubElement(table, "tr")
    for name in ("", *scores["measures"]):
        _text(head, "th", name)
    for name, row in scores["rows"].items():
        line = xml.SubElement(table, "tr")
        _text(line, "th", name)
        for value in row:
            _text(line, "td", "-" if value is None else _shown(value))


def _graph_part(body: xml.Element, edges: Sequence[Edge], variables: Sequence[str]) -> None:
    _text(body, "h2", "Edges")
    some = f"; the {_SHOWN} strongest" if len(edges) > _SHOWN else ""
    count = f"{len(edges)} edges between {len(variables)} variables"
    _text(body, "p", f"{count}, with their weights{some}.")
    if 2 <= len(variables) <= _MOST_NODES:
        _circle(body, edges[:_MOST_EDGES], variables)
    _table(body, [(f"{a} and {b}", _shown(weight)) for a, b, weight in edges[:_SHOWN]])


def _circle(body: xml.Element, edges: Sequence[Edge], variables: Sequence[str]) -> None:
    """Draw the variables on a circle and the edges between them, negative ones in red."""
    picture = xml.SubElement(body, "svg", viewBox="0 0 520 520", role="img")
    _text(picture, "title", "the graph")
    angles = 2.0 * np.pi * np.arange(len(variables)) / len(variables)
    places = {
        str(name): (260.0 + 190.0 * math.cos(angle), 260.0 + 190.0 * math.sin(angle))
        for name, angle in zip(variables, angles, strict=True)
    }
    strongest = max((abs(weight) for _, _, weight in edges), default=1.0)
    for a, b, weight in edges:
        (x1, y1), (x2, y2) = places[a], places[b]
        ends = {"x1": f"{x1:.1f}", "y1": f"{y1:.1f}", "x2": f"{x2:.1f}", "y2": f"{y2:.1f}"}
        width = f"{0.5 + 3.5 * abs(weight) / strongest:.2f}"
        colour = "#246" if weight >= 0.0 else "#b33"
        xml.SubElement(
            picture, "line", ends, stroke=colour, **{"stroke-width": width, "opacity": "0.6"}
        )
    for (name, (x, y)), angle in zip(places.items(), angles, strict=True):
        xml.SubElement(picture, "circle", cx=f"{x:.1f}", cy=f"{y:.1f}", r="4", fill="#246")
        side = "start" if math.cos(angle) >= 0.0 else "end"
        out = {"x": f"{x + 8 * math.cos(angle):.1f}", "y": f"{y + 12 * math.sin(angle) + 4:.1f}"}
        label = xml.SubElement(picture, "text", out, **{"text-anchor": side})
        label.text = clean(name)[:16]


def _bars(body: xml.Element, names: Sequence[str], values: NDArray[np.float64]) -> None:
    """Draw the largest coefficients as bars, negative ones in red."""
    order = np.argsort(-np.abs(values), kind="stable")[:_MOST_BARS]
    some = f" The {_MOST_BARS} largest of {len(names)}." if len(names) > _MOST_BARS else ""
    _text(body, "p", f"The model's coefficients.{some}")
    height = 20 * len(order) + 4
    picture = xml.SubElement(body, "svg", viewBox=f"0 0 640 {height}", role="img")
    _text(picture, "title", "coefficients")
    largest = max(float(np.max(np.abs(values[order]), initial=0.0)), 1e-300)
    for row, place in enumerate(order):
        value = float(values[place])
        length, top = 150.0 * abs(value) / largest, 20 * row + 2
        box = {"y": str(top), "height": "15", "width": f"{length:.1f}"}
        left = 350.0 if value >= 0.0 else 350.0 - length
        colour = "#246" if value >= 0.0 else "#b33"
        xml.SubElement(picture, "rect", box, x=f"{left:.1f}", fill=colour)
        label = xml.SubElement(picture, "text", {"x": "0", "y": str(top + 12)})
        label.text = clean(str(names[place]))[:26]
        number = xml.SubElement(picture, "text", {"x": "520", "y": str(top + 12)})
        number.text = _shown(value)


def clean(text: str) -> str:
    """Return a text without the characters that no XML may have."""
    return NOT_XML.sub("\ufffd", text)


def _table(parent: xml.Element, rows: Sequence[tuple[str, str]]) -> None:
    if not rows:
        return
    table = xml.SubElement(parent, "table")
    for name, value in rows:
        row = xml.SubElement(table, "tr")
        _text(row, "th", name)
        _text(row, "td", value)


def _text(parent: xml.Element, tag: str, text: str) -> None:
    xml.SubElement(parent, tag).text = clean(text)


def _shown(value: float | str) -> str:
    return value if isinstance(value, str) else f"{value:.4g}"
