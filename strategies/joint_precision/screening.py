"""Which variables can be connected at all, from the entries of S that clients tell.

A pair of variables is apart in all matrices where the prox of the clients' w_i S_i at the pair is
zero; the components of the pairs that are left are the solution's blocks (see `prox.connected`).
Clients need not tell small entries:

    group   the prox forgets whatever is below lambda1, so lambda1 / w_i is a cut that loses nothing
    fused   a pair needs the others' entries once one of them is large. The prox rises with each
            entry, so with what is not told at +cut and at -cut no pair is missed; some may be
            joined that need not be, which costs time and changes no solution.

An error of the other kind is impossible: blocks may be coarser than needed, never finer.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from .blocks import Blocks
from .path import pair_ends
from .prox import Penalty, connected

Vector = NDArray[np.float64]
Pairs = NDArray[np.integer]

# Of lambda1. A smaller cut tells more and joins less that need not be joined: with two others at
# this one, a single client's entry is joined from 2 lambda1 on, or where lambda2 does not reach.
FUSED_CUT = 0.5


def cut_of(penalty: str, lambda1: float) -> float:
    """Return the size of w_i S_i up to which entries need not be told."""
    return lambda1 if penalty == "group" else FUSED_CUT * lambda1


def joint_blocks(
    variables: int,
    told: Sequence[tuple[Pairs, Vector]],
    weights: Vector,
    penalty: Penalty,
    lambda1: float,
    lambda2: float,
    cut: float = 0.0,
) -> tuple[Blocks, float]:
    """Return the blocks at lambda1 and lambda2, and the largest entry of all w_i S_i.

    Parameters
    ----------
    told : every client's pairs (q_i,), places in ``numpy.triu_indices(variables, 1)``, rising, and
        its correlations (q_i,) there
    weights : (K,) w_i
    cut : what was not told is not larger in any w_i S_i; at most lambda1
    """
    pairs = np.unique(np.concatenate([pairs for pairs, _ in told]))
    weighted = np.zeros((len(told), pairs.size))
    unknown = np.ones(weighted.shape, dtype=bool)
    for row, (places, correlations) in enumerate(told):
        place = np.searchsorted(pairs, places)
        weighted[row, place] = weights[row] * correlations
        unknown[row, place] = False
    largest = float(np.max(np.abs(weighted), initial=0.0))
    linked = np.zeros(pairs.size, dtype=bool)
    for guess in (0.0,) if cut == 0.0 else (cut, -cut):
        weighted[unknown] = guess
        linked |= connected(weighted, penalty, lambda1, lambda2)
    rows, columns = pair_ends(pairs[linked], variables)
    return Blocks.components(variables, rows, columns), largest
