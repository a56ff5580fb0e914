"""The discrete Gaussian again, as exact and many times faster: coins tossed by their digits.

`privacy.mechanisms.discrete` tosses a coin of probability exp(-gamma) by several coins of rational
probability. Here it is tossed at once: heads where a uniform number U is below p = exp(-gamma). 64
binary digits of U are drawn and compared with p in floats; a float that is off by a relative error
of at most `_MARGIN` decides all but about one toss in 10^12, and the others are decided by p in
exact arithmetic, with as many more digits of U as it takes. (p is irrational for every rational
gamma > 0, so digits differ in the end.) The law is that of `discrete.discrete_gaussian`, exactly,
if the bytes are uniform and numpy's exp is right to 2^-46.

The two do not make the same draws of the same bytes. What a device draws from its kept secret must
be the same after every restart, so it stays with `discrete`; this is for noise that is fresh every
time, as in a study that releases something every round: 60 draws in a quarter of a millisecond.

Adversary, neighbours and what is not covered: see `trellis.privacy.mechanisms.discrete`.
"""

from __future__ import annotations

import decimal
import math
from collections.abc import Callable
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from trellis.privacy.mechanisms.discrete import (
    Booleans,
    ByteSource,
    Integers,
    below,
    rational,
    words,
)

Array = NDArray[np.float64]

_DIGITS = 64
_MARGIN = 2.0**-40  # times 1 + gamma: what a float of exp(-gamma) may be off, relatively
_LAST_DIGIT = 2.0**-63
_MOST_E = 45  # exp(-45) 2^64 is below 1


def quick_discrete_gaussian(source: ByteSource, size: int, sigma: Fraction | int) -> Integers:
    """Return ``size`` integers with P[Z = z] ~ exp(-z^2 / 2 sigma^2), exactly.

    [CKS] Algorithm 3, as `discrete.discrete_gaussian`, which see for what it is worth.
    """
    if size < 0:
        raise ValueError(f"size={size}: must be >= 0")
    deviation = rational("sigma", sigma)
    t = math.floor(deviation) + 1
    square = deviation**2
    middle, twice = float(square / t), float(2 * square)

    def exact(y: int) -> Fraction:
        return (y - square / t) ** 2 / (2 * square)

    drawn, have = np.empty(size, dtype=np.int64), 0
    while have < size:
        # About 0.48 are accepted: mostly one turn is enough. The first accepted ones are taken, and
        # how many were proposed is told to nobody.
        value, accepted = _laplace_proposals(source, 5 * (size - have) // 2 + 16, t)
        y = np.abs(value)
        # Off by 2^-49 (1 + gamma) at most: y and middle are right to 2^-53 each, and where they
        # cancel both are below sigma, as t > sigma.
        gamma = (y - middle) ** 2 / twice
        accepted &= exponential_coins(source, gamma, lambda i, y=y: exact(int(y[i])))  # type: ignore[misc]
        found = value[accepted][: size - have]
        drawn[have : have + found.size] = found
        have += found.size
    return drawn


def _laplace_proposals(source: ByteSource, count: int, t: int) -> tuple[Integers, Booleans]:
    """Return proposals of the discrete Laplace law of scale t, and which of them to accept."""
    u = below(source, t, count)
    accepted = exponential_coins(source, u / t, lambda i: Fraction(int(u[i]), t))
    magnitude = u + t * geometric(source, count)
    negative = (words(source, count) & np.uint64(1)).astype(np.bool_)
    accepted &= ~(negative & (magnitude == 0))  # or zero would come twice as often
    return np.where(negative, -magnitude, magnitude), accepted


def exponential_coins(
    source: ByteSource, gamma: Array, exact: Callable[[int], Fraction]
) -> Booleans:
    """Toss coins of probability exp(-gamma_i).

    Parameters
    ----------
    gamma : >= 0, off by at most 2^-42 (1 + gamma)
    exact : gamma_i itself, for the few that a float does not decide
    """
    word = words(source, gamma.size)
    chance, margin = np.exp(-gamma), _MARGIN * (1.0 + gamma)
    uniform = word * 2.0**-_DIGITS  # the digits drawn; U is at most one unit of the last above
    heads: Booleans = uniform + _LAST_DIGIT <= chance * (1.0 - margin)
    open_ = ~heads & (uniform < chance * (1.0 + margin) + _LAST_DIGIT)
    for i in np.flatnonzero(open_).tolist():
        heads[i] = _Uniform(source, int(word[i])).is_below_exp(exact(i))
    return heads


def geometric(source: ByteSource, size: int) -> Integers:
    """Return V with P[V >= v] = exp(-v): how many of exp(-1), exp(-2), ... are above U."""
    word = words(source, size)
    place = np.searchsorted(_POWERS, word, side="right")
    count = (_POWERS.size - place).astype(np.int64)
    for i in np.flatnonzero(_POWERS[np.maximum(place - 1, 0)] == word).tolist():
        uniform, count[i] = _Uniform(source, int(word[i])), 0
        while uniform.is_below_exp(Fraction(int(count[i]) + 1)):
            count[i] += 1
    return count


class _Uniform:
    """A uniform number between 0 and 1 of which more digits are drawn as they are needed."""

    def __init__(self, source: ByteSource, digits: int) -> None:
        self._source, self._digits, self._count = source, digits, _DIGITS

    def is_below_exp(self, gamma: Fraction) -> bool:
        """Return whether it is below exp(-gamma)."""
        if gamma == 0:
            return True
        while True:
            low, high = _exp_digits(gamma, self._count)
            if self._digits + 1 <= low:
                return True
            if self._digits >= high:
                return False
            more = int(words(self._source, 1)[0])
            self._digits, self._count = self._digits << _DIGITS | more, self._count + _DIGITS


def _exp_digits(gamma: Fraction, count: int) -> tuple[int, int]:
    """Return whole numbers around exp(-gamma) 2^count, three apart."""
    # Every digit of gamma's whole part costs one of the exponential's.
    places = math.ceil(count * 0.302) + len(str(math.ceil(gamma))) + 20
    with decimal.localcontext(decimal.Context(prec=places, Emin=decimal.MIN_EMIN)):
        power = (-decimal.Decimal(gamma.numerator) / decimal.Decimal(gamma.denominator)).exp()
        whole = int(power * decimal.Decimal(2**count))
    return whole - 1, whole + 2


def _powers() -> NDArray[np.uint64]:
    """Return the first 64 digits of exp(-v), v = 1 to 45, in rising order."""
    found = [_exp_digits(Fraction(v), 4 * _DIGITS)[0] >> 3 * _DIGITS for v in range(1, _MOST_E + 1)]
    return np.array(found[::-1], dtype=np.uint64)


_POWERS = _powers()
