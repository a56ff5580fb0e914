"""Connectome-like drawings: the edges of signed graphs between nodes that stand at known places.

``partials`` : (p, p) symmetric, an edge wherever an entry off the diagonal is not zero; there is no
threshold. ``coordinates`` : (p, 3), x to the right, y to the front, z upwards (as in MNI space),
give three views of the head; without them the nodes stand on a circle, group by group.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from trellis.apps.common.metrics import Vector
from trellis.apps.pages.brains.layout import View, figure_size, group_ranks, views_of
from trellis.apps.pages.figure import (
    INK,
    PALETTE,
    PRIVATE,
    QUIET,
    SHARED,
    placed,
    plain,
    short,
    style,
)
from trellis.apps.pages.layout import Matrix
from trellis.apps.pages.plots import (
    DRAWN_EDGES,
    LABELLED_NODES,
    add_lines,
    name_nodes,
    reach_of_names,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure, FigureBase
    from matplotlib.lines import Line2D

PANEL_EDGES = 400  # of one panel among several
RING_NAMES = 60  # nodes; around a circle there is room for more names than anywhere else
PANEL_NAMES = 25  # nodes; more names than this cannot be read in one panel among several
_COLUMNS = 3
_LINE = 0.18  # inches, of a line above a drawing
_SIGNS = ("positive", "negative")
_CLASSES = ("common to all clients", "not common")
# Groups of nodes: first by colour, none of them an edge's colour, then by shape.
_COLOURS, _SHAPES = PALETTE[2:6], ("o", "s", "^")


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
    views = views_of(coordinates, size, groups)
    first = cell.values > 0.0 if cell.common is None else cell.common
    drawn = cell.values != 0.0
    words = legend or (_SIGNS if cell.common is None else _CLASSES)
    counts = (int(np.sum(drawn & first)), int(np.sum(drawn & ~first)))
    told = [f"{word} ({n:,})" for word, n in zip(words, counts, strict=True)]
    pen = _pen([cell], max_edges)
    limit = RING_NAMES if len(views) == 1 else PANEL_NAMES
    shown = names if size <= limit else ()
    if len(views) > 1:
        figure = Figure(figsize=figure_size(views, 1, 1, alone=True))
        _draw_cell(figure, cell, views, shown, groups, pen, max_edges)
        _legend(figure, told, groups)
        return figure
    width, side = figure_size(views, 1, 1, alone=True)
    handles = _handles(told, groups)
    below = _legend_height(handles, width)
    above = _LINE * _lines_above(cell, max_edges) + 0.04
    # The places are known: a layout engine would draw everything twice to find them.
    figure = placed(width, side + above + below)
    box = (0.0, below, width, side + above)
    _draw_cell(figure, cell, views, shown, groups, pen, max_edges, box)
    _legend(figure, told, groups, "lower center")
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
    views = views_of(coordinates, size, groups)
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
    pen = _pen([*true, *learned], max_edges)
    told = list(legend or (_SIGNS if common is None else _CLASSES))
    width, height = figure_size(views, len(rows), columns)
    if len(views) > 1:
        figure = Figure(figsize=(width, height))
        parts = figure.subfigures(len(rows), columns, squeeze=False)
        for place, row in zip(parts, rows, strict=True):
            for part, cell in zip(place, row, strict=False):
                _draw_cell(part, cell, views, (), groups, pen, max_edges)
        _legend(figure, told, groups)
        return figure
    below = _legend_height(_handles(told, groups), width)
    across, down = width / columns, height / len(rows)
    figure = placed(width, height + below)
    shown = names if size <= PANEL_NAMES else ()
    for r, row in enumerate(rows):
        for c, cell in enumerate(row):
            box = (c * across, below + height - (r + 1) * down, across, down)
            _draw_cell(figure, cell, views, shown, groups, pen, max_edges, box)
    _legend(figure, told, groups, "lower center")
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


def _look(rank: int, count: int) -> tuple[str, str]:
    """Return colour and shape of a group; grey where there are more groups than looks, or none."""
    if rank >= min(count, len(_COLOURS) * len(_SHAPES)):
        return QUIET, "o"
    return _COLOURS[rank % len(_COLOURS)], _SHAPES[rank // len(_COLOURS)]


def _draw_cell(
    figure: FigureBase,
    cell: _Cell,
    views: list[View],
    names: Sequence[str],
    groups: Sequence[object] | None,
    pen: tuple[float, float],
    max_edges: int,
    box: tuple[float, float, float, float] | None = None,
) -> None:
    """Draw one graph in all views, its title above them.

    ``box``, of a circle: left, bottom, width and height in inches; None leaves places to a layout.
    """
    size = len(views[0].place)
    chosen = np.flatnonzero(cell.values)
    order = chosen[np.argsort(np.abs(cell.values[chosen]), kind="stable")]
    kept = order[max(order.size - max_edges, 0) :]
    note = f"the {kept.size:,} strongest of {order.size:,} edges" if kept.size < order.size else ""
    title = plain(short(cell.title, 44))
    if box is None:
        ratios = {"width_ratios": [float(view.half[0]) for view in views]}
        grid = figure.subplots(1, len(views), squeeze=False, gridspec_kw=ratios)[0]
    else:
        grid = [_boxed(figure, box, title, note)]
    for axes, view in zip(grid, views, strict=True):
        axes.set_label(cell.title)
        if view.head:
            _outline(axes, view)
        _edges(axes, cell, view, kept, pen)
        _nodes(axes, view.place, groups, 22 if size <= LABELLED_NODES else 9)
        if len(names):
            name_nodes(axes, view.place, names, around=not view.head)
        reach = 1.1 * view.half
        if box is not None and len(names):
            reach = reach_of_names(names, min(box[2:])) * view.half
        axes.set_xlim(view.centre[0] - reach[0], view.centre[0] + reach[0])
        axes.set_ylim(view.centre[1] - reach[1], view.centre[1] + reach[1])
        axes.set_aspect("equal")
        axes.set(xticks=[], yticks=[])  # off as well, but the layout would measure them
        axes.set_axis_off()
    lines = [*([title] if title else []), *([" "] if note else [])]
    if box is not None or not lines:
        return
    words = "\n".join(lines)
    above = figure.suptitle(words, x=0.02, ha="left", fontsize=10, fontweight="bold")
    if note:
        # In the title's last line, which is empty: the layout keeps it free of nodes' names.
        grid[0].annotate(
            note, (0, 0), xycoords=above, va="bottom", fontsize=7.5, color=QUIET
        ).set_in_layout(False)


def _boxed(
    figure: FigureBase, box: tuple[float, float, float, float], title: str, note: str
) -> Axes:
    """Return axes in a place of a figure that is known, below the title and the note."""
    whole = figure.get_figure(root=True)
    width, height = whole.get_size_inches()
    left, bottom, across, down = box
    top, x = (bottom + down - 0.04) / height, (left + 0.02 * across) / width
    lines = (title != "") + (note != "")
    inner = down - (_LINE * lines + 0.04 if lines else 0.0)
    axes = figure.add_axes((left / width, bottom / height, across / width, inner / height))
    if title:
        look: Any = {"ha": "left", "va": "top", "fontsize": 10, "fontweight": "bold"}
        if across == width and down > height / 2.0:  # the only one: its title is the figure's
            figure.suptitle(title, x=x, y=top, **look)
        else:
            figure.text(x, top, title, **look)
    if note:
        y = top - (_LINE / height if title else 0.0)
        style: Any = {"va": "top", "fontsize": 7.5, "color": QUIET}
        axes.text(x, y, note, transform=whole.transFigure, **style)
    return axes


def _lines_above(cell: _Cell, max_edges: int) -> int:
    return (cell.title != "") + bool(np.count_nonzero(cell.values) > max_edges)


def _pen(cells: Sequence[_Cell], max_edges: int) -> tuple[float, float]:
    """Return the largest magnitude of all graphs and how thin their lines must be drawn."""
    top = max(float(np.max(np.abs(cell.values), initial=0.0)) for cell in cells)
    most = max(min(int(np.count_nonzero(cell.values)), max_edges) for cell in cells)
    # Many lines must be thin ones, or they hide each other.
    return top, float(np.clip(np.sqrt(100.0 / max(most, 1)), 0.35, 1.0))


def _edges(
    axes: Axes, cell: _Cell, view: View, kept: NDArray[np.intp], pen: tuple[float, float]
) -> None:
    """Add the lines, light below heavy: straight in a head, bent inwards on a circle."""
    first, second = (ends[kept] for ends in np.triu_indices(len(view.place), 1))
    start, end = view.place[first], view.place[second]
    if view.head:
        lines = np.stack([start, end], axis=1)
    else:
        # Neighbours are joined by an almost straight line, far nodes by one through the middle.
        distance = np.linalg.norm(end - start, axis=1, keepdims=True)
        bend = (start + end) / 2.0 * (1.0 - 0.4 * distance)
        lines = np.stack([start, bend, end], axis=1)
    values = cell.values[kept]
    blue = values > 0.0 if cell.common is None else cell.common[kept]
    top, thin = pen
    relative = np.abs(values) / max(top, 1e-300)
    # Straight lines through a head cross more often than those along a circle.
    wide = (0.7 if view.head else 1.0) * thin
    add_lines(axes, lines, relative, blue, (0.4 * wide, 3.0 * wide), (0.3, 0.6))


def _outline(axes: Axes, view: View) -> None:
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
    labels, rank = group_ranks(groups if groups is not None else [""] * len(place))
    for number in np.unique(rank):
        colour, shape = (INK, "o") if not labels else _look(int(number), len(labels))
        x, y = place[rank == number].T
        axes.scatter(x, y, s=area, color=colour, marker=shape, linewidths=0, zorder=3)


def _handles(edges: list[str], groups: Sequence[object] | None) -> list[Line2D]:
    """Return what the colours of edges and nodes mean."""
    from matplotlib.lines import Line2D

    handles = [
        Line2D([], [], color=colour, linewidth=2.2, label=plain(word))
        for word, colour in zip(edges, (SHARED, PRIVATE), strict=True)
    ]
    labels = group_ranks(groups)[0] if groups is not None else []
    for number, label in enumerate(labels[: len(_COLOURS) * len(_SHAPES)]):
        colour, shape = _look(number, len(labels))
        dot: dict[str, Any] = {"marker": shape, "linestyle": "", "markersize": 5, "color": colour}
        handles.append(Line2D([], [], label=plain(short(label, 24)), **dot))
    return handles


def _columns(handles: Sequence[Line2D], width: float) -> int:
    """Return how many entries of a legend stand side by side in so many inches."""
    longest = max(len(str(handle.get_label())) for handle in handles)
    return max(1, min(len(handles), int(17 * width) // (8 + longest)))


def _legend_height(handles: Sequence[Line2D], width: float) -> float:
    return 0.17 * -(-len(handles) // _columns(handles, width)) + 0.1


def _legend(
    figure: Figure,
    edges: list[str],
    groups: Sequence[object] | None,
    place: Literal["outside lower center", "lower center"] = "outside lower center",
) -> None:
    """Add what the colours of edges and nodes mean."""
    handles = _handles(edges, groups)
    columns = _columns(handles, figure.get_figwidth())
    figure.legend(handles=handles, loc=place, ncols=columns, fontsize=8)
