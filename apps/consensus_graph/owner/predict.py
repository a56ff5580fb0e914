"""Using a kept graph: how likely it makes new signals."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from apps.common.private.kept import Kept
from apps.common.private.using import Predictions, new_table
from apps.consensus_graph.private.personal import log_likelihood, with_faint


def predict(kept: Kept, path: Path) -> Predictions:
    """Return the log-likelihood of every row under the device's graph.

    Raises
    ------
    DataError
        For a file that cannot be used, or that lacks a variable.
    """
    table = new_table(path, kept.variables)
    w = np.asarray(kept.arrays["weights"], dtype=np.float64)
    values, notes = table.values, list(table.notes)
    if "column-scale" in kept.arrays:
        values = (values - kept.arrays["column-offset"]) / kept.arrays["column-scale"]
        notes.append("likelihoods are of rows in standardised units")
    found = log_likelihood(with_faint(w), values, float(kept.arrays["scale"]))
    rows = [(float(value),) for value in found]
    mean = f"mean log likelihood of these rows: {float(np.mean(found)):.4g}"
    return Predictions(("log likelihood",), rows, [*notes, mean])
