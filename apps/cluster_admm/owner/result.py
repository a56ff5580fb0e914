"""What a device of cluster-admm is left with, and how it scores on its own held-out samples.

Made on the device: a model of its own, from its samples alone or from these and the clusters'
private models (`private.device`). Made by the servers: the model that its server holds for its
cluster, which it was sent (times rho, with its dual) in every round, and the cluster's number. It
learns nothing of other clusters, nor who else is in its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from trellis.apps.cluster_admm.losses import is_own, own_loss, targets_of
from trellis.apps.cluster_admm.problem import mean_losses, signed_labels
from trellis.apps.cluster_admm.steps import alone
from trellis.apps.common.evaluation.measures import ALONE, THIS, Predicted, Scores
from trellis.apps.common.own_data.scaling import Scaling
from trellis.apps.common.own_data.units import learned_in_own_units
from trellis.apps.common.private.personal import Personal
from trellis.apps.server_graph.data import Samples
from trellis.apps.server_graph.owner.result import classes_of, raw_model, scores_in_units

if TYPE_CHECKING:
    from trellis.apps.common.results import RunResult

Array = NDArray[np.float64]
Rows = NDArray[np.bool_]


def description(loss: str, scaling: Scaling | None = None) -> dict[str, Any]:
    """Return what ``trellis device predict`` needs to know of the model."""
    kind = {"kind": "linear", "array": "model"}
    kind["coefficients"] = "model" if scaling is None else "coefficients"
    return {**kind, "loss": loss, "targets": targets_of(loss)}


def run_model(result: RunResult) -> dict[str, Any]:
    """Return what a run has learned: every client's model, of its server and its cluster."""
    known = {**description(str(result.config["loss"])), "array": "clients", "per": "client"}
    known.pop("coefficients", None)
    return known | classes_of(result, known["targets"])


def in_words(loss: str, features: int, whose: str) -> list[str]:
    """Return what the model is, in sentences."""
    numbers = targets_of(loss) == "numbers"
    what = "predicts y" if numbers else "tells label 1 from label -1 (or 0)"
    return [f"A model that {what} from {features} features: {whose}."]


def held_out_scores(
    loss: str,
    models: Mapping[str, Array],
    samples: Samples,
    held: Rows,
    ridge: float,
    *,
    own_units: bool = False,
) -> Scores:
    """Return how models do on the held-out samples, beside learning alone from the others.

    ``own_units`` is whether a client alone would have other units than those of ``samples``.
    """
    X, y = samples.X[~held], samples.y[~held]

    def fit(X: Array, y: Array) -> Array:
        return alone(loss, [(X, y)], ridge)[0]

    apart = own_units and samples.scaling is not None
    by_itself = learned_in_own_units(fit, X, y, loss == "ridge") if apart else fit(X, y)
    Z, z = samples.X[held], samples.y[held]
    if loss == "logistic":
        y, z = signed_labels(y), signed_labels(z)
    found = {}
    for name, model in {**models, ALONE: by_itself}.items():
        guess, values = _predicted(loss, model, Z)
        found[name] = Predicted(guess, float(mean_losses(loss, model[None], Z, z)[0]), values)
    return scores_in_units(targets_of(loss), y, z, found, samples.scaling)


def _predicted(loss: str, model: Array, Z: Array) -> tuple[Array, Array | None]:
    """Return what a model predicts of rows, and the values by which labels are ranked."""
    if is_own(loss):
        own = own_loss(loss, Z.shape[1])
        decision = getattr(own, "decision", None)
        return own.predict(model, Z), None if decision is None else decision(model, Z)
    values = Z @ model
    return values if loss == "ridge" else np.where(values >= 0.0, 1.0, -1.0), values


def by_itself(loss: str, samples: Samples, held: Rows, ridge: float) -> Personal:
    """Return the model that a device makes of its own samples alone."""
    X, y = samples.X[~held], samples.y[~held]
    model = alone(loss, [(X, y)], ridge)[0]

    def scores() -> Scores:
        return held_out_scores(loss, {THIS: model}, samples, held, ridge)

    return Personal(
        {"model": model, **raw_model(model, samples.scaling)},
        variables=samples.columns,
        summary={"samples learned from": float(len(y))},
        words=in_words(loss, len(samples.columns), "your own, from your samples alone"),
        model=description(loss, samples.scaling),
        scores=scores if held.any() else None,
    )


def from_server(
    loss: str, model: Array, cluster: int, samples: Samples, held: Rows, ridge: float
) -> Personal:
    """Return what the device stores of a result that the servers have made."""

    def scores() -> Scores:
        return held_out_scores(loss, {THIS: model}, samples, held, ridge)

    learned = float(np.count_nonzero(~held))
    return Personal(
        {"model": model, "cluster": np.array(cluster), **raw_model(model, samples.scaling)},
        variables=samples.columns,
        summary={"cluster": float(cluster), "samples learned from": learned},
        words=in_words(loss, len(samples.columns), "that of this device's cluster, at its server"),
        model=description(loss, samples.scaling),
        scores=scores if held.any() else None,
        made_here=False,
    )
