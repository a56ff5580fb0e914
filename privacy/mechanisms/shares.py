"""Noise in a sum, not in each summand: every client adds a share of it [KLS]_.

n clients hold integer vectors x_i (a statistic in grid steps, rounded) and each adds discrete
Gaussian noise of parameter s before the sum is masked:

    y = sum_i (x_i + z_i),   z_i ~ N_Z(0, s^2) independent,   and nobody sees less than y.

Of n clients some drop out and some tell the server their noise. Where the noise of at least m of
them stays hidden, y is as private as with one discrete Gaussian of parameter sqrt(m) s, but for a
term that is nothing as soon as a share is a few steps wide. [KLS] Proposition 14: with s >= 1/2,
l2 sensitivity D of the sum in grid steps, d entries and

    tau = 10 sum_{k=1}^{m-1} exp(-2 pi^2 s^2 k / (k + 1)),

y is (ratio^2 / 2)-zCDP for ratio = min(sqrt(D^2 / (m s^2) + tau d / 2), D / (sqrt(m) s) + tau
sqrt(d)). (Shares wider than s only help: the lemma behind it, for two discrete Gaussians, has a
bound that falls with either width.) `plan_share` never goes below `LEAST_STEPS`, where tau is below
1e-60 m.

Noise of the others that comes on top is excess: sqrt(n / m) times what the claim needs.

Adversary: whoever sees y, knows all inputs but one record, and the noise of all but m clients.
Neighbours: the caller's, who states D. Not covered: that m clients are honest and stay in the sum
(`trellis.privacy.secagg.protocol` is for that), and what is computed in floats before the rounding.

.. [KLS] P. Kairouz, Z. Liu, T. Steinke, The distributed discrete Gaussian mechanism for federated
   learning with secure aggregation, ICML 2021.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from trellis.privacy.mechanisms.digits import quick_discrete_gaussian
from trellis.privacy.mechanisms.discrete import ByteSource, Integers

LEAST_STEPS = 4
# Grid steps in a width; beyond, noise would come near the end of 64-bit words.
MOST_STEPS = 2.0**44
# A statistic is computed in floats, whose rounding moves it by less than this part of what one
# record can (measured: 5e-11 at a million records, and it grows as they do).
ROUNDING = 1e-6


@dataclass(frozen=True)
class Share:
    """The noise one client adds, and what the sum is worth with the noise of ``noisers`` of them.

    Attributes
    ----------
    grid : one step, in the units of the statistic
    steps : s, width of one share in steps
    bound : D, l2 sensitivity of the rounded sum in steps
    noisers : m, clients whose noise is counted, this one among them
    size : d
    """

    grid: float
    steps: Fraction
    bound: float
    noisers: int
    size: int

    @property
    def ratio(self) -> float:
        """Sensitivity over noise: the sum is ratio^2 / 2-zCDP."""
        return summed_ratio(float(self.steps), self.bound, self.noisers, self.size)

    @property
    def sigma(self) -> float:
        """Width of the noise that is counted, in the units of the statistic."""
        return math.sqrt(self.noisers) * self.width

    @property
    def width(self) -> float:
        """Width of this share, in the units of the statistic."""
        return float(self.steps) * self.grid

    @property
    def sensitivity(self) -> float:
        """What is divided by `sigma` to get `ratio`, in the units of the statistic."""
        return self.ratio * self.sigma

    def counting_on(self, few: int) -> Share:
        """Return a wider share, for a client that counts on ``few`` where others count on more.

        The others' shares stay as they are, s^2 each, so this client's makes up for those it does
        not count on: (m - few + 1) s^2 + (few - 1) s^2 = m s^2. With ``few = 1`` it is all of it.
        """
        if not 1 <= few <= self.noisers:
            raise ValueError(f"few={few}: must be from 1 to {self.noisers}")
        own = math.sqrt(self.noisers - few + 1) * float(self.steps)
        return replace(self, steps=Fraction(math.ceil(own * 1024.0), 1024), noisers=1)

    def draw(self, source: ByteSource) -> Integers:
        """Return the noise (d,) of one client, in steps."""
        return quick_discrete_gaussian(source, self.size, self.steps)


def summed_ratio(steps: float, bound: float, noisers: int, size: int) -> float:
    """Return the ratio of [KLS] Proposition 14, see the module."""
    if noisers < 1 or not steps >= 0.5:
        raise ValueError(f"noisers={noisers}, steps={steps}: use >= 1 and >= 0.5")
    plain = bound / (math.sqrt(noisers) * steps)
    # The terms grow with k towards exp(-2 pi^2 s^2): that of k = 1 is the largest.
    tau = 10.0 * (noisers - 1) * math.exp(-(math.pi**2) * steps**2)
    return min(math.sqrt(plain**2 + tau * size / 2.0), plain + tau * math.sqrt(size))


def plan_share(
    fraction_bits: int,
    ratio: float,
    sensitivity: float,
    size: int,
    noisers: int,
    *,
    sampled: bool = False,
) -> Share:
    """Return the smallest share with which the sum has at most ``ratio``.

    Parameters
    ----------
    fraction_bits : the grid is 2^-fraction_bits
    ratio : sensitivity over noise that the sum may have
    sensitivity : l2 distance that one record replaced moves the sum of the unrounded statistics
    size : entries of the vector
    noisers : m
    sampled : whether the account halves the ratio, as `privacy.accounting.sampled` does for batches
        drawn in secret: then rounding must be counted twice

    Raises
    ------
    ValueError
        Where no such noise can be drawn in 64-bit words; depends on settings and sizes only.
    """
    if not (0.0 < ratio < math.inf and 0.0 < sensitivity < math.inf):
        raise ValueError(f"ratio={ratio}, sensitivity={sensitivity}: must be > 0 and finite")
    if noisers < 1 or size < 1:
        raise ValueError(f"noisers={noisers}, size={size}: must be >= 1")
    grid = math.ldexp(1.0, -fraction_bits)
    # One record moves one client's vector; rounding moves either version by half a step at most.
    rounding = (2.0 if sampled else 1.0) * math.sqrt(size)
    bound = (sensitivity * (1.0 + ROUNDING) / grid + rounding) * (1.0 + 1e-12)
    needed = max(LEAST_STEPS, bound / (math.sqrt(noisers) * ratio) * (1.0 + 1e-12))
    if not needed < MOST_STEPS:
        raise ValueError(
            f"a share of {needed:.3g} grid steps; use fewer fraction bits or a smaller clip"
        )
    return Share(grid, Fraction(math.ceil(needed * 1024.0), 1024), bound, noisers, size)


@dataclass(frozen=True)
class Together:
    """What clients of one sum plan its noise by, where they need it for numbers of their own.

    A share must be as wide for all of them: others count on it.

    Attributes
    ----------
    deviation : of the noise, the largest that a client of the sum needs
    ratio : none that a client may have is less; rounding to the grid is counted by it
    """

    deviation: float
    ratio: float

    def plan(
        self,
        fraction_bits: int,
        ratio: float,
        sensitivity: float,
        size: int,
        noisers: int,
        *,
        sampled: bool = False,
    ) -> Share:
        """Return the share that is as wide for all, with what the sum is worth to this client.

        Parameters are this client's own, as in `plan_share`. Its own share would be bound / ratio
        wide, bound = sensitivity / grid + rounding; that of all is deviation / grid + rounding /
        `ratio`: not less where sensitivity / ratio is at most ``deviation``.

        Raises
        ------
        ValueError
            Where it is less than this client needs, or cannot be drawn.
        """
        own = plan_share(fraction_bits, ratio, sensitivity, size, noisers, sampled=sampled)
        moved = self.deviation * self.ratio
        share = plan_share(fraction_bits, self.ratio, moved, size, noisers, sampled=True)
        if share.steps < own.steps:
            raise ValueError(
                f"a share of {float(share.steps):.12g} grid steps for all, where this client needs "
                f"{float(own.steps):.12g}"
            )
        return replace(share, bound=own.bound)


def simulated_sum_noise(
    rng: np.random.Generator, share: Share, clients: int
) -> NDArray[np.float64]:
    """Return the noise of a sum over ``clients``, in the units of the statistic, in one draw.

    For experiments without messages: one discrete Gaussian in the place of the sum of many, which
    is the same but for `summed_ratio`'s tau.
    """
    width = Fraction(math.ceil(float(share.steps) * math.sqrt(clients) * 1024.0), 1024)
    return quick_discrete_gaussian(rng, share.size, width).astype(np.float64) * share.grid
