"""What the numbers of a run are called in its report.

A study whose names differ from those here, or mean something else there, defines ``WORDING`` in
its report module.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

LABELS = {
    "objective": "objective",
    "change": "relative change",
    "gap": "duality gap",
    "mcc": "clients' MCC (threshold 0.2)",
    "mcc-loose": "clients' MCC (threshold 1e-4)",
    "re": "clients' relative error",
    "consensus-mcc": "consensus MCC (threshold 0.2)",
    "consensus-re": "consensus relative error",
}


@dataclass(frozen=True)
class Wording:
    """A study's own words.

    Attributes
    ----------
    labels : what its metrics and headline numbers are called, before `LABELS`
    headline : the numbers that the index of several runs shows, in this order; all where empty
    """

    labels: Mapping[str, str] = field(default_factory=dict)
    headline: Sequence[str] = ()

    def label(self, name: str) -> str:
        """Return what a metric or headline number is called."""
        known = {**LABELS, **self.labels}
        return known.get(name, name.replace("-", " ").replace("_", " "))

    def shown(self, headline: Mapping[str, float]) -> dict[str, float]:
        """Return the headline numbers for the index, where rounds and privacy have a column."""
        names = self.headline or [name for name in headline if name not in ("rounds", "epsilon")]
        return {self.label(name): headline[name] for name in names if name in headline}


def counted(number: int, noun: str) -> str:
    """Return how many there are of something."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"
