"""What a device of server-graph is left with, and how it scores on its own held-out samples.

With ``privacy = "dp"`` a model of its own, from its samples and the private model. Otherwise its
server's model w_p as it ended, which it was sent in every round as well, and the centroid of all
servers; with ``paper`` the centroid is not sent: in it the noise between servers cancels, and no
single server knows it. A device learns nothing else of other clients.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from trellis.apps.common.evaluation.measures import ALONE, THIS, Predicted, Scores, model_scores
from trellis.apps.common.own_data.scaling import Scaling
from trellis.apps.common.own_data.units import learned_in_own_units
from trellis.apps.common.private.personal import Personal
from trellis.apps.server_graph.data import Samples
from trellis.apps.server_graph.losses import LeastSquares, Logistic, Loss, loss_by_name, start
from trellis.apps.server_graph.owner.personal import pulled

if TYPE_CHECKING:
    from collections.abc import Mapping

    from trellis.apps.common.results import RunResult

Array = NDArray[np.float64]
Rows = NDArray[np.bool_]

SHARED = "the model that all share"


def targets_of(loss: Loss) -> str:
    """Return whether targets are ``labels`` or ``numbers``."""
    return str(getattr(loss, "targets", "labels"))


def description(name: str, loss: Loss, scaling: Scaling | None = None) -> dict[str, str]:
    """Return what ``trellis device predict`` needs to know of the model."""
    known = {"kind": "linear", "array": "model", "loss": name, "targets": targets_of(loss)}
    if name not in ("logistic", "least-squares"):
        return known
    return {**known, "coefficients": "model" if scaling is None else "coefficients"}


def raw_model(model: Array, scaling: Scaling | None) -> dict[str, Array]:
    """Return the scaling of a model, and its coefficients in the units of the data."""
    if scaling is None or model.shape != (len(scaling.scale) + 1,):
        return {} if scaling is None else scaling.as_arrays()
    slopes, intercept = scaling.raw_coefficients(model)
    return {**scaling.as_arrays(), "coefficients": slopes, "intercept": np.asarray(intercept)}


def run_model(result: RunResult) -> dict[str, Any]:
    """Return what a run has learned, see `apps.common.evaluation.model_file`: the centroid."""
    name = str(result.config["loss"])
    known: dict[str, Any] = {**description(name, loss_by_name(name)), "array": "centroid"}
    known.pop("coefficients", None)
    return {**known, **classes_of(result, known["targets"]), "per": "all"}


def classes_of(result: RunResult, targets: str) -> dict[str, list[int]]:
    """Return the two labels, as predictions name them: 0 and 1 where clients told so."""
    if targets != "labels":
        return {}
    return {"classes": [int(label) for label in result.arrays.get("classes", (-1, 1))]}


def in_words(loss: Loss, features: int, whose: str) -> list[str]:
    """Return what the model is, in sentences."""
    what = "tells label 1 from label -1 (or 0)" if targets_of(loss) == "labels" else "predicts y"
    return [f"A model that {what} from {features} features: {whose}."]


def held_out_scores(
    loss: Loss,
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
        return pulled(loss, start(loss, X.shape[1]), X, y, ridge, 0.0)

    if own_units and samples.scaling is not None and isinstance(loss, Logistic | LeastSquares):
        alone = learned_in_own_units(fit, X, y, targets_of(loss) == "numbers")
    else:
        alone = fit(X, y)
    Z, z = samples.X[held], samples.y[held]
    decision = getattr(loss, "decision", None)
    found = {
        name: Predicted(
            loss.predict(model, Z),
            float(np.mean(loss.loss(model, Z, z))) if len(z) else 0.0,
            None if decision is None else decision(model, Z),
        )
        for name, model in {**models, ALONE: alone}.items()
    }
    return scores_in_units(targets_of(loss), y, z, found, samples.scaling)


def scores_in_units(
    targets: str,
    y: Array,
    z: Array,
    found: Mapping[str, Predicted],
    scaling: Scaling | None,
) -> Scores:
    """Return `model_scores` in the units of y; what is given is in standardised ones."""
    if scaling is None or targets != "numbers":
        return model_scores(targets, y, z, found)
    unit = scaling.target_scale**2  # losses of numbers are of squared errors
    told = {
        name: Predicted(scaling.in_units(one.guess), unit * one.loss, one.values)
        for name, one in found.items()
    }
    return model_scores(targets, scaling.in_units(y), scaling.in_units(z), told)


def from_server(
    name: str,
    loss: Loss,
    model: Array,
    centroid: Array | None,
    samples: Samples,
    held: Rows,
    ridge: float,
) -> Personal:
    """Return what the device stores of a result that the servers have made."""
    arrays, models = {"model": model}, {THIS: model}
    if centroid is not None:
        arrays["centroid"] = models["the mean of all servers' models"] = centroid

    def scores() -> Scores:
        return held_out_scores(loss, models, samples, held, ridge)

    return Personal(
        arrays | raw_model(model, samples.scaling),
        variables=samples.columns,
        summary={"samples learned from": float(np.count_nonzero(~held))},
        words=in_words(loss, len(samples.columns), "that of this device's server at the end"),
        model=description(name, loss, samples.scaling),
        scores=scores if held.any() else None,
        made_here=False,
    )
