"""How good a result is on a client's own held-out records, beside learning alone and beside chance.

Computed by the client and written to the owner's page; who else may know is up to `personal`.
`Scores` is the table; for models that predict, `model_scores` fills it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trellis.strategies.core.closing.scores import ScoreTable

Array = NDArray[np.float64]

THIS, ALONE = "this result", "learning alone, on the same records"
MOST_FREQUENT, MEAN = "always the most frequent label", "always the mean"
LOSS, ACCURACY, R2 = "mean loss", "share of right labels", "R squared"
AUC = "area under the ROC curve"
_LOWER = (LOSS,)


@dataclass(frozen=True)
class Scores:
    """A table of scores.

    Attributes
    ----------
    count : how many records were held out
    measures : what is measured, a name a column
    rows : of this result and of what it is compared with, a number a measure; nan where there is
        none
    main : the measure that a person reads first; the first where it is not given
    """

    count: int
    measures: tuple[str, ...]
    rows: Mapping[str, tuple[float, ...]]
    main: str = ""

    @property
    def leading(self) -> str:
        """The measure that a person reads first."""
        return self.main or self.measures[0]

    def table(self) -> ScoreTable:
        """Return the scores as they are told, with the measure that settings are chosen by.

        That is the first: a mean loss moves with every record, a share of right labels by leaps.
        """
        lower = tuple(name for name in self.measures if name in _LOWER)
        first = self.measures[0]
        return ScoreTable(self.count, self.measures, lower, self.leading, first, self.rows)

    def as_record(self) -> dict[str, Any]:
        """Return the table as JSON has it; nan is null."""
        rows = {
            name: [value if math.isfinite(value) else None for value in row]
            for name, row in self.rows.items()
        }
        return {"count": self.count, "measures": list(self.measures), "rows": rows}

    def in_words(self) -> str:
        """Return who is ahead by the main measure, in a sentence."""
        if THIS not in self.rows or ALONE not in self.rows:
            return ""
        name = self.leading
        place = self.measures.index(name)
        this, alone = self.rows[THIS][place], self.rows[ALONE][place]
        if not (math.isfinite(this) and math.isfinite(alone)):
            return ""
        if this == alone:
            return f"On your own held-out data it does as well as learning alone ({name})."
        better = (this < alone) == (name in _LOWER)
        side = "better" if better else "worse"
        return (
            f"On your own held-out data it does {side} than learning alone: {name} {this:.4g} "
            f"beside {alone:.4g}."
        )


@dataclass(frozen=True)
class Predicted:
    """What a model makes of the held-out records.

    Attributes
    ----------
    guess : (m,) predicted targets
    loss : the mean loss
    values : (m,) of labels, the larger the likelier 1; None where the model has no such number
    """

    guess: Array
    loss: float
    values: Array | None = None


def model_scores(targets: str, learned: Array, y: Array, found: Mapping[str, Predicted]) -> Scores:
    """Return the scores of models that predict.

    Parameters
    ----------
    targets : ``labels`` or ``numbers``
    learned : (n,) targets of the records that were learned from, for the trivial predictor
    y : (m,) targets of the held-out records
    found : what models predict, by name
    """
    if targets == "numbers":
        rows = {name: (one.loss, r_squared(y, one.guess)) for name, one in found.items()}
        mean = np.full(len(y), float(np.mean(learned)) if len(learned) else 0.0)
        rows[MEAN] = (math.nan, r_squared(y, mean))
        return Scores(len(y), (LOSS, R2), rows, R2)
    several = {
        name: (one.loss, accuracy(y, one.guess), area_under_curve(y, one.values))
        for name, one in found.items()
    }
    always = np.full(len(y), most_frequent(learned))
    several[MOST_FREQUENT] = (math.nan, accuracy(y, always), 0.5 if len(y) else math.nan)
    return Scores(len(y), (LOSS, ACCURACY, AUC), several, ACCURACY)


def area_under_curve(y: Array, values: Array | None) -> float:
    """Return how often a record with label 1 has a larger value than one without, ties by half.

    nan where all labels are alike, or there are no values.
    """
    positive = y > 0.0
    ones, others = int(np.count_nonzero(positive)), int(np.count_nonzero(~positive))
    if values is None or not ones or not others:
        return math.nan
    _, place, counts = np.unique(values, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(counts) - (counts - 1) / 2.0)[place]  # of equals their mean
    return float((np.sum(ranks[positive]) - ones * (ones + 1) / 2.0) / (ones * others))


def accuracy(y: Array, guess: Array) -> float:
    """Return the share of labels that are right."""
    return float(np.mean(y == guess)) if len(y) else math.nan


def r_squared(y: Array, guess: Array) -> float:
    """Return 1 - squared errors / squared deviations from the mean; nan where y is constant."""
    spread = float(np.sum((y - np.mean(y)) ** 2)) if len(y) else 0.0
    return 1.0 - float(np.sum((y - guess) ** 2)) / spread if spread > 0.0 else math.nan


def most_frequent(labels: Array) -> float:
    """Return the label that stands most often; of equals the largest."""
    if not len(labels):
        return math.nan
    values, counts = np.unique(labels, return_counts=True)
    return float(values[len(values) - 1 - int(np.argmax(counts[::-1]))])
