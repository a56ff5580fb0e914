"""How numbers are spread over all clients: small histograms side by side, and in words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from trellis.apps.pages.figure import INK, QUIET, SHARED, placed, plain, style, svg
from trellis.apps.pages.page import FigureBlock
from trellis.apps.pages.wording import number

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_BINS = 24
_WIDTH, _HEIGHT = 2.4, 1.75  # inches, of a panel
_COLUMNS = 3
MOST_PANELS = 6

Values = NDArray[Any] | Sequence[Any]


def spread_block(columns: Mapping[str, Values], noun: str = "clients") -> FigureBlock | None:
    """Return the histograms of some numbers over all clients; None where nothing differs."""
    known = {name: _finite(values) for name, values in columns.items()}
    known = {name: v for name, v in known.items() if v.size > 1 and v.min() < v.max()}
    known = dict(list(known.items())[:MOST_PANELS])
    if not known:
        return None
    count = max(values.size for values in known.values())
    told = "; ".join(f"{name} {in_words(values)}" for name, values in known.items())
    caption = f"Over all {count:,} {noun}; below a panel its least, median and largest value."
    title = f"How all {noun} are spread"
    return FigureBlock(title, svg(histograms(known), f"{title}: {told}."), caption)


def in_words(values: Values) -> str:
    """Return the least, the median and the largest of some numbers."""
    found = _finite(values)
    if not found.size:
        return "not known"
    low, middle, high = (number(_plain(v)) for v in (found.min(), np.median(found), found.max()))
    return low if low == high else f"{low} to {high}, median {middle}"


@style()
def histograms(columns: Mapping[str, np.ndarray]) -> Figure:
    """Draw one small histogram per column, three side by side, the median marked."""
    across = min(_COLUMNS, len(columns))
    down = -(-len(columns) // across)
    # Places are set, not found by a layout engine: it would draw every panel three times.
    figure = placed(_WIDTH * across, _HEIGHT * down)
    for k, (name, values) in enumerate(columns.items()):
        row, column = divmod(k, across)
        left, bottom = (column + 0.09) / across, 1.0 - (row + 0.79) / down
        axes = figure.add_axes((left, bottom, 0.82 / across, 0.6 / down))
        _panel(axes, values)
        axes.set_title(plain(name), fontsize=8.5, loc="center")
    return figure


def _panel(axes: Axes, values: np.ndarray) -> None:
    low, middle, high = float(values.min()), float(np.median(values)), float(values.max())
    bins: int | np.ndarray = _BINS
    if np.all(values == np.rint(values)) and high - low < 2 * _BINS:  # a bar a whole number
        bins = np.arange(low - 0.5, high + 1.0)
    counts, ends = np.histogram(values, bins=bins)
    axes.stairs(counts, ends, fill=True, color=SHARED, alpha=0.75)
    axes.axvline(middle, color=INK, linewidth=1.0, linestyle="--")
    axes.set(xlim=(ends[0], ends[-1]), ylim=(0.0, 1.08 * max(int(counts.max()), 1)))
    axes.set_yticks([])
    axes.spines["left"].set_visible(False)
    axes.grid(False)
    # Words that would touch are left out: the median is a line anyway.
    reach = high - low
    apart = 0.3 * reach < middle - low and middle - low < 0.7 * reach
    ticks = [low, middle, high] if apart else [low, high]
    axes.set_xticks(ticks, [number(_plain(tick)) for tick in ticks], fontsize=7.5)
    labels = axes.get_xticklabels()
    # Words stand within the panel.
    labels[0].set_horizontalalignment("left")
    labels[-1].set_horizontalalignment("right")
    axes.tick_params(length=2, color=QUIET)


def _finite(values: Values) -> NDArray[np.float64]:
    """Return the numbers among values; None is no number."""
    given: Any = values
    if not isinstance(values, np.ndarray):
        given = [np.nan if value is None else value for value in values]
    found = np.asarray(given, dtype=np.float64)
    return found[np.isfinite(found)]


def _plain(value: float) -> object:
    """Return a whole number as one, so that it is not written with a decimal point."""
    return int(value) if float(value).is_integer() and abs(value) < 1e15 else float(value)
