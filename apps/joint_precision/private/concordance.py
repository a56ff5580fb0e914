"""What a client adds to the one sum: its concordances, no sample beyond its share.

Kendall's tau is a mean over samples r of what r says, against m others,

    H_r = 1/m sum_{r'} upper triangle of s s',   s = signs of X_r - X_r',   n tau = sum_r H_r.

H_r has norm near 0.24 p where margins are what they may be and correlations are moderate; only a
sample that lies on the same side of all others in every variable comes near p / sqrt(2). So every
H_r is cut to norm C = 0.26 p,

    T = sum_r w_r H_r,   w_r = min(1, C / |H_r|),   W = sum_r w_r,

and T / W estimates tau. **Sensitivity.** One sample replaced, n and p public:

- its own w_r H_r moves by at most sqrt(2 C^2 + p): both ends have norm <= C, and their inner
  product is at least -p/2, since that of two products of signs is ((s't)^2 - sum s_j^2 t_j^2) / 2;
- in m other H_r one of m terms moves, by at most p / m in norm (|s s' - t t'|_F^2 <= 2 p^2, half
  of it above the diagonal), and cutting to a ball brings no two points further apart: p in all.

Together p + sqrt(2 C^2 + p), 1.39 p at p = 54, where n tau itself moves by up to 2 p. W moves by at
most 1 + p / C (w_r has slope 1 / C at most); it is sent `BESIDE` p times, which costs a hundredth.

Beyond `MOST_PARTNERS` others the m partners of r are r + d for spread offsets d, the same for all
r: every sample is then the partner of m others, and the bounds hold as they stand. Ties count zero.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from trellis.privacy.numerics import rankdata

Matrix = NDArray[np.float64]
Vector = NDArray[np.float64]

FRACTION_BITS = 24  # of the fixed-point numbers that are summed
CUT = 0.26
BESIDE = 0.05
MOST_PARTNERS = 400


def summands(values: Matrix) -> dict[str, Vector]:
    """Return what samples ``values`` (n, p) add to the sum: ``concordance`` and ``weight``.

    Fewer than two samples, which say nothing of concordance, add zeros.
    """
    n, p = values.shape
    total, weights = concordance(values) if n > 1 else (np.zeros(p * (p - 1) // 2), np.zeros(n))
    return {"concordance": total, "weight": np.array([BESIDE * p * float(weights.sum())])}


def concordance(values: Matrix, cut: float = CUT) -> tuple[Vector, Vector]:
    """Return T (p (p - 1) / 2,) and w (n,) of samples ``values`` (n, p)."""
    n, p = values.shape
    # Ranks are compared, never added; float32 tells 2^24 of them apart.
    ranks = rankdata(values, dense=True)
    ranks = ranks.astype(np.float32 if n < 1 << 24 else np.float64)
    offsets = partners(n)
    upper = np.triu_indices(p, 1)
    total, weights = np.zeros(p * (p - 1) // 2), np.ones(n)
    for r in range(n):
        signs = np.sign(ranks[r] - ranks[(r + offsets) % n])
        # Whole numbers below 2^24: exact in float32.
        said = (signs.T @ signs)[upper].astype(np.float64) / offsets.size
        norm = float(np.sqrt(said @ said))
        if norm > cut * p:
            weights[r] = cut * p / norm
        total += weights[r] * said
    return total, weights


def partners(count: int) -> NDArray[np.intp]:
    """Return the offsets of the samples that one of ``count`` is compared with."""
    if count - 1 <= MOST_PARTNERS:
        return np.arange(1, count)
    return 1 + np.arange(MOST_PARTNERS) * (count - 1) // MOST_PARTNERS


def sensitivity(variables: int, cut: float = CUT) -> float:
    """Return how far one replaced sample can move T and the scaled W together, in l2."""
    p = float(variables)
    concordances = p + math.sqrt(2.0 * (cut * p) ** 2 + p)
    beside = BESIDE * p * (1.0 + 1.0 / cut)
    return math.hypot(concordances, beside)


def learning_count(count: int, share: float) -> int:
    """Return how many of ``count`` samples are not held out: two at least, where there are two."""
    return max(count - math.floor(count * share), min(count, 2))
