"""One bad client: how far a reply may lie from what was sent, and means that one cannot carry off.

Every study says which vector x_k of a reply is bounded and which reference r_k, known to both ends,
it is measured from (`bounded_grid.Bounded`). With ``norm-bound`` B > 0

    |x_k - r_k|_2 <= B,     or  r_k + (x_k - r_k) B / |x_k - r_k|  in its place

on the device always, before masks where there are any; at the server, where it sees single replies,
one out of range is rejected (``robust = none``, ``median``, ``trimmed``) or clipped (``clip``). A
mean over n clients then moves by at most 2 B / n when one of them is replaced by a liar, B / n from
what the others and a client that stays at its reference would give.

``median`` and ``trimmed`` put, coordinate by coordinate, the median or the trimmed mean in the
place of a mean. With liars fewer than half of the rows (median), or no more than are cut at either
end (trimmed), every coordinate stays between the least and the largest of the honest rows, whatever
the liars send. Of fewer than three rows nobody can tell the liar: where there are no more, no
middle is taken.

Not covered: lies within the bound; which clients are honest; a secure sum, of which the server sees
no single reply, so that the bound is kept by honest devices only.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .rules import FEWEST

Vector = NDArray[np.float64]
Matrix = NDArray[np.float64]

# A device clips to B; on the wire (float32 in one study) its reply may lie a rounding beyond.
_ROUNDING = 1e-6


def clipped(vector: Vector, reference: Vector, bound: float) -> Vector:
    """Return ``vector``, or the point on its way to ``reference`` that is ``bound`` from there.

    A ``bound`` of 0 is none. What is within the bound is returned as it is, to the bit.
    """
    if not bound:
        return vector
    step = vector - reference
    norm = float(np.linalg.norm(step))
    return vector if norm <= bound else reference + step * (bound / norm)


def clipped_rows(rows: Matrix, references: Matrix, bound: float) -> Matrix:
    """Return every row of ``rows`` (n, d) `clipped` around its reference; the rows for 0."""
    if not bound:
        return rows
    pairs = zip(rows, references, strict=True)
    return np.array([clipped(row, reference, bound) for row, reference in pairs])


def excess(vector: Vector, reference: Vector, bound: float) -> float:
    """Return how long a step beyond the bound is, or 0 where it is within, roundings aside."""
    norm = float(np.linalg.norm(vector - reference))
    return norm if norm > bound + _ROUNDING * (bound + float(np.linalg.norm(reference))) else 0.0


def coordinate_median(rows: Matrix) -> Vector:
    """Return the median (d,) of every column of ``rows`` (n, d), n >= 1."""
    return np.asarray(np.median(rows, axis=0))


def trimmed_mean(rows: Matrix, share: float) -> Vector:
    """Return the mean (d,) of every column of ``rows`` (n, d) without its ends.

    int(share n) values are left out at either end; of three rows or more one at least, as a mean of
    all would stand against nobody.

    Parameters
    ----------
    share : 0 <= share < 1/2
    """
    count = len(rows)
    cut = max(int(share * count), 1 if count >= FEWEST and share > 0.0 else 0)
    return np.asarray(np.mean(np.sort(rows, axis=0)[cut : count - cut], axis=0))


@dataclass(frozen=True)
class Robust:
    """What a server does against a bad client.

    Attributes
    ----------
    rule : one of `rules.RULES`
    bound : B; 0 is none
    trim : share of the rows that a trimmed mean leaves out at either end
    """

    rule: str = "none"
    bound: float = 0.0
    trim: float = 0.1

    @property
    def replaces_mean(self) -> bool:
        """Whether another statistic stands in the place of means over clients."""
        return self.rule in ("median", "trimmed")

    def centre(self, rows: Matrix) -> Vector:
        """Return the middle (d,) of ``rows`` (n, d) by the rule; their mean where it has none."""
        if self.rule == "median":
            return coordinate_median(rows)
        if self.rule == "trimmed":
            return trimmed_mean(rows, self.trim)
        return np.asarray(np.mean(rows, axis=0))

    def centres(self, rows: Matrix, places: NDArray[np.intp], before: Matrix) -> Matrix:
        """Return the middle of the rows (n, d) of every place, by number; (places, d).

        A place with fewer than three rows keeps what it has in ``before`` (places, d).
        """
        found = before.copy()
        for place in np.flatnonzero(np.bincount(places, minlength=len(before)) >= FEWEST):
            found[place] = self.centre(rows[places == place])
        return found
