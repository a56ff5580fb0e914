"""A drawing of servers and the edges between them: who is large, who is lost, who hears whom."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from trellis.apps.pages.figure import INK, QUIET, SHARED, placed, plain, short, style
from trellis.apps.pages.layout import circle, spring, strongest
from trellis.apps.pages.plots import add_lines

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Matrix = NDArray[np.float64]

NAMED = 40  # servers; more are drawn without names
_ON_CIRCLE = 24
_DRAWN_EDGES = 2_000
_SMALLEST, _LARGEST = 40.0, 420.0  # areas of nodes, in square points


@style()
def server_map(
    weights: Matrix,
    names: Sequence[str],
    sizes: Sequence[float],
    alive: NDArray[np.bool_] | None = None,
    *,
    title: str = "",
) -> Figure:
    """Draw the graph of servers.

    Parameters
    ----------
    weights : (P, P) symmetric, what servers give each other's models; its diagonal is not drawn. A
        line's width follows its weight relative to the largest
    names : P names
    sizes : P numbers of clients; a node's area follows them
    alive : (P,), servers that run; the others are hollow and their edges dashed
    """
    from matplotlib.lines import Line2D

    count = len(names)
    up = np.ones(count, dtype=bool) if alive is None else np.asarray(alive, dtype=bool)
    a, b = np.triu_indices(count, 1)
    across = np.abs(weights[a, b])
    place = circle(count) if count <= _ON_CIRCLE else spring(across, count, 0.0)
    width, height = 4.8, 4.4
    above, below = 0.3 if title else 0.0, 0.3 if not np.all(up) else 0.0
    figure = placed(width, height)
    axes = figure.add_axes((0.0, below / height, 1.0, (height - above - below) / height))
    chosen, total = strongest(across, 0.0, _DRAWN_EDGES)
    a, b, relative = a[chosen], b[chosen], across[chosen] / np.max(across, initial=1e-300)
    lines = np.stack([place[a], place[b]], axis=1)
    running = up[a] & up[b]
    thin = float(np.clip(np.sqrt(100.0 / max(chosen.size, 1)), 0.25, 1.0))
    # Many lines must be thin ones, or they hide each other.
    pen = ((0.5 * thin, 3.0 * thin), (0.75, 0.0))
    add_lines(axes, lines[running], relative[running], SHARED, *pen)
    add_lines(axes, lines[~running], relative[~running], QUIET, *pen, dashed=True)
    if chosen.size < total:
        note = f"the {chosen.size:,} strongest of {total:,} edges are drawn"
        axes.text(0.02, 0.99, note, transform=axes.transAxes, fontsize=8, color=QUIET, va="top")
    share = np.asarray(sizes, dtype=np.float64) / max(float(np.max(sizes, initial=0.0)), 1.0)
    # Many nodes must be small ones: together they take no more room than 40 do.
    room = min(1.0, NAMED / count)
    areas = np.round(room * (_SMALLEST + (_LARGEST - _SMALLEST) * share), 1)
    fill = [INK if running else "white" for running in up]
    axes.scatter(
        place[:, 0], place[:, 1], s=areas, c=fill, edgecolors=INK, linewidths=1.3 * room, zorder=3
    )
    if count <= NAMED:
        middle = place.mean(axis=0)
        reach = max(float(np.ptp(place)) / 2.0, 1e-9)
        for name, spot in zip(names, place, strict=True):
            away = spot - middle
            away = away / max(float(np.linalg.norm(away)), 1e-9) * 0.16 * reach
            x, y = spot + away
            side = "left" if away[0] > 0.05 * reach else "right" if away[0] < -0.05 * reach else ""
            axes.text(x, y, plain(short(name)), ha=side or "center", va="center", fontsize=8)
    axes.set_aspect("equal", adjustable="datalim")
    axes.margins(0.2)
    if count == 1:  # one point has no extent that a drawing could be fitted to
        axes.update_datalim(place + np.array([[-1.0, -1.0], [1.0, 1.0]]))
    axes.set_axis_off()
    if title:
        look: Any = {"va": "top", "fontsize": 10, "fontweight": "bold"}
        figure.text(0.02, 1.0 - 0.08 / height, plain(title), **look)
    if not np.all(up):
        dot = {"linestyle": "none", "marker": "o", "markersize": 8, "markeredgecolor": INK}
        handles = [
            Line2D([], [], markerfacecolor=colour, label=text, **dot)  # type: ignore[arg-type]
            for colour, text in ((INK, "running"), ("white", "lost"))
        ]
        figure.legend(handles=handles, loc="lower center", ncols=2, fontsize=8.5)
    return figure
