"""Anderson acceleration of a fixed-point iteration, with a way back.

    x_{k+1} = x_k + g_k,   g_k = T(x_k) - x_k,   T non-expansive

From the last few steps take the combination whose residual would be least if T were linear (type
II; Walker and Ni 2011), and continue there:

    x_{k+1} = x_k + g_k - sum_j c_j (dx_j + dg_j),   c = argmin |g_k - sum_j c_j dg_j|,

dx, dg the differences between neighbours in memory. A poor combination shows as a residual above
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

_MEMORY = 5
_MOST_BYTES = 256 << 20
_REGULARISATION = 1e-10
_TOLERATED_RISE = 2.0
_MOST_RESTARTS = 10


class Anderson:
    """The memory of an iteration over arrays of one shape, of its last ``memory`` steps at most.

    Differences are kept as the rows of two matrices, dg and dx + dg, so that a step reads each of
    them once: the products with dg in one pass, the combination in another.
    """

    def __init__(self, shape: tuple[int, ...], memory: int = _MEMORY) -> None:
        size = int(np.prod(shape))
        memory = int(np.clip(_MOST_BYTES // (16 * max(size, 1)), 2, memory))
        self.dg = np.zeros((memory, size))
        self.moves = np.zeros((memory, size))
        self.gram = np.zeros((memory, memory))
        self.last = np.zeros((2, size))  # x and g of the step before
        self.filled = 0  # rows in use
        self.oldest = 0  # the row to write next, once all are in use
        self.best = np.inf
        self.restarts = 0

    def next(self, x: Array, g: Array) -> Array:
        """Return the point after ``x``, whose plain step is ``g``."""
        residual = float(np.sqrt(np.vdot(g, g)))
        if residual > _TOLERATED_RISE * self.best:
            self.forget()
            self.restarts += 1
        first = not np.isfinite(self.best)
        self.best = min(self.best, residual)
        if self.restarts >= _MOST_RESTARTS:
            return x + g
        if not first:
            self._remember(x.ravel(), g.ravel())
        self.last[0], self.last[1] = x.ravel(), g.ravel()
        if self.filled == 0:
            return x + g
        used = slice(0, self.filled)
        gram = self.gram[used, used].copy()
        gram[np.diag_indices_from(gram)] += _REGULARISATION * np.trace(gram) + 1e-300
        weights = np.linalg.solve(gram, self.dg[used] @ g.ravel())
        return x + g - (weights @ self.moves[used]).reshape(x.shape)

    def _remember(self, x: Array, g: Array) -> None:
        """Put the differences to the step before into a free row, or into the oldest."""
        memory = len(self.dg)
        row = self.filled if self.filled < memory else self.oldest
        np.subtract(g, self.last[1], out=self.dg[row])
        np.subtract(x, self.last[0], out=self.moves[row])
        self.moves[row] += self.dg[row]
        if self.filled < memory:
            self.filled += 1
        else:
            self.oldest = (self.oldest + 1) % memory
        products = self.dg[: self.filled] @ self.dg[row]
        self.gram[row, : self.filled] = self.gram[: self.filled, row] = products

    def forget(self) -> None:
        """Drop the memory: the iteration is another one from now on."""
        self.filled = self.oldest = 0
        self.best = np.inf

    def state(self) -> dict[str, NDArray[Any]]:
        """Return everything as arrays."""
        return {
            "dg": self.dg,
            "moves": self.moves,
            "gram": self.gram,
            "last": self.last,
            "counts": np.array([self.filled, self.oldest, self.best, self.restarts]),
        }

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Take back `state`."""
        for name in ("dg", "moves", "gram", "last"):
            setattr(self, name, state[name].copy())
        filled, oldest, self.best, restarts = state["counts"].tolist()
        self.filled, self.oldest, self.restarts = int(filled), int(oldest), int(restarts)
