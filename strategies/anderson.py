"""Anderson acceleration of a fixed-point iteration, with a way back.

    x_{k+1} = x_k + g_k,   g_k = T(x_k) - x_k,   T non-expansive

From the last few pairs (x, g) take the combination whose residual would be least if T were linear
(type II; Walker and Ni 2011), and continue there. A poor combination shows as a residual above
twice the smallest seen: then the memory is dropped and plain steps go on from where they are, which
converge from anywhere; after ten such restarts the memory stays off, so the whole converges when
the plain iteration does.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

_MEMORY = 8
_MOST_BYTES = 256 << 20
_REGULARISATION = 1e-10
_TOLERATED_RISE = 2.0
_MOST_RESTARTS = 10


class Anderson:
    """The memory of an iteration over arrays of one shape."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        bytes_a_pair = 16 * max(1, int(np.prod(shape)))
        self.memory = int(np.clip(_MOST_BYTES // bytes_a_pair - 1, 2, _MEMORY))
        self.points = np.zeros((0, *shape))
        self.steps = np.zeros((0, *shape))
        self.best = np.inf
        self.restarts = 0

    def next(self, x: Array, g: Array) -> Array:
        """Return the point after ``x``, whose plain step is ``g``."""
        residual = float(np.sqrt(np.vdot(g, g)))
        if residual > _TOLERATED_RISE * self.best:
            self.forget()
            self.restarts += 1
        self.best = min(self.best, residual)
        if self.restarts >= _MOST_RESTARTS:
            return x + g
        self.points = np.concatenate([self.points[-self.memory :], x[None]])
        self.steps = np.concatenate([self.steps[-self.memory :], g[None]])
        if len(self.points) < 2:
            return x + g
        moved = np.diff(self.steps, axis=0)
        flat = moved.reshape(len(moved), -1)
        gram = flat @ flat.T
        gram[np.diag_indices_from(gram)] += _REGULARISATION * np.trace(gram) + 1e-300
        weights = np.linalg.solve(gram, flat @ g.ravel())
        moved += np.diff(self.points, axis=0)
        return x + g - np.tensordot(weights, moved, axes=1)

    def forget(self) -> None:
        """Drop the memory: the iteration is another one from now on."""
        self.points, self.steps = self.points[:0], self.steps[:0]
        self.best = np.inf

    def state(self) -> dict[str, NDArray[Any]]:
        """Return everything as arrays."""
        return {
            "points": self.points,
            "steps": self.steps,
            "counts": np.array([self.best, self.restarts]),
        }

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Take back `state`."""
        self.points, self.steps = state["points"].copy(), state["steps"].copy()
        self.best, restarts = state["counts"].tolist()
        self.restarts = int(restarts)
