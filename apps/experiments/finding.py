"""What became of one claim of a paper: what we get, and whether that is what the paper says."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np

Verdict = Literal["reproduced", "partly", "refuted", "not testable"]
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


def spread(values: Sequence[float] | np.ndarray, digits: int = 3, unit: str = "") -> str:
    """Return the mean of a number's values over seeds and its standard error, in words.

    Of one value there is no error to tell, and none is told.
    """
    array = np.asarray(values, dtype=np.float64)
    unit = f" {unit}" if unit else ""
    mean = f"{array.mean():.{digits}g}{unit}"
    if array.size < 2:
        return mean
    return f"{mean} ± {array.std(ddof=1) / np.sqrt(array.size):.2g}"
