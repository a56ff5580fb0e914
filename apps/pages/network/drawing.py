"""The graph of servers with what went over its edges, and the letters of every round, drawn."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from trellis.apps.pages import plots
from trellis.apps.pages.figure import INK, PRIVATE, QUIET, SHARED, plain, short, style

from .links import Links, Matrix, by_edge, marks, names_of, row_names

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLUMNS = 240  # more rounds than this are pooled: the eye sees no more in a strip
NAMED, LABELLED_EDGES = 40, 24  # more names or edges are drawn without words
_ON_CIRCLE = 24
_PALE, _NONE = "#c9ced6", "#9aa1ab"
_FRESH_TO_OLD = ("#d6e9f5", "#7db8dd", SHARED, "#e69f00", PRIVATE)


@style()
def network_map(network: Mapping[str, Any], links: Links | None) -> Figure:
    """Draw the graph: whose result it is in blue, edges as wide as they were used."""
    from matplotlib.figure import Figure

    names = names_of(network)
    pairs = [(int(a), int(b)) for a, b in network.get("edges", ())]
    joined = np.zeros((len(names), len(names)))
    for a, b in pairs:
        joined[min(a, b), max(a, b)] = 1.0
    upper = joined[np.triu_indices(len(names), 1)]
    few = len(names) <= _ON_CIRCLE
    place = plots.circle(len(names)) if few else plots.spring(upper, len(names), 0.0)
    figure = Figure(figsize=(4.8, 4.4))
    axes = figure.add_subplot()
    used = {} if links is None else by_edge(links)
    most = max((count for count, _ in used.values()), default=0) or 1
    for a, b in pairs:
        x, y = place[[a, b], 0], place[[a, b], 1]
        told = used.get((min(a, b), max(a, b)))
        if told is None:
            axes.plot(x, y, color=_PALE, linewidth=0.9, zorder=1)
            continue
        count, age = told
        colour, dashes = (SHARED, "-") if count else (_NONE, "--")
        width = 0.8 + 3.2 * count / most
        axes.plot(x, y, dashes, color=colour, linewidth=width, alpha=0.75, zorder=2)
        if len(pairs) <= LABELLED_EDGES:
            words = f"{count:,}" if np.isnan(age) else f"{count:,}, age {age:.0f}"
            spot = axes.text(x.mean(), y.mean(), words, fontsize=7.5, ha="center", va="center")
            spot.set_bbox({"facecolor": "white", "edgecolor": "none", "alpha": 0.85, "pad": 1.0})
            spot.set_zorder(4)
    _draw_servers(axes, network, place)
    axes.set_aspect("equal", adjustable="datalim")
    axes.margins(0.3)
    axes.set_axis_off()
    return figure


def _draw_servers(axes: Axes, network: Mapping[str, Any], place: Matrix) -> None:
    names = names_of(network)
    merged = {str(name) for name in network.get("merged", ())}
    near = {int(other) for other in network.get("neighbours", ())}
    for server, (name, (x, y)) in enumerate(zip(names, place, strict=True)):
        own = server == network.get("server", -1) or name in merged
        colour = SHARED if own else INK if server in near else _PALE
        edge = INK if own else colour
        axes.scatter([x], [y], s=230 if own else 120, c=colour, edgecolors=edge, zorder=3)
        if len(names) <= NAMED:
            away = 0.2 * np.array([x, y]) / max(float(np.hypot(x, y)), 1e-9)
            side = "left" if away[0] > 0.05 else "right" if away[0] < -0.05 else "center"
            words = axes.text(x + away[0], y + away[1], plain(short(name)), fontsize=8, ha=side)
            words.set(va="center", color=INK if own else QUIET, weight="bold" if own else "normal")


@style()
def letter_strip(network: Mapping[str, Any], links: Links) -> Figure:
    """Draw the age of the letter that every round used of every neighbour."""
    from matplotlib.colors import BoundaryNorm, LinearSegmentedColormap
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    worst = _pooled(links)
    top = max(int(np.max(worst[np.isfinite(worst)], initial=0.0)), 1)
    figure = Figure(figsize=(6.4, max(1.7, 1.1 + 0.26 * worst.shape[1])))
    axes = figure.add_subplot()
    ages = LinearSegmentedColormap.from_list("ages", _FRESH_TO_OLD, N=max(top + 1, 2))
    colours = ages.with_extremes(over=_NONE)  # none is worse than any age
    first, last = links.at[0], links.at[-1]
    picture = axes.imshow(
        np.ma.masked_invalid(np.where(worst == np.inf, top + 1.0, worst)).T,
        cmap=colours,
        norm=BoundaryNorm(np.arange(-0.5, top + 1.0), colours.N),
        aspect="auto",
        interpolation="nearest",
        extent=(first - 0.5, last + 0.5, worst.shape[1] - 0.5, -0.5),
    )
    names = [plain(short(name, 28)) for name in row_names(network, links)]
    axes.set_yticks(range(len(names)), names, fontsize=8 if len(names) <= 20 else 6)
    axes.xaxis.set_major_locator(MaxNLocator(8, integer=True))
    axes.set_xlabel("round")
    axes.grid(False)
    for row in range(1, len(names)):
        axes.axhline(row - 0.5, color="white", linewidth=1.2)
    for at in marks(network, links):
        axes.axvline(at, color=INK, linewidth=0.9, linestyle=(0, (3, 2)))
    bar = figure.colorbar(picture, ax=axes, label="age, rounds", pad=0.02, aspect=12)
    bar.set_ticks([0, top] if top < 4 else [0, round(top / 2), top])
    bar.ax.minorticks_off()
    bar.outline.set_visible(False)
    return figure


def _pooled(links: Links) -> Matrix:
    """Return ages (columns, L), infinite for no letter, nan for unknown; the worst of a column."""
    ages = np.where(links.used > 0, links.ages, np.where(links.used == 0, np.inf, np.nan))
    step = -(-len(ages) // COLUMNS)
    if step <= 1:
        return ages
    chunks = [ages[begin : begin + step] for begin in range(0, len(ages), step)]
    return np.array([np.fmax.reduce(chunk, axis=0) for chunk in chunks])
