"""Noise without floating point: discrete Gaussian and Laplace noise on a grid [CKS]_.

The theorems about Gaussian and Laplace noise are about real numbers. A float is not one: the values
``statistic + noise`` can take differ between neighbouring statistics, and for textbook samplers the
low bits of the output alone can tell which statistic it was, whatever epsilon says [M]_. Every
float mechanism of this package (`privacy.mechanisms.gaussian`, `privacy.mechanisms.laplace`) has
that gap. Here the statistic is rounded to a grid first and the noise is an integer number of grid
steps, so the possible outputs are the same for all data and the theorem is about what is computed:

    P[Z = z] ~ exp(-z^2 / 2 sigma^2)  (Gaussian),     P[Z = z] ~ exp(-|z| / scale)  (Laplace).

The samplers are the rejection samplers of [CKS], with every coin tossed in integers: uniform
integers by rejection of 64-bit words, a rational probability by comparing its binary digits with
those of a uniform number, 64 at a time, until they differ. Their law is exact if the bytes are
uniform; the statistical distance is zero, and what remains is that of the byte source (a stream
cipher: computational, not statistical).

Adversary: anyone who sees the result and knows everything but the one record that differs.
Neighbours: the caller's to state; they fix the sensitivity (l2 for the Gaussian, l1 for Laplace).
Not covered: how long sampling took (rejection is not constant-time), and rounding inside the
statistic itself: ``sensitivity`` must hold for the floats that are handed in.

.. [CKS] C. Canonne, G. Kamath, T. Steinke, The discrete Gaussian for differential privacy,
   NeurIPS 2020, Algorithms 1-3 and Theorem 14.
.. [M] I. Mironov, On significance of the least significant bits for differential privacy, CCS 2012.
"""

from __future__ import annotations

import builtins
import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from trellis.privacy.accounting.zcdp import gaussian_rho, zcdp_rho

Integers = NDArray[np.int64]
Booleans = NDArray[np.bool_]

_WORD = 1 << 64
# A magnitude is U + t V with V geometric: it leaves int64 with probability below exp(-2^13).
_LARGEST = 1 << 50
_EXACT = 2.0**52  # integers up to here, and their sums, are floats


class ByteSource(Protocol):
    """Anything that draws uniform bytes, a numpy Generator for one."""

    def bytes(self, length: int, /) -> builtins.bytes:
        """Return ``length`` independent bytes."""
        ...


Sampler = Callable[[ByteSource, int, Fraction], Integers]


@dataclass(frozen=True)
class GridRelease:
    """A statistic on the grid with its noise, and what the ledger needs to know.

    Attributes
    ----------
    values : exact multiples of the grid, in the shape of the statistic
    sigma : parameter of the discrete Gaussian, in the units of the statistic
    sensitivity : l2 sensitivity of the rounded statistic, in the units of the statistic
    rho : what the release costs in zCDP, sensitivity^2 / (2 sigma^2)
    """

    values: NDArray[np.float64]
    sigma: float
    sensitivity: float
    rho: float


def discrete_laplace(source: ByteSource, size: int, scale: Fraction | int) -> Integers:
    """Return ``size`` integers with P[Z = z] ~ exp(-|z| / scale), exactly ([CKS] Algorithm 2).

    Added to an integer statistic with l1 sensitivity D it is (D / scale)-private, without delta.
    Adversary, neighbours and what is not covered: see the module.
    """
    ratio = rational("scale", scale)
    t, s = ratio.numerator, ratio.denominator

    def propose(count: int) -> tuple[Integers, Booleans]:
        u = below(source, t, count)
        accepted = _bernoulli_exp(source, lambda i: below(source, t, i.size) < u[i], count)
        magnitude = np.zeros(count, dtype=np.int64)
        magnitude[accepted] = (u[accepted] + t * _geometric(source, int(accepted.sum()))) // s
        negative = below(source, 2, count) == 1
        accepted &= ~(negative & (magnitude == 0))  # or zero would come twice as often
        return np.where(negative, -magnitude, magnitude), accepted

    return _rejection(size, propose)


def discrete_gaussian(source: ByteSource, size: int, sigma: Fraction | int) -> Integers:
    """Return ``size`` integers with P[Z = z] ~ exp(-z^2 / 2 sigma^2), exactly ([CKS] Algorithm 3).

    Added to integers with l2 sensitivity D it is D^2 / (2 sigma^2)-zCDP, as the continuous Gaussian
    ([CKS] Theorem 14); its variance is at most sigma^2. Adversary, neighbours and what is not
    covered: see the module.
    """
    deviation = rational("sigma", sigma)
    t = math.floor(deviation) + 1
    p, q = (deviation**2).numerator, (deviation**2).denominator

    def propose(count: int) -> tuple[Integers, Booleans]:
        value = discrete_laplace(source, count, t)
        # gamma = (|y| - sigma^2 / t)^2 / (2 sigma^2) in integers beyond 64 bits, once a distinct y.
        distinct, which = np.unique(np.abs(value), return_inverse=True)
        top = [(y * q * t - p) ** 2 for y in distinct.tolist()]
        return value, _bernoulli_exp_of(source, top, 2 * p * q * t * t, which)

    return _rejection(size, propose)


def discrete_laplace_pmf(z: ArrayLike, scale: Fraction | int) -> NDArray[np.float64]:
    """Return P[Z = z] of `discrete_laplace`, in floats, for tests and audits. Not a release."""
    b = float(rational("scale", scale))
    return math.tanh(0.5 / b) * np.exp(-np.abs(np.asarray(z)) / b)


def discrete_gaussian_pmf(z: ArrayLike, sigma: Fraction | int) -> NDArray[np.float64]:
    """Return P[Z = z] of `discrete_gaussian`, in floats, for tests and audits. Not a release."""
    s = float(rational("sigma", sigma))
    support = np.arange(-math.ceil(40.0 * s), math.ceil(40.0 * s) + 1)
    total = np.exp(-0.5 * (support / s) ** 2).sum()
    return np.exp(-0.5 * (np.asarray(z) / s) ** 2) / total


def release_on_grid(
    values: ArrayLike,
    source: ByteSource,
    *,
    grid: float,
    epsilon: float,
    delta: float,
    sensitivity: float,
) -> GridRelease:
    """Round a statistic to the grid and add discrete Gaussian noise: (epsilon, delta)-private.

    Adversary, neighbours and what is not covered: see the module. Rounding moves each of the d
    coordinates by at most grid / 2 on either side, so by the triangle inequality
    |r(x) - r(y)| <= |x - y| + 2 (grid / 2) sqrt(d): the sensitivity is ``sensitivity`` +
    grid sqrt(d). sigma is the least (up to 2^-10 grid steps) that is rho-zCDP for the largest rho
    within (epsilon, delta), `zcdp_rho`.

    Parameters
    ----------
    values : the statistic, any shape, finite
    source : of bytes
    grid : a power of two, so that its multiples are floats exactly; small against sensitivity /
        sqrt(d), or the rounding dominates the noise
    epsilon, delta : what the release may cost
    sensitivity : l2 distance between the statistics of neighbouring data sets, at most
    """
    statistic = np.asarray(values, dtype=np.float64)
    plan = plan_release(grid, epsilon, delta, sensitivity, statistic.size)
    return GridRelease(plan.apply(statistic, source), plan.sigma, plan.sensitivity, plan.rho)


@dataclass(frozen=True)
class GridPlan:
    """A release on the grid before it is made: a ledger is written first.

    Attributes
    ----------
    grid : a power of two
    steps : sigma of the discrete Gaussian, in grid steps
    bound : l2 sensitivity of the rounded statistic, in grid steps
    """

    grid: float
    steps: Fraction
    bound: float

    @property
    def sigma(self) -> float:
        """Parameter of the discrete Gaussian, in the units of the statistic."""
        return float(self.steps) * self.grid

    @property
    def sensitivity(self) -> float:
        """L2 sensitivity of the rounded statistic, in its units."""
        return self.bound * self.grid

    @property
    def rho(self) -> float:
        """What the release costs in zCDP."""
        return gaussian_rho(float(self.steps), self.bound)

    def apply(
        self,
        statistic: NDArray[np.float64],
        source: ByteSource,
        sampler: Sampler | None = None,
    ) -> NDArray[np.float64]:
        """Return the statistic, rounded and noised: exact multiples of the grid.

        ``sampler`` draws the noise, `discrete_gaussian` where absent.
        """
        steps = statistic / self.grid
        if not np.all(np.abs(steps) < _EXACT):  # also for nan
            raise ValueError(f"grid={self.grid}: a value is not finite, or beyond 2^52 grid steps")
        draw = sampler or discrete_gaussian
        noise = draw(source, steps.size, self.steps).reshape(steps.shape)
        # Integers times a power of two: exact.
        return (np.rint(steps).astype(np.int64) + noise).astype(np.float64) * self.grid


def plan_release(
    grid: float, epsilon: float, delta: float, sensitivity: float, size: int
) -> GridPlan:
    """Return how `release_on_grid` would noise a statistic of ``size`` entries."""
    return plan_for_rho(grid, zcdp_rho(epsilon, delta), sensitivity, size)


def plan_for_rho(grid: float, rho: float, sensitivity: float, size: int) -> GridPlan:
    """Return a release on the grid that is ``rho``-zCDP, for a statistic of ``size`` entries."""
    if not (grid > 0.0 and math.isfinite(grid) and math.frexp(grid)[0] == 0.5):
        near = 2.0 ** round(math.log2(grid)) if 0.0 < grid < math.inf else 2.0**-20
        raise ValueError(f"grid={grid}: must be a power of two, e.g. {near!r}")
    if not (sensitivity > 0.0 and math.isfinite(sensitivity)):
        raise ValueError(f"sensitivity={sensitivity}: must be positive and finite")
    # In grid steps. The last factor is the private side of rounding in this line and the next.
    bound = (sensitivity / grid + math.sqrt(max(1, size))) * (1.0 + 1e-12)
    needed = bound / math.sqrt(2.0 * rho) * (1.0 + 1e-12)
    if needed >= _LARGEST / 64:
        raise ValueError(f"grid={grid}: sigma is {needed:.3g} grid steps; use a coarser grid")
    return GridPlan(grid, Fraction(math.ceil(needed * 1024.0), 1024), bound)


def _rejection(size: int, propose: Callable[[int], tuple[Integers, Booleans]]) -> Integers:
    """Return ``size`` accepted proposals."""
    if size < 0:
        raise ValueError(f"size={size}: must be >= 0")
    drawn = np.empty(size, dtype=np.int64)
    todo = np.arange(size)
    while todo.size:
        value, accepted = propose(todo.size)
        drawn[todo[accepted]] = value[accepted]
        todo = todo[~accepted]
    return drawn


def _bernoulli_exp(
    source: ByteSource, gamma: Callable[[Integers], Booleans], size: int
) -> Booleans:
    """Toss coins of probability exp(-gamma_i), gamma_i <= 1 ([CKS] Algorithm 1).

    ``gamma(indices)`` tosses coins of probability gamma_i. The K-th toss, of probability
    gamma_i / K, is that one and a coin of probability 1 / K.
    """
    result = np.zeros(size, dtype=np.bool_)
    alive = np.arange(size)
    k = 1
    while alive.size:
        going = gamma(alive)
        if k > 1:
            going &= below(source, k, alive.size) == 0
        result[alive[~going]] = k % 2 == 1
        alive = alive[going]
        k += 1
    return result


def _bernoulli_exp_of(
    source: ByteSource, numerators: list[int], denominator: int, which: Integers
) -> Booleans:
    """Toss a coin of probability exp(-numerators[w] / denominator) for each w in ``which``."""
    whole = np.array([min(n // denominator, 1 << 62) for n in numerators], dtype=np.int64)[which]
    rest = [n % denominator for n in numerators]
    digits = np.array([r * _WORD // denominator for r in rest], dtype=np.uint64)[which]

    def fraction(i: Integers) -> Booleans:
        word = words(source, i.size)
        heads = word < digits[i]
        for tie in np.flatnonzero(word == digits[i]):  # one in 2^64: look at the next digits
            remainder = rest[which[i[tie]]] * _WORD % denominator
            heads[tie] = _next_digits(source, remainder, denominator)
        return heads

    result = _bernoulli_exp(source, fraction, which.size)
    # exp(-whole): as many coins of probability 1/e, all heads.
    alive = np.flatnonzero(result & (whole > 0))
    done = 0
    while alive.size:
        done += 1
        heads = _bernoulli_exp(source, _heads, alive.size)
        result[alive[~heads]] = False
        alive = alive[heads & (whole[alive] > done)]
    return result


def _next_digits(source: ByteSource, remainder: int, denominator: int) -> bool:
    while True:
        digit, remainder = divmod(remainder * _WORD, denominator)
        word = int(words(source, 1)[0])
        if word != digit:
            return word < digit


def _geometric(source: ByteSource, size: int) -> Integers:
    """Return ``size`` counts of successes of probability 1/e before the first failure."""
    count = np.zeros(size, dtype=np.int64)
    alive = np.arange(size)
    while alive.size:
        alive = alive[_bernoulli_exp(source, _heads, alive.size)]
        count[alive] += 1
    return count


def _heads(i: Integers) -> Booleans:
    return np.ones(i.size, dtype=np.bool_)


def below(source: ByteSource, bound: int, size: int) -> Integers:
    """Return uniform integers of 0..bound-1; words beyond the last full multiple are redrawn."""
    last = np.uint64(_WORD - _WORD % bound - 1)
    word = words(source, size)
    redraw = np.flatnonzero(word > last)
    while redraw.size:
        word[redraw] = words(source, redraw.size)
        redraw = redraw[word[redraw] > last]
    return (word % np.uint64(bound)).astype(np.int64)


def words(source: ByteSource, size: int) -> NDArray[np.uint64]:
    """Return uniform words of 64 bits."""
    return np.frombuffer(source.bytes(8 * size), dtype="<u8").astype(np.uint64)


def rational(name: str, value: Fraction | int) -> Fraction:
    """Return a width as the exact number it must be; refuse others."""
    if isinstance(value, bool) or not isinstance(value, Fraction | int):
        raise TypeError(f"{name}={value!r}: must be an int or a Fraction, which are exact")
    if not 0 < value < _LARGEST:
        raise ValueError(f"{name}={value}: must be > 0 and below 2^50 grid steps")
    return Fraction(value)
