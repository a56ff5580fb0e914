"""Curves over rounds or settings, and marks that point at one of their values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from trellis.apps.pages.figure import INK, PALETTE, placed, plain, style

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_WIDTH, _HEIGHT = 4.8, 2.9  # inches
_LETTER = 0.072  # inches, of a tick's label


@style()
def curves(
    x: ArrayLike | Mapping[str, ArrayLike],
    y: Mapping[str, ArrayLike],
    *,
    x_label: str = "round",
    y_label: str = "",
    title: str = "",
    log_x: bool = False,
    log_y: bool = False,
    bands: Mapping[str, tuple[ArrayLike, ArrayLike]] | None = None,
    points: Mapping[str, tuple[ArrayLike, ArrayLike]] | None = None,
    like: Mapping[str, str] | None = None,
) -> Figure:
    """Draw named curves over ``x``, or each over its own ``x[name]``.

    ``bands`` are the lower and upper ends of a curve's spread by its name. ``points`` are others'
    values (x, y), as crosses; one that has the name of a curve has its colour. A curve in ``like``
    is drawn in the colour of the one named there, dashed: the same thing found in another way.

    What cannot be drawn (not finite; not positive on a logarithmic axis) leaves a gap. A
    logarithmic axis that spans little has labels between the powers of ten as well.
    """
    from matplotlib.ticker import MaxNLocator

    # As many legend entries side by side as their names leave room for.
    named = [*y, *(_beside(name, y) for name in points or ())]
    columns = max(1, min(len(named), 60 // (8 + max(map(len, named), default=1))))
    lines = -(-len(named) // columns) if len(named) > 1 else 0
    figure = placed(_WIDTH, _HEIGHT + 0.19 * lines)
    axes = figure.add_axes((0.15, 0.2, 0.8, 0.7))
    if log_x:
        log_axis(axes.xaxis, axes.set_xscale)
    else:
        axes.xaxis.set_major_locator(MaxNLocator(6, integer=x_label == "round"))
    if log_y:
        log_axis(axes.yaxis, axes.set_yscale)
    looks = _looks(list(y), like or {})
    for name, values in y.items():
        colour, dashes = looks[name]
        place = np.asarray(x[name] if isinstance(x, Mapping) else x, dtype=np.float64)
        value = np.asarray(values, dtype=np.float64)
        hidden = ~np.isfinite(value) | (log_y & (value <= 0.0)) | (log_x & (place <= 0.0))
        axes.plot(
            place,
            np.where(hidden, np.nan, value),
            color=colour,
            linestyle=dashes,
            linewidth=1.6,
            marker="o" if value.size <= 30 else "",
            markersize=3.2,
            label=plain(name),
        )
        if bands and name in bands:
            low, high = (np.asarray(end, dtype=np.float64) for end in bands[name])
            hidden |= log_y & (low <= 0.0)
            axes.fill_between(
                place,
                np.where(hidden, np.nan, low),
                np.where(hidden, np.nan, high),
                color=colour,
                alpha=0.18,
                linewidth=0,
            )
    for name, (places, theirs) in (points or {}).items():
        look: Any = {"marker": "x", "s": 26, "linewidths": 1.4, "zorder": 3}
        colour, _ = looks.get(name, (INK, "-"))
        axes.scatter(places, theirs, color=colour, label=plain(_beside(name, y)), **look)
    seen = np.concatenate([np.asarray(values, dtype=np.float64).ravel() for values in y.values()])
    if not log_y and np.all(np.mod(seen[np.isfinite(seen)], 1.0) == 0.0):
        axes.yaxis.set_major_locator(MaxNLocator(6, integer=True))
    axes.autoscale_view()
    for axis, log in ((axes.xaxis, log_x), (axes.yaxis, log_y)):
        if log:
            label_short_span(axis)
    axes.set_xlabel(plain(x_label))
    axes.set_ylabel(plain(y_label))
    if title:
        axes.set_title(plain(title))
    if len(named) > 1:
        figure.legend(loc="lower center", ncols=columns, fontsize=8.5, borderaxespad=0.2)
    _fit(figure, axes, 0.19 * lines)
    return figure


def _looks(names: list[str], like: Mapping[str, str]) -> dict[str, tuple[str, str]]:
    """Return the colour and the dashes of every curve."""
    looks = {}
    for index, name in enumerate(name for name in names if name not in like):
        dashes = ("-", "--", ":")[index // len(PALETTE) % 3]
        looks[name] = (PALETTE[index % len(PALETTE)], dashes)
    return {name: looks[name] if name in looks else (looks[like[name]][0], "--") for name in names}


def _beside(name: str, curves: Mapping[str, ArrayLike]) -> str:
    """Return what others' values are called: where a curve has their name, the paper's."""
    return f"{name}, paper" if name in curves else name


def _fit(figure: Figure, axes: Any, legend: float) -> None:
    """Give labels the room that they take, by the number of their letters, above a legend.

    What a layout engine measures is a font that the reader of a page does not see.
    """
    width, height = figure.get_size_inches()
    below = 0.3 + legend + (0.18 if axes.get_xlabel() else 0.0)
    above = 0.22 + (0.12 if axes.get_title(loc="left") else 0.0)  # of marks, or powers of ten
    for _ in range(2):  # which values are labelled depends on the height, which is new
        places, (low, high) = axes.yaxis.get_majorticklocs(), sorted(axes.get_ylim())
        words = axes.yaxis.get_major_formatter().format_ticks(places)
        seen = [word for word, at in zip(words, places, strict=True) if low <= at <= high]
        left = 0.15 + _LETTER * max(map(len, seen), default=1) + (0.2 if axes.get_ylabel() else 0.0)
        inner = (width - left - 0.15, height - below - above)
        axes.set_position((left / width, below / height, inner[0] / width, inner[1] / height))


@style()
def mark(figure: Figure, x: float, y: float | None = None, text: str = "chosen") -> Figure:
    """Point at ``x`` by a line, or at (``x``, ``y``) by a ring, in a figure of `curves`.

    What cannot be drawn is not marked.
    """
    axes = figure.axes[0]
    log = axes.get_xscale() == "log"
    if not np.isfinite(x) or (log and x <= 0.0) or (y is not None and not np.isfinite(y)):
        return figure
    words = plain(text)
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


@style()
def level(figure: Figure, y: float, text: str) -> Figure:
    """Draw a dashed line at height ``y``, with its name, in a figure of `curves`."""
    axes = figure.axes[0]
    if not np.isfinite(y) or (axes.get_yscale() == "log" and y <= 0.0):
        return figure
    axes.axhline(y, color=INK, linewidth=1.0, linestyle="--", zorder=1.5)
    # Where a curve that falls begins, it is well above the line and its name.
    beside: Any = axes.get_yaxis_transform()
    words = axes.text(0.01, y, plain(text), transform=beside, ha="left", va="bottom", fontsize=8)
    words.set_bbox({"facecolor": "white", "edgecolor": "none", "alpha": 0.8, "pad": 1.0})
    return figure


def log_axis(axis: Any, set_scale: Any) -> None:
    """Make an axis logarithmic, its labels plain text: formulas do not survive a change of font."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    raised = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")

    def power(value: float, _: int | None = None) -> str:
        exponent = round(np.log10(value)) if value > 0.0 else 0
        exact = np.isclose(value, 10.0**exponent)
        return "10" + str(exponent).translate(raised) if exact else f"{value:g}"

    set_scale("log", nonpositive="mask")
    axis.set_major_locator(LogLocator(numticks=7))
    axis.set_major_formatter(FuncFormatter(power))
    axis.set_minor_formatter(NullFormatter())


def label_short_span(axis: Any) -> None:
    """Give a logarithmic axis that spans less than two powers of ten labels between them."""
    from matplotlib.ticker import FuncFormatter, LogLocator

    low, high = axis.get_view_interval()
    if high < 100.0 * low:
        axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0), numticks=12))
        axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
