"""How good a result is on a device's own held-out records, beside learning alone and beside chance.

Computed on the device, written to the owner's page, told to nobody. `Scores` is the table; for
models that predict, `model_scores` fills it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

THIS, ALONE = "this result", "learning alone, on the same records"
MOST_FREQUENT, MEAN = "always the most frequent label", "always the mean"
ACCURACY, R2 = "share of right labels", "R squared"
_LOWER = ("mean loss",)


@dataclass(frozen=True)
class Scores:
    """A table of scores.

    Attributes
    ----------
    count : how many records were held out
    measures : what is measured, a name a column
    rows : of this result and of what it is compared with, a number a measure; nan where there is
        none
    """

    count: int
    measures: tuple[str, ...]
    rows: Mapping[str, tuple[float, ...]]

    def as_record(self) -> dict[str, Any]:
        """Return the table as JSON has it; nan is null."""
        rows = {
            name: [value if math.isfinite(value) else None for value in row]
            for name, row in self.rows.items()
        }
        return {"count": self.count, "measures": list(self.measures), "rows": rows}

    def in_words(self) -> str:
        """Return who is ahead by the last measure, in a sentence."""
        if THIS not in self.rows or ALONE not in self.rows:
            return ""
        this, alone = self.rows[THIS][-1], self.rows[ALONE][-1]
        name = self.measures[-1]
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


def model_scores(
    targets: str,
    learned: Array,
    y: Array,
    found: Mapping[str, tuple[Array, float]],
) -> Scores:
    """Return the scores of models that predict.

    Parameters
    ----------
    targets : ``labels`` or ``numbers``
    learned : (n,) targets of the records that were learned from, for the trivial predictor
    y : (m,) targets of the held-out records
    found : by name, predicted targets (m,) and the mean loss
    """
    if targets == "numbers":
        rows = {name: (loss, r_squared(y, guess)) for name, (guess, loss) in found.items()}
        mean = np.full(len(y), float(np.mean(learned)) if len(learned) else 0.0)
        rows[MEAN] = (math.nan, r_squared(y, mean))
        return Scores(len(y), ("mean loss", R2), rows)
    rows = {name: (loss, accuracy(y, guess)) for name, (guess, loss) in found.items()}
    rows[MOST_FREQUENT] = (math.nan, accuracy(y, np.full(len(y), most_frequent(learned))))
    return Scores(len(y), ("mean loss", ACCURACY), rows)


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
