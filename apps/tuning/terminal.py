"""A tuning on the terminal: how far it is, and the table at its end."""

from __future__ import annotations

import time
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from trellis.apps.pages.wording import duration, number

from .outcome import BEST, DEFAULT, Tuning, cost_in_words, in_words

_EVERY = 5.0  # seconds between two lines where nothing can be drawn over
_MOST_ROWS = 40
_SHORT = 160  # characters of a reason in the table; trials.csv has it whole


class Display:
    """How many runs are done: a bar on a terminal, a line every few seconds anywhere else."""

    def __init__(self, console: Console, title: str = "tuning") -> None:
        self._console, self._title = console, title
        self._said = time.monotonic()
        self._first: tuple[float, int] | None = None
        self._bar = Progress(
            TextColumn(f"[bold]{escape(title)}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[note]}"),
            TimeRemainingColumn(),
            console=console,
            transient=True,
            disable=not console.is_terminal,
        )
        self._task = self._bar.add_task("runs", total=None, note="")

    def __enter__(self) -> Display:
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def __call__(self, done: int, total: int, best: float | None) -> None:
        """Show how many runs of how many are done, and the best score so far."""
        self.show(done, total, "" if best is None else f"best so far {best:.4g}")

    def show(self, done: int, total: int, note: str) -> None:
        """Show how many runs of how many are done, with a word on it."""
        self._bar.update(self._task, completed=done, total=total, note=escape(note))
        now = time.monotonic()
        if self._console.is_terminal or now - self._said < _EVERY:
            return
        self._said = now
        parts = [f"{done} of {total} runs", *([note] if note else [])]
        if self._first is None:
            # Processes have started, and what an earlier call has done took no time now.
            self._first = now, done
        elif done > self._first[1]:
            seconds = (now - self._first[0]) / (done - self._first[1]) * (total - done)
            parts.append(f"about {duration(round(seconds))} left")
        text = f"{self._title}: {', '.join(parts)}"
        self._console.print(text, highlight=False, markup=False, soft_wrap=True)


def show(console: Console, tuning: Tuning) -> None:
    """Print the table, the best first, and what to know of it."""
    better = "less" if tuning.lower else "more"
    title = f"Settings of {tuning.plan.study}, by {tuning.measure} ({better} is better)"
    table = Table(title=escape(title))
    keys = tuning.plan.keys
    for name in keys:
        table.add_column(escape(name), justify="right")
    rows = tuning.rows()
    knows_alone = any(row["learning alone"] is not None for row in rows)
    names = ["mean", "standard\nerror", "gain over\nbefore"] + ["learning\nalone"] * knows_alone
    for name in names:
        table.add_column(name, justify="right")
    table.add_column("remark", overflow="fold")
    for row in rows[:_MOST_ROWS]:
        cells = [*(_plain(row[key]) for key in keys), number(row["mean"])]
        cells += [number(row["standard error"]), _gain(row)]
        cells += [number(row["learning alone"])] * knows_alone
        remark = row["remark"] if len(row["remark"]) <= _SHORT else f"{row['remark'][:_SHORT]}…"
        bold = "bold" if remark.startswith(BEST) else None
        table.add_row(*(escape(cell) for cell in (*cells, remark)), style=bold)
    console.print(table)
    if len(rows) > _MOST_ROWS:
        where = " in trials.csv" if tuning.folder is not None else ", table() from Python"
        console.print(f"{len(rows) - _MOST_ROWS} more{where}")


def explain(console: Console, tuning: Tuning) -> None:
    """Print what was found and what it would cost, in sentences."""
    for line in [*in_words(tuning), *cost_in_words(tuning)]:
        console.print(escape(line), highlight=False, soft_wrap=True)


def _plain(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _gain(row: dict[str, Any]) -> str:
    if row["gain"] is None or DEFAULT in row["remark"]:
        return number(None)
    error = row["standard error of the gain"]
    sign = "+" if row["gain"] > 0.0 else ""
    return f"{sign}{_rounded(row['gain'])}" + ("" if error is None else f" ± {_rounded(error)}")


def _rounded(value: float) -> str:
    """Return a number with three digits, and no more of them before the point hidden."""
    return f"{value:,.0f}" if abs(value) >= 100.0 else f"{value:.3g}"
