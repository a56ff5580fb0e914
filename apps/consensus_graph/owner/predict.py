"""Using a kept graph: how likely it makes new signals."""

from __future__ import annotations

from typing import Any

import numpy as np

from trellis.apps.common.own_data.scaling import public_scaling
from trellis.apps.common.private.using import Predictions, Usable, new_table
from trellis.apps.common.tables import DataError
from trellis.apps.consensus_graph.data import own_units
from trellis.apps.consensus_graph.private.personal import log_likelihood, with_faint
from trellis.apps.consensus_graph.problem import Matrix, Vector

FEWEST = 3  # rows whose own mean and deviation say anything


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
    values, notes = table.values, list(table.notes)
    if (units := _units(kept, values)) is not None:
        values = (values - units[0]) / units[1]
        notes.append("likelihoods are of rows in standardised units")
    found = log_likelihood(with_faint(w), values, scale)
    rows, mean = [(float(value),) for value in found], float(np.mean(found))
    notes.append(f"mean log likelihood of these rows: {mean:.4g}")
    return Predictions(("log likelihood",), rows, notes, mean)


def _units(kept: Usable, values: Matrix) -> tuple[Vector, Vector] | None:
    """Return offsets and scales of the columns a graph was learned from; None for as they are.

    A device knows its own. Of a run whose clients had units of their own nobody else does: the new
    rows then have theirs.
    """
    if "column-scale" in kept.arrays:
        return kept.arrays["column-offset"], kept.arrays["column-scale"]
    model = kept.about["model"]
    if model.get("units") == "own":
        if len(values) < FEWEST:
            raise DataError(
                f"the new data has too few rows ({len(values)}): a run's graph is used on {FEWEST} "
                "or more, as it comes without the units of the clients' columns; a device that "
                "kept its result has them"
            )
        return own_units(values)
    if model.get("units") == "public":
        found = public_scaling(str(model["scales"]), kept.variables, numbers=False)
        return found.offset, found.scale
    return None
