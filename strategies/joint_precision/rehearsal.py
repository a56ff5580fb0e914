"""The rounds of joint-precision that a server can take by itself, because it knows every S_i.

Without privacy one reply tells it: S_i = Omega_i^-1 - rho/w_i (Omega_i - Psi_i + U_i) on the blocks
of the problem, and a screening that asks for all entries tells it before. Then the server knows
what clients would answer, steps on until the gap is well below the tolerance, and sends clients
where that ended. They take one more step from there, with their own S_i: the certificate of the
result is theirs, whatever the server thought to know.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from .blocks import Blocks
from .messages import Screened
from .path import pair_index
from .splitting import Splitting

Vector = NDArray[np.float64]

_SHARPER = 0.1  # rehearsals stop at this part of the tolerance
_MOST_AT_A_POINT = 3


class Step(Protocol):
    """A client's Omega (m,) and its terms of the certificate."""

    @property
    def omega(self) -> Vector:
        """The matrix, packed."""

    @property
    def loss(self) -> float:
        """The loss at Psi."""

    @property
    def log_det(self) -> float:
        """The log determinant of the dual."""


# A client's step from its packed S, Psi and point, with the ratio rho / w_i, and certified or not.
LocalStep = Callable[[Vector, Blocks, Vector, Vector, float, bool], Step]


class Rehearsal:
    """What the server knows of the clients' correlation matrices, and steps taken with it.

    Parameters
    ----------
    local : a client's step
    """

    def __init__(self, local: LocalStep) -> None:
        self.local = local
        self.told: dict[int, Vector] = {}  # packed S (m,) by client
        self.tries = 0

    def forget(self) -> None:
        """Know nothing: what follows is of other data."""
        self.told.clear()
        self.tries = 0

    def next_point(self) -> None:
        """Go on at other penalties, with the same data."""
        self.tries = 0

    def hear_screening(self, replies: Mapping[int, Screened], blocks: Blocks) -> None:
        """Take all entries of S, from replies that left none out."""
        off = blocks.off_diagonal
        rows, columns = (ends[off] for ends in blocks.ends)
        places = pair_index(rows, columns, blocks.variables)
        for client, reply in replies.items():
            packed = np.ones(blocks.size)
            packed[off] = told_at(places, reply.pairs, reply.correlations)
            self.told[client] = packed

    def hear_step(self, client: int, omega: Vector, split: Splitting) -> None:
        """Take what a step tells of S, on the blocks of the problem."""
        point, ratio, blocks = split.point(client), split.ratio(client), split.blocks
        told = np.empty_like(omega)
        for number in range(len(blocks.members)):
            matrix = blocks.block(omega, number)
            found = np.linalg.inv(matrix) - ratio * (matrix - blocks.block(point, number))
            start, stop = blocks.starts[number : number + 2]
            told[start:stop] = blocks.upper(0.5 * (found + found.T), number)
        self.told[client] = told

    def knows(self, clients: Iterable[int]) -> bool:
        """Return whether every one of these clients' S is known."""
        return all(int(client) in self.told for client in clients)

    def steps(self, split: Splitting, certify: bool) -> dict[int, Step]:
        """Return what the clients would answer."""
        return {
            int(client): self.local(
                *(self.told[int(client)], split.blocks, split.psi[client]),
                *(split.point(int(client)), split.ratio(int(client)), certify),
            )
            for client in np.flatnonzero(split.active)
        }

    def run(self, split: Splitting, tolerance: float, most: int) -> None:
        """Step until the gap is small, ``most`` times at most; rounds are counted as before."""
        if self.tries >= _MOST_AT_A_POINT or not self.knows(np.flatnonzero(split.active)):
            return
        self.tries += 1
        enough, rounds = _SHARPER * tolerance, split.steps
        for _ in range(most):
            certify = split.worth_certifying(enough)
            found = self.steps(split, certify)
            if certify and _gap(split, found) <= enough:
                break
            split.advance({client: step.omega for client, step in found.items()})
        split.steps = rounds

    def state(self, size: int) -> dict[str, NDArray[Any]]:
        """Return what is known, of matrices of ``size`` entries, as arrays."""
        rows = [self.told[client] for client in sorted(self.told)]
        return {
            "told": np.array(rows).reshape(len(rows), size),
            "by": np.array(sorted(self.told), dtype=np.int64),
            "tries": np.array(self.tries),
        }

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Take back `state`."""
        by = state["by"].tolist()
        self.told = {client: row.copy() for client, row in zip(by, state["told"], strict=True)}
        self.tries = int(state["tries"])


def told_at(
    places: NDArray[np.integer], pairs: NDArray[np.integer], correlations: Vector
) -> Vector:
    """Return the correlations at ``places``, 0 where none was told; ``pairs`` rise."""
    found = np.zeros(places.size)
    if pairs.size:
        where = np.minimum(np.searchsorted(pairs, places), pairs.size - 1)
        told = pairs[where] == places
        found[told] = correlations[where[told]]
    return found


def _gap(split: Splitting, found: Mapping[int, Step]) -> float:
    losses, log_dets = (np.full(len(split.active), np.nan) for _ in range(2))
    for client, step in found.items():
        losses[client], log_dets[client] = step.loss, step.log_det
    return split.gap(losses, log_dets)
