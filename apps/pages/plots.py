"""The figures every study can use: graphs in two colours, heat maps, curves.

Functions return `matplotlib.figure.Figure` objects; `svg` turns one into text for a report, `save`
writes it to a file.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from apps.common.metrics import EDGE_THRESHOLD, Vector, edges
from apps.pages.curves import curves, level, mark
from apps.pages.figure import INK, PALETTE, PRIVATE, QUIET, SHARED, plain, save, short, style, svg
from apps.pages.graphs import networkx_for

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.colors import Colormap
    from matplotlib.figure import Figure

__all__ = [
    "PALETTE",
    "circle",
    "curves",
    "draw_graph",
    "heat_map",
    "heat_maps",
    "level",
    "mark",
    "name_nodes",
    "save",
    "spring",
    "svg",
    "two_colour_graph",
]

Matrix = NDArray[np.float64]

LABELLED_NODES = 40  # more names than this cannot be read
DRAWN_EDGES = 800  # more lines than this are a ball of wool, and megabytes of SVG
HEAT_CELLS = 130  # larger matrices are pooled: the eye sees no more in a panel


def circle(nodes: int) -> Matrix:
    """Return positions (d, 2) on the unit circle, the first node on top, then clockwise.

    networkx's ``circular_layout`` starts on the right, anticlockwise, and in single precision.
    """
    angle = np.pi / 2 - 2.0 * np.pi * np.arange(nodes) / max(nodes, 1)
    return np.column_stack([np.cos(angle), np.sin(angle)])


def spring(weights: Vector, nodes: int, threshold: float = EDGE_THRESHOLD) -> Matrix:
    """Return positions (d, 2) that put strongly connected nodes side by side.

    Nodes without an edge stand on a ring around the rest, where a spring layout would let them
    drift away. The same weights give the same positions.
    """
    networkx = networkx_for("spring layouts")
    chosen, _ = _strongest(weights, threshold, 4 * DRAWN_EDGES)
    a, b = (ends[chosen] for ends in np.triu_indices(nodes, 1))
    place = 1.25 * circle(nodes)
    linked = np.unique(np.concatenate([a, b]))
    if linked.size:
        graph = networkx.Graph()
        graph.add_nodes_from(linked.tolist())
        graph.add_weighted_edges_from(
            zip(a.tolist(), b.tolist(), np.abs(weights[chosen]).tolist(), strict=True)
        )
        found = networkx.spring_layout(graph, seed=1, iterations=60)
        place[linked] = np.array([found[node] for node in linked.tolist()])
        alone = np.setdiff1d(np.arange(nodes), linked)
        place[alone] = 1.25 * circle(alone.size)
    return place


@style()
def two_colour_graph(
    weights: Vector,
    names: Sequence[str],
    shared: NDArray[np.bool_] | None = None,
    *,
    title: str = "",
    legend: tuple[str, str] = ("shared", "private"),
    positions: Matrix | None = None,
    threshold: float = EDGE_THRESHOLD,
    max_edges: int = DRAWN_EDGES,
) -> Figure:
    """Draw one graph, its shared edges in one colour and its private edges in another.

    Parameters
    ----------
    weights : (p,)
        Edge weights, the upper triangle in ``numpy.triu_indices(d, 1)`` order; a line's width
        follows its weight relative to the largest.
    names : d names
        Written beside the nodes where there are at most `LABELLED_NODES`.
    shared : (p,) bool
        Which edges are shared; all of them where it is left out.
    legend : two names
        What the two colours mean; the numbers of edges are added. An empty name is left out.
    positions : (d, 2)
        Where the nodes stand; by default on a circle, or by `spring` where they are many.
    threshold : float
        A pair is an edge where its weight exceeds this share of the largest.
    max_edges : int
        Draw no more than this many, the strongest; the figure says so where some are left out.
    """
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

    figure = Figure(figsize=(4.4, 4.6))
    axes = figure.add_subplot()
    common = np.ones(weights.shape, dtype=bool) if shared is None else np.asarray(shared, bool)
    chosen, total = draw_graph(axes, weights, names, common, positions, threshold, max_edges)
    drawn = edges(weights, threshold)
    handles = []
    for mask, colour, name in ((~common, PRIVATE, legend[1]), (common, SHARED, legend[0])):
        if name and (shared is not None or colour == SHARED):
            text = plain(f"{name} ({np.count_nonzero(drawn & mask):,})")
            handles.append(Line2D([], [], color=colour, linewidth=2.2, label=text))
    if title:
        figure.suptitle(plain(title), x=0.02, ha="left", fontsize=10, fontweight="bold")
    figure.legend(handles=handles[::-1], loc="outside lower center", ncols=2, fontsize=8.5)
    if chosen < total:
        note = f"the {chosen:,} strongest of {total:,} edges are drawn"
        axes.text(0.0, 1.0, note, transform=axes.transAxes, fontsize=8, color=QUIET, va="top")
    return figure


def draw_graph(
    axes: Axes,
    weights: Vector,
    names: Sequence[str],
    shared: NDArray[np.bool_],
    positions: Matrix | None = None,
    threshold: float = 0.0,
    max_edges: int = DRAWN_EDGES,
) -> tuple[int, int]:
    """Draw a graph on axes, as `two_colour_graph`; return how many edges of how many were drawn."""
    d = len(names)
    on_circle = positions is None and d <= LABELLED_NODES
    if positions is None:
        positions = circle(d) if on_circle else spring(weights, d, threshold)
    chosen, total = _strongest(weights, threshold, max_edges)
    ends = np.stack([index[chosen] for index in np.triu_indices(d, 1)], axis=1)
    relative = np.abs(weights[chosen]) / np.max(np.abs(weights), initial=1e-300)
    # Many lines must be thin ones, or they hide each other.
    thin = float(np.clip(np.sqrt(100.0 / max(chosen.size, 1)), 0.25, 1.0))
    for mask, colour in ((~shared, PRIVATE), (shared, SHARED)):
        group = mask[chosen]
        _draw_edges(axes, positions[ends[group]], relative[group], colour, thin)
    axes.scatter(
        positions[:, 0],
        positions[:, 1],
        s=26 if d <= LABELLED_NODES else 9,
        color=INK,
        linewidths=0,
        zorder=3,
    )
    if d <= LABELLED_NODES:
        name_nodes(axes, positions, names, around=on_circle)
    if d > 1:
        axes.set_aspect("equal", adjustable="datalim")
        axes.margins(0.06)
    else:  # one place has no extent to scale by
        axes.set(xlim=(-1.5, 1.5), ylim=(-1.5, 1.5), aspect="equal")
    axes.set_axis_off()
    return int(chosen.size), total


@style()
def heat_map(
    matrix: Matrix, names: Sequence[str] | None = None, *, title: str = "", label: str = "weight"
) -> Figure:
    """Draw one matrix; see `heat_maps`."""
    return heat_maps([matrix], [title], names, label=label, columns=1)


@style()
def heat_maps(
    matrices: Sequence[Matrix],
    titles: Sequence[str],
    names: Sequence[str] | None = None,
    *,
    label: str = "weight",
    columns: int = 3,
) -> Figure:
    """Draw matrices side by side on one common colour scale.

    White is zero; matrices with negative entries get a second colour for them. A matrix larger than
    a screen can show is drawn in blocks, each with its entry of largest magnitude, so that a single
    strong edge among zeros stays visible.
    """
    from matplotlib.figure import Figure

    low = min(float(np.min(matrix, initial=0.0)) for matrix in matrices)
    top = max(float(np.max(np.abs(matrix), initial=0.0)) for matrix in matrices) or 1.0
    columns = min(columns, len(matrices))
    rows = -(-len(matrices) // columns)
    side = 4.2 if columns == 1 else 2.6
    figure = Figure(figsize=(side * columns + 0.7, side * rows + 0.25))
    grid = figure.subplots(rows, columns, squeeze=False).ravel()
    for axes in grid[len(matrices) :]:
        axes.set_axis_off()
    for axes, matrix, title in zip(grid, matrices, titles, strict=False):
        picture = axes.imshow(
            _pooled(matrix),
            cmap=_colours(low < 0.0),
            vmin=-top if low < 0.0 else 0.0,
            vmax=top,
            interpolation="nearest",
        )
        axes.set_title(plain(title), fontsize=9)
        axes.grid(False)
        axes.set_xticks([])
        axes.set_yticks([])
        axes.spines[:].set_visible(True)
        if names is not None and columns == 1 and len(names) <= LABELLED_NODES:
            size = 7.5 if len(names) <= 25 else 6
            labels = [plain(short(name)) for name in names]
            axes.set_xticks(range(len(names)), labels, rotation=90, fontsize=size)
            axes.set_yticks(range(len(names)), labels, fontsize=size)
            axes.tick_params(length=0)
    bar = figure.colorbar(picture, ax=grid.tolist(), shrink=0.8 / rows**0.5, label=label, aspect=25)
    bar.outline.set_visible(False)
    return figure


def name_nodes(axes: Axes, positions: Matrix, names: Sequence[str], around: bool) -> None:
    """Write the nodes' names: outwards around a circle, above the node anywhere else."""
    for name, (x, y) in zip(names, positions, strict=True):
        text = plain(short(name))
        if not around:
            axes.annotate(text, (x, y), (0, 4), textcoords="offset points", ha="center", fontsize=7)
            continue
        angle = np.degrees(np.arctan2(y, x))
        left = x < -1e-9
        axes.text(
            1.07 * x,
            1.07 * y,
            text,
            fontsize=8 if len(names) <= 25 else 7,
            rotation=angle + 180.0 if left else angle,
            rotation_mode="anchor",
            ha="right" if left else "left",
            va="center",
        )


def _strongest(weights: Vector, threshold: float, most: int) -> tuple[NDArray[np.intp], int]:
    """Return the indices of the ``most`` heaviest edges, light to heavy, and how many there are."""
    chosen = np.flatnonzero(edges(weights, threshold))
    # Stable, so that ties fall the same way everywhere.
    order = np.argsort(np.abs(weights[chosen]), kind="stable")
    return chosen[order][-most:] if most else chosen[:0], int(chosen.size)


def _draw_edges(axes: Axes, lines: Matrix, relative: Vector, colour: str, thin: float) -> None:
    """Add one collection of ``lines`` (n, 2, 2), wide and opaque where ``relative`` is near one."""
    from matplotlib.collections import LineCollection
    from matplotlib.colors import to_rgb

    colours = np.column_stack(
        [np.tile(to_rgb(colour), (len(lines), 1)), np.round(0.35 + 0.6 * relative, 2)]
    )
    widths = np.round(thin * (0.5 + 3.3 * relative), 2)
    axes.add_collection(LineCollection(list(lines), colors=colours, linewidths=widths, zorder=2))


def _pooled(matrix: Matrix) -> Matrix:
    """Return the matrix, or its blocks' entries of largest magnitude where it is too large."""
    step = -(-max(matrix.shape) // HEAT_CELLS)
    if step <= 1:
        return matrix
    rows, columns = (-(-size // step) * step for size in matrix.shape)
    padded = np.zeros((rows, columns))
    padded[: matrix.shape[0], : matrix.shape[1]] = matrix
    blocks = padded.reshape(rows // step, step, columns // step, step).swapaxes(1, 2)
    flat = blocks.reshape(rows // step, columns // step, step * step)
    pick = np.argmax(np.abs(flat), axis=-1)[..., None]
    return np.take_along_axis(flat, pick, axis=-1)[..., 0]


def _colours(signed: bool) -> Colormap:
    from matplotlib.colors import LinearSegmentedColormap

    positive = ["#ffffff", "#a9cfe8", SHARED, "#08306b"]
    negative = ["#7f2704", PRIVATE, "#f5c39f"]
    colours = negative + positive if signed else positive
    # Few levels: the eye tells no more apart, and the picture in the report is half as large.
    return LinearSegmentedColormap.from_list("trellis", colours, N=97)
