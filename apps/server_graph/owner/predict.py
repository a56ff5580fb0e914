"""Using a kept linear model: predictions for new rows, and the score where they have targets."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from apps.common.evaluation.measures import accuracy, r_squared
from apps.common.private.kept import Kept
from apps.common.private.using import Predictions, new_table
from apps.server_graph.data import TARGET
from apps.server_graph.losses import checked_labels

Array = NDArray[np.float64]

KNOWN = ("logistic", "least-squares", "ridge")


def predict(kept: Kept, path: Path) -> Predictions:
    """Return the predicted label and its probability, or the predicted value, of every row.

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
    table = new_table(path, kept.variables, targets=TARGET)
    values = table.values @ w
    notes = list(table.notes)
    if model["targets"] == "numbers":
        if table.targets is not None:
            notes.append(f"R squared on these rows: {r_squared(table.targets, values):.4g}")
        return Predictions(("predicted",), [(float(value),) for value in values], notes)
    labels = np.where(values >= 0.0, 1.0, -1.0)
    rows: list[tuple[Any, ...]] = [
        (int(label), float(chance))
        for label, chance in zip(labels, np.asarray(expit(values)), strict=True)
    ]
    if table.targets is not None:
        right = accuracy(checked_labels(table.targets, str(path)), labels)
        notes.append(f"share of right labels on these rows: {right:.4g}")
    return Predictions(("predicted", "probability of 1"), rows, notes)
