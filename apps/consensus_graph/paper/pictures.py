"""Graphs side by side in one picture, a row a method and a column a client."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from trellis.apps.common.metrics import EDGE_THRESHOLD
from trellis.apps.pages.figure import PRIVATE, SHARED, placed, plain, style
from trellis.apps.pages.plots import circle, draw_graph

from ..problem import Vector, node_count

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_SIDE = 2.3  # inches of a graph


@style()
def graphs_in_a_grid(
    panels: Mapping[tuple[str, str], Vector],
    shared: NDArray[np.bool_],
    legend: Sequence[str],
    threshold: float = EDGE_THRESHOLD,
) -> Figure:
    """Draw graphs (p,) by (row, column), nodes on one circle; edges of ``shared`` in one colour."""
    from matplotlib.lines import Line2D

    rows = list(dict.fromkeys(row for row, _ in panels))
    columns = list(dict.fromkeys(column for _, column in panels))
    below = 0.3
    width, height = _SIDE * len(columns), _SIDE * len(rows) + below
    figure = placed(width, height)
    for (row, column), weights in panels.items():
        d = node_count(weights.size)
        left = columns.index(column) * _SIDE / width
        bottom = (below + (len(rows) - 1 - rows.index(row)) * _SIDE) / height
        axes = figure.add_axes((left, bottom, _SIDE / width, 0.9 * _SIDE / height))
        draw_graph(axes, weights, [""] * d, shared, circle(d), threshold)
        axes.set_title(plain(f"{row}, {column}"), fontsize=8, loc="center", pad=1)
    handles = [
        Line2D([], [], color=colour, linewidth=2.2, label=plain(text))
        for colour, text in zip((SHARED, PRIVATE), legend, strict=True)
    ]
    figure.legend(handles=handles, loc="lower center", ncols=2, fontsize=8)
    return figure
