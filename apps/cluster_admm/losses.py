"""Losses by the setting ``loss``: ``ridge``, ``logistic``, or a class of a user's own [GG].

A class of one's own is that of server-graph (`apps.server_graph.losses.Loss`): ``size``, ``loss``,
``gradients``, ``predict`` and ``check_targets``, of samples one by one, and if it likes ``hessian``
(with which (4) is solved by Newton's method, else by L-BFGS), ``decision`` and ``targets =
"numbers"``. The same class does for both studies. Here it has one parameter per feature: models of
all clusters are mixed entry by entry. The regulariser R is not in it.

It has to be convex for the rounds to converge to where they should. Nothing bounds its gradients,
so ``privacy = "sound"`` is refused (`config`).
"""

from __future__ import annotations

from trellis.apps.common.settings import ConfigError
from trellis.apps.server_graph.losses import LeastSquares, Logistic, Loss, loss_by_name

from .config import LOSSES


def is_own(name: str) -> bool:
    """Return whether a loss is a class of a user's own."""
    return name not in LOSSES


def own_loss(name: str, features: int | None = None) -> Loss:
    """Return an instance of the named class.

    Raises
    ------
    ConfigError
        Where it is not there, is no loss, or has not one parameter for each of ``features``.
    PrivacyRefused
        On a device whose owner does not list it.
    """
    loss = loss_by_name(name)
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
