"""What a message may cost a device at most.

Settings are bounded before anything is done, a message's size before it is looked at, and seconds
by a watch: when they are over, an exception is raised in the thread that works. Python raises it
between two steps of its own, so one long call into a numerical library ends first.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress


class TimeIsUp(BaseException):
    """The seconds are over. No `Exception`: what handles errors must not take it for one."""


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Raise `TimeIsUp` in this thread where the block takes longer than ``seconds``."""
    thread, lock = threading.get_ident(), threading.Lock()
    ended = asked = raised = False

    def interrupt() -> None:
        nonlocal asked
        with lock:
            if not ended:
                asked = True
                _raise_in(thread, TimeIsUp)

    watch = threading.Timer(seconds, interrupt)
    watch.daemon = True
    watch.start()
    try:
        yield
    except TimeIsUp:
        raised = True
        raise
    finally:
        with lock:
            ended = True
        watch.cancel()
        if asked and not raised:
            _await()


def _raise_in(thread: int, kind: type[BaseException]) -> None:
    """Raise ``kind`` in a thread, between two of its steps.

    Python notes for all threads that an exception waits, and only the thread that raises it removes
    that note. So one that was asked for is never withdrawn: the note would stay, slow down every
    later call in this process, and hang those under ``sys.setprofile``.
    """
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), ctypes.py_object(kind))


def _await() -> None:
    """Take `TimeIsUp` that was asked for in the last moment: it would strike what comes next."""
    with suppress(TimeIsUp):
        for _ in range(1000):  # it is raised at the first turn, if it was not before
            pass
