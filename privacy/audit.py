"""How much a mechanism leaks at least, measured by attacking it.

A claim of (epsilon, delta) is a promise about every event S and every two neighbouring data sets:

    P[M(data) in S] <= exp(epsilon) P[M(neighbour) in S] + delta.

`audit` runs the mechanism many times on two neighbours, picks an event that tells them apart, and
turns how often it happens on either side into a lower bound on epsilon [J]_:

    epsilon >= log((true positive rate - delta) / false positive rate).

The event is {projection of the output beyond a threshold}. One half of the runs chooses direction,
threshold and which of the two data sets plays the part of the null; the other half counts, with
Clopper and Pearson's exact limits, each at half of 1 - confidence. So the bound is valid whatever
the first half chose: a mechanism that keeps its claim is accused with probability 1 - confidence
at most. A bound above the claim disproves it; one below it proves nothing.

Adversary: sees the released output, knows both candidate data sets and the mechanism. Neighbouring:
whatever relation the two data sets given have. Not covered: worse pairs of data sets, non-linear
attacks, and anything beyond `ceiling`, which the number of runs alone sets.

.. [J] M. Jagielski, J. Ullman, A. Oprea, Auditing differentially private machine learning: how
   private is private SGD?, NeurIPS 2020.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtr
from scipy.stats import beta

from .mechanisms.gaussian import gaussian_epsilon

Vector = NDArray[np.float64]
Matrix = NDArray[np.float64]
Data = TypeVar("Data")
Sampler = Callable[[Data, int, np.random.Generator], Matrix]

_BLOCK = 1 << 14  # outputs drawn at a time: memory does not grow with the number of trials
_CANDIDATES = 200  # thresholds tried from either side
_CAUTION = 0.999  # confidence when choosing among them: the best of many is partly luck


@dataclass(frozen=True)
class AuditResult:
    """What an audit found.

    Attributes
    ----------
    epsilon_lower : the mechanism's epsilon at ``delta`` is at least this, with ``confidence``
    ceiling : the largest bound that this many trials could have shown
    true_positive, false_positive : how often the event happened, out of ``held_out`` each
    threshold : the event is a score above it; the score is negated where ``swapped``
    swapped : whether the event speaks for ``data`` against ``neighbour``, not the reverse
    trials : runs on each of the two data sets, the half that chose the event included
    """

    epsilon_lower: float
    confidence: float
    delta: float
    ceiling: float
    threshold: float
    swapped: bool
    true_positive: int
    false_positive: int
    held_out: int
    trials: int


@dataclass(frozen=True)
class Finding:
    """A claim beside what an audit of it found; ``setting`` says on which data and at what size."""

    mechanism: str
    claimed: float
    setting: str
    result: AuditResult

    @property
    def refuted(self) -> bool:
        """Whether the mechanism leaks more than it claims."""
        return self.result.epsilon_lower > self.claimed

    @property
    def verdict(self) -> str:
        """Return the finding in words."""
        return "the claim is false" if self.refuted else "consistent with the claim"


def clopper_pearson(
    successes: ArrayLike, trials: int, confidence: float
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return lower and upper limits of a probability, each missed with (1 - confidence) / 2.

    ``successes`` may be an array, and need not be whole numbers.
    """
    k = np.asarray(successes, dtype=np.float64)
    tail = 0.5 * (1.0 - confidence)
    low = np.where(k > 0, beta.ppf(tail, np.maximum(k, 1e-9), trials - k + 1.0), 0.0)
    high = np.where(k < trials, beta.ppf(1.0 - tail, k + 1.0, np.maximum(trials - k, 1e-9)), 1.0)
    return low, high


def ceiling(trials: int, *, delta: float, confidence: float = 0.95) -> float:
    """Return the largest bound `audit` can show: all true positives, no false one.

    At 95 % about log(n / 3.7), n = trials / 2 being the runs that count.
    """
    count = trials - trials // 2
    return float(_bound(np.array(count), np.array(0), count, delta, confidence))


def gaussian_audit(shift: ArrayLike, sigma: float, delta: float) -> float:
    """Return the true epsilon of N(0, sigma^2 I) against N(shift, sigma^2 I), nothing sampled."""
    distance = float(np.linalg.norm(np.atleast_1d(np.asarray(shift, dtype=np.float64))))
    return gaussian_epsilon(sigma, delta, distance) if distance > 0.0 else 0.0


def audit(
    sample: Sampler[Data],
    data: Data,
    neighbour: Data,
    *,
    trials: int,
    delta: float,
    rng: np.random.Generator,
    confidence: float = 0.95,
    direction: Vector | Callable[[Matrix], Vector] | None = None,
) -> AuditResult:
    """Return a lower bound on the epsilon of a mechanism, from its outputs on two data sets.

    Parameters
    ----------
    sample : ``sample(data, count, rng)`` returns ``count`` independent outputs, (count, k)
    data, neighbour : two data sets, neighbouring as the claim means it, in any form that ``sample``
        takes
    trials : runs on each; half of them choose the event, half count
    delta : of the claim, >= 0; 0 audits pure epsilon
    rng : source of all draws
    direction : (k,) the outputs are projected on, or a function (count, k) -> (count,), such as
        a log-likelihood ratio; by default the difference of the means over the variances,
        estimated on a quarter of the trials
    """
    _check(trials, delta, confidence)
    train = trials // 2
    held_out = trials - train
    if direction is None:
        used = train // 2
        direction = _mean_difference(sample, data, neighbour, used, rng)
        train -= used
    score = direction if callable(direction) else _projection(direction)

    def scores(values: Data, count: int) -> Vector:
        return np.concatenate([score(block) for block in _draws(sample, values, count, rng)])

    threshold, swapped = _choose(scores(data, train), scores(neighbour, train), delta)
    null, alternative = scores(data, held_out), scores(neighbour, held_out)
    if swapped:
        null, alternative = -alternative, -null
    false_positive = int(np.count_nonzero(null > threshold))
    true_positive = int(np.count_nonzero(alternative > threshold))
    bound = _bound(np.array(true_positive), np.array(false_positive), held_out, delta, confidence)
    return AuditResult(
        epsilon_lower=max(0.0, float(bound)),
        confidence=confidence,
        delta=delta,
        ceiling=ceiling(trials, delta=delta, confidence=confidence),
        threshold=threshold,
        swapped=swapped,
        true_positive=true_positive,
        false_positive=false_positive,
        held_out=held_out,
        trials=trials,
    )


def _bound(
    true_positive: Vector, false_positive: Vector, count: int, delta: float, confidence: float
) -> Vector:
    """Return log((TPR - delta) / FPR) with both rates at their worse limit."""
    low, _ = clopper_pearson(true_positive, count, confidence)
    _, high = clopper_pearson(false_positive, count, confidence)
    gain = low - delta
    return np.where(gain > 0.0, np.log(np.maximum(gain, 1e-300) / high), -np.inf)


def _draws(
    sample: Sampler[Data], values: Data, count: int, rng: np.random.Generator
) -> Iterator[Matrix]:
    for start in range(0, count, _BLOCK):
        rows = min(_BLOCK, count - start)
        block = np.asarray(sample(values, rows, rng), dtype=np.float64)
        if block.ndim != 2 or block.shape[0] != rows:
            raise ValueError(f"sample returned shape {block.shape}; ({rows}, k) is due")
        yield block


def _projection(direction: Vector) -> Callable[[Matrix], Vector]:
    return lambda block: block @ direction


def _mean_difference(
    sample: Sampler[Data], data: Data, neighbour: Data, count: int, rng: np.random.Generator
) -> Vector:
    """Return (k,) the difference of the two means, every entry over its variance."""
    means, variances = [], []
    for values in (data, neighbour):
        blocks = [(b.sum(axis=0), (b * b).sum(axis=0)) for b in _draws(sample, values, count, rng)]
        total, square = (np.sum(part, axis=0) for part in zip(*blocks, strict=True))
        means.append(total / count)
        variances.append(np.maximum(square / count - (total / count) ** 2, 0.0))
    variance = variances[0] + variances[1]
    largest = float(variance.max())
    # An entry without noise must not divide by zero; it tells the most.
    return (means[1] - means[0]) / (np.maximum(variance, 1e-9 * largest) if largest > 0 else 1.0)


def _choose(data: Vector, neighbour: Vector, delta: float) -> tuple[float, bool]:
    """Return the threshold that promises the largest bound, and whether it is the swapped one."""
    best = (-math.inf, math.inf, False)
    for swapped, null, alternative in ((False, data, neighbour), (True, -neighbour, -data)):
        null, alternative = np.sort(null), np.sort(alternative)
        ranks = np.unique(np.geomspace(1, null.size, _CANDIDATES).astype(int))
        candidates = np.concatenate([null[-ranks], alternative[-ranks], alternative[ranks - 1]])
        true_rate = 1.0 - np.searchsorted(alternative, candidates, "right") / alternative.size
        false_rate = 1.0 - np.searchsorted(null, candidates, "right") / null.size
        # Beyond the largest null score the count says 0 everywhere; a normal tail says how far to
        # go. Only the choice rests on it, not the bound.
        spread = float(null.std())
        if spread > 0.0:
            false_rate = np.maximum(false_rate, ndtr((null.mean() - candidates) / spread))
        count = null.size
        promised = _bound(true_rate * count, false_rate * count, count, delta, _CAUTION)
        place = int(np.argmax(promised))
        best = max(best, (float(promised[place]), float(candidates[place]), swapped))
    return best[1], best[2]


def _check(trials: int, delta: float, confidence: float) -> None:
    if trials < 100:
        raise ValueError(f"trials={trials}: at least 100 are needed")
    if not 0.0 <= delta < 1.0:
        raise ValueError(f"delta={delta}: must be >= 0 and < 1")
    if not 0.0 < confidence < 1.0:
        raise ValueError(f"confidence={confidence}: must be between 0 and 1, both excluded")
