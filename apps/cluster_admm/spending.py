"""What all rounds of a run with noise in every model spend, and the phi_0 that spends epsilon [GG].

Round n = 1..N is phi_0 / zeta^n - zCDP. A client may take part in every round: the server draws who
does, and a server that is not trusted draws as it likes, so nothing is credited for being left out.

``sound``  the rounds' zCDP added up and converted, as `trellis.privacy.accounting.ledger` does.
``paper``  every round's own epsilon, composed by the ledger's (32); looser, and it bounds nothing.

Only numbers of the settings come in, so that server and devices choose the same phi_0.
"""

from __future__ import annotations

import math
from functools import lru_cache

from trellis.privacy.accounting.composition import kairouz_composition
from trellis.privacy.accounting.zcdp import (
    decaying_rho,
    decaying_start,
    decaying_total,
    zcdp_epsilon,
    zcdp_rho,
)
from trellis.privacy.mechanisms.gaussian import gaussian_epsilon
from trellis.privacy.numerics import brentq

LEAST_EPSILON = 1e-12  # of one event; an event must claim something
_MOST_RATIO = 1e3  # beyond, one round's epsilon is more than anybody asks for
_SMALLEST = 1e-300


@lru_cache(maxsize=256)
def spent_by_rounds(privacy: str, phi0: float, zeta: float, rounds: int, delta: float) -> float:
    """Return the epsilon of a client that takes part in all rounds, as the ledger tells it."""
    total = decaying_total(phi0, zeta, rounds)
    if privacy == "sound" or not math.isfinite(total):
        return zcdp_epsilon(total, delta)
    ratios = [math.sqrt(2.0 * decaying_rho(phi0, zeta, n)) for n in range(1, rounds + 1)]
    if max(ratios) > _MOST_RATIO:
        return math.inf
    each = [max(gaussian_epsilon(1.0, delta, ratio), LEAST_EPSILON) for ratio in ratios]
    return kairouz_composition(each, [delta] * rounds, delta)[0]


@lru_cache(maxsize=256)
def phi_for(privacy: str, epsilon: float, zeta: float, rounds: int, delta: float) -> float:
    """Return the largest phi_0 with which all rounds spend ``epsilon`` at most; 0 for none.

    There is none where ``zeta`` lets the last round's noise fall to nothing a float can hold.
    """
    start = decaying_start(zcdp_rho(epsilon, delta), zeta, rounds)
    if privacy == "sound" or start < _SMALLEST:
        return start

    def excess(log_phi: float) -> float:
        found = spent_by_rounds("paper", math.exp(log_phi), zeta, rounds, delta)
        return math.log(min(max(found, _SMALLEST), 1.0 / _SMALLEST)) - math.log(epsilon)

    low = high = math.log(start)
    while excess(high) < 0.0:
        high += 1.0
    while excess(low) > 0.0:
        low -= 1.0
        if low < math.log(_SMALLEST):
            return 0.0
    found = low if low == high else brentq(excess, low, high, xtol=1e-9)
    while excess(found) > 0.0:  # the private side of the root
        found -= 1e-8
    return math.exp(found)
