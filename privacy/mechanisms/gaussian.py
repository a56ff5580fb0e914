"""The Gaussian mechanism, calibrated exactly [BW]_.

Adding N(0, sigma^2 I) to a statistic whose l2 distance between neighbouring data sets is at most
``sensitivity`` is (epsilon, delta)-differentially private if and only if

    Phi(D / 2 s - e s / D) - exp(e) Phi(-D / 2 s - e s / D) <= delta,       D sensitivity, s sigma

for any dimension. The claim is about one release; what the neighbouring relation is (here always
the replacement of one record, the number of records being public) is the caller's to state, since
it fixes ``sensitivity``. Floating-point noise has gaps that an exact analysis would charge for;
they are not accounted here.

.. [BW] B. Balle, Y.-X. Wang, Improving the Gaussian mechanism for differential privacy, ICML 2018,
   Theorem 8.
"""

from __future__ import annotations

import math

import numpy as np

from trellis.privacy.numerics import brentq, log_ndtr, ndtr


def gaussian_delta(sigma: float, epsilon: float, sensitivity: float) -> float:
    """Return the smallest delta for which this noise is (epsilon, delta)-private."""
    ratio = sensitivity / sigma
    # exp(epsilon) Phi(...) in logarithms: Phi underflows long before the product does.
    tail = math.exp(epsilon + float(log_ndtr(-ratio / 2.0 - epsilon / ratio)))
    return max(0.0, float(ndtr(ratio / 2.0 - epsilon / ratio)) - tail)


def gaussian_sigma(epsilon: float, delta: float, sensitivity: float) -> float:
    """Return the smallest noise deviation that is (epsilon, delta)-private."""
    _check(epsilon, delta, sensitivity)

    # delta falls as the noise grows: bracket the root in log(sigma / sensitivity), then bisect.
    def excess(log_noise: float) -> float:
        return gaussian_delta(math.exp(log_noise), epsilon, 1.0) / delta - 1.0

    low, high = -1.0, 1.0
    while excess(low) < 0.0:
        low -= 2.0
    while excess(high) > 0.0:
        high += 2.0
    sigma = math.exp(brentq(excess, low, high, xtol=1e-14, rtol=8.9e-16)) * sensitivity
    # Round to the private side of the root.
    while gaussian_delta(sigma, epsilon, sensitivity) > delta:
        sigma *= 1.0 + 1e-14
    return sigma


def gaussian_epsilon(sigma: float, delta: float, sensitivity: float) -> float:
    """Return the smallest epsilon for which this noise is (epsilon, delta)-private."""
    if not sigma > 0.0:
        return math.inf
    if gaussian_delta(sigma, 0.0, sensitivity) <= delta:
        return 0.0
    high = 1.0
    while gaussian_delta(sigma, high, sensitivity) > delta:
        high *= 2.0
    return brentq(lambda e: gaussian_delta(sigma, e, sensitivity) - delta, 0.0, high, xtol=1e-13)


def classic_gaussian_sigma(epsilon: float, delta: float, sensitivity: float) -> float:
    """Return sqrt(2 log(1.25 / delta)) sensitivity / epsilon, as papers print it.

    Private for epsilon <= 1 only. Kept for ``privacy = "paper"``; use `gaussian_sigma`.
    """
    _check(epsilon, delta, sensitivity)
    return float(np.sqrt(2.0 * np.log(1.25 / delta))) * sensitivity / epsilon


def _check(epsilon: float, delta: float, sensitivity: float) -> None:
    if not epsilon > 0.0:
        raise ValueError(f"epsilon={epsilon}: must be > 0")
    if not 0.0 < delta < 1.0:
        raise ValueError(f"delta={delta}: must be between 0 and 1, both excluded")
    if not (sensitivity > 0.0 and math.isfinite(sensitivity)):
        raise ValueError(f"sensitivity={sensitivity}: must be positive and finite")
