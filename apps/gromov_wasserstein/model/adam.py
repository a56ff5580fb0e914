"""Adam (Kingma & Ba 2015) with weight decay in the gradient, and plain descent, step by step.

    g <- g + decay w
    m <- m + (1 - b1) (g - m)         v <- b2 v + (1 - b2) g^2           moments, from 0
    w <- w - rate / (1 - b1^t)  m / (sqrt(v / (1 - b2^t)) + e)

The same bits as ``torch.optim.Adam`` and ``SGD``, a test says so. torch's own optimisers bring its
compiler when the first one is made, 800 modules and 0.7 s, which a device would pay with every
message that trains.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

FIRST, SECOND, LEAST = 0.9, 0.999, 1e-8  # b1, b2, e: the paper's


class Descent:
    """w <- w - rate g."""

    def __init__(self, weights: Iterable[Tensor], rate: float, decay: float) -> None:
        self.weights: Sequence[Tensor] = list(weights)
        self.rate = rate
        self.decay = decay

    def forget(self) -> None:
        """Let the next gradients begin at nothing."""
        for w in self.weights:
            w.grad = None

    @torch.no_grad()
    def step(self) -> None:
        """Move all weights that have a gradient."""
        for place, w in enumerate(self.weights):
            if w.grad is not None:
                self._move(place, w, w.grad.add(w, alpha=self.decay) if self.decay else w.grad)

    def _move(self, place: int, w: Tensor, g: Tensor) -> None:
        w.add_(g, alpha=-self.rate)


class Adam(Descent):
    """The steps above."""

    def __init__(self, weights: Iterable[Tensor], rate: float, decay: float) -> None:
        super().__init__(weights, rate, decay)
        self._means = [torch.zeros_like(w) for w in self.weights]
        self._powers = [torch.zeros_like(w) for w in self.weights]
        self._steps = [0] * len(self.weights)

    def _move(self, place: int, w: Tensor, g: Tensor) -> None:
        self._steps[place] += 1
        t, m, v = self._steps[place], self._means[place], self._powers[place]
        m.lerp_(g, 1.0 - FIRST)
        v.mul_(SECOND).addcmul_(g, g, value=1.0 - SECOND)
        length = v.sqrt().div_((1.0 - SECOND**t) ** 0.5).add_(LEAST)
        w.addcdiv_(m, length, value=-self.rate / (1.0 - FIRST**t))
