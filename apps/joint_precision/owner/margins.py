"""From a variable's own scale to that of the Gaussian behind it, and back.

The model of the study is nonparanormal: each variable is an unknown monotone transform of a
Gaussian one. A device knows the transform from its own records: the j-th of m equally spaced
quantiles of a variable is the quantile (j + 1/2) / m of a standard Gaussian. Between them it is
linear, beyond the first and the last constant (Winsorised), so no value is infinitely unlikely.
These quantiles stay on the device with the result.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Matrix = NDArray[np.float64]

_MOST = 201


def margins(values: Matrix) -> Matrix:
    """Return quantiles (m, p) of the variables of ``values`` (n, p)."""
    m = min(len(values), _MOST)
    return np.asarray(np.quantile(values, (np.arange(m) + 0.5) / m, axis=0), dtype=np.float64)


def to_gaussian(values: Matrix, known: Matrix) -> Matrix:
    """Return the latent values (n, p); missing cells (nan) stay missing."""
    scores = _scores(len(known))
    found = np.empty_like(values)
    for j in range(values.shape[1]):
        # Values that stand several times have the mean of their quantiles.
        places, first = np.unique(known[:, j], return_inverse=True)
        mean = np.bincount(first, scores) / np.bincount(first)
        found[:, j] = np.interp(values[:, j], places, mean)
    return np.where(np.isnan(values), np.nan, found)


def from_gaussian(latent: Matrix, known: Matrix) -> Matrix:
    """Return values (n, p) on the variables' own scale."""
    scores = _scores(len(known))
    columns = [np.interp(latent[:, j], scores, known[:, j]) for j in range(latent.shape[1])]
    return np.asarray(np.column_stack(columns), dtype=np.float64)


def _scores(m: int) -> NDArray[np.float64]:
    from scipy.special import ndtri  # here: a device needs it to predict, not to answer a message

    return np.asarray(ndtri((np.arange(m) + 0.5) / m), dtype=np.float64)
