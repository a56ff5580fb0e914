"""What became of one claim of a paper: what we get, and whether that is what the paper says."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import ArrayLike

Verdict = Literal["reproduced", "partly", "refuted", "not testable"]
_SURE = 2.0  # standard errors
VERDICTS: tuple[str, ...] = get_args(Verdict)


@dataclass(frozen=True)
class Finding:
    """The verdict on one claim.

    Parameters
    ----------
    claim : str
        The claim's name in the file of its figure.
    found : str
        What we get: numbers, each with its spread, and what they are of.
    verdict : str
        One of `VERDICTS`.
    why : str
        In a sentence, why it is not plainly reproduced; needed for all other verdicts.
    seeds : int
        How many seeds the numbers are of; 0 where nothing is drawn.
    """

    claim: str
    found: str
    verdict: Verdict
    why: str = ""
    seeds: int = 0

    def __post_init__(self) -> None:
        if self.verdict not in VERDICTS:
            raise ValueError(
                f"{self.claim}: verdict {self.verdict!r}; use one of {', '.join(VERDICTS)}"
            )
        if self.verdict != "reproduced" and not self.why:
            raise ValueError(f"{self.claim}: {self.verdict} needs a reason")


def standard_error(values: ArrayLike, axis: int | None = None) -> Any:
    """Return the standard error of a mean over seeds; 0 where one value gives none to tell."""
    array = np.asarray(values, dtype=np.float64)
    count = array.size if axis is None else array.shape[axis]
    if count < 2:
        return 0.0 * array.mean(axis=axis)
    return array.std(axis=axis, ddof=1) / np.sqrt(count)


def surely(differences: ArrayLike) -> int:
    """Return 1 where differences by seed are positive beyond doubt, -1 where negative, else 0.

    Beyond doubt is a mean of more than two standard errors; of one value its sign decides.
    """
    values = np.asarray(differences, dtype=np.float64)
    return side(float(values.mean()), float(standard_error(values)))


def side(mean: float, error: float) -> int:
    """Return the sign of a mean of differences with its standard error; 0 where in doubt."""
    if abs(mean) <= _SURE * error or mean == 0.0:
        return 0
    return 1 if mean > 0.0 else -1


def spread(values: Sequence[float] | np.ndarray, digits: int = 3, unit: str = "") -> str:
    """Return the mean of a number's values over seeds and its standard error, in words.

    Of one value there is no error to tell, and none is told.
    """
    array = np.asarray(values, dtype=np.float64)
    unit = f" {unit}" if unit else ""
    mean = f"{array.mean():.{digits}g}{unit}"
    if array.size < 2:
        return mean
    return f"{mean} ± {standard_error(array):.2g}"
