"""One record's contribution, bounded before it is summed: what every sensitivity rests on.

The bound must hold for the floats that are computed, whatever a record holds and whatever message
it was computed from: where a square over- or underflows, a norm is not what it seems to be.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

_SMALLEST_BOUND = 1e-140


def clip_rows(G: Array, B: float) -> Array:
    """Return the rows of ``G`` (..., M), each scaled down to norm ``B`` where it is longer.

    ``B = 0`` does not clip. With ``B > 0`` the bound holds for every row whatever it is: one that
    is not finite becomes zero.
    """
    if B == 0.0:
        return G
    with np.errstate(over="ignore", invalid="ignore"):
        squares = np.einsum("...j,...j->...", G, G)
    # A square may also vanish where the norm does not: then a tiny B would not be enforced.
    if squares.max(initial=0.0) < np.inf and B >= _SMALLEST_BOUND:
        return G * (B / np.maximum(np.sqrt(squares), B))[..., None]
    G = np.where(np.all(np.isfinite(G), axis=-1, keepdims=True), G, 0.0)
    # A square may overflow where the norm does not.
    largest = np.maximum(np.max(np.abs(G), axis=-1), np.finfo(np.float64).tiny)
    unit = G / largest[..., None]
    norms = np.sqrt(np.einsum("...j,...j->...", unit, unit))  # at least 1, or 0 for a row of zeros
    return unit * np.minimum(largest, B / np.maximum(norms, 1.0))[..., None]
