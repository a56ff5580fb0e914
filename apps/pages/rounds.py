"""The section of a report on how the run converged: a verdict, and curves over the rounds.

Whether it has is the run's own word (``settled``): some methods are done after one round, however
much that changed. A run that was kept before it was noted is judged by its last numbers.

Where rounds have a ``gap``, a certified bound on what the objective is above its minimum, the
verdict is about it: ``path_gap`` : (L,) has the points of a path, ``nan`` means that nothing is
certified. Elsewhere it is about the ``change`` from round to round.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trellis.apps.common.evaluation.scores import BY_ITSELF, KNOWING_NOTHING, OURS
from trellis.apps.common.results import Row, RunResult
from trellis.apps.pages import plots
from trellis.apps.pages.page import Block, Facts, FigureBlock, Gallery, Paragraph, Section
from trellis.apps.pages.wording import Wording, counted, duration, number

# Title, columns of the metrics, logarithmic.
_FIGURES: tuple[tuple[str, tuple[str, ...], bool], ...] = (
    ("Duality gap", ("gap",), True),
    ("Objective", ("objective",), False),
    ("Change from round to round", ("change",), True),
    ("Edges found (MCC, 1 is perfect)", ("mcc", "mcc-loose", "consensus-mcc"), False),
    ("True and false edges found", ("tpr", "fpr"), False),
    ("Relative error of the weights", ("re", "consensus-re"), False),
)
_TIMES = {"seconds", "slowest-client-seconds", "server-seconds"}
_NOT_CONVERGENCE = {"round", "clients", "failed", "bytes-up", "bytes-down"} | _TIMES
_SCORES = (OURS, BY_ITSELF, KNOWING_NOTHING)  # of the result, which has a section of its own
_DONE = "Converged: by its own rule this method is done."
_MORE_FIGURES = 6  # columns a study adds beyond the known ones


def convergence_section(result: RunResult, wording: Wording) -> Section:
    """Return the section on how the run converged, from the rounds' metrics."""
    title, rows = "How it converged", result.metrics
    if not rows:
        none = "No round was recorded."
        if result.settled:
            none = "No round was needed: every client learns alone, at home."
        return Section(title, [Paragraph(none)])
    columns = list(dict.fromkeys(name for row in rows for name in row))
    verdict = _gap_verdict if "gap" in columns else _change_verdict
    blocks: list[Block] = [Paragraph(verdict(result))]
    if len(rows) == 1:  # one point is no curve
        told = {k: v for k, v in rows[0].items() if k not in _NOT_CONVERGENCE | {"change"}}
        told = {k: v for k, v in told.items() if not k.startswith(_SCORES)}
        facts = Facts({wording.label(name).capitalize(): value for name, value in told.items()})
        return Section(title, [*blocks, *([facts] if told else [])])
    known = {name for _, names, _ in _FIGURES for name in names} | _NOT_CONVERGENCE
    more = [
        (wording.label(name).capitalize(), (name,), False)
        for name in columns
        if name not in known and len(_finite(rows, name)) > 1
    ]
    figures = []
    for heading, names, log in (*_FIGURES, *more[:_MORE_FIGURES]):
        present = [name for name in names if _finite(rows, name)]
        if present:
            figures.append(_curve(result, heading, present, log, wording))
    return Section(title, [*blocks, *([Gallery(figures)] if figures else [])])


def _finite(rows: Sequence[Row], name: str) -> set[float]:
    """Return the different numbers of a column that can be drawn."""
    return {row[name] for row in rows if np.isfinite(row.get(name, np.nan))}


def _curve(
    result: RunResult, title: str, names: Sequence[str], log: bool, wording: Wording
) -> FigureBlock:
    rows = result.metrics
    x = [row.get("round", float(index + 1)) for index, row in enumerate(rows)]
    values = {wording.label(name): [row.get(name, np.nan) for row in rows] for name in names}
    positive = any(0.0 < value < np.inf for series in values.values() for value in series)
    one = next(iter(values)) if len(values) == 1 else ""
    figure = plots.curves(x, values, y_label=one, log_y=log and positive)
    last = ", ".join(f"{name} {number(_last(series))}" for name, series in values.items())
    text = f"In the end: {last}."
    if "gap" in names:
        tolerance = _tolerance(result)
        if tolerance:
            figure = plots.level(figure, tolerance, "tolerance")
        if _gaps(result).size > 1:
            text += " Every point of the path starts anew."
    return FigureBlock(title, plots.svg(figure, f"{title} against the round. {text}"), text)


def _last(values: Sequence[float]) -> float:
    """Return the last number there is: not every round can tell."""
    return next((value for value in reversed(values) if np.isfinite(value)), np.nan)


def _tolerance(result: RunResult) -> float:
    """Return the tolerance that was set, or zero."""
    value = result.config.get("tolerance")
    return float(value) if isinstance(value, (int, float)) else 0.0


def _gaps(result: RunResult) -> NDArray[np.float64]:
    """Return the gaps (L,) that the points of the path ended with, or the last one."""
    known: Any = result.arrays.get("path_gap")
    if known is None:
        known = _last([row.get("gap", np.nan) for row in result.metrics])
    return np.atleast_1d(np.asarray(known, dtype=np.float64))


def _gap_verdict(result: RunResult) -> str:
    """Return whether every point was solved to the tolerance, which its gap certifies."""
    gaps, tolerance = _gaps(result), _tolerance(result)
    text = _rounds(result)
    where = ""
    if gaps.size > 1:
        where = f" at all {gaps.size:,} points"
        text += f", for {gaps.size:,} points of a path"
        again = result.config.get("subsamples")
        text += f", which was run again on {again:,} parts of the data" if again else ""
    text += "."
    certified = gaps[np.isfinite(gaps)]
    if not certified.size:
        return f"{text} No duality gap was certified, so how far this is from the minimum is open."
    worst = f"{'the largest' if gaps.size > 1 else 'the'} duality gap, {number(certified.max())}"
    if tolerance <= 0.0:
        return f"{text} No tolerance was set; {worst}, bounds how far the minimum can be."
    unsolved = int(np.sum(~(gaps <= tolerance)))
    if not unsolved:
        return (
            f"{text} Converged{where}: {worst}, is within the tolerance of {number(tolerance)}. "
            "The objective is at most that above its minimum."
        )
    if gaps.size > 1:
        where = f" at {unsolved:,} of {gaps.size:,} points"
    if certified.max() <= tolerance:
        return f"{text} Not converged{where}: no duality gap was certified there."
    return (
        f"{text} Not converged{where}: {worst}, exceeds the tolerance of {number(tolerance)}. "
        "More rounds may change the result."
    )


def _change_verdict(result: RunResult) -> str:
    """Return one sentence on whether the run stopped because it had converged."""
    change = result.metrics[-1].get("change")
    tolerance = result.config.get("tolerance")
    text = f"{_rounds(result)}."
    if change is None or not isinstance(tolerance, (int, float)):
        return text
    if tolerance <= 0 and result.settled:
        return f"{text} {_DONE}"
    if tolerance <= 0:
        return f"{text} No tolerance was set; the last change was {number(change)}."
    within = change <= tolerance
    if within if result.settled is None else result.settled:
        if within:
            return (
                f"{text} Converged: the last change, {number(change)}, is within the tolerance of "
                f"{number(tolerance)}."
            )
        return f"{text} {_DONE}"
    if within:
        return (
            f"{text} Not converged: the last change, {number(change)}, is within the tolerance of "
            f"{number(tolerance)}, but not all clients have had a part in it. More rounds may "
            "change the result."
        )
    return (
        f"{text} Not converged: the last change, {number(change)}, exceeds the tolerance of "
        f"{number(tolerance)}. More rounds may change the result."
    )


def _rounds(result: RunResult) -> str:
    return f"{counted(len(result.metrics), 'round')} in {duration(result.seconds)}"
