"""What a setting is worth over all splits: mean, standard error, gain over the settings before."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from trellis.apps.common.settings import Scalar

from .runs import Found

Values = tuple[Scalar, ...]

_SAME = 1e-9


@dataclass
class Trial:
    """One combination of the settings that are tuned.

    Attributes
    ----------
    values : of the tuned settings, in the order of the spaces
    found : what its runs gave, by seed
    refused : why the study does not take these settings together; empty where it does
    """

    values: Values
    found: dict[int, Found] = field(default_factory=dict)
    refused: str = ""

    @property
    def worth(self) -> list[float]:
        """The values of the runs that ended well, in order of the seeds."""
        return [self.found[seed].value for seed in sorted(self.found) if not self.error_of(seed)]

    @property
    def mean(self) -> float:
        """The mean over the splits; nan where there is none."""
        return float(np.mean(self.worth)) if self.worth else math.nan

    @property
    def error(self) -> float:
        """The standard error of the mean; nan of fewer than two splits."""
        return _standard_error(self.worth)

    @property
    def alone(self) -> float | None:
        """The mean over the splits of what learning alone reaches, where runs know it."""
        known = [found.alone for found in self.found.values() if found.alone is not None]
        return float(np.mean(known)) if known else None

    def error_of(self, seed: int) -> str:
        """Return why the run of a seed failed; nothing where it did not."""
        return self.found[seed].error

    def failures(self) -> list[str]:
        """Return why runs failed, a text each."""
        return [self.found[seed].error for seed in sorted(self.found) if self.found[seed].error]

    def complete(self, seeds: Sequence[int]) -> bool:
        """Return whether all runs are there, and ended well."""
        return all(seed in self.found and not self.error_of(seed) for seed in seeds)


@dataclass(frozen=True)
class Gain:
    """By how much a setting is better than another, split by split; below 0 it is worse."""

    mean: float
    error: float


def gain(trial: Trial, other: Trial, lower: bool) -> Gain | None:
    """Return by how much a trial is better than another on the splits that both have."""
    pairs = [
        (trial.found[seed].value, other.found[seed].value)
        for seed in sorted(set(trial.found) & set(other.found))
        if not trial.error_of(seed) and not other.error_of(seed)
    ]
    if not pairs:
        return None
    better = [(b - a) if lower else (a - b) for a, b in pairs]
    return Gain(float(np.mean(better)), _standard_error(better))


def best_of(trials: Sequence[Trial], seeds: Sequence[int], lower: bool) -> Trial | None:
    """Return the trial with the best mean; None where none is complete.

    Of those that differ by rounding only it is the first: a setting that changes nothing stays.
    """
    complete = [trial for trial in trials if not trial.refused and trial.complete(seeds)]
    if not complete:
        return None
    top = (min if lower else max)(trial.mean for trial in complete)
    return next(t for t in complete if math.isclose(t.mean, top, rel_tol=_SAME, abs_tol=_SAME))


def as_good(trial: Trial, best: Trial) -> bool:
    """Return whether the splits cannot tell a trial from the best.

    Its distance from the best, split by split, is then at most one standard error of that distance.
    (One of the best one's mean would be mostly of how different the splits are, for all alike.)
    """
    apart = gain(best, trial, lower=False)
    return apart is not None and math.isfinite(apart.error) and abs(apart.mean) <= apart.error


def named(keys: Sequence[str], values: Values) -> Mapping[str, Scalar]:
    """Return the values of a trial by their settings' names."""
    return dict(zip(keys, values, strict=True))


def _standard_error(values: Sequence[float]) -> float:
    if len(values) < 2:
        return math.nan
    return float(np.std(values, ddof=1) / math.sqrt(len(values)))
