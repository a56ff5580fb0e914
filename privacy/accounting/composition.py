"""Composition of several releases as a paper prints it, for ``privacy = "paper"`` only."""

from __future__ import annotations

import math
from collections.abc import Sequence


def kairouz_composition(
    epsilons: Sequence[float], deltas: Sequence[float], slack: float
) -> tuple[float, float]:
    """Return (epsilon, delta) of releases that are (epsilons[t], deltas[t])-private each.

    Kairouz, Oh & Viswanath, as printed in (32) of Zhang & Wang: the smallest of the plain sum and
    two bounds that spend an extra ``slack`` of delta.
    """
    total = math.fsum(epsilons)
    square = math.fsum(e * e for e in epsilons)
    drift = math.fsum(_drift(e) for e in epsilons)
    bounds = [total]
    if slack > 0.0:
        bounds.append(
            drift + math.sqrt(2.0 * square * math.log(math.e + math.sqrt(square) / slack))
        )
        bounds.append(drift + math.sqrt(2.0 * square * math.log(1.0 / slack)))
    keep = math.prod(1.0 - d for d in deltas)
    return min(bounds), 1.0 - (1.0 - slack) * keep


def _drift(epsilon: float) -> float:
    if epsilon > 700.0:  # where exp overflows, the quotient is 1
        return epsilon
    return (math.exp(epsilon) - 1.0) * epsilon / (math.exp(epsilon) + 1.0)
