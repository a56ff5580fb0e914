"""Algorithm 1 of the paper as printed: m entries are sent of a whole graph, one row of n h.

Each has the budget epsilon / (m n), so that a graph's release is epsilon / n-LDP: n times more
private, and more noisy, than it claims. With the paper's defaults one bit of a whole graph is sent.
It is here for comparison with the article, under ``privacy=paper``, and stands nowhere else.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from trellis.privacy.mechanisms.laplace import UniformSource
from trellis.privacy.mechanisms.multibit import Encoded, MultiBit, best_m, encode, rectify

Array = NDArray[np.float64]


def graph_code(epsilon: float, bits: int, h: int, nodes: int) -> MultiBit:
    """Return the encoder of a graph; ``bits`` = 0 takes the m* that belongs to epsilon."""
    m = bits or best_m(epsilon, h)
    return MultiBit(nodes * h, epsilon / nodes, m)


def encode_graph(rows: Array, code: MultiBit, source: UniformSource) -> Encoded:
    """Return a graph's rows (n, h) encoded, all together."""
    return encode(rows.reshape(1, -1), code, source).reshape(rows.shape)


def rectify_graph(rows: Array, code: MultiBit) -> Array:
    """Return unbiased rows (n, h) from encoded ones."""
    return rectify(rows.reshape(1, -1), code).reshape(rows.shape)
