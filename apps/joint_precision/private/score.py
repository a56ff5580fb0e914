"""The held-out score of the consensus: how well it predicts signs it has never seen.

Samples that were held out are taken in pairs, each in one pair. In a pair the variables that are
higher in the one sample than in the other have sign +1; the consensus predicts every sign from all
others, the sign of -sum_k Omega_jk s_k. The pair's term is the share of its variables predicted
right, from 0 to 1; where the consensus says nothing, half counts. Signs of differences need no
margins, so a term depends on the two samples of its pair alone.

Replacing a held-out sample moves one term, by 1 at most. Replacing one that is learned from moves
no term, but may turn the client's one bit, whether it uses the consensus for its own graph. A
sample is one or the other, so (sum of terms, bit) moves by 1 at most in l2.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Matrix = NDArray[np.float64]

SENSITIVITY = 1.0
# Of the budget (as zCDP): to the score, where there is one; the rest is for learning.
PART = 0.1


def learning_part(held_out: float) -> float:
    """Return the share of the budget that learning has where this share of samples is held out."""
    return 1.0 - PART if held_out else 1.0


def right_signs(held_out: Matrix, consensus: Matrix) -> float:
    """Return the sum over pairs of held-out samples (n, p) of the share of right predictions."""
    pairs = len(held_out) // 2
    signs = np.sign(held_out[0 : 2 * pairs : 2] - held_out[1 : 2 * pairs : 2])
    coupling = -consensus.copy()
    np.fill_diagonal(coupling, 0.0)
    predicted = np.sign(signs @ coupling)
    terms = np.mean((1.0 + signs * predicted) / 2.0, axis=1)
    return float(terms.sum())
