"""An example of a loss of one's own: a small neural network in torch.

    Q(w; h, y) = log(1 + exp(-y f(h; w))),    f(h; w) = v' tanh(U h + a) + c

with w = (U, a, v, c) flattened: U : (H, d), a : (H,), v : (H,), c : one number, so
M = H d + 2 H + 1. H = 8. Use it with

    trellis run server-graph --set loss=small-mlp

All is in float64 on the CPU and repeats exactly. What is clipped is the gradient of one sample, so
every sample has its own, all at once, by ``torch.func.vmap`` of ``torch.func.grad``. For a network
of your own copy this file, change `_output`, `size` and `start`, and register it under a name of
its own (`trellis.apps.common.plugins`). The problem is not convex: the
distance to *the* minimiser means nothing here, the loss does.
"""

from __future__ import annotations

from functools import cached_property
from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trellis.install import pip_install

from .losses import checked_labels

Array = NDArray[np.float64]

HIDDEN = 8


class SmallMlp:
    """One hidden layer of ``HIDDEN`` tanh units and a logistic loss of labels -1 and +1."""

    targets = "labels"

    @cached_property
    def _torch(self) -> Any:
        # Late: only who names this loss needs torch.
        try:
            return import_module("torch")
        except ImportError:
            raise ImportError(
                "loss small-mlp needs torch, on the server and on every client: "
                f"{pip_install('gnn')}"
            ) from None

    def size(self, features: int) -> int:
        """Return M = H d + 2 H + 1."""
        return HIDDEN * features + 2 * HIDDEN + 1

    def start(self, features: int) -> Array:
        """Return small weights, always the same: from zeros all hidden units would stay alike."""
        rng = np.random.default_rng(0)
        U = rng.standard_normal(HIDDEN * features) / np.sqrt(features)
        v = rng.standard_normal(HIDDEN) / np.sqrt(HIDDEN)
        return np.concatenate([U, np.zeros(HIDDEN), v, np.zeros(1)])

    def loss(self, w: Array, X: Array, y: Array) -> Array:
        """Return the samples' losses (n,)."""
        return self._numpy(self._losses(*self._tensors(w, X, y)))

    def gradients(self, w: Array, X: Array, y: Array) -> Array:
        """Return the samples' gradients (n, M)."""
        func = self._torch.func
        each = func.vmap(func.grad(self._losses), in_dims=(None, 0, 0))
        return self._numpy(each(*self._tensors(w, X, y)))

    def predict(self, w: Array, X: Array) -> Array:
        """Return labels -1 and +1; +1 on the boundary."""
        return np.where(self._numpy(self._output(*self._tensors(w, X))) >= 0.0, 1.0, -1.0)

    def check_targets(self, y: Array, source: str) -> Array:
        """Return labels -1 and +1; 0 and 1 are taken for them."""
        return checked_labels(y, source)

    def _output(self, w: Any, X: Any) -> Any:
        """Return f(h; w) for one sample (d,) or for many (n, d)."""
        d = X.shape[-1]
        U, a, v, c = self._torch.split(w, [HIDDEN * d, HIDDEN, HIDDEN, 1])
        return self._torch.tanh(X @ U.reshape(HIDDEN, d).T + a) @ v + c[0]

    def _losses(self, w: Any, X: Any, y: Any) -> Any:
        # Not softplus, which torch replaces by a line above 20.
        return -self._torch.nn.functional.logsigmoid(y * self._output(w, X))

    def _tensors(self, *arrays: Array) -> list[Any]:
        # A copy: an array from the wire is read-only, which torch does not know.
        return [self._torch.tensor(array, dtype=self._torch.float64) for array in arrays]

    @staticmethod
    def _numpy(tensor: Any) -> Array:
        return np.asarray(tensor.detach().numpy(), dtype=np.float64)
