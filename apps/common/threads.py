"""One BLAS thread: the same bits on every engine.

The last bits of a matrix product or a factorisation depend on how many threads share the work, and
Flower's simulation runs its clients with ``OMP_NUM_THREADS=1``. Whoever computes in this process
under `one_blas_thread` gets the numbers a client there would get.
"""

from __future__ import annotations

import os
import sys
import threading
from contextlib import AbstractContextManager
from typing import Any

from threadpoolctl import ThreadpoolController

from trellis.privacy.numerics import part

# scipy's BLAS is not numpy's, and is loaded when something first needs it: with as many threads as
# this says. Started and left idle, they cost a device five times what loading it does.
_VARIABLE = "OPENBLAS_NUM_THREADS"


class _OneThread(AbstractContextManager[None]):
    """A limit that many holders share: the first in sets it, the last out lifts it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._holders = 0
        self._libraries: ThreadpoolController | None = None
        self._loaded = (0, 0)
        self._limiter: Any = None
        self._variable: str | None = None
        self._threads: list[int] = []

    def __enter__(self) -> None:
        with self._lock:
            if self._holders == 0:
                libraries = self._find_libraries()
                _free_control(libraries)
                self._threads = [library.num_threads for library in libraries.lib_controllers]
                self._limiter = libraries.limit(limits=1)
                self._variable = os.environ.get(_VARIABLE)
                os.environ[_VARIABLE] = "1"
            self._holders += 1

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._holders -= 1
            if self._holders == 0:
                if self._variable is None:
                    os.environ.pop(_VARIABLE, None)
                else:
                    os.environ[_VARIABLE] = self._variable
                before = self._libraries
                _free_control(before)
                self._limiter.restore_original_limits()
                _free_control(before)
                self._free_new_libraries(before)

    def _find_libraries(self) -> ThreadpoolController:
        # Looking for the loaded libraries takes milliseconds, and new ones come with an import.
        loaded = len(sys.modules), part.cache_info().misses
        if self._libraries is None or self._loaded != loaded:
            self._libraries = ThreadpoolController().select(user_api="blas")
            self._loaded = loaded
        return self._libraries

    def _free_new_libraries(self, before: ThreadpoolController) -> None:
        """Give libraries that were loaded meanwhile, with one thread, what the others have."""
        now = self._find_libraries()
        if now is before or not self._threads:
            return
        known = {library.filepath for library in before.lib_controllers}
        for library in now.lib_controllers:
            if library.filepath not in known:
                library.set_num_threads(max(self._threads))
        _free_control(now)


def _free_control(libraries: ThreadpoolController) -> None:
    """Let this thread set the number of threads.

    As of 3.8 threadpoolctl obeys only the thread that set it first and ignores all others in
    silence, but the holders of this limit come and go on any thread.
    """
    for library in libraries.lib_controllers:
        if hasattr(library, "clear_controlling_thread"):
            library.clear_controlling_thread(force=True)


_one_thread = _OneThread()


def one_blas_thread() -> AbstractContextManager[None]:
    """Return a context in which BLAS uses one thread, in the whole process.

    It may be entered again inside itself, for about a microsecond, and from several threads at
    once: the number of threads from before comes back when the last of them leaves. A library that
    is first loaded inside the context is limited where it is an OpenBLAS, as numpy's and scipy's
    are; torch's own threads are not (``torch.set_num_threads``).
    """
    return _one_thread
