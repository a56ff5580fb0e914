"""Connectome-like drawings: the edges of signed graphs between nodes that stand at known places.

``partials`` : (p, p) symmetric, an edge wherever an entry off the diagonal is not zero; there is no
threshold. ``coordinates`` : (p, 3), x to the right, y to the front, z upwards (as in MNI space),
give three views of the head; without them the nodes stand on a circle, group by group. Also `mark`,
which points at one value of a curve.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sim.figure import INK, PALETTE, PRIVATE, QUIET, SHARED, style
from sim.metrics import Vector
from sim.plots import DRAWN_EDGES, LABELLED_NODES, Matrix, _name_nodes, _plain, _short

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure, FigureBase

PANEL_EDGES = 400  # of one panel among several
RING_NAMES = 60  # nodes; around a circle there is room for more names than anywhere else
PANEL_NAMES = 25  # nodes; more names than this cannot be read in one panel among several
_COLUMNS = 3
_SIGNS = ("positive", "negative")
_CLASSES = ("common to all clients", "not common")
# Groups of nodes: first by colour, none of them an edge's colour, then by shape.
_COLOURS, _SHAPES = PALETTE[2:6], ("o", "s", "^")


@dataclass(frozen=True)
class _View:
    """Where the nodes stand (p, 2); centre (2,) and half axes (2,) of the outline around them."""

    name: str
    place: Matrix
    centre: Vector
    half: Vector
    head: bool


@dataclass(frozen=True)
class _Cell:
    """One graph to draw: values (q,) of its pairs, and their class or None to colour by sign."""

    title: str
    values: Vector
    common: NDArray[np.bool_] | None


@style()
def connectome(
    partials: Matrix,
    coordinates: ArrayLike | None = None,
    names: Sequence[str] = (),
    title: str = "",
    groups: Sequence[object] | None = None,
    *,
    common: ArrayLike | None = None,
    legend: tuple[str, str] | None = None,
    max_edges: int = DRAWN_EDGES,
) -> Figure:
    """Draw one signed graph as a connectome.

    Parameters
    ----------
    partials : (p, p)
        Partial correlations; the diagonal is not read. A line's width follows the magnitude.
    coordinates : (p, 3)
        Of the nodes; without them a circle is drawn.
    names : p names
        Written beside the nodes where they are few enough to be read.
    groups : p labels
        Such as lobes; nodes of one group have one colour and stand side by side on the circle. An
        empty label is no group.
    common : (p, p) bool
        Which edges belong to the first of two classes; where left out, edges are coloured by sign.
    legend : two names
        What the two colours mean; the numbers of edges are added.
    max_edges : int
        Draw no more than this many, the strongest; the figure says so where some are left out.
    """
    from matplotlib.figure import Figure

    size = np.shape(partials)[0]
    cell = _cells([partials], [title], common)[0]
    views = _views(coordinates, size, groups)
    figure = Figure(figsize=_figure_size(views, 1, 1, alone=True))
    if len(views) == 1:
        # A reader's font may be wider than ours: names need room before the legend begins.
        figure.set_layout_engine("constrained", h_pad=0.07)
    pen = _pen([cell], max_edges)
    limit = RING_NAMES if len(views) == 1 else PANEL_NAMES
    _draw_cell(figure, cell, views, names if size <= limit else (), groups, pen, max_edges)
    first = cell.values > 0.0 if cell.common is None else cell.common
    drawn = cell.values != 0.0
    words = legend or (_SIGNS if cell.common is None else _CLASSES)
    counts = (int(np.sum(drawn & first)), int(np.sum(drawn & ~first)))
    _legend(figure, [f"{word} ({n:,})" for word, n in zip(words, counts, strict=True)], groups)
    return figure


@style()
def connectomes(
    partials: Sequence[Matrix],
    titles: Sequence[str],
    coordinates: ArrayLike | None = None,
    names: Sequence[str] = (),
    groups: Sequence[object] | None = None,
    *,
    truth: Sequence[Matrix] | None = None,
    common: ArrayLike | None = None,
    legend: tuple[str, str] | None = None,
    max_edges: int = PANEL_EDGES,
) -> Figure:
    """Draw several graphs side by side, on one scale of widths; see `connectome`.

    Parameters
    ----------
    partials, titles : one a graph
    truth : one a graph
        The true partial correlations, drawn above the learned ones, or to their left where there
        are coordinates.
    common : (p, p) or (K, p, p) bool
        One class of edges for all graphs, or one a graph (and its truth).
    """
    from matplotlib.figure import Figure

    size = np.shape(partials[0])[0]
    views = _views(coordinates, size, groups)
    true: list[_Cell] = []
    if truth is None:
        learned = _cells(partials, titles, common)
    else:
        learned = _cells(partials, [f"{title}, learned" for title in titles], common)
        true = _cells(truth, [f"{title}, true" for title in titles], common)
    if len(views) > 1:
        rows = [list(row) for row in zip(*([true] if true else []), learned, strict=True)]
    else:
        wide = range(0, len(learned), _COLUMNS)
        rows = [part[k : k + _COLUMNS] for k in wide for part in (true, learned) if part]
    columns = max(len(row) for row in rows)
    figure = Figure(figsize=_figure_size(views, len(rows), columns))
    parts = figure.subfigures(len(rows), columns, squeeze=False)
    pen = _pen([*true, *learned], max_edges)
    for place, row in zip(parts, rows, strict=True):
        for part, cell in zip(place, row, strict=False):
            shown = names if size <= PANEL_NAMES and len(views) == 1 else ()
            _draw_cell(part, cell, views, shown, groups, pen, max_edges)
    _legend(figure, list(legend or (_SIGNS if common is None else _CLASSES)), groups)
    return figure


@style()
def mark(figure: Figure, x: float, y: float | None = None, text: str = "chosen") -> Figure:
    """Point at ``x`` by a line, or at (``x``, ``y``) by a ring, in a figure of `sim.plots.curves`.

    A logarithmic x axis that spans little gets labels between the powers of ten as well.
    """
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    axes = figure.axes[0]
    log = axes.get_xscale() == "log"
    low, high = axes.get_xlim()
    if log and high < 30.0 * low:
        axes.xaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0), numticks=12))
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axes.xaxis.set_minor_formatter(NullFormatter())
    if not np.isfinite(x) or (log and x <= 0.0) or (y is not None and not np.isfinite(y)):
        return figure
    words = _plain(text)
    if y is None:
        axes.axvline(x, color=INK, linewidth=1.0, linestyle="--", zorder=1.5)
        above: Any = axes.get_xaxis_transform()
        axes.text(x, 1.01, words, transform=above, ha="center", va="bottom", fontsize=8)
    else:
        ring: dict[str, Any] = {"markersize": 9, "markerfacecolor": "none", "markeredgecolor": INK}
        axes.plot([x], [y], "o", markeredgewidth=1.6, zorder=4, **ring)
        # Towards the middle of the axes: a ring at a corner must not push its word outside.
        right = x > sum(axes.get_xlim()) / 2.0
        low, high = axes.get_ylim()
        offset = (-9 if right else 9, -12 if y > (low + high) / 2.0 else 8)
        side = "right" if right else "left"
        axes.annotate(words, (x, y), offset, textcoords="offset points", ha=side, fontsize=8)
    return figure


def _cells(
    matrices: Sequence[Matrix], titles: Sequence[str], common: ArrayLike | None
) -> list[_Cell]:
    """Return the graphs by their upper triangles, each with its own class of edges."""
    cells = []
    for index, (matrix, title) in enumerate(zip(matrices, titles, strict=True)):
        ends = np.triu_indices(len(matrix), 1)
        values = np.nan_to_num(np.asarray(matrix, dtype=np.float64)[ends])
        shared = None if common is None else np.asarray(common, dtype=bool)
        if shared is not None:
            shared = (shared[index] if shared.ndim == 3 else shared)[ends]
        cells.append(_Cell(title, values, shared))
    return cells


def _views(
    coordinates: ArrayLike | None, size: int, groups: Sequence[object] | None
) -> list[_View]:
    """Return the three views of the head, or the circle."""
    if groups is not None and len(groups) != size:
        raise ValueError(f"{len(groups)} groups for {size} nodes; give one label a node")
    if coordinates is None:
        return [_View("", _ring(size, groups), np.zeros(2), np.ones(2), head=False)]
    places = np.asarray(coordinates, dtype=np.float64)
    if places.shape != (size, 3) or not np.all(np.isfinite(places)):
        raise ValueError(
            f"coordinates have shape {places.shape}; {size} nodes need ({size}, 3) finite numbers"
        )
    low, high = places.min(axis=0), places.max(axis=0)
    centre, half = (low + high) / 2.0, (high - low) / 2.0
    # A flat set of nodes still has a head around it.
    half = np.maximum(half, 0.35 * max(float(half.max()), 1e-9))
    views = []
    for name, axes in (("from above", [0, 1]), ("from the right", [1, 2]), ("from behind", [0, 2])):
        place, middle, axis = places[:, axes], centre[axes], half[axes]
        reach = np.max(np.linalg.norm((place - middle) / axis, axis=1), initial=1.0)
        views.append(_View(name, place, middle, 1.06 * reach * axis, head=True))
    return views


def _ring(size: int, groups: Sequence[object] | None) -> Matrix:
    """Return places (p, 2) on the unit circle, group by group, with a gap between groups."""
    rank = _ranks(groups)[1] if groups is not None else np.zeros(size, dtype=np.intp)
    order = np.argsort(rank, kind="stable")
    starts = np.concatenate([[0], np.cumsum(np.diff(rank[order]) != 0)]) if size else np.zeros(0)
    gap = 0.02 * size + 0.5 if np.any(starts) else 0.0
    slot = np.arange(size) + gap * starts
    turn = slot[-1] + 1.0 + gap if size else 1.0
    place = np.empty((size, 2))
    angle = np.pi / 2 - 2.0 * np.pi * slot / turn
    place[order] = np.column_stack([np.cos(angle), np.sin(angle)])
    return place


def _ranks(groups: Sequence[object]) -> tuple[list[str], NDArray[np.intp]]:
    """Return the groups' labels in order of appearance, and every node's; no group comes last."""
    texts = [str(label) if label is not None else "" for label in groups]
    labels = [label for label in dict.fromkeys(texts) if label]
    number = {label: index for index, label in enumerate(labels)}
    return labels, np.array([number.get(text, len(labels)) for text in texts], dtype=np.intp)


def _look(rank: int, count: int) -> tuple[str, str]:
    """Return colour and shape of a group; grey where there are more groups than looks, or none."""
    if rank >= min(count, len(_COLOURS) * len(_SHAPES)):
        return QUIET, "o"
    return _COLOURS[rank % len(_COLOURS)], _SHAPES[rank // len(_COLOURS)]


def _figure_size(
    views: list[_View], rows: int, columns: int, *, alone: bool = False
) -> tuple[float, float]:
    if len(views) == 1:
        side = 4.4 if alone else 2.9
        return side * columns, side * rows + (0.5 if alone else 0.7)
    widths = sum(float(view.half[0]) for view in views)
    tallest = max(float(view.half[1]) for view in views)
    width = 7.6 if columns == 1 else 4.7
    return width * columns, (width * tallest / widths + 0.45) * rows + 0.5


def _draw_cell(
    figure: FigureBase,
    cell: _Cell,
    views: list[_View],
    names: Sequence[str],
    groups: Sequence[object] | None,
    pen: tuple[float, float],
    max_edges: int,
) -> None:
    """Draw one graph in all views, its title above them."""
    size = len(views[0].place)
    chosen = np.flatnonzero(cell.values)
    order = chosen[np.argsort(np.abs(cell.values[chosen]), kind="stable")]
    kept = order[max(order.size - max_edges, 0) :]
    ratios = {"width_ratios": [float(view.half[0]) for view in views]}
    grid = figure.subplots(1, len(views), squeeze=False, gridspec_kw=ratios)[0]
    for axes, view in zip(grid, views, strict=True):
        if view.head:
            _outline(axes, view)
        _edges(axes, cell, view, kept, pen)
        _nodes(axes, view.place, groups, 22 if size <= LABELLED_NODES else 9)
        if len(names):
            _name_nodes(axes, view.place, names, around=not view.head)
        reach = 1.1 * view.half
        axes.set_xlim(view.centre[0] - reach[0], view.centre[0] + reach[0])
        axes.set_ylim(view.centre[1] - reach[1], view.centre[1] + reach[1])
        axes.set_aspect("equal")
        axes.set(xticks=[], yticks=[])  # off as well, but the layout would measure them
        axes.set_axis_off()
    note = f"the {kept.size:,} strongest of {order.size:,} edges" if kept.size < order.size else ""
    if note:
        grid[0].text(
            0, 1, note, transform=grid[0].transAxes, fontsize=7.5, color=QUIET, va="bottom"
        )
    if cell.title:
        words = _plain(_short(cell.title, 44))
        figure.suptitle(words, x=0.02, ha="left", fontsize=10, fontweight="bold")


def _pen(cells: Sequence[_Cell], max_edges: int) -> tuple[float, float]:
    """Return the largest magnitude of all graphs and how thin their lines must be drawn."""
    top = max(float(np.max(np.abs(cell.values), initial=0.0)) for cell in cells)
    most = max(min(int(np.count_nonzero(cell.values)), max_edges) for cell in cells)
    # Many lines must be thin ones, or they hide each other.
    return top, float(np.clip(np.sqrt(100.0 / max(most, 1)), 0.35, 1.0))


def _edges(
    axes: Axes, cell: _Cell, view: _View, kept: NDArray[np.intp], pen: tuple[float, float]
) -> None:
    """Add the lines, light below heavy: straight in a head, bent inwards on a circle."""
    from matplotlib.collections import PathCollection
    from matplotlib.colors import to_rgb
    from matplotlib.path import Path

    first, second = (ends[kept] for ends in np.triu_indices(len(view.place), 1))
    start, end = view.place[first], view.place[second]
    if view.head:
        paths = [Path(line) for line in np.stack([start, end], axis=1)]
    else:
        # Neighbours are joined by an almost straight line, far nodes by one through the middle.
        distance = np.linalg.norm(end - start, axis=1, keepdims=True)
        bend = (start + end) / 2.0 * (1.0 - 0.4 * distance)
        curve = [Path.MOVETO, Path.CURVE3, Path.CURVE3]
        paths = [Path(points, curve) for points in np.stack([start, bend, end], axis=1)]
    values = cell.values[kept]
    blue = values > 0.0 if cell.common is None else cell.common[kept]
    top, thin = pen
    relative = np.abs(values) / max(top, 1e-300)
    colours = np.where(blue[:, None], to_rgb(SHARED), to_rgb(PRIVATE))
    colours = np.column_stack([colours, np.round(0.3 + 0.6 * relative, 2)])
    # Straight lines through a head cross more often than those along a circle.
    widths = np.round((0.7 if view.head else 1.0) * thin * (0.4 + 3.0 * relative), 2)
    axes.add_collection(
        PathCollection(paths, facecolors="none", edgecolors=colours, linewidths=widths, zorder=2)
    )


def _outline(axes: Axes, view: _View) -> None:
    """Add the outline of the head and what is left, right, front and back."""
    from matplotlib.patches import Ellipse

    (x, y), (a, b) = view.centre, view.half
    axes.add_patch(
        Ellipse((x, y), 2 * a, 2 * b, facecolor="#f6f7f9", edgecolor="#c3c9d1", zorder=0)
    )
    if view.name == "from above":
        nose = np.array([[-0.13, 0.99], [0.0, 1.09], [0.13, 0.99]])
        axes.plot(x + a * nose[:, 0], y + b * nose[:, 1], color="#c3c9d1", linewidth=1.0, zorder=0)
    words = ("back", "front") if view.name == "from the right" else ("L", "R")
    for word, side in zip(words, (-1.0, 1.0), strict=True):
        spot = (x + side * 1.04 * a, y - 1.02 * b)
        ha = "left" if side < 0.0 else "right"
        axes.text(*spot, word, fontsize=7.5, color=QUIET, ha=ha, va="bottom")
    axes.set_title(view.name, fontsize=8.5, fontweight="normal", color=QUIET, loc="center")


def _nodes(axes: Axes, place: Matrix, groups: Sequence[object] | None, area: float) -> None:
    """Add the dots, one collection a group."""
    labels, rank = _ranks(groups if groups is not None else [""] * len(place))
    for number in np.unique(rank):
        colour, shape = (INK, "o") if not labels else _look(int(number), len(labels))
        x, y = place[rank == number].T
        axes.scatter(x, y, s=area, color=colour, marker=shape, linewidths=0, zorder=3)


def _legend(figure: Figure, edges: list[str], groups: Sequence[object] | None) -> None:
    """Add what the colours of edges and nodes mean."""
    from matplotlib.lines import Line2D

    handles = [
        Line2D([], [], color=colour, linewidth=2.2, label=_plain(word))
        for word, colour in zip(edges, (SHARED, PRIVATE), strict=True)
    ]
    labels = _ranks(groups)[0] if groups is not None else []
    for number, label in enumerate(labels[: len(_COLOURS) * len(_SHAPES)]):
        colour, shape = _look(number, len(labels))
        dot: dict[str, Any] = {"marker": shape, "linestyle": "", "markersize": 5, "color": colour}
        handles.append(Line2D([], [], label=_plain(_short(label, 24)), **dot))
    longest = max(len(str(handle.get_label())) for handle in handles)
    room = int(15 * figure.get_figwidth())
    columns = max(1, min(len(handles), room // (8 + longest)))
    figure.legend(handles=handles, loc="outside lower center", ncols=columns, fontsize=8.5)
