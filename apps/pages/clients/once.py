"""What is made of a run is made once while its files and its page are written, one after another.

Only inside `sharing`: elsewhere a run may be changed by whoever has it in hand.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import wraps
from typing import Any, TypeVar

from trellis.apps.common.results import RunResult

Made = TypeVar("Made")

_shared: ContextVar[dict[tuple[object, int], Any] | None] = ContextVar("shared", default=None)


@contextmanager
def sharing() -> Iterator[None]:
    """Keep what functions under `once` make of a run until the end."""
    token = _shared.set({})
    try:
        yield
    finally:
        _shared.reset(token)


def once(make: Callable[[RunResult], Made]) -> Callable[[RunResult], Made]:
    """Return a function that makes something of a run, inside `sharing` only once."""

    @wraps(make)
    def ask(result: RunResult) -> Made:
        kept = _shared.get()
        if kept is None:
            return make(result)
        key = (make, id(result))
        if key not in kept:
            kept[key] = result, make(result)  # with the run: its id is not given to another
        found: Made = kept[key][1]
        return found

    return ask
