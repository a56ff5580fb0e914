"""The picture of a tuning: a curve over one setting, a map over two, a panel each over more."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from trellis.apps.pages.curves import label_short_span, log_axis
from trellis.apps.pages.figure import INK, PALETTE, QUIET, plain, save, short, style

from .outcome import Tuning, unique
from .trials import Trial

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Times what the settings before, or most, are off the best: what is further off by the first hides
# the others, and a picture then ends at the second.
_HIDING, _DRAWN = 100.0, 3.0
_MOST_CELLS = 20  # values a side of a map that can still be told apart


def write(tuning: Tuning, folder: Path) -> list[Path]:
    """Write ``tuning.png`` and ``tuning.svg``."""
    figure = draw(tuning)
    return [save(figure, folder / f"tuning{suffix}") for suffix in (".png", ".svg")]


@style()
def draw(tuning: Tuning) -> Figure:
    """Draw the mean over the splits over the settings that were tuned, the best marked."""
    from matplotlib.figure import Figure

    keys = tuning.plan.keys
    done = [trial for trial in tuning.ranked() if trial.found and trial.complete(tuning.plan.seeds)]
    if len(keys) == 2 and (cells := _cells(tuning, done)) is not None:
        return _map(tuning, done, *cells)
    columns = min(len(keys), 3)
    rows = -(-len(keys) // columns)
    figure = Figure(figsize=(max(4.8, 3.2 * columns), 3.2 * rows))
    grid = figure.subplots(rows, columns, squeeze=False, sharey=True).ravel()
    for axes in grid[len(keys) :]:
        axes.set_axis_off()
    for place, axes in enumerate(grid[: len(keys)]):
        _panel(axes, tuning, done, place)
        if (worst := worst_drawn(tuning)) is not None:
            room = 0.08 * abs(worst - done[0].mean)
            low, high = sorted([worst, done[0].mean])
            axes.set_ylim(low - room, high + room)
        if place % columns == 0:
            axes.set_ylabel(plain(_label(tuning)))
    return figure


def worst_drawn(tuning: Tuning) -> float | None:
    """Return where a picture ends on the bad side; None where it can show all.

    A step that is far too long has a loss of 1e30, beside which all others look the same.
    """
    means = [trial.mean for trial in tuning.ranked() if trial.found and trial.worth]
    best = means[0]
    default = tuning.default_value
    usual = [mean for mean in (default, float(np.median(means))) if math.isfinite(mean)]
    off = max(abs(mean - best) for mean in usual)
    if off == 0.0 or max(abs(mean - best) for mean in means) <= _HIDING * off:
        return None
    return best + _DRAWN * off if tuning.lower else best - _DRAWN * off


def _label(tuning: Tuning) -> str:
    return f"{tuning.measure}\n({'less' if tuning.lower else 'more'} is better)"


def _panel(axes: Axes, tuning: Tuning, done: Sequence[Trial], place: int) -> None:
    """Draw the means over one setting, with error bars where it is the only one."""
    only = len(tuning.plan.keys) == 1
    values = unique([trial.values[place] for trial in done])
    at = _places(axes, values, log=_is_log(tuning, place))
    x = [at[trial.values[place]] for trial in done]
    y = [trial.mean for trial in done]
    if only:
        order = np.argsort(x)
        errors = [trial.error if math.isfinite(trial.error) else 0.0 for trial in done]
        axes.errorbar(
            np.array(x)[order],
            np.array(y)[order],
            np.array(errors)[order],
            color=PALETTE[0],
            linewidth=1.4,
            marker="o",
            markersize=4,
            capsize=3,
            label="mean and standard error",
        )
    else:
        axes.plot(x, y, "o", color=QUIET, markersize=3, alpha=0.6, label="a setting")
        top = min if tuning.lower else max
        line = [top(t.mean for t in done if t.values[place] == value) for value in values]
        # Only where settings share values: through single points it would show nothing but luck.
        if len(values) <= len(done) / 2:
            xs = [at[value] for value in values]
            axes.plot(xs, line, color=PALETTE[0], linewidth=1.4, label="the best with this value")
    for trial, colour, name in _marked(tuning, done):
        axes.plot(
            [at[trial.values[place]]],
            [trial.mean],
            "o",
            markersize=10,
            markerfacecolor="none",
            markeredgecolor=colour,
            markeredgewidth=1.6,
            label=name,
        )
    axes.set_xlabel(plain(tuning.plan.keys[place]))
    if axes.get_xscale() == "log":
        label_short_span(axes.xaxis)
    if place == 0:
        axes.legend(fontsize=8)


def _marked(tuning: Tuning, done: Sequence[Trial]) -> list[tuple[Trial, str, str]]:
    best, default = done[0], tuning.default_trial
    marks = [(best, PALETTE[1], "best")]
    if default is not best and default in done:
        marks.append((default, PALETTE[4], "the settings before"))
    return marks


def _is_log(tuning: Tuning, place: int) -> bool:
    return tuning.plan.spaces[place].log


def _places(axes: Axes, values: Sequence[Any], log: bool) -> dict[Any, float]:
    """Return where values stand on the horizontal axis: numbers as they are, words in a row."""
    numbers = all(isinstance(v, int | float) and not isinstance(v, bool) for v in values)
    if numbers:
        if log and min(values) > 0:
            log_axis(axes.xaxis, axes.set_xscale)
        return {value: float(value) for value in values}
    axes.set_xticks(range(len(values)), [plain(short(_word(value))) for value in values])
    return {value: float(place) for place, value in enumerate(values)}


def _word(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _cells(tuning: Tuning, done: Sequence[Trial]) -> tuple[list[Any], list[Any]] | None:
    """Return the rows and columns of a map; None where trials do not lie on a grid."""
    first, second = (space.values for space in tuning.plan.spaces)
    on_grid = [t for t in done if t.values[0] in first and t.values[1] in second]
    if len(on_grid) < len(done) - 1 or max(len(first), len(second)) > _MOST_CELLS:
        return None
    return unique(first), unique(second)


def _map(tuning: Tuning, done: Sequence[Trial], rows: list[Any], columns: list[Any]) -> Figure:
    from matplotlib.figure import Figure

    means = np.full((len(rows), len(columns)), np.nan)
    for trial in done:
        if trial.values[0] in rows and trial.values[1] in columns:
            means[rows.index(trial.values[0]), columns.index(trial.values[1])] = trial.mean
    figure = Figure(figsize=(1.6 + 0.75 * len(columns) + 1.4, 1.4 + 0.55 * len(rows)))
    axes = figure.add_subplot()
    axes.grid(False)
    # Good is dark, whichever way the number is better.
    picture = axes.imshow(means, cmap="Blues_r" if tuning.lower else "Blues", aspect="auto")
    axes.set_xticks(range(len(columns)), [plain(short(_word(v))) for v in columns])
    axes.set_yticks(range(len(rows)), [plain(short(_word(v))) for v in rows])
    axes.set_ylabel(plain(tuning.plan.keys[0]))
    axes.set_xlabel(plain(tuning.plan.keys[1]))
    if (worst := worst_drawn(tuning)) is not None:
        picture.set_clim(*sorted([worst, done[0].mean]))
    low, high = picture.get_clim()
    darkness = (means - low) / (high - low or 1.0)
    darkness = 1.0 - darkness if tuning.lower else darkness
    for (row, column), mean in np.ndenumerate(means):
        text = "none" if math.isnan(mean) else f"{mean:.3g}"
        colour = "white" if darkness[row, column] > 0.55 else INK
        axes.text(column, row, text, ha="center", va="center", fontsize=8, color=colour)
    for trial, colour, name in _marked(tuning, done):
        if trial.values[0] in rows and trial.values[1] in columns:
            place = columns.index(trial.values[1]), rows.index(trial.values[0])
            axes.plot(
                *([at] for at in place),
                "s",
                markersize=26,
                markerfacecolor="none",
                markeredgecolor=colour,
                markeredgewidth=1.8,
                label=name,
            )
    figure.legend(loc="outside upper right", ncols=2, fontsize=8, markerscale=0.35)
    figure.colorbar(picture, ax=axes, label=plain(_label(tuning)), aspect=25)
    return figure
