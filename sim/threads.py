"""One BLAS thread: the same bits on every engine.

The last bits of a matrix product or a factorisation depend on how many threads share the work, and
Flower's simulation runs its clients with ``OMP_NUM_THREADS=1``. Whoever computes in this process
under `one_blas_thread` gets the numbers a client there would get.
"""

from __future__ import annotations

import sys
import threading
from contextlib import AbstractContextManager

import scipy.linalg  # noqa: F401  its BLAS is not numpy's, and must be there before it is limited
from threadpoolctl import ThreadpoolController


class _OneThread(AbstractContextManager[None]):
    """A limit that many holders share: the first in sets it, the last out lifts it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._holders = 0
        self._controller: ThreadpoolController | None = None
        self._modules = 0
        self._limiter: AbstractContextManager[object] | None = None

    def __enter__(self) -> None:
        with self._lock:
            if self._holders == 0:
                self._limiter = self._find_libraries().limit(limits=1, user_api="blas")
            self._holders += 1

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._holders -= 1
            if self._holders == 0 and self._limiter is not None:
                self._limiter.__exit__(None, None, None)
                self._limiter = None

    def _find_libraries(self) -> ThreadpoolController:
        # Looking for the loaded libraries takes milliseconds, and new ones come with an import.
        if self._controller is None or self._modules != len(sys.modules):
            self._controller = ThreadpoolController()
            self._modules = len(sys.modules)
        return self._controller


_one_thread = _OneThread()


def one_blas_thread() -> AbstractContextManager[None]:
    """Return a context in which BLAS uses one thread, in the whole process.

    It may be entered again inside itself, for about a microsecond, and from several threads at
    once: the number of threads from before comes back when the last of them leaves. A library that
    is first loaded inside the context is not limited, nor are torch's own threads
    (``torch.set_num_threads``).
    """
    return _one_thread
