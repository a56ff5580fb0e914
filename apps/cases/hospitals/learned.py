"""What the hospitals learned: the measurements that a model goes by, the graph of measurements."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from trellis.apps.common.results import RunResult
from trellis.apps.joint_precision.report.named import named_graphs
from trellis.apps.pages.named import NamedGraph
from trellis.apps.pages.page import Block, FigureBlock, Heading, Paragraph, Table
from trellis.apps.pages.plots import svg, two_colour_graph

from .. import evidence
from ..blocks import edges_table

if TYPE_CHECKING:
    from markupsafe import Markup

_FEATURES = 8
_DRAWN = (
    "Dots are measurements, a line joins two that go together, thick where they do strongly. Blue "
    "lines came back in every split, orange ones did not."
)


def model_blocks(runs: Sequence[RunResult]) -> list[Block]:
    """Return the measurements that the model goes by, and how steadily."""
    names = runs[0].variables
    weights = np.array([run.arrays["centroid"][: len(names)] for run in runs])
    mean = weights.mean(axis=0)
    order = np.argsort(-np.abs(mean))[:_FEATURES]
    rows = [
        [
            names[k],
            "malignant" if mean[k] > 0.0 else "benign",
            round(float(mean[k]), 2),
            f"{int(np.sum(np.sign(weights[:, k]) == np.sign(mean[k])))} of {len(runs)}",
        ]
        for k in order
    ]
    text = (
        "A model that tells malignant from benign tumours by 30 measurements of cell nuclei, "
        "learned without privacy. Each patient's nuclei have a mean, a standard error and a worst "
        "value (the mean of the three largest) of ten properties. Measurements were left in their "
        "own units; the hospitals found a common scale by themselves, and weights are on it."
    )
    caption = f"The {len(rows)} measurements that weigh most, mean of the splits."
    headers = ["a larger", "speaks for", "weight", "same sign in splits"]
    return [Heading("Which tumours are malignant"), Paragraph(text), Table(headers, rows, caption)]


def graph_blocks(runs: Sequence[RunResult]) -> list[Block]:
    """Return the pairs that all hospitals have in an open run, and how steady they are."""
    graphs = [named_graphs(run)["common"]() for run in runs]
    edges = evidence.stability(graphs)
    always = [edge for edge in edges if edge.times == len(runs)]
    pairs = len(graphs[0].nodes) * (len(graphs[0].nodes) - 1) // 2
    text = (
        "Which of eight measurements go together once the six others are known, learned openly "
        f"with hospitals taken to be alike. Of {pairs} pairs {len(edges)} were found for all "
        f"hospitals in some split, {len(always)} in every one. A strength of 1 would be lockstep, "
        "0 nothing in common; below 0, one falls as the other rises. Perimeter and area are left "
        "out: they are the radius again."
    )
    drawn = _picture(graphs[0], {edge.ends for edge in always})
    return [
        Heading("Which measurements go together"),
        Paragraph(text),
        FigureBlock("What the first split found", drawn, _DRAWN),
        edges_table(edges, len(runs), most=12),
    ]


def _picture(graph: NamedGraph, steady: set[tuple[str, str]]) -> Markup:
    d = len(graph.nodes)
    weights, always = np.zeros((d, d)), np.zeros((d, d), dtype=bool)
    for (u, v), weight in zip(graph.pairs.tolist(), graph.weights.tolist(), strict=True):
        first, second = sorted((graph.nodes[u], graph.nodes[v]))
        weights[u, v], always[u, v] = abs(weight), (first, second) in steady
    upper = np.triu_indices(d, 1)
    names = [_short(name) for name in graph.nodes]
    legend = ("in every split", "not in every split")
    figure = two_colour_graph(weights[upper], names, always[upper], legend=legend, threshold=0.0)
    return svg(figure, _DRAWN)


def _short(name: str) -> str:
    return name.removeprefix("mean ").replace("dimension", "dim.")
