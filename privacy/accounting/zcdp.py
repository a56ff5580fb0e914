"""Zero-concentrated differential privacy: Gaussian releases that add up [BS]_.

A mechanism is rho-zCDP if the Renyi divergence of order alpha between its outputs on neighbouring
data is at most rho alpha, for every alpha > 1. (Printed without the alpha in [G]_ (11).) Releases
add: rho_1 + rho_2, also when the second was chosen after seeing the first.

Adversary: anyone who sees every release and knows everything but the one record that differs,
including which rounds a client took part in: no credit is given for being sampled. Neighbours: the
caller's to state, since they fix the sensitivity; in [G] one sample of a client's replaced. Not
covered: a sensitivity that is assumed and not enforced (ridge gradients have no bound without
clipping), and the gaps of floating-point noise (`trellis.privacy.mechanisms.discrete` has none).

Releases that are *all* Gaussian and continuous are together one Gaussian release with sensitivity /
sigma = sqrt(2 rho): `privacy.mechanisms.gaussian.gaussian_epsilon(1, delta, sqrt(2 rho))` is exact
for them and below `zcdp_epsilon`, which holds for any rho-zCDP mechanism.

.. [BS] M. Bun, T. Steinke, Concentrated differential privacy, TCC 2016.
.. [G] F. Gauthier et al., Personalized graph federated learning with differential privacy.
.. [CKS] C. Canonne, G. Kamath, T. Steinke, The discrete Gaussian for differential privacy,
   NeurIPS 2020.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from trellis.privacy.numerics import brentq


def gaussian_rho(sigma: float, sensitivity: float) -> float:
    """Return the rho of one Gaussian release, sensitivity^2 / (2 sigma^2).

    [BS] Proposition 6; [G] (47) solved for phi. Adversary, neighbours, not covered: see the module.
    """
    _positive("sensitivity", sensitivity)
    if not sigma >= 0.0:
        raise ValueError(f"sigma={sigma}: must be >= 0")
    return math.inf if sigma == 0.0 else 0.5 * (sensitivity / sigma) ** 2


def gaussian_sigma_for_rho(rho: float, sensitivity: float) -> float:
    """Return the smallest noise deviation that is rho-zCDP, [G] (47)."""
    _positive("rho", rho)
    _positive("sensitivity", sensitivity)
    return sensitivity / math.sqrt(2.0 * rho)


def decaying_sigma(phi0: float, zeta: float, sensitivity: float, n: int) -> float:
    """Return the noise deviation of round n when the variance falls by zeta a round, [G] (12).

    sigma_n^2 = zeta^n sigma_0^2 with sigma_0^2 = sensitivity^2 / (2 phi0), [G] (47). Round 1 is the
    first that is released; ``phi0`` is what a round 0 would have cost.
    """
    _check_decay(phi0, zeta)
    _check_round(n)
    return gaussian_sigma_for_rho(phi0, sensitivity) * zeta ** (n / 2.0)


def decaying_rho(phi0: float, zeta: float, n: int) -> float:
    """Return what round n costs: less noise costs more, phi_n = phi0 / zeta^n by [G] (47).

    Adversary and neighbours: see the module. Not covered: other rounds, see `decaying_total`.
    """
    _check_decay(phi0, zeta)
    _check_round(n)
    exponent = -n * math.log(zeta)
    return phi0 * math.exp(exponent) if exponent < 700.0 else math.inf


def decaying_total(phi0: float, zeta: float, rounds: int) -> float:
    """Return the zCDP of rounds 1..rounds for a client that took part in all, [G] (48).

    phi0 sum_n zeta^-n = phi0 (zeta^-N - 1) / (1 - zeta). A client that took part in some rounds
    only: `decaying_total_of`.
    """
    _check_decay(phi0, zeta)
    _check_round(rounds)
    return phi0 * _growth(zeta, rounds)


def decaying_total_of(phi0: float, zeta: float, took_part: Iterable[int]) -> float:
    """Return the zCDP of the rounds (counted from 1) that one client took part in, [G] (48).

    A round named twice was released once and counts once.
    """
    return math.fsum(decaying_rho(phi0, zeta, n) for n in sorted(set(took_part)))


def decaying_start(total: float, zeta: float, rounds: int) -> float:
    """Return the phi0 with which rounds 1..rounds cost ``total``: `decaying_total` inverted."""
    _positive("total", total)
    _check_decay(total, zeta)
    _check_round(rounds)
    if rounds == 0:
        raise ValueError("rounds=0: nothing is released")
    return total / _growth(zeta, rounds)


def paper_decaying_total(phi0: float, zeta: float, rounds: int) -> float:
    """Return the total as [G] prints it. **It is not a bound**: for ``privacy = "paper"`` only.

    It takes phi_n = zeta^n phi0, as if less noise cost less, and sums from n = 0:
    phi0 (1 - zeta^N) / (1 - zeta). (.001, .99, 300) gives .095 where the truth is 1.939. No
    adversary is bounded by it.
    """
    _check_decay(phi0, zeta)
    _check_round(rounds)
    if zeta == 1.0:
        return phi0 * rounds
    return phi0 * -math.expm1(rounds * math.log(zeta)) / (1.0 - zeta)


def zcdp_delta(rho: float, epsilon: float) -> float:
    """Return the least delta for which [CKS] proves every rho-zCDP mechanism (epsilon, delta)-DP.

    [CKS] Corollary 13, the least over alpha > 1 of
    exp((alpha - 1)(rho alpha - epsilon)) (1 - 1/alpha)^alpha / (alpha - 1).
    """
    _not_negative("rho", rho)
    _not_negative("epsilon", epsilon)
    if rho == 0.0:
        return 0.0
    if rho == math.inf:
        return 1.0

    # log delta is convex in alpha; its derivative rises from minus infinity. In x = log(alpha - 1),
    # log(1 - 1/alpha) = x - log(1 + e^x), so that nothing cancels near alpha = 1.
    def slope(x: float) -> float:
        return (2.0 * math.exp(x) + 1.0) * rho - epsilon - _softplus(-x)

    high = math.log((epsilon + 1.0) / (2.0 * rho) + 1.0)  # slope >= 1 + 3 rho - log 2 there
    low = min(high, 0.0) - 1.0
    while slope(low) > 0.0:
        low *= 2.0
    x = brentq(slope, low, high, xtol=1e-13, rtol=8.9e-16)
    beta = math.exp(x)
    log_delta = beta * (rho * (1.0 + beta) - epsilon) - (1.0 + beta) * _softplus(-x) - x
    return min(1.0, math.exp(min(0.0, log_delta)))


def zcdp_epsilon(rho: float, delta: float) -> float:
    """Return the least epsilon for which every rho-zCDP mechanism is (epsilon, delta)-DP [CKS].

    Adversary and neighbours: those of the releases that were added up to ``rho``.
    """
    _not_negative("rho", rho)
    _check_delta(delta)
    if rho == math.inf:
        return math.inf
    if zcdp_delta(rho, 0.0) <= delta:
        return 0.0
    high = rho + 2.0 * math.sqrt(rho * math.log(1.0 / delta))  # [BS] Proposition 3, never below
    while zcdp_delta(rho, high) > delta:
        high *= 1.5
    # To the last digits of small epsilons too: the way to the private side is in steps of 1e-13.
    epsilon = brentq(lambda e: _excess(rho, e, delta), 0.0, high, xtol=1e-300, rtol=1e-14)
    while zcdp_delta(rho, epsilon) > delta:  # the private side of the root
        epsilon *= 1.0 + 1e-13
    return epsilon


def zcdp_rho(epsilon: float, delta: float) -> float:
    """Return the largest rho for which every rho-zCDP mechanism is (epsilon, delta)-DP [CKS].

    What a run with budget (epsilon, delta) may spend in all. Adversary, neighbours: the module's.
    """
    _positive("epsilon", epsilon)
    _check_delta(delta)

    def excess(log_rho: float) -> float:
        return _excess(math.exp(log_rho), epsilon, delta)

    low = high = math.log(epsilon) - 1.0
    while excess(low) > 0.0:
        low -= 2.0
    while excess(high) < 0.0:
        high += 2.0
    rho = math.exp(brentq(excess, low, high, xtol=1e-13, rtol=1e-14))
    while zcdp_delta(rho, epsilon) > delta:  # the private side of the root
        rho *= 1.0 - 1e-13
    return rho


def _excess(rho: float, epsilon: float, delta: float) -> float:
    # In logarithms: delta spans hundreds of decades. The floor keeps an underflow finite.
    return math.log(max(zcdp_delta(rho, epsilon), 1e-300)) - math.log(delta)


def _growth(zeta: float, rounds: int) -> float:
    """Return the sum of zeta^-n over n = 1..rounds."""
    if zeta == 1.0:
        return float(rounds)
    exponent = -rounds * math.log(zeta)
    return math.expm1(exponent) / (1.0 - zeta) if exponent < 700.0 else math.inf


def _softplus(x: float) -> float:
    return max(x, 0.0) + math.log1p(math.exp(-abs(x)))


def _check_decay(phi0: float, zeta: float) -> None:
    _positive("phi0", phi0)
    if not 0.0 < zeta <= 1.0:
        raise ValueError(f"zeta={zeta}: must be in (0, 1]")


def _check_round(n: int) -> None:
    if n < 0:
        raise ValueError(f"round {n}: must be >= 0")


def _check_delta(delta: float) -> None:
    if not 1e-290 < delta < 1.0:
        raise ValueError(f"delta={delta}: must be between 0 and 1, both excluded")


def _positive(name: str, value: float) -> None:
    if not (value > 0.0 and math.isfinite(value)):
        raise ValueError(f"{name}={value}: must be positive and finite")


def _not_negative(name: str, value: float) -> None:
    if not value >= 0.0:
        raise ValueError(f"{name}={value}: must be >= 0")
