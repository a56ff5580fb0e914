"""The path: what every point of it gave, and which one was kept.

Reads ``path_lambda1``, ``path_lambda2``, ``path_gap``, ``path_ebic``, ``path_instability``,
``path_tpr``, ``path_fpr`` and ``path_ppv``, all (L,), and ``path_edges`` : (L, K).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from trellis.apps.pages import plots
from trellis.apps.pages.clients.chosen import ALL_DRAWN
from trellis.apps.pages.report import (
    Badge,
    Block,
    FigureBlock,
    Gallery,
    Notice,
    Paragraph,
    Section,
    Table,
    number,
)

from .graphs import Graphs, Matrix

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def path(graphs: Graphs) -> Section:
    """Return the curves over the path, the chosen point marked."""
    arrays, config = graphs.arrays, graphs.result.config
    lambda1: Matrix = arrays["path_lambda1"]
    chosen = int(arrays["path_chosen"])
    edges = np.asarray(arrays["path_edges"], dtype=np.float64)
    each = edges.shape[1] <= ALL_DRAWN
    summary = {"most": edges.max(axis=1), "mean": edges.mean(axis=1), "fewest": edges.min(axis=1)}
    over: dict[str, tuple[str, dict[str, Any]]] = {
        "path_ebic": ("Extended BIC", {"eBIC": arrays.get("path_ebic")}),
        "path_instability": ("Instability", {"instability": arrays.get("path_instability")}),
        "path_edges": ("Edges", dict(zip(graphs.names, edges.T, strict=True)) if each else summary),
    }
    figures = []
    for name, (title, lines) in over.items():
        if name in arrays:
            figure = plots.curves(lambda1, lines, x_label="lambda1", y_label=title, log_x=True)
            figures.append(_marked(title, figure, float(lambda1[chosen])))
    if "path_tpr" in arrays:
        tpr, fpr, ppv = (arrays[f"path_{name}"] for name in ("tpr", "fpr", "ppv"))
        pairs = (
            ("ROC curve", fpr, "false positive rate", tpr, "true positive rate", "auc"),
            ("Precision and recall", tpr, "recall (TPR)", ppv, "precision (PPV)", "aupr"),
        )
        for title, x, x_label, y, y_label, area in pairs:
            figure = plots.curves(x, {y_label: y}, x_label=x_label, y_label=y_label)
            known = graphs.result.headline.get(area)
            text = "" if known is None else f"Area under the curve: {number(float(known))}."
            figures.append(_marked(title, figure, float(x[chosen]), float(y[chosen]), text))
    count = lambda1.size
    stable = config.get("choose") == "stability"
    rule = "stability over random parts of the data" if stable else "extended BIC"
    text = (
        f"{count:,} points, each started from the one before; the kept one was chosen by "
        f"{rule}: lambda1 = {number(float(lambda1[chosen]))}, lambda2 = "
        f"{number(float(arrays['path_lambda2'][chosen]))}."
    )
    blocks: list[Block] = [Paragraph(text)]
    tolerance = float(config.get("tolerance") or np.inf)
    open_ends = int(np.sum(arrays["path_gap"] > tolerance))
    if open_ends:
        blocks.append(
            Notice(
                f"{open_ends} of {count} points stopped with a duality gap above the tolerance of "
                f"{number(tolerance)}, at most {number(float(np.nanmax(arrays['path_gap'])))}: "
                "raise rounds."
            )
        )
    if count > 1 and lambda1[chosen] == lambda1.min():
        blocks.append(
            Notice(
                "The chosen point is the last of the path: a smaller lambda1 may be chosen where "
                "the path goes on to it."
            )
        )
    return Section("The path", [*blocks, Gallery(figures), _points(graphs, chosen)])


def _marked(
    title: str, figure: Figure, x: float, y: float | None = None, text: str = ""
) -> FigureBlock:
    place = number(x) if y is None else f"({number(x)}, {number(y)})"
    label = f"{title}; the chosen point is at {place}. {text}".strip()
    return FigureBlock(title, plots.svg(plots.mark(figure, x, y), label), text)


def _points(graphs: Graphs, chosen: int) -> Table:
    """Return the table of the path's points."""
    arrays = graphs.arrays
    columns: dict[str, list[object]] = {
        "": [
            Badge("chosen", "good") if k == chosen else k + 1
            for k in range(len(arrays["path_gap"]))
        ],
        "lambda1": arrays["path_lambda1"].tolist(),
        "lambda2": arrays["path_lambda2"].tolist(),
        "edges a client": np.asarray(arrays["path_edges"], dtype=float).mean(axis=1).tolist(),
    }
    more = {"eBIC": "ebic", "instability": "instability", "TPR": "tpr", "FPR": "fpr", "PPV": "ppv"}
    for name, key in {**more, "duality gap": "gap"}.items():
        if f"path_{key}" in arrays:
            columns[name] = arrays[f"path_{key}"].tolist()
    return Table(list(columns), list(zip(*columns.values(), strict=True)), "Points of the path.")
