"""What a private run is worth, from public numbers alone, before anything is released.

A client's own n records tell it a mean to within 1 / sqrt(n), in units of the standard deviation of
one record. The N records of all clients together tell it to within 1 / sqrt(N), plus noise of
standard deviation s(epsilon) in the same units:

    ratio(epsilon) = sqrt(n (s(epsilon)^2 + 1 / N))

Below 1 what is learned together is more exact than what a client learns from its own data. Each
study computes s from the sensitivity of its sum; n is the median client's. It is an estimate: it
takes clients to be alike and counts errors of what is summed, not of the result. Break-even numbers
of clients that were measured (``trellis paper STUDY break-even``) are at ratios of 0.4 to 1.8.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from trellis.privacy.numerics import brentq

LOWEST, HIGHEST = 1e-3, 1e3  # epsilons among which the break-even is looked for


@dataclass(frozen=True)
class Forecast:
    """The ratio at a run's epsilon, and the least epsilon at which it is 1.

    Attributes
    ----------
    epsilon, clients : of the run
    records : of the median client
    ratio : error of what is learned together over that of a client's own records
    break_even : epsilon at which the ratio is 1; infinite if there is none up to `HIGHEST`
    """

    epsilon: float
    clients: int
    records: int
    ratio: float
    break_even: float

    def text(self) -> str:
        """Return the forecast as one sentence and the epsilon that matters."""
        pays = f"from about epsilon={self.break_even:.2g} on"
        if math.isinf(self.break_even):
            pays = f"at no epsilon up to {HIGHEST:g}; it needs more clients or records"
        number = f"{self.clients:,} client{'s' * (self.clients != 1)}"
        return (
            f"Forecast: with {number} and epsilon={self.epsilon:g} the error of "
            f"what is learned together is about {self.ratio:.2g} times that of a client's own "
            f"{self.records:,} records. Below 1 it pays to learn together: {pays}."
        )


def forecast(noise: Callable[[float], float], counts: Sequence[int], epsilon: float) -> Forecast:
    """Return the forecast for clients with ``counts`` records.

    Parameters
    ----------
    noise : s, the standard deviation of the noise at an epsilon, in units of that of one record
    """
    own, together = int(np.median(counts)), max(sum(counts), 1)

    def ratio(value: float) -> float:
        return math.sqrt(own * (noise(value) ** 2 + 1.0 / together))

    def excess(log_epsilon: float) -> float:
        return ratio(math.exp(log_epsilon)) - 1.0

    low, high = math.log(LOWEST), math.log(HIGHEST)
    if excess(high) > 0.0:
        even = math.inf
    else:
        even = LOWEST if excess(low) <= 0.0 else math.exp(brentq(excess, low, high, xtol=1e-6))
    return Forecast(epsilon, len(counts), own, ratio(epsilon), even)
