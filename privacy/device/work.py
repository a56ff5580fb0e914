"""What a message may cost a device at most.

Settings are bounded before anything is done, a message's size before it is looked at, and seconds
by a watch: when they are over, an exception is raised in the thread that works. Python raises it
between two steps of its own, so one long call into a numerical library ends first.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Iterator
from contextlib import contextmanager


class TimeIsUp(BaseException):
    """The seconds are over. No `Exception`: what handles errors must not take it for one."""


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Raise `TimeIsUp` in this thread where the block takes longer than ``seconds``."""
    thread, lock = ctypes.c_ulong(threading.get_ident()), threading.Lock()
    ended = False

    def interrupt() -> None:
        with lock:
            if not ended:
                _raise_in(thread, ctypes.py_object(TimeIsUp))

    watch = threading.Timer(seconds, interrupt)
    watch.daemon = True
    watch.start()
    try:
        yield
    finally:
        with lock:
            ended = True
        watch.cancel()
        # One that was asked for in the last moment would strike whatever comes next.
        _raise_in(thread, None)


def _raise_in(thread: ctypes.c_ulong, kind: ctypes.py_object[type[TimeIsUp]] | None) -> None:
    ctypes.pythonapi.PyThreadState_SetAsyncExc(thread, kind)
