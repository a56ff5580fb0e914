"""Progress of a run, from the server's loop to whoever shows it.

A ServerApp is called by its runtime and returns nothing, so a display cannot be handed to it. It
publishes every round here; in one process the command line listens, elsewhere nobody does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
)

Row = dict[str, float]
Listener = Callable[[str, int, Row], None]

_listener: ContextVar[Listener | None] = ContextVar("listener", default=None)


def publish(study: str, rounds: int, row: Row) -> None:
    """Tell the listener, if there is one, that a round of ``rounds`` is done."""
    listener = _listener.get()
    if listener is not None:
        listener(study, rounds, row)


@contextmanager
def listening(listener: Listener) -> Iterator[None]:
    """Send what is published inside to ``listener``."""
    token = _listener.set(listener)
    try:
        yield
    finally:
        _listener.reset(token)


class LiveDisplay:
    """A live line a study on the terminal: rounds, change, objective."""

    def __init__(self, console: Console) -> None:
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
        # What tells most of how far a study has come: a certified gap, or the last change.
        measure = "gap" if "gap" in row else "change"
        note = f"{measure} {row[measure]:.1e}" if measure in row else ""
        for name, form in (("objective", ".6g"), ("msd", ".1f"), ("nmsd-servers", ".1f")):
            if name in row:
                note += f"  {name} {row[name]:{form}}"
        self._progress.update(self._tasks[study], completed=int(row["round"]), note=note)

    def finish(self, study: str) -> None:
        """Mark a study's line as complete: it may have converged before its last round."""
        if study in self._tasks:
            task = self._progress.tasks[self._tasks[study]]
            self._progress.update(task.id, total=task.completed)
