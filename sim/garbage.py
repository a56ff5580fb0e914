"""The garbage collector's pace while many nodes run in one process.

Python looks for cycles whenever some hundred more objects are alive than at the last look, and for
those that have lived longer the more often, the more there are. A round of ten thousand nodes has
hundreds of thousands of objects alive at once, its replies, none of them garbage: looking through
them again and again took half of such a round, and next to nothing of one with a hundred nodes.
What is left behind without a cycle, which is nearly everything here, is freed without it.
"""

from __future__ import annotations

import gc
import threading

_PER_NODE = 64  # objects of one node that are alive at once in a round, and some to spare


class _Pace:
    """A pace that runs in one process share; the last to end sets back what the first found."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._nodes: list[int] = []
        self._before = gc.get_threshold()

    def take(self, nodes: int) -> None:
        """Let so many more objects come to life before the collector looks."""
        with self._lock:
            if not self._nodes:
                self._before = gc.get_threshold()
            self._nodes.append(nodes)
            self._set()

    def give_back(self, nodes: int) -> None:
        """End what `take` with as many nodes has begun."""
        with self._lock:
            self._nodes.remove(nodes)
            self._set()

    def _set(self) -> None:
        young, middle, old = self._before
        # 0 is a collector that is switched off, which stays so.
        gc.set_threshold(young and young + _PER_NODE * sum(self._nodes), middle, old)


pace = _Pace()
