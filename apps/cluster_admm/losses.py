"""Losses by the setting ``loss``: ``ridge``, ``logistic``, or one of a user's own [GG].

One of one's own is registered or installed under a name (`trellis.apps.common.plugins`, kind
``losses``), and is that of server-graph (`apps.server_graph.losses.Loss`): ``size``, ``loss``,
``gradients``, ``predict`` and ``check_targets``, of samples one by one, and if it likes ``hessian``
(with which (4) is solved by Newton's method, else by L-BFGS), ``decision`` and ``targets =
"numbers"``. The same class does for both studies. Here it has one parameter per feature: models of
all clusters are mixed entry by entry. The regulariser R is not in it.

It has to be convex for the rounds to converge to where they should. Nothing bounds its gradients,
so it is refused with noisy sums (`config`).
"""

from __future__ import annotations

from trellis.apps.common.plugins import find
from trellis.apps.common.settings import ConfigError
from trellis.apps.server_graph.losses import METHODS, LeastSquares, Logistic, Loss

from .config import LOSSES


def is_own(name: str) -> bool:
    """Return whether a loss is a class of a user's own."""
    return name not in LOSSES


def own_loss(name: str, features: int | None = None) -> Loss:
    """Return an instance of the loss of that name.

    Raises
    ------
    ConfigError
        Where it is not there, is no loss, or has not one parameter for each of ``features``.
    """
    found = find("losses", "loss", name, LOSSES)
    # Before it is made: what is no loss is never run.
    missing = [method for method in METHODS if not callable(getattr(found, method, None))]
    if missing:
        raise ConfigError(
            f"loss={name!r}: {found.__name__} lacks {', '.join(missing)}; a loss needs "
            f"{', '.join(METHODS)} (see trellis.apps.server_graph.losses.Loss)"
        )
    try:
        loss: Loss = found()
    except TypeError as error:
        raise ConfigError(f"loss={name!r}: cannot be made without arguments ({error})") from None
    size = features if features is None else loss.size(features)
    if size != features:
        raise ConfigError(
            f"loss={name!r}: {size} parameters for {features} features; cluster-admm learns one "
            "for each feature. server-graph takes any number of them"
        )
    return loss


def targets_of(name: str) -> str:
    """Return whether targets are ``numbers`` or ``labels``."""
    if is_own(name):
        return str(getattr(own_loss(name), "targets", "labels"))
    return "numbers" if name == "ridge" else "labels"


def reading(name: str) -> Loss:
    """Return the loss that says which targets a file may have."""
    if is_own(name):
        return own_loss(name)
    return LeastSquares() if name == "ridge" else Logistic()
