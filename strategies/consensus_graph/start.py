"""Where clients and server of consensus-graph start from, known to both without a message."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def first_of(nodes: int) -> NDArray[np.float64]:
    """Return the graph (p,) to start from: complete, with equal weights and degrees of one."""
    if nodes < 2:
        raise ValueError("a graph needs at least two variables")
    return np.full(nodes * (nodes - 1) // 2, 1.0 / (nodes - 1))
