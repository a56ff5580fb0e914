"""Losses Q(w; x) of one sample x = (h, y), and how to bring another.

A loss sees arrays only. With n samples of d features and M parameters:

    X : (n, d) features h      y : (n,) targets      w : (M,) parameters

The losses here take any axes before these, one of clients for example: `loss`, `gradients` and
`predict` of X (C, n, d), y (C, n), w (C, M) are those of every client with its own w.

``logistic``       Q = log(1 + exp(-y h'w)),  y = -1 or +1,  M = d
``least-squares``  Q = (y - h'w)^2 / 2,       y a number,    M = d

Neither has an intercept; a column of ones is one. The ridge (rho / 2) |w|^2 is not in the loss: it
is no data, so it must not be clipped with it (see `problem`).

Any class with the methods of `Loss` can be registered under a name, and ``loss`` set to that name
(`trellis.apps.common.plugins`). It must be installed on the server and on every client, and needs
no arguments; ``small-mlp`` (`torch_loss`) is an example. It may also have

``start(features) -> (M,)``        where learning begins, zeros otherwise
``hessian(w, X, y, weights)``      (M, M), the weighted sum of the samples' Hessians, with which a
                                   convex loss has its minimiser by Newton's method
``decision(w, X) -> (n,)``         of labels, the larger the likelier 1, for the area under the ROC
                                   curve
``targets = "numbers"``            so that synthetic targets are numbers and not labels
"""

from __future__ import annotations

import logging
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from trellis.apps.common import plugins
from trellis.apps.common.settings import ConfigError
from trellis.apps.common.tables import DataError
from trellis.privacy.numerics import expit

Array = NDArray[np.float64]

_log = logging.getLogger("trellis.server_graph")
_device = logging.getLogger("trellis.device")  # what is said there stays on the device


class Loss(Protocol):
    """What a loss must be able to do."""

    def size(self, features: int) -> int:
        """Return M, the number of parameters for d ``features``."""
        ...

    def loss(self, w: Array, X: Array, y: Array) -> Array:
        """Return the samples' losses (n,)."""
        ...

    def gradients(self, w: Array, X: Array, y: Array) -> Array:
        """Return the samples' gradients (n, M), one a row: they are clipped one by one."""
        ...

    def predict(self, w: Array, X: Array) -> Array:
        """Return the predicted targets (n,)."""
        ...

    def check_targets(self, y: Array, source: str) -> Array:
        """Return the targets as the loss wants them; refuse others with an error that names them.

        ``y`` is finite already. ``source`` is the file, for the message.
        """
        ...


METHODS = ("size", "loss", "gradients", "predict", "check_targets")


def inner(X: Array, w: Array) -> Array:
    """Return h'w (..., n) of the samples X (..., n, d) under their client's w (..., d)."""
    return X @ w if w.ndim == 1 else (X @ w[..., None])[..., 0]


class Logistic:
    """Q = log(1 + exp(-y h'w)), of labels -1 and +1."""

    targets = "labels"

    def size(self, features: int) -> int:
        """Return M = d."""
        return features

    def loss(self, w: Array, X: Array, y: Array) -> Array:
        """Return the samples' losses (n,)."""
        return np.logaddexp(0.0, -y * inner(X, w))

    def gradients(self, w: Array, X: Array, y: Array) -> Array:
        """Return the samples' gradients (n, M)."""
        return (-y * expit(-y * inner(X, w)))[..., None] * X

    def hessian(self, w: Array, X: Array, y: Array, weights: Array) -> Array:
        """Return the weighted sum of the samples' Hessians (M, M)."""
        margin = X @ w
        return (X.T * (weights * expit(margin) * expit(-margin))) @ X

    def predict(self, w: Array, X: Array) -> Array:
        """Return labels -1 and +1; +1 on the boundary."""
        return np.where(self.decision(w, X) >= 0.0, 1.0, -1.0)

    def decision(self, w: Array, X: Array) -> Array:
        """Return h'w (n,), the larger the likelier label 1."""
        return inner(X, w)

    def check_targets(self, y: Array, source: str) -> Array:
        """Return labels -1 and +1; 0 and 1 are taken for them."""
        return checked_labels(y, source)


class LeastSquares:
    """Q = (y - h'w)^2 / 2."""

    targets = "numbers"

    def size(self, features: int) -> int:
        """Return M = d."""
        return features

    def loss(self, w: Array, X: Array, y: Array) -> Array:
        """Return the samples' losses (n,)."""
        return 0.5 * (inner(X, w) - y) ** 2

    def gradients(self, w: Array, X: Array, y: Array) -> Array:
        """Return the samples' gradients (n, M)."""
        return (inner(X, w) - y)[..., None] * X

    def hessian(self, w: Array, X: Array, y: Array, weights: Array) -> Array:
        """Return the weighted sum of the samples' Hessians (M, M); the same for every w."""
        return (X.T * weights) @ X

    def predict(self, w: Array, X: Array) -> Array:
        """Return h'w."""
        return inner(X, w)

    def check_targets(self, y: Array, source: str) -> Array:
        """Return ``y``: every number is a target."""
        return y


def checked_labels(y: Array, source: str) -> Array:
    """Return labels -1 and +1 from -1 and +1, or from 0 and 1.

    Raises
    ------
    DataError
        For any other label, and where 0 and -1 stand side by side.
    """
    wrong = np.flatnonzero((np.abs(y) != 1.0) & (y != 0.0))
    if wrong.size:
        raise DataError(
            f"{source}: row {wrong[0] + 1}, y is {y[wrong[0]]:g} ({wrong.size} such rows); the "
            "logistic loss needs labels -1 and 1, or 0 and 1. For targets that are numbers set "
            "loss=least-squares, in cluster-admm loss=ridge"
        )
    zeros = int(np.count_nonzero(y == 0.0))
    if zeros and np.any(y == -1.0):
        raise DataError(f"{source}: y has labels 0 and -1 both; use -1 and 1, or 0 and 1")
    if zeros:
        _log.info("%s: label 0 is read as -1 (%d of %d rows)", source, zeros, y.size)
        return np.where(y == 0.0, -1.0, y)
    return y


def labels_by_sign(y: Array, source: str) -> Array:
    """Return labels -1 and +1 by the sign of any numbers, 0 for -1; odd ones are logged here only.

    For ``privacy = "dp"``: a label that is none must not show in whether a client takes part.
    """
    odd = int(np.count_nonzero((np.abs(y) != 1.0) & (y != 0.0)))
    if odd:
        _device.warning("%s: %d labels are not -1, 0 or 1; they go by their sign", source, odd)
    return np.where(y > 0.0, 1.0, -1.0)


def start(loss: Loss, features: int) -> Array:
    """Return where learning begins (M,): zeros, unless the loss has a ``start`` of its own."""
    size = loss.size(features)
    own = getattr(loss, "start", None)
    if own is None:
        return np.zeros(size)
    w = np.array(own(features), dtype=np.float64)
    if w.shape != (size,) or not np.all(np.isfinite(w)):
        raise ConfigError(
            f"{type(loss).__name__}.start({features}) has shape {w.shape}; {size} finite numbers "
            f"are needed, as {type(loss).__name__}.size({features}) says"
        )
    return w


_BUILT_IN: dict[str, type[Logistic] | type[LeastSquares]] = {
    "logistic": Logistic,
    "least-squares": LeastSquares,
}


def loss_by_name(name: str) -> Loss:
    """Return the loss of the setting ``loss``: a built-in one, or one of your own.

    Raises
    ------
    ConfigError
        If there is none of that name, or its class lacks methods; says which.
    """
    if name in _BUILT_IN:
        return _BUILT_IN[name]()
    if name == "small-mlp":
        from .torch_loss import SmallMlp

        return SmallMlp()
    found = plugins.find("losses", "loss", name, (*_BUILT_IN, "small-mlp"))
    # Before it is made: what is no loss is never run.
    missing = [method for method in METHODS if not callable(getattr(found, method, None))]
    if missing:
        raise ConfigError(
            f"loss={name!r}: {found.__name__} lacks {', '.join(missing)}; a loss needs "
            f"{', '.join(METHODS)} (see trellis.apps.server_graph.losses.Loss)"
        )
    try:
        made: Loss = found()
    except TypeError as error:
        raise ConfigError(f"loss={name!r}: cannot be made without arguments ({error})") from None
    return made
