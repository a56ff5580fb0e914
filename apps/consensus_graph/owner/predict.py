"""Using a kept graph: how likely it makes new signals."""

from __future__ import annotations

from typing import Any

import numpy as np

from apps.common.private.using import Predictions, Usable, new_table
from apps.consensus_graph.private.personal import log_likelihood, with_faint


def predict(kept: Usable, data: Any) -> Predictions:
    """Return the log-likelihood of every row under the graph; the score is its mean.

    A device knows the scale of its signals; of a run's graph it is that which fits the rows best.

    Raises
    ------
    DataError
        For a file that cannot be used, or that lacks a variable.
    """
    table = new_table(data, kept.variables)
    model = kept.about["model"]
    w = np.asarray(kept.arrays[model["array"]], dtype=np.float64)
    scale = float(kept.arrays[model["scale"]]) if "scale" in model else None
    found = log_likelihood(with_faint(w), table.values, scale)
    rows, mean = [(float(value),) for value in found], float(np.mean(found))
    notes = [*table.notes, f"mean log likelihood of these rows: {mean:.4g}"]
    return Predictions(("log likelihood",), rows, notes, mean)
