"""Progress of a run, from the server's loop to whoever shows it.

A ServerApp is called by its runtime and returns nothing, so a display cannot be handed to it. It
publishes every round here; in one process the command line listens, elsewhere nobody does.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:  # who only publishes needs no rich
    from rich.console import Console
    from rich.progress import TaskID

Row = dict[str, float]
Listener = Callable[[str, int, Row], None]

# What `trellis.strategies.rounds` logs after every round.
_ROUND = re.compile(r"round (\d+): \d+ clients answered, \d+ failed(?:, change (\S+))?")
# Seconds between two lines where there is no terminal to be alive on.
EVERY = 5.0

_listener: ContextVar[Listener | None] = ContextVar("listener", default=None)


def publish(study: str, rounds: int, row: Row) -> None:
    """Tell the listener, if there is one, that a round of ``rounds`` is done."""
    listener = _listener.get()
    if listener is not None:
        listener(study, rounds, row)


def row_of(line: str) -> Row | None:
    """Return what a line of a run's log says of a round; None where it speaks of none."""
    found = _ROUND.search(line)
    if found is None:
        return None
    return {"round": float(found[1])} | ({"change": float(found[2])} if found[2] else {})


@contextmanager
def listening(listener: Listener) -> Iterator[None]:
    """Send what is published inside to ``listener``."""
    token = _listener.set(listener)
    try:
        yield
    finally:
        _listener.reset(token)


class Display(Protocol):
    """What shows the rounds of studies: on a terminal alive, elsewhere line by line."""

    def __enter__(self) -> Display: ...

    def __exit__(self, *_: object) -> None: ...

    def __call__(self, study: str, rounds: int, row: Row) -> None:
        """Show one round."""

    def finish(self, study: str) -> None:
        """Show that a study is done: it may have converged before its last round."""


def display_on(console: Console) -> Display:
    """Return a live display for a terminal, lines for a file or a pipe."""
    if console.is_terminal:
        return LiveDisplay(console)

    def tell(line: str) -> None:
        console.print(line, markup=False, highlight=False, soft_wrap=True)

    return LineDisplay(tell)


def measures(row: Row) -> str:
    """Return what tells most of how far a study has come: a certified gap, or the last change."""
    measure = "gap" if "gap" in row else "change"
    note = f"{measure} {row[measure]:.1e}" if measure in row else ""
    for name, form in (("objective", ".6g"), ("msd", ".1f"), ("nmsd-servers", ".1f")):
        if name in row:
            note += f"  {name} {row[name]:{form}}"
    return note


class LineDisplay:
    """A line every few seconds, and one at the end of each study: for a log, or a pipe.

    Parameters
    ----------
    tell : called with each line
    clock : seconds, never backwards
    every : seconds between two lines
    """

    def __init__(
        self,
        tell: Callable[[str], None],
        clock: Callable[[], float] = time.monotonic,
        every: float = EVERY,
    ) -> None:
        self._tell, self._clock, self._every = tell, clock, every
        self._told = clock()
        self._began: dict[str, float] = {}
        self._last: dict[str, tuple[int, Row]] = {}
        # On a graph of servers, each is followed by a thread of its own.
        self._lock = threading.Lock()

    def __enter__(self) -> LineDisplay:
        return self

    def __exit__(self, *_: object) -> None:
        """Tell the last round of whatever was not finished."""
        for study in list(self._last):
            self._close(study, "ended after")

    def __call__(self, study: str, rounds: int, row: Row) -> None:
        """Tell of a round where it is time to."""
        with self._lock:
            now = self._clock()
            self._began.setdefault(study, now)
            self._last[study] = rounds, row
            if now < self._told + self._every:
                return
            self._told = now
            self._tell(self._line(study, "round"))

    def finish(self, study: str) -> None:
        """Tell that a study is done, and what it had counted beside."""
        for name in [n for n in self._last if n == study or n.startswith(f"{study} ")]:
            self._close(name, "done after")

    def _close(self, study: str, how: str) -> None:
        with self._lock:
            self._tell(self._line(study, f"{how} round"))
            self._told = self._clock()
            del self._last[study], self._began[study]

    def _line(self, study: str, what: str) -> str:
        rounds, row = self._last[study]
        seconds = self._clock() - self._began[study]
        parts = [f"{what} {int(row['round'])} of {rounds}", measures(row), f"{seconds:.0f} s"]
        return f"{study}: {', '.join(part for part in parts if part)}"


class LiveDisplay:
    """A live line a study on the terminal: rounds, change, objective."""

    def __init__(self, console: Console) -> None:
        from rich.progress import (
            BarColumn,
            MofNCompleteColumn,
            Progress,
            TextColumn,
            TimeElapsedColumn,
        )

        self._progress = Progress(
            TextColumn("[bold]{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[note]}"),
            TimeElapsedColumn(),
            console=console,
        )
        self._tasks: dict[str, TaskID] = {}

    def __enter__(self) -> LiveDisplay:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def __call__(self, study: str, rounds: int, row: Row) -> None:
        """Show one round."""
        if study not in self._tasks:
            self._tasks[study] = self._progress.add_task(study, total=rounds, note="")
        self._progress.update(self._tasks[study], completed=int(row["round"]), note=measures(row))

    def finish(self, study: str) -> None:
        """Mark a study's line as complete: it may have converged before its last round."""
        if study in self._tasks:
            task = self._progress.tasks[self._tasks[study]]
            self._progress.update(task.id, total=task.completed)
