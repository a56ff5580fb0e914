"""Seeing that iterates run away, fast or slowly, before the last round.

Fast: an entry 1,000 times larger than the largest of the first 10 rounds. Slowly: from one window
to the next, four times running, the way that the models go (the sum of |w_n - w_(n-1)|) grows by
more than 8 %, and the models themselves are longer in the mean, by 10 % in all. Windows of 25, 100
and 400 rounds are looked at: what grows by 1 % in 25 rounds is seen in the longest.

The way alone is not enough: with scheduled clients, or noise, models never rest. They go to and fro
about where they settle, and it takes them many windows to come to their full stir, whose length
has a limit. What runs away grows by a factor per round instead, which both lengths come to have,
however slow it is; and its steps get longer and longer, so the way's growth over the last two
windows has to be more than that over the two before.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

_EXPLOSION, _FIRST_ROUNDS = 1e3, 10
_WINDOWS = 5
_ROUNDS = (25, 100, 400)  # of a window
_GROWTH = 1.08  # of the way, per window
_LONGER = 1.10  # of the models, over all windows
_ROUNDING = 1e-9  # of the models' length: below it a way is made of rounding errors


class DivergenceWatch:
    """What has to be remembered of the rounds so far, in one array for a checkpoint."""

    def __init__(self) -> None:
        # The largest entry, then of windows of every kind the ways, and the models' lengths summed.
        self.memory: Array = np.zeros(1 + len(_ROUNDS) * 2 * _WINDOWS)

    def diverges(self, now: Array, before: Array, iteration: int) -> bool:
        """Enter an iteration, counted from 1; return whether the models run away."""
        size = float(np.max(np.abs(now), initial=0.0))
        if not np.isfinite(size):
            return True
        if iteration <= _FIRST_ROUNDS:
            self.memory[0] = max(self.memory[0], size)
        elif size > _EXPLOSION * max(self.memory[0], 1e-300):
            return True
        seen = False
        entered = np.linalg.norm(now - before), np.linalg.norm(now)
        kinds = self.memory[1:].reshape(len(_ROUNDS), 2, _WINDOWS)
        for rounds, windows in zip(_ROUNDS, kinds, strict=True):
            windows[:, -1] += entered
            if iteration % rounds == 0:
                seen |= _run_away(windows[0], windows[1], rounds)
                windows[:] = np.column_stack((windows[:, 1:], np.zeros(2)))
        return seen


def _run_away(ways: Array, lengths: Array, rounds: int) -> bool:
    """Return whether the windows' ways and models' lengths, oldest first, are of a divergence."""
    if ways[0] <= 0.0 or ways[-1] <= _ROUNDING * lengths[-1] / rounds:
        return False
    grows = bool(np.all(ways[1:] > _GROWTH * ways[:-1]) and np.all(lengths[1:] > lengths[:-1]))
    middle = _WINDOWS // 2
    quickens = ways[-1] - ways[middle] > ways[middle] - ways[0]
    return grows and bool(quickens and lengths[-1] > _LONGER * lengths[0])
