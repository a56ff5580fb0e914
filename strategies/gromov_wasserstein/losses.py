"""Losses between two distances, in the form that makes Gromov-Wasserstein cheap [PC]_.

    l(a, b) = f1(a) + f2(b) - h1(a) h2(b)

    square   (a - b)^2                 f1 = a^2,            f2 = b^2,  h1 = a,  h2 = 2 b
    kl       a log(a / b) - a + b      f1 = a log a - a,    f2 = b,    h1 = a,  h2 = log b

so that for every coupling T of p and q

    sum_ijkl l(C1_ik, C2_jl) T_ij T_kl = p' f1(C1) p + q' f2(C2) q - <h1(C1) T h2(C2), T>.

**kl is not symmetric**, l(a, b) != l(b, a): where a distance is wanted both ways are solved and
their mean is taken (`pool.Task`). **It is infinite where b = 0 < a**, and a distance matrix has
zeros on its diagonal: as soon as a node of the second graph takes mass from two different nodes of
the first, as it must between graphs of different sizes, the exact value is infinite. Logarithms are
therefore of b + 1e-18, as in POT: such a match costs 41.4 a and values are finite, but how large
they are is that constant's doing. It suits similarities that are positive everywhere.

What holds for ``square`` alone: the objective of Euclidean distances is concave, the first
transport problem is one on the line, the compiled loop, all lower bounds, barycentres.

.. [PC] G. Peyré, M. Cuturi, J. Solomon, Gromov-Wasserstein averaging of kernel and distance
   matrices, ICML 2016, Proposition 1.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import numpy as np

from .space import Matrix, Space, Vector

Loss = Literal["square", "kl"]
LOSSES = ("square", "kl")
FLOOR = 1e-18  # of POT 0.9.7, inside every logarithm


class Terms(NamedTuple):
    """What Frank-Wolfe needs of a loss between two spaces.

    Attributes
    ----------
    left, right : h1(C1) (n, n) and h2(C2) (m, m), symmetric
    rows, columns : f1(C1) p (n,) and f2(C2) q (m,)
    start_rows, start_columns : h1(C1) p and h2(C2) q, whose outer product is h1(C1) T h2(C2) at
        T = p q'
    """

    left: Matrix
    right: Matrix
    rows: Vector
    columns: Vector
    start_rows: Vector
    start_columns: Vector


def terms(x: Space, y: Space, loss: Loss) -> Terms:
    """Return the terms of a loss from x to y."""
    c1, c2, p, q = x.distances, y.distances, x.weights, y.weights
    if loss == "square":
        return Terms(c1, 2.0 * c2, x.squares, y.squares, 2.0 * x.eccentricity, y.eccentricity)
    if loss != "kl":
        raise ValueError(f"loss={loss!r}: is not one of {', '.join(LOSSES)}")
    entropy = c1 * np.log(c1 + FLOOR) - c1
    logs = np.log(c2 + FLOOR)
    return Terms(c1, logs, entropy @ p, y.eccentricity, x.eccentricity, logs @ q)
