"""From differences between runs to verdicts.

A claim is one or several statements. Each is tested seed by seed, on the same draws: it holds where
the mean difference is more than two standard errors on its side, it fails where it is as much on
the other, else it cannot be told from chance. All hold: reproduced. All fail: refuted. Else partly,
and the verdict says which do not hold.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from trellis.apps.experiments.finding import Finding, Verdict, side, standard_error, surely

HOLDS, OPEN, FAILS = 1, 0, -1


@dataclass(frozen=True)
class Gap:
    """A difference by seed, positive where a statement is true: its mean and standard error."""

    mean: float
    error: float

    @classmethod
    def of(cls, differences: ArrayLike) -> Gap:
        """Return the gap of the differences (seeds,)."""
        values = np.asarray(differences, dtype=np.float64)
        return cls(float(values.mean()), float(standard_error(values)))

    @property
    def sign(self) -> int:
        """Whether the statement holds, fails, or neither can be told."""
        return side(self.mean, self.error)

    def told(self, unit: str = "dB", digits: int = 2) -> str:
        """Return it in words."""
        return f"{self.mean:+.{digits}g} ± {self.error:.2g} {unit}".rstrip()


def above(differences: ArrayLike) -> int:
    """Return whether differences (seeds,) are surely positive, surely not, or neither."""
    return surely(differences)


def known(true: bool) -> int:
    """Return the sign of a statement that is true or false for certain."""
    return HOLDS if true else FAILS


def judged(
    claim: str, found: str, statements: Mapping[str, int], seeds: int, because: str = ""
) -> Finding:
    """Return the verdict on a claim.

    Parameters
    ----------
    found : what was measured
    statements : the parts of the claim in words, each with whether it holds
    because : why not, where that is known; said unless all hold
    """
    signs = list(statements.values())
    if all(sign == HOLDS for sign in signs):
        return Finding(claim, found, "reproduced", seeds=seeds)
    verdict: Verdict = "refuted" if all(sign == FAILS for sign in signs) else "partly"
    wrong = [words for words, sign in statements.items() if sign == FAILS]
    unclear = [words for words, sign in statements.items() if sign == OPEN]
    told = []
    if wrong:
        told.append(f"not so: {'; '.join(wrong)}")
    if unclear:
        told.append(f"not to be told from chance: {'; '.join(unclear)}")
    if because:
        told.append(because[0].upper() + because[1:])
    return Finding(claim, found, verdict, ". ".join(told), seeds)
