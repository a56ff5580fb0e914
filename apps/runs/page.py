"""The page of runs side by side: numbers, settings, held-out scores, edges, pictures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from trellis.apps.common.results import RunResult
from trellis.apps.pages.named import NamedGraph
from trellis.apps.pages.page import Block, FigureBlock, Gallery, Notice, Paragraph, Section, Table
from trellis.apps.pages.plots import svg, two_colour_graph
from trellis.apps.pages.templates import render
from trellis.apps.pages.wording import Wording, counted, number

from .compare import Comparison, EdgeDifference, named_graphs

_SHOWN_EDGES = 100
_DRAWN_RUNS = 4
_DRAWN_NODES = 400


def page(comparison: Comparison) -> str:
    """Return the page as text; it loads nothing from the network."""
    sections = [
        Section("Numbers", _numbers(comparison)),
        Section("Settings", _settings(comparison)),
    ]
    for title, make in (("Held-out scores", _scores), ("Edges", _edges), ("Graphs", _pictures)):
        blocks = make(comparison)
        if blocks:
            sections.append(Section(title, blocks))
    if notes := _notes(comparison):
        sections.append(Section("Warnings", notes))
    studies = ", ".join(dict.fromkeys(result.study for result in comparison.results))
    runs = counted(len(comparison.runs), "run")
    return render(
        "titled",
        title="Runs side by side",
        numbers={},
        summary=f"{runs} of {studies}: {', '.join(comparison.runs)}",
        blocks=sections,
    )


def tables(comparison: Comparison) -> list[Block]:
    """Return what a notebook shows: the numbers, the settings that differ, held-out scores."""
    return [*_numbers(comparison), *_settings(comparison), *_scores(comparison)]


def _numbers(comparison: Comparison) -> list[Block]:
    words = _words(comparison)
    rows = [[words.label(name), *cells] for name, cells in comparison.numbers.items()]
    return [Table(["", *comparison.runs], rows)]


def _words(comparison: Comparison) -> Wording:
    """Return what the study calls its numbers; the usual words where there are several studies."""
    from trellis.apps.common.recording import wording

    studies = {result.study for result in comparison.results}
    return wording(studies.pop()) if len(studies) == 1 else Wording()


def _settings(comparison: Comparison) -> list[Block]:
    if not comparison.settings:
        return [Paragraph("The runs have the same settings.")]
    rows = [[name, *cells] for name, cells in comparison.settings.items()]
    return [Table(["setting", *comparison.runs], rows, "Settings in which the runs differ.")]


def _scores(comparison: Comparison) -> list[Block]:
    """Return held-out scores, mean of clients: what the runs gave beside learning alone."""
    found = [_mean(result) for result in comparison.results]
    if not any(found):
        return []
    names = dict.fromkeys(name for one in found for name in one)
    rows = [[*name, *(one.get(name) for one in found)] for name in names]
    caption = "Mean of clients, on records that were left out of learning."
    return [Table(["by", "measure", *comparison.runs], rows, caption)]


def _mean(result: RunResult) -> dict[tuple[str, str], Any]:
    scores = getattr(result, "scores", None)
    if not isinstance(scores, Mapping) or not scores.get("measures"):
        return {}
    return {
        (str(row), str(measure)): value
        for row, values in scores.get("mean", {}).items()
        for measure, value in zip(scores["measures"], values, strict=True)
    }


def _edges(comparison: Comparison) -> list[Block]:
    names = comparison.graphs()
    if not names:
        return []
    found = comparison.differences()
    counts = {name: sum(one.graph == name for one in found) for name in names}
    known = [named_graphs(result) for result in comparison.results]
    summary = [
        [name, *(len(graphs[name]().pairs) for graphs in known), counts[name]] for name in names
    ]
    headers = ["graph", *(f"edges of {run}" for run in comparison.runs), "not in all"]
    blocks: list[Block] = [Table(headers, summary)]
    if not found:
        return [*blocks, Paragraph("All runs have the same edges.")]
    shown = sorted(found, key=lambda one: (names.index(one.graph), -_size(one)))[:_SHOWN_EDGES]
    rows = [[one.graph, *one.ends, *one.weights] for one in shown]
    caption = f"Edges that a run has and another has not: {len(found):,}"
    caption += "." if len(found) == len(shown) else f", of which {len(shown)} are shown."
    return [*blocks, Table(["graph", "from", "to", *comparison.runs], rows, caption)]


def _size(one: EdgeDifference) -> float:
    return max(abs(weight) for weight in one.weights if weight is not None)


def _pictures(comparison: Comparison) -> list[Block]:
    """Return the main graph of every run, edges that all have in one colour."""
    names = comparison.graphs()
    if not names or len(comparison.runs) > _DRAWN_RUNS:
        return []
    graphs = [named_graphs(result)[names[0]]() for result in comparison.results]
    if max(len(graph.nodes) for graph in graphs) > _DRAWN_NODES:
        return []
    if not any(len(graph.pairs) for graph in graphs):
        return []
    common = set.intersection(*(_ends(graph) for graph in graphs))
    figures = [
        _picture(run, names[0], graph, common)
        for run, graph in zip(comparison.runs, graphs, strict=True)
    ]
    return [Gallery(figures)]


def _picture(run: str, name: str, graph: NamedGraph, common: set[frozenset[str]]) -> FigureBlock:
    d = len(graph.nodes)
    here = np.zeros((d, d), dtype=bool)
    linked = np.zeros((d, d))
    size = np.maximum(np.abs(graph.weights), 1e-300)
    for (u, v), weight in zip(graph.pairs.tolist(), size.tolist(), strict=True):
        linked[u, v] = weight
        here[u, v] = frozenset((graph.nodes[u], graph.nodes[v])) in common
    upper = np.triu_indices(d, 1)
    legend = ("in all runs", "not in all")
    figure = two_colour_graph(linked[upper], graph.nodes, here[upper], legend=legend, threshold=0.0)
    shared = number(int(here.sum()))
    label = f"{name} of {run}: {len(graph.pairs)} edges, {shared} of them in all runs."
    return FigureBlock(run, svg(figure, label), label)


def _ends(graph: NamedGraph) -> set[frozenset[str]]:
    return {frozenset((graph.nodes[u], graph.nodes[v])) for u, v in graph.pairs.tolist()}


def _notes(comparison: Comparison) -> Sequence[Block]:
    return [
        Notice(f"{run}: {note}")
        for run, result in zip(comparison.runs, comparison.results, strict=True)
        for note in result.notes
    ]
