"""The rounds of noisy sums: what to ask next, and the models from all that was released [GG].

The first release asks for second moments and for residuals at the model zero; with it alone the
regression is solved (the one-exchange way). Every later one asks for residuals at the models so
far, clipped to a width that the releases before it suggest: as residuals get smaller so does the
noise, in the units of the target. After each the models are the `posterior` mean given all of them.

    t = clip((s y - s x'w) / Y, -1, 1)               ``ridge``,    theta = w B / Y_1
    t = clip((1[y > 0] - p(s x'w)) / Y, -1, 1)       ``logistic``, theta = w B

In both the mean of t given u is about c u'(theta - theta_j), c being the slope of what a sample
says: for ridge (Y_1 / Y) P(not clipped), with the probability that a normal residual of the seen
power has; for logistic p (1 - p) / Y, whose mean is that of the squared residuals.

**Clusters and their sum.** A sample's cross moment goes into the slot of its cluster with weight
b and into one that all share with weight sqrt(1 - b^2): the same sensitivity for every b. b = 1
treats clusters as strangers; a small b learns what they share with the noise of one sum instead of
Q, and how they differ with more. The first release has b^2 = 1/2, later ones what is expected to
serve best by the prior that was found.

Totals hold sums over clients, as `trellis.apps.cluster_admm.private.moments` makes them: ``cross``
(Q + 1, d) is sqrt(2) sum t u, the shared slot last, ``power`` (1,) sum t^2, ``square``
(d (d + 1) / 2,) the upper triangle of sum u u', off the diagonal times sqrt(2). ``sigma`` is the
deviation of the noise in each of them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from trellis.privacy.numerics import brentq, erf, normal_density

from .posterior import Posterior, Spectrum, expected_doubt, observed, posterior, spectrum

Array = NDArray[np.float64]

_ROOT = math.sqrt(2.0)
_NARROWEST = 0.5  # deviations; where most is clipped, noise in the power would tell any deviation
_ROOM = 1.5  # widths of residuals, in their expected deviation
_SLOPES = (0.02, 0.25)  # of p (1 - p)
_WEIGHTS = (0.5, 0.6, 0.7, 0.8, 0.9, 1.0)  # b; less, and clusters would never be told apart
_FIRST_WEIGHT = math.sqrt(0.5)
_WIDEST = 8.0  # deviations; residuals that are less than an eighth of the width count as that


@dataclass(frozen=True)
class Bounds:
    """B and the first Y; ``logistic`` says which loss."""

    length: float
    width: float
    logistic: bool


class Releases:
    """The models of Q clusters, as releases come.

    Attributes
    ----------
    models : (Q, d)
    width, weight : Y and b of the next release
    taken : how many releases came
    found : the posterior after the last; None before the first
    """

    def __init__(self, clusters: int, size: int, bounds: Bounds) -> None:
        self.bounds = bounds
        self.models = np.zeros((clusters, size))
        self.width = bounds.width
        self.weight = _FIRST_WEIGHT if clusters > 1 else 1.0
        self.taken = 0
        self.found: Posterior | None = None
        self._known: Spectrum | None = None
        self._rows: list[Array] = []
        self._starts: list[Array] = []
        self._noise: list[Array] = []
        self._power = self._level = 0.0

    @property
    def unit(self) -> float:
        """What theta is multiplied by to give a model."""
        first = 1.0 if self.bounds.logistic else self.bounds.width
        return first / self.bounds.length

    def take(self, total: Mapping[str, Array], counts: Array, sigma: float) -> None:
        """Take a release over ``counts`` (Q,) samples and find the models anew."""
        counts = np.maximum(counts, 1e-9)  # of a cluster without samples nothing is learned
        n = float(counts.sum())
        clusters, size = self.models.shape
        mean_power = float(np.clip(total["power"][0] / n, 1e-6, 1.0))
        slope, seen = self._slope(mean_power)
        if self._known is None:
            self._known = spectrum(unpacked(total["square"], size), n, sigma)
            self._power = seen
        theta = self.models / self.unit
        at = counts[:, None] * self._known.times(theta)
        inverse = np.linalg.inv(gram(clusters, self.weight))
        mixed = mixture(clusters, self.weight)
        self._rows.append(np.asarray(inverse @ mixed.T @ total["cross"] / (_ROOT * slope) + at))
        self._starts.append(theta)
        self._level = sigma**2 / 2.0 / slope**2
        self._noise.append(np.asarray(self._level * inverse, dtype=np.float64))
        self._solve(counts, seen)
        self.taken += 1

    def _slope(self, mean_power: float) -> tuple[float, float]:
        """Return c of this release, and the variance of t / c: what residuals are in theta."""
        if self.bounds.logistic:
            slope = float(np.clip(mean_power * self.width**2, *_SLOPES)) / self.width
            return slope, mean_power / slope**2
        reach = clip_in_deviations(mean_power)
        slope = self.bounds.width / self.width * float(erf(reach / _ROOT))
        return slope, (self.width / (reach * self.bounds.width)) ** 2

    def _solve(self, counts: Array, seen: float) -> None:
        known, before = self._known, self.found
        assert known is not None
        if before is None:
            self.found = posterior(self._rows[0], self._noise[0], counts, self._power, known)
            own = self._noise[0]
        else:
            # How far theta is from where residuals were taken, by which Sigma's error counts.
            far = [
                np.sum((before.models - start) ** 2, axis=1) + before.doubt
                for start in self._starts
            ]
            noise = [
                one + np.diag((counts * known.error) ** 2 * way)
                for one, way in zip(self._noise, far, strict=True)
            ]
            rows, own = observed(np.array(self._rows), np.array(noise))
            missed = float(counts @ before.missed / counts.sum())
            of_data = max(seen - missed, 0.05 * seen)
            self.found = posterior(rows, own, counts, self._power, known, of_data)
        left = max(seen - self._gained(counts, before), 0.02 * seen)
        self.models = self.unit * self.found.models
        if not self.bounds.logistic:
            self.width = _ROOM * math.sqrt(left) * self.bounds.width
        if len(counts) > 1:
            self.weight = self._best_weight(counts, own)

    def _best_weight(self, counts: Array, own: Array) -> float:
        """Return the b with which one more release tells most, besides what is known already."""
        assert self.found is not None
        assert self._known is not None
        found, known, clusters = self.found, self._known, len(counts)
        level = self._level
        prior = found.common, found.apart

        def doubt(weight: float) -> float:
            more = level * np.linalg.inv(gram(clusters, weight))
            both = np.linalg.inv(np.linalg.inv(own) + np.linalg.inv(more))
            return expected_doubt(both, counts, known, found.unexplained, prior)

        return min(_WEIGHTS, key=doubt)

    def _gained(self, counts: Array, before: Posterior | None) -> float:
        """Return by how much the variance of residuals is expected to have fallen."""
        assert self.found is not None
        now = float(counts @ self.found.missed / counts.sum())
        if before is None:
            assert self._known is not None
            prior = (self.found.common + self.found.apart) * float(self._known.values.sum())
            return prior - now
        return float(counts @ before.missed / counts.sum()) - now


def mixture(clusters: int, weight: float) -> Array:
    """Return how clusters' moments (Q, d) enter the slots (Q + 1, d): a column is 1 long."""
    shared = math.sqrt(max(1.0 - weight**2, 0.0))
    return np.vstack([weight * np.eye(clusters), np.full((1, clusters), shared)])


def gram(clusters: int, weight: float) -> Array:
    """Return M'M of the `mixture` M (Q, Q)."""
    mixed = mixture(clusters, weight)
    return mixed.T @ mixed


def unpacked(entries: Array, size: int) -> Array:
    """Return the symmetric matrix (d, d) whose scaled upper triangle is given."""
    upper = np.zeros((size, size))
    upper[np.triu_indices(size)] = entries
    off = np.triu(upper, 1) / _ROOT
    return off + off.T + np.diag(np.diag(upper))


def clip_in_deviations(mean_power: float) -> float:
    """Return k with E min(g^2, k^2) / k^2 = ``mean_power`` for a normal g: where t is clipped."""

    def excess(k: float) -> float:
        inside = float(erf(k / _ROOT)) - 2.0 * k * normal_density(k)
        return (inside + k**2 * (1.0 - float(erf(k / _ROOT)))) / k**2 - mean_power

    if excess(_WIDEST) >= 0.0:
        return _WIDEST
    if excess(_NARROWEST) <= 0.0:
        return _NARROWEST
    return float(brentq(excess, _NARROWEST, _WIDEST))
