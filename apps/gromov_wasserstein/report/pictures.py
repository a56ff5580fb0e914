"""Pictures of the distances D (N, N) between graphs: a clustered heat map, points in the plane.

Colours are those of the graphs' labels (N,), -1 unknown.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from scipy.cluster.hierarchy import leaves_list, linkage
from scipy.spatial.distance import squareform

from trellis.apps.pages import plots
from trellis.apps.pages.figure import PALETTE, QUIET, style

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Array = NDArray[np.float64]
Integers = NDArray[np.int64]

NAMED_CLASSES = 12  # more cannot be told apart; the rarer ones are drawn as unknown ones are


def clustered_order(distances: Array) -> Integers:
    """Return the graphs (N,), N >= 2, as the leaves of hierarchical clustering by mean distance."""
    tree = linkage(squareform(distances, checks=False), method="average")
    return np.asarray(leaves_list(tree), dtype=np.int64)


def block_means(matrix: Array, most: int) -> Array:
    """Return the matrix, or where it is larger the means of ``most`` x ``most`` blocks of it."""
    count = len(matrix)
    if count <= most:
        return matrix
    # Blocks differ by one row at most, so the picture is not distorted.
    edges = np.arange(most + 1) * count // most
    sums = np.add.reduceat(np.add.reduceat(matrix, edges[:-1], axis=0), edges[:-1], axis=1)
    widths = np.diff(edges)
    return sums / np.outer(widths, widths)


def class_styles(labels: Integers) -> dict[int, tuple[str, str]]:
    """Return colour and marker of each of the commonest classes, by the class."""
    classes, counts = np.unique(labels[labels >= 0], return_counts=True)
    chosen = np.sort(classes[np.argsort(-counts, kind="stable")[:NAMED_CLASSES]])
    strong = PALETTE[:-1]  # the last is a grey, near that of unknown labels
    looks = [(one, "o") for one in strong] + [(_pale(one), "^") for one in strong]
    return {int(name): look for name, look in zip(chosen, looks, strict=False)}


def _pale(colour: str) -> str:
    """Return half of a colour ``#rrggbb``, half white."""
    parts = [int(colour[k : k + 2], 16) for k in (1, 3, 5)]
    return "#" + "".join(f"{(part + 255) // 2:02x}" for part in parts)


@style()
def clustered_heat_map(
    distances: Array, labels: Integers, order: Integers, names: list[str]
) -> Figure:
    """Draw D with its graphs in ``order``, a strip of their labels' colours above it."""
    from matplotlib.colors import ListedColormap

    drawn = block_means(distances[np.ix_(order, order)], plots.HEAT_CELLS)
    shown = [names[k] for k in order] if len(drawn) == len(order) else None
    figure = plots.heat_map(drawn, shown, label="distance")
    styles = class_styles(labels)
    if styles:
        place = {name: k for k, name in enumerate(styles)}
        colours = [*(colour for colour, _ in styles.values()), "#dfe2e6"]
        cells = np.array([[place.get(int(label), len(styles)) for label in labels[order]]])
        strip = figure.axes[0].inset_axes((0.0, 1.015, 1.0, 0.035))
        look: Any = {"vmin": -0.5, "vmax": len(colours) - 0.5, "interpolation": "nearest"}
        strip.imshow(cells, aspect="auto", cmap=ListedColormap(colours), **look)
        strip.set_axis_off()
        _legend(figure, labels, squares=True)
    return figure


@style()
def scatter(points: Array, labels: Integers, title: str = "") -> Figure:
    """Draw graphs as points (N, 2), by label."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(4.8, 4.4))
    axes = figure.add_subplot()
    area = 26.0 if len(points) <= 200 else 12.0
    styles = class_styles(labels)
    rest = ~np.isin(labels, list(styles))
    axes.scatter(points[rest, 0], points[rest, 1], s=area, c=QUIET, marker="x", linewidths=0.8)
    for name, (colour, marker) in styles.items():
        mine = labels == name
        look: Any = {"s": area, "c": colour, "marker": marker, "alpha": 0.8, "linewidths": 0}
        axes.scatter(points[mine, 0], points[mine, 1], **look)
    axes.set_aspect("equal", adjustable="datalim")
    axes.margins(0.06)
    axes.set_xticks([])
    axes.set_yticks([])
    axes.spines[:].set_visible(True)
    if title:
        axes.set_title(title)
    _legend(figure, labels, squares=False)
    return figure


def _legend(figure: Figure, labels: Integers, squares: bool) -> None:
    """Name the classes below the figure."""
    from matplotlib.lines import Line2D

    styles = class_styles(labels)
    entries = [
        (colour, "s" if squares else marker, f"class {name} ({np.count_nonzero(labels == name):,})")
        for name, (colour, marker) in styles.items()
    ]
    rest = np.count_nonzero(~np.isin(labels, list(styles)))
    if styles and rest:
        text = "other" if np.any(~np.isin(labels[labels >= 0], list(styles))) else "no label"
        mark = ("#dfe2e6", "s") if squares else (QUIET, "x")
        entries.append((*mark, f"{text} ({rest:,})"))
    handles = [
        Line2D([], [], color=colour, marker=marker, linestyle="", markersize=5.5, label=text)
        for colour, marker, text in entries
    ]
    if handles:
        figure.legend(handles=handles, loc="outside lower center", ncols=4, fontsize=8)
