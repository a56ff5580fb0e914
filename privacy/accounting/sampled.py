"""What many noisy releases spend, those of secretly sampled batches included.

A release of ratio r = sensitivity / sigma is r^2 / 2-zCDP. Over T rounds that is T r^2 / 2, and
epsilon grows as the root of T. Where a round uses a batch into which every record comes with
probability q, independently and **in secret** (Poisson sampling, drawn on the device), it spends
less. Renyi divergences of order a, integers only, between a release with the record in the data and
one with nothing in its place [MTZ]_:

    D_a = 1 / (a - 1) log sum_{k=0}^{a} C(a, k) (1 - q)^(a - k) q^k exp(k (k - 1) u^2 / 2)

both ways round, u the ratio of one record (C / sigma). The sum needs of the noise that its moments
are at most those of a Gaussian, which zCDP says, and the other way round that swapping the two
centres is a symmetry of the noise: so it holds for discrete Gaussians and sums of them too.

**Replacing** one record by another is taking it out and putting another in. By the weak triangle
inequality ([M]_ Proposition 11 with p = q = 2), through the release without the record:

    D_a(replace) <= (a - 1/2) / (a - 1) D_2a(take out) + D_{2a-1}(put in)                    (*)

To first order that is four times D_a: what twice the distance costs. Here ``ratio`` is always that
of *replacing* a record (its two values may lie opposite each other), so u = ratio / 2. Without
sampling replacing one by another is one shift of length ``ratio``, and needs no (*).

Rounds add up. From Renyi to (epsilon, delta): [CKS]_ Proposition 12.

This is the account a device keeps: a few sums, no library. `second_opinions` asks dp-accounting.

Adversary: whoever sees all releases and knows all other records; not which batches were drawn. A
server that draws the sample itself (clients of a round) gives no amplification and gets none here.
Neighbours: one record replaced; the number of records is public.

.. [MTZ] I. Mironov, K. Talwar, L. Zhang, Renyi differential privacy of the sampled Gaussian
   mechanism, 2019, Theorems 4, 5 and 11.
.. [M] I. Mironov, Renyi differential privacy, CSF 2017.
.. [CKS] C. Canonne, G. Kamath, T. Steinke, The discrete Gaussian for differential privacy,
   NeurIPS 2020.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from trellis.privacy.numerics import brentq, gammaln, log_sum_exp

from .zcdp import zcdp_epsilon, zcdp_rho

Vector = NDArray[np.float64]

# Orders of the Renyi divergence that are looked at.
ORDERS = np.array([*range(2, 65), *range(68, 129, 4), *range(144, 513, 16)])
_LEAST_RATIO, _MOST_RATIO = 1e-9, 1e6


def spent(ratio: float, releases: int, delta: float, sampling: float = 1.0) -> float:
    """Return epsilon at ``delta`` of ``releases`` releases of one ratio."""
    return spent_by({(ratio, sampling): releases}, delta)


def spent_by(releases: Mapping[tuple[float, float], int], delta: float, rho: float = 0.0) -> float:
    """Return epsilon at ``delta`` of many releases, counted by (ratio, sampling).

    ``rho`` is the zCDP of whatever else was released.
    """
    whole = rho + 0.5 * math.fsum(
        n * ratio**2 for (ratio, sampling), n in releases.items() if sampling >= 1.0
    )
    sampled = {key: n for key, n in releases.items() if key[1] < 1.0}
    # Whatever the sampling: a mixture over its coin is at most the release without it.
    plain = zcdp_epsilon(
        whole + 0.5 * math.fsum(n * ratio**2 for (ratio, _), n in sampled.items()), delta
    )
    if not sampled:
        return plain
    renyi = whole * ORDERS + sum(n * replace_divergence(*key) for key, n in sampled.items())
    return min(plain, _epsilon(renyi, delta))


def ratio_for(epsilon: float, delta: float, releases: int = 1, sampling: float = 1.0) -> float:
    """Return the largest ratio with which ``releases`` releases together spend at most epsilon."""
    if releases < 1:
        raise ValueError(f"releases={releases}: must be >= 1")
    _check_sampling(sampling)
    return _ratio_for(float(epsilon), float(delta), int(releases), float(sampling))


@lru_cache(maxsize=1024)
def _ratio_for(epsilon: float, delta: float, releases: int, sampling: float) -> float:
    plain = math.sqrt(2.0 * zcdp_rho(epsilon, delta) / releases)
    if sampling >= 1.0:
        return plain

    def excess(log_ratio: float) -> float:
        return spent(math.exp(log_ratio), releases, delta, sampling) - epsilon

    low, high = math.log(max(plain / 4.0, _LEAST_RATIO)), math.log(_MOST_RATIO)
    while excess(low) > 0.0 and low > -60.0:
        low -= 1.0
    if excess(low) > 0.0:
        raise ValueError(f"epsilon={epsilon}, delta={delta}: too small for any noise")
    top = low
    while top < high and excess(top) <= 0.0:
        low, top = top, top + 0.5
    if excess(top) <= 0.0:
        return math.exp(top)
    ratio = math.exp(brentq(excess, low, top, xtol=1e-12))
    while spent(ratio, releases, delta, sampling) > epsilon:  # the private side of the root
        ratio *= 1.0 - 1e-12
    # Where sampling is no help at these orders, the plain release is as good.
    return max(ratio, plain)


@lru_cache(maxsize=256)
def replace_divergence(ratio: float, sampling: float) -> Vector:
    """Return the Renyi divergences at `ORDERS` of one sampled release, one record replaced, (*).

    Never above those of the release without sampling, a ratio^2 / 2.
    """
    _check_sampling(sampling)
    plain = 0.5 * ORDERS * ratio**2
    if sampling >= 1.0:
        return plain
    one = 0.5 * ratio
    a = ORDERS.astype(np.float64)
    out = np.array([_sampled(int(order), one, sampling) for order in 2 * ORDERS])
    into = np.array([_sampled(int(order), one, sampling) for order in 2 * ORDERS - 1])
    # Sampling never hurts: the sampled release is a mixture over the coin, at most the plain one.
    found: Vector = np.minimum(plain, (a - 0.5) / (a - 1.0) * out + into)
    return found


def _sampled(order: int, ratio: float, sampling: float) -> float:
    """Return D_a of [MTZ] for one record put in or taken out, an integer order a >= 2."""
    k = np.arange(order + 1)
    choose = gammaln(order + 1.0) - gammaln(k + 1.0) - gammaln(order - k + 1.0)
    terms = (
        choose
        + (order - k) * math.log1p(-sampling)
        + k * math.log(sampling)
        + 0.5 * k * (k - 1.0) * ratio**2
    )
    return log_sum_exp(terms) / (order - 1.0)


def _epsilon(renyi: Vector, delta: float) -> float:
    """Return epsilon at ``delta`` from Renyi divergences at `ORDERS`, [CKS] Proposition 12."""
    a = ORDERS.astype(np.float64)
    found = renyi + np.log1p(-1.0 / a) - (math.log(delta) + np.log(a)) / (a - 1.0)
    return float(max(0.0, np.min(found)))


def _check_sampling(sampling: float) -> None:
    if not 0.0 < sampling <= 1.0:
        raise ValueError(f"sampling={sampling}: must be > 0 and at most 1")


def second_opinions(
    ratio: float, releases: int, delta: float, sampling: float = 1.0
) -> dict[str, float]:
    """Return the same by dp-accounting: Renyi, and privacy loss distributions.

    Both as putting in or taking out one record of twice the length, the usual account of replacing
    one; not a proof for compositions of sampled releases, hence an opinion.
    """
    from .totals import dp_accounting

    library = dp_accounting("dp_accounting")
    one = library.GaussianDpEvent(1.0 / ratio)
    event = one if sampling >= 1.0 else library.PoissonSampledDpEvent(sampling, one)
    whole = library.SelfComposedDpEvent(event, releases)
    accountant = dp_accounting("dp_accounting.rdp").RdpAccountant()
    accountant.compose(whole)
    losses = dp_accounting("dp_accounting.pld.pld_privacy_accountant").PLDAccountant()
    losses.compose(whole)
    return {
        "epsilon_rdp": float(accountant.get_epsilon(delta)),
        "epsilon_pld": float(losses.get_epsilon(delta)),
    }
