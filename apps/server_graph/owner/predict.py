"""Using a kept linear model: predictions for new rows, and the score where they have targets."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from trellis.apps.common.evaluation.measures import accuracy, r_squared
from trellis.apps.common.own_data.scaling import Scaling
from trellis.apps.common.private.using import Predictions, Usable, new_table
from trellis.apps.server_graph.data import TARGET
from trellis.apps.server_graph.losses import checked_labels

Array = NDArray[np.float64]

KNOWN = ("logistic", "least-squares", "ridge")


def predict(kept: Usable, data: Any) -> Predictions:
    """Return the predicted label and its probability, or the predicted value, of every row.

    Labels are those of the clients' files where these told which (``classes`` of the model).
    The score is the share of right labels, or R squared, where the rows have targets.

    Raises
    ------
    DataError, ValueError
        For a file that cannot be used, or that lacks a feature; and for a loss of one's own, whose
        predictions only its own class can make.
    """
    model = kept.about["model"]
    if model["loss"] not in KNOWN:
        raise ValueError(
            f"the result was learned with loss={model['loss']!r}, a class of one's own; use its "
            f"array {model['array']!r} in result.npz with that class"
        )
    w = np.asarray(kept.arrays[model["array"]], dtype=np.float64)
    table = new_table(data, kept.variables, targets=TARGET)
    scaling = Scaling.from_arrays(kept.arrays, len(kept.variables))
    values = (table.values if scaling is None else scaling.apply(table.values)) @ w
    if scaling is not None and model["targets"] == "numbers":
        values = scaling.in_units(values)
    notes, score = list(table.notes), None
    if model["targets"] == "numbers":
        if table.targets is not None:
            score = r_squared(table.targets, values)
            notes.append(f"R squared on these rows: {score:.4g}")
        return Predictions(("predicted",), [(float(value),) for value in values], notes, score)
    labels = np.where(values >= 0.0, 1.0, -1.0)
    lower, upper = model.get("classes", (-1, 1))
    rows: list[tuple[Any, ...]] = [
        (upper if label > 0.0 else lower, float(chance))
        for label, chance in zip(labels, np.asarray(expit(values)), strict=True)
    ]
    if table.targets is not None:
        score = accuracy(checked_labels(table.targets, table.source), labels)
        notes.append(f"share of right labels on these rows: {score:.4g}")
    return Predictions(("predicted", "probability of 1"), rows, notes, score)
