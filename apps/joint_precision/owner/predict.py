"""Using a kept precision matrix: how likely it makes new samples, and what fills their gaps.

With z the latent values of a row (`margins`) and Omega the kept matrix, the row's log-likelihood is
(log det Omega - z'Omega z) / 2 - (p / 2) log 2 pi, of the latent values. Where cells are missing,
that of the others alone; and the missing ones are predicted, z_m = -Omega_mm^-1 Omega_mo z_o.

A device knows the variables' margins from its own records. A run's matrix comes without: margins
are those of the new rows then, and the score is by their rank correlations, as of held-out samples.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trellis.apps.common.private.using import Predictions, Usable, new_table
from trellis.apps.common.tables import DataError
from trellis.apps.joint_precision.owner.margins import from_gaussian, margins, to_gaussian
from trellis.apps.joint_precision.owner.result import FEWEST, mean_likelihood

Matrix = NDArray[np.float64]


def predict(kept: Usable, data: Any) -> Predictions:
    """Return the log-likelihood of every row, and the values of missing cells.

    Raises
    ------
    DataError
        For a file that cannot be used, or that lacks a variable.
    """
    table = new_table(data, kept.variables, gaps=True)
    model, notes = kept.about["model"], list(table.notes)
    matrix = np.asarray(kept.arrays[model["array"]], dtype=np.float64)
    if "margins" in model:
        known = np.asarray(kept.arrays[model["margins"]], dtype=np.float64)
    else:
        if len(table.values) < FEWEST or np.isnan(table.values).any():
            raise DataError(
                f"{table.source}: a run's matrix is used on {FEWEST} whole rows or more, as it "
                "comes without the variables' margins; a device that kept its result has them"
            )
        known = margins(table.values)
    latent = to_gaussian(table.values, known)
    found = np.array([log_likelihood(matrix, row) for row in latent])
    gaps = np.isnan(latent)
    columns: tuple[str, ...] = ("log likelihood",)
    rows: list[tuple[float, ...]] = [(float(value),) for value in found]
    if gaps.any():
        values = from_gaussian(np.array([filled(matrix, row) for row in latent]), known)
        some = np.flatnonzero(gaps.any(axis=0))
        columns += tuple(kept.variables[int(j)] for j in some)
        whole = np.where(gaps, values, table.values)
        rows = [(*row, *whole[i, some].tolist()) for i, row in enumerate(rows)]
        notes.append(f"{int(gaps.sum())} missing cells were filled with what the graph predicts")
    has_margins = "margins" in model
    mean = float(np.mean(found)) if has_margins else mean_likelihood(matrix, table.values)
    how = "" if has_margins else ", by rank correlations and without the constant of single rows"
    notes.append(f"mean log likelihood of these rows: {mean:.4g}{how}")
    return Predictions(columns, rows, notes, mean)


def log_likelihood(matrix: Matrix, latent: Matrix) -> float:
    """Return the Gaussian log-likelihood of one row (p,) with missing cells left out."""
    there = ~np.isnan(latent)
    if not there.any():
        return 0.0
    z, marginal = latent[there], matrix
    if not there.all():
        marginal = np.linalg.inv(np.linalg.inv(matrix)[np.ix_(there, there)])
    log_determinant = float(np.linalg.slogdet(marginal)[1])
    return 0.5 * (log_determinant - float(z @ marginal @ z) - z.size * math.log(2.0 * math.pi))


def filled(matrix: Matrix, latent: Matrix) -> Matrix:
    """Return a row (p,) whose missing cells have their conditional means."""
    gaps = np.isnan(latent)
    row = np.where(gaps, 0.0, latent)
    if gaps.any():
        right = matrix[np.ix_(gaps, ~gaps)] @ row[~gaps]
        row[gaps] = -np.linalg.solve(matrix[np.ix_(gaps, gaps)], right)
    return row
