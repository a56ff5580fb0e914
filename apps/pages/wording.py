"""What the numbers of a run are called in its report, and how they are written for people.

A study whose names differ from those here, or mean something else there, defines ``WORDING`` in
its report module.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

DASH = "\u2013"  # where there is no number
LABELS = {
    "objective": "objective",
    "change": "relative change",
    "gap": "duality gap",
    "mcc": "clients' MCC (threshold 0.2)",
    "mcc-loose": "clients' MCC (threshold 1e-4)",
    "re": "clients' relative error",
    "consensus-mcc": "consensus MCC (threshold 0.2)",
    "consensus-re": "consensus relative error",
    "held-out-loss": "mean loss of held-out records",
    "held-out-accuracy": "share of right labels, held-out records",
    "held-out-auc": "area under the ROC curve, held-out records",
    "held-out-r2": "R squared, held-out records",
    "held-out-likelihood": "log likelihood of a held-out record",
    "alone-held-out-loss": "the same loss, learning alone",
    "alone-held-out-accuracy": "the same share, learning alone",
    "alone-held-out-auc": "the same area, learning alone",
    "alone-held-out-r2": "the same R squared, learning alone",
    "alone-held-out-likelihood": "the same likelihood, learning alone",
    "trivial-held-out-accuracy": "the same share, always the most frequent label",
    "trivial-held-out-auc": "the same area, always the most frequent label",
    "trivial-held-out-r2": "the same R squared, always the mean",
    "trivial-held-out-likelihood": "the same likelihood, knowing nothing",
    "links": "neighbours' letters used",
    "oldest": "age of the oldest letter used, rounds",
}


@dataclass(frozen=True)
class Wording:
    """A study's own words.

    Attributes
    ----------
    labels : what its metrics and headline numbers are called, before `LABELS`
    headline : the numbers that the index of several runs shows, in this order; all where empty
    measure : the headline number by which runs are compared, open and private; none where empty.
        What learning alone reaches is ``alone-`` and its name, where a run knows it
    lower_is_better : whether a smaller measure is the better one
    """

    labels: Mapping[str, str] = field(default_factory=dict)
    headline: Sequence[str] = ()
    measure: str = ""
    lower_is_better: bool = False

    def label(self, name: str) -> str:
        """Return what a metric or headline number is called."""
        known = {**LABELS, **self.labels}
        return known.get(name, name.replace("-", " ").replace("_", " "))

    def shown(self, headline: Mapping[str, float]) -> dict[str, float]:
        """Return the headline numbers for the index, where rounds and privacy have a column."""
        names = self.headline or [name for name in headline if name not in ("rounds", "epsilon")]
        return {self.label(name): headline[name] for name in names if name in headline}


def counted(count: int, noun: str) -> str:
    """Return how many there are of something."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {plural(noun)}"


def plural(noun: str) -> str:
    """Return a noun as several have it: clients, companies, people."""
    if noun.endswith("person"):
        return f"{noun.removesuffix('person')}people"
    ending = noun.endswith("y") and noun[-2:-1] not in "aeiou"
    return f"{noun[:-1]}ies" if ending else f"{noun}s"


def number(value: object) -> str:
    """Return a value as people read it: four digits, thousands apart, a dash for none."""
    if value is None or value == "":
        return DASH
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if not isinstance(value, float):
        return str(value)
    if not math.isfinite(value):
        return DASH if math.isnan(value) else ("\u221e" if value > 0 else "-\u221e")
    if value.is_integer() and abs(value) < 1e9:
        return f"{value:,.0f}"
    if not 1e-3 <= abs(value) < 1e6:
        return f"{value:.3g}"
    return f"{value:,.1f}" if abs(value) >= 1e4 else f"{value:.4g}"


def size(count: float) -> str:
    """Return a number of bytes as people read it."""
    for unit in ("B", "kB", "MB", "GB"):
        if abs(count) < 1000.0:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.3g} {unit}"
        count /= 1000.0
    return f"{count:,.3g} TB"


def duration(seconds: float) -> str:
    """Return a time span as people read it."""
    if seconds < 60.0:
        return f"{seconds:.3g} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"
