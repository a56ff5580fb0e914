"""The figures every study can use: graphs in two colours, heat maps, curves.

Functions return `matplotlib.figure.Figure` objects; `svg` turns one into text for a report, `save`
writes it to a file.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from trellis.apps.common.metrics import EDGE_THRESHOLD, Vector, edges
from trellis.apps.pages.curves import curves, level, mark
from trellis.apps.pages.figure import (
    INK,
    PALETTE,
    PRIVATE,
    QUIET,
    SHARED,
    placed,
    plain,
    save,
    short,
    style,
    svg,
)
from trellis.apps.pages.layout import Matrix, circle, spring, strongest

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.colors import Colormap
    from matplotlib.figure import Figure

__all__ = [
    "PALETTE",
    "add_lines",
    "circle",
    "curves",
    "draw_graph",
    "heat_map",
    "heat_maps",
    "level",
    "mark",
    "name_nodes",
    "reach_of_names",
    "save",
    "spring",
    "svg",
    "two_colour_graph",
]

LABELLED_NODES = 40  # more names than this cannot be read
DRAWN_EDGES = 800  # more lines than this are a ball of wool, and megabytes of SVG
LEVELS = 8  # of lines' widths; the eye tells no more apart
HEAT_CELLS = 130  # larger matrices are pooled: the eye sees no more in a panel


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
    from matplotlib.lines import Line2D

    width, height, below = 4.4, 4.6, 0.3  # inches; below the drawing stands what its colours mean
    above = 0.3 if title else 0.0
    # The places are known: a layout engine would draw everything twice to find them.
    figure = placed(width, height)
    inner = height - above - below
    axes = figure.add_axes((0.0, below / height, 1.0, inner / height))
    common = np.ones(weights.shape, dtype=bool) if shared is None else np.asarray(shared, bool)
    chosen, total = draw_graph(axes, weights, names, common, positions, threshold, max_edges)
    if positions is None and 1 < len(names) <= LABELLED_NODES:
        reach = reach_of_names(names, min(width, inner))
        axes.set(xlim=(-reach * width / inner, reach * width / inner), ylim=(-reach, reach))
    drawn = edges(weights, threshold)
    handles = []
    for mask, colour, name in ((~common, PRIVATE, legend[1]), (common, SHARED, legend[0])):
        if name and (shared is not None or colour == SHARED):
            text = plain(f"{name} ({np.count_nonzero(drawn & mask):,})")
            handles.append(Line2D([], [], color=colour, linewidth=2.2, label=text))
    if title:
        look: Any = {"va": "top", "fontsize": 10, "fontweight": "bold"}
        figure.text(0.02, 1.0 - 0.08 / height, plain(short(title, 44)), **look)
    figure.legend(handles=handles[::-1], loc="lower center", ncols=2, fontsize=8.5)
    if chosen < total:
        note = f"the {chosen:,} strongest of {total:,} edges are drawn"
        axes.text(0.02, 0.99, note, transform=axes.transAxes, fontsize=8, color=QUIET, va="top")
    return figure


def reach_of_names(names: Sequence[str], side: float) -> float:
    """Return how far, in radii of the circle, names reach out in a drawing ``side`` inches wide."""
    longest = max(len(short(name)) for name in names)
    room = longest * 0.62 * _name_size(len(names)) / 72.0  # a reader's font may be a wide one
    radius = max(side / 2.0 - room - 0.05, 0.3 * side) / 1.07
    return side / 2.0 / radius


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
    chosen, total = strongest(weights, threshold, max_edges)
    ends = np.stack([index[chosen] for index in np.triu_indices(d, 1)], axis=1)
    relative = np.abs(weights[chosen]) / np.max(np.abs(weights), initial=1e-300)
    # Many lines must be thin ones, or they hide each other.
    thin = float(np.clip(np.sqrt(100.0 / max(chosen.size, 1)), 0.25, 1.0))
    pen = ((0.5 * thin, 3.3 * thin), (0.35, 0.6))
    add_lines(axes, positions[ends], relative, shared[chosen], *pen)
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
    alone = len(matrices) == 1
    side = 4.2 if columns == 1 else 2.6
    size = (side * columns + 0.9, side * rows + 0.25)
    # Names around a single matrix need room that is measured; of several the places are known.
    figure = Figure(figsize=size) if alone else placed(*size)
    if alone:
        grid = [figure.add_subplot()]
    else:
        cell = np.array([side / size[0], side / size[1]])
        grid = [
            figure.add_axes((x + 0.03 * cell[0], y + 0.02 * cell[1], *(0.9 * cell)))
            for k in range(len(matrices))
            for x, y in [(k % columns * cell[0], 1.0 - (k // columns + 1) * cell[1])]
        ]
    for axes, matrix, title in zip(grid, matrices, titles, strict=False):
        picture = axes.imshow(
            _pooled(matrix),
            cmap=_colours(low < 0.0),
            vmin=-top if low < 0.0 else 0.0,
            vmax=top,
            interpolation="nearest",
        )
        axes.set_title(plain(short(title, 32)), fontsize=9)
        axes.grid(False)
        axes.set_xticks([])
        axes.set_yticks([])
        axes.spines[:].set_visible(True)
        if names is not None and columns == 1 and len(names) <= LABELLED_NODES:
            letters = 7.5 if len(names) <= 25 else 6.0
            labels = [plain(short(name)) for name in names]
            axes.set_xticks(range(len(names)), labels, rotation=90, fontsize=letters)
            axes.set_yticks(range(len(names)), labels, fontsize=letters)
            axes.tick_params(length=0)
    if alone:
        bar = figure.colorbar(picture, ax=grid, shrink=0.8, label=label, aspect=25)
    else:
        high = min(0.8, 3.2 / size[1])
        middle = 1.0 - rows * cell[1] / 2.0
        place = (columns * cell[0] + 0.01, middle - high / 2.0, 0.12 / size[0], high)
        bar = figure.colorbar(picture, cax=figure.add_axes(place), label=label)
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
            fontsize=_name_size(len(names)),
            rotation=angle + 180.0 if left else angle,
            rotation_mode="anchor",
            ha="right" if left else "left",
            va="center",
        )


def _name_size(count: int) -> float:
    return 8.0 if count <= 25 else 7.0


def add_lines(
    axes: Axes,
    lines: Matrix,
    relative: Vector,
    shared: NDArray[np.bool_] | str,
    width: tuple[float, float],
    opacity: tuple[float, float],
    *,
    dashed: bool = False,
) -> None:
    """Add lines (n, 2, 2), or arcs (n, 3, 2), wide and opaque where ``relative`` is near one.

    Width and opacity are a + b relative, in `LEVELS` steps: all lines of a step and colour are one
    path, which is drawn at once and takes a fraction of the text that a path a line does. Light
    ones lie below heavy ones, and of a step the private ones below the ``shared``. Instead of which
    are shared, one colour for all may be given.
    """
    from matplotlib.collections import PathCollection
    from matplotlib.colors import to_rgba
    from matplotlib.path import Path

    if not len(lines):
        return
    steps = np.clip(np.ceil(relative * LEVELS), 1, LEVELS)
    kinds = (
        ((np.ones(len(lines), dtype=bool), shared),)
        if isinstance(shared, str)
        else ((~shared, PRIVATE), (shared, SHARED))
    )
    codes = {2: [Path.MOVETO, Path.LINETO], 3: [Path.MOVETO, Path.CURVE3, Path.CURVE3]}
    paths, colours, widths = [], [], []
    for step in np.unique(steps):
        share = float(step) / LEVELS
        for kind, colour in kinds:
            mine = lines[(steps == step) & kind]
            if len(mine):
                paths.append(Path(mine.reshape(-1, 2), codes[mine.shape[1]] * len(mine)))
                colours.append(to_rgba(colour, round(opacity[0] + opacity[1] * share, 2)))
                widths.append(round(width[0] + width[1] * share, 2))
    look: Any = {"facecolors": "none", "linestyles": "dashed" if dashed else "solid", "zorder": 2}
    axes.add_collection(PathCollection(paths, edgecolors=colours, linewidths=widths, **look))


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
