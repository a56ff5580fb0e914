"""Seeing that iterates run away, fast or slowly, before the last round.

Fast: an entry 1,000 times larger than the largest of the first 10 rounds. Slowly: the way that the
models go in 25 rounds, sum of |w_n - w_(n-1)|, grows by more than 8 % from window to window, four
times running. A method that converges, or settles to the level of its noise, goes less far with
time; 8 % is above what noise that falls by zeta = 0.99 a round could do.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

_EXPLOSION, _FIRST_ROUNDS = 1e3, 10
_WINDOW, _GROWTH, _WINDOWS = 25, 1.08, 5
_ROUNDING = 1e-9  # of the models' length: below it a way is made of rounding errors


class DivergenceWatch:
    """What has to be remembered of the rounds so far, in one array for a checkpoint."""

    def __init__(self) -> None:
        self.memory: Array = np.zeros(1 + _WINDOWS)  # the largest entry, the windows' ways

    def diverges(self, now: Array, before: Array, iteration: int) -> bool:
        """Enter an iteration, counted from 1; return whether the models run away."""
        size = float(np.max(np.abs(now), initial=0.0))
        if not np.isfinite(size):
            return True
        if iteration <= _FIRST_ROUNDS:
            self.memory[0] = max(self.memory[0], size)
        elif size > _EXPLOSION * max(self.memory[0], 1e-300):
            return True
        ways = self.memory[1:]
        ways[-1] += np.linalg.norm(now - before)
        if iteration % _WINDOW:
            return False
        grows = ways[0] > 0.0 and bool(np.all(ways[1:] > _GROWTH * ways[:-1]))
        grows &= bool(ways[-1] > _ROUNDING * np.linalg.norm(now))
        self.memory[1:] = [*ways[1:], 0.0]
        return grows
