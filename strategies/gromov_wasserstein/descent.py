"""One step of the server on a noisy sum of clipped gradients: momentum, and weight decay.

    g = (s + noise) / n + lambda w      s the sum over n graphs, see `apps...model.clipping`
    v = beta v + g,    w = w - eta v

All of it is post-processing of the sum. Momentum averages the noise of some 1 / (1 - beta) rounds.
Adam does not do: it makes steps of one length in every weight, also in those of which the noisy sum
says nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float64]

MOMENTUM = 0.9


@dataclass(frozen=True)
class Descent:
    """Rate eta and decay lambda."""

    rate: float
    decay: float = 0.0

    def step(
        self, weights: Vector, velocity: Vector, total: Vector, graphs: float
    ) -> tuple[Vector, Vector]:
        """Return weights and velocity, (d,) each, after the sum ``total`` over ``graphs``."""
        found = MOMENTUM * velocity + total / graphs + self.decay * weights
        return weights - self.rate * found, found
