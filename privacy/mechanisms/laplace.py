"""The Laplace mechanism.

Adding independent Laplace(0, b) noise to every coordinate of a statistic whose **l1** distance
between neighbouring data sets is at most ``sensitivity_l1`` is epsilon-differentially private with

    epsilon = sensitivity_l1 / b,        variance of one coordinate 2 b^2.                     [DR]_

Adversary: anyone who sees the noised statistic and knows everything but the one record that
differs. Neighbours: the caller's to state, since the relation fixes the sensitivity; in this
project always the replacement of one record, the number of records being public. One release;
several add up. Not covered: an l2 bound used as if it were l1 (in dimension M it understates
epsilon by up to sqrt(M), see `l1_from_l2`), and the gaps of floating-point noise, which can give
the statistic away [M]_: where that matters use `trellis.privacy.mechanisms.discrete`.

.. [DR] C. Dwork, A. Roth, The algorithmic foundations of differential privacy, 2014, Theorem 3.6.
.. [M] I. Mironov, On significance of the least significant bits for differential privacy, CCS 2012.
"""

from __future__ import annotations

import math
from typing import Protocol

import numpy as np
from numpy.typing import NDArray


class UniformSource(Protocol):
    """Anything that draws uniform numbers of the unit interval, a numpy Generator for one."""

    def random(self, size: int, /) -> NDArray[np.float64]:
        """Return ``size`` independent draws."""
        ...


def l1_from_l2(bound: float, dimension: int) -> float:
    """Return the smallest l1 bound that an l2 bound implies, sqrt(dimension) bound.

    By Cauchy and Schwarz, with equality for a vector of equal entries. Not a mechanism: adversary
    and neighbours are those of the statistic that was bounded.
    """
    _positive("bound", bound)
    if dimension < 1:
        raise ValueError(f"dimension={dimension}: must be >= 1")
    return math.sqrt(dimension) * bound


def laplace_scale(epsilon: float, sensitivity_l1: float) -> float:
    """Return the smallest noise scale b that is epsilon-private (see the module for what that is).

    The deviation of the noise is sqrt(2) b. Not covered: a sensitivity in l2.
    """
    _positive("epsilon", epsilon)
    _positive("sensitivity_l1", sensitivity_l1)
    scale = sensitivity_l1 / epsilon
    if not 0.0 < scale < math.inf:
        raise ValueError(f"epsilon={epsilon}: sensitivity_l1={sensitivity_l1} / epsilon overflows")
    while laplace_epsilon(scale, sensitivity_l1) > epsilon:  # the private side of rounding
        scale = math.nextafter(scale, math.inf)
    return scale


def laplace_epsilon(scale: float, sensitivity_l1: float) -> float:
    """Return the epsilon of one release with noise of this scale; no noise is no privacy.

    Adversary, neighbours and what is not covered: see the module.
    """
    _positive("sensitivity_l1", sensitivity_l1)
    if not scale >= 0.0:
        raise ValueError(f"scale={scale}: must be >= 0")
    return math.inf if scale == 0.0 else sensitivity_l1 / scale


def laplace_noise(source: UniformSource, size: int, scale: float) -> NDArray[np.float64]:
    """Return ``size`` draws of Laplace(0, scale), by the inverse transform.

    Adversary: anyone who cannot draw from ``source``. A claim needs a scale from `laplace_scale`
    and the neighbours it was bounded for. Not covered: the floating-point grid of the result.
    """
    _positive("scale", scale)
    if size < 0:
        raise ValueError(f"size={size}: must be >= 0")
    uniform = source.random(2 * size)
    # A magnitude and a sign from a draw each, so the tail is resolved as finely on both sides.
    # A source whose interval is closed above must not give infinity.
    magnitude = -np.log1p(-np.minimum(uniform[:size], 1.0 - 2.0**-53))
    return scale * np.where(uniform[size:] < 0.5, -magnitude, magnitude)


def _positive(name: str, value: float) -> None:
    if not (value > 0.0 and math.isfinite(value)):
        raise ValueError(f"{name}={value}: must be positive and finite")
