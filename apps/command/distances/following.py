"""How far a long computation over pairs of graphs is: a bar on a terminal, lines elsewhere.

Expensive pairs come first, so that the number of pairs says little about the time that is left.
What is left is told by the estimated work of the pairs, largest first, at the rate seen so far.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

import numpy as np

from trellis.apps.common.progress import EVERY

if TYPE_CHECKING:
    from rich.console import Console

    from trellis.apps.gromov_wasserstein.collection import Question

Told = Callable[[int, int], None]


@contextmanager
def follow(console: Console, sizes: Sequence[int], question: Question) -> Iterator[Told]:
    """Yield what is to be called with the numbers of finished and of all pairs."""
    # Which pairs are needed is not known beforehand, so neither is how long they take.
    left = Left(None if question.neighbours else sizes)
    what = "pairs settled" if question.neighbours else "pairs of different graphs"
    if not console.is_terminal:
        lines = Lines(lambda line: console.print(line, markup=False, highlight=False), what, left)
        yield lines
        lines.close()
        return
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
    )

    columns = (BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[note]}"))
    with Progress(
        TextColumn("[bold]{task.description}"), *columns, TimeElapsedColumn(), console=console
    ) as bar:
        task = bar.add_task(what, total=None, note="")

        def told(done: int, total: int) -> None:
            bar.update(task, completed=done, total=total, note=left.note(done, total))

        yield told


class Left:
    """Tells how fast it goes and how long it will still take.

    Parameters
    ----------
    sizes : numbers of nodes, of all pairs of graphs; None where not all pairs are solved
    clock : seconds, never backwards
    """

    def __init__(
        self, sizes: Sequence[int] | None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._clock = clock
        self._first: tuple[float, int] | None = None
        self._work = None if sizes is None else _work(np.asarray(sizes, dtype=np.float64))

    def note(self, done: int, total: int) -> str:
        """Return pairs per second and the time that is left, in words."""
        now = self._clock()
        if self._first is None:
            self._first = now, done
            return ""
        began, before = self._first
        seconds = now - began
        if seconds <= 0.0 or done <= before:
            return ""
        note = f"{(done - before) / seconds:,.0f} per second"
        if self._work is None or done >= total:
            return note
        # Graphs that are the same are solved once, so there may be fewer pairs than expected.
        share = np.interp(
            np.array([before, done]) / total, np.linspace(0, 1, self._work.size), self._work
        )
        if share[1] <= share[0]:
            return note
        return f"{note}, about {_span(seconds * (1.0 - share[1]) / (share[1] - share[0]))} left"


class Lines:
    """A line every few seconds, for a log or a pipe."""

    def __init__(
        self,
        tell: Callable[[str], None],
        what: str,
        left: Left,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._tell, self._what, self._left, self._clock = tell, what, left, clock
        self._told, self._last = clock(), ""

    def __call__(self, done: int, total: int) -> None:
        """Tell, where it is time to."""
        note = self._left.note(done, total)
        self._last = f"{self._what}: {done:,} of {total:,}" + (f", {note}" if note else "")
        if self._clock() >= self._told + EVERY:
            self._tell(self._last)
            self._told, self._last = self._clock(), ""

    def close(self) -> None:
        """Tell what was told last to nobody."""
        if self._last:
            self._tell(self._last)


def _work(sizes: np.ndarray) -> np.ndarray:
    """Return the share of all work that is done after each pair, of a sample, largest first."""
    from trellis.strategies.gromov_wasserstein.pairwise import seconds_of

    quantiles = np.quantile(sizes, np.linspace(0.0, 1.0, 301)) if sizes.size else np.ones(1)
    seconds = seconds_of(np.outer(quantiles, quantiles).ravel(), "compiled")
    whole = np.cumsum(-np.sort(-seconds))
    return np.concatenate([[0.0], whole / whole[-1]])


def _span(seconds: float) -> str:
    if seconds < 90.0:
        return f"{seconds:.0f} s"
    minutes = seconds / 60.0
    return f"{minutes:.0f} min" if minutes < 90.0 else f"{minutes / 60.0:.1f} h"
