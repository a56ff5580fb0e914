"""One exchange: a secure sum, the whole problem solved from it, the result sent to everyone.

Where all that a study needs of its clients is one sum, there are no rounds. A device gets at most
seven messages: enrolment, two for keys, three for the sum, and the public result, from which it may
make one of its own that stays with it (`trellis.apps.common.private.personal`).

A study writes, beside `SumStrategy`'s ``payload`` and ``layout`` and the state:

    solve(total, clients)       the whole problem, from the sum; returns metrics
    public_record()             what every client is told of the result
    take_personal(client, ...)  a simulated client's own result, for evaluation
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from flwr.app import RecordDict
from flwr.serverapp import Grid
from numpy.typing import NDArray

from .base import BadReply, Row
from .closing.deliver import PERSONAL, deliver
from .sums import SumStrategy


class OneSum(SumStrategy):
    """A strategy of one secure sum.

    Parameters
    ----------
    at_home : send clients the public result, so that they make their own from it
    """

    def __init__(self, *args: Any, at_home: bool = True, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.at_home = at_home

    @abstractmethod
    def solve(self, total: Mapping[str, NDArray[np.float64]], clients: Sequence[int]) -> Row:
        """Solve the study's problem from the sum over ``clients``; return metrics."""

    @abstractmethod
    def public_record(self) -> RecordDict:
        """Return the public result as every client is sent it."""

    @abstractmethod
    def take_personal(self, client: int, content: RecordDict) -> None:
        """Take a simulated client's own result; raise `BadReply` to reject it."""

    def update_from_sum(
        self, server_round: int, total: Mapping[str, NDArray[np.float64]], clients: Sequence[int]
    ) -> Row:
        """Solve; one sum is all there is."""
        return {"change": 0.0, **self.solve(total, clients)}

    def participants(self, server_round: int) -> list[int]:
        """Return all clients: none is left out of the one sum."""
        return list(range(len(self.clients)))

    def settled(self, row: Row) -> bool:
        """Return True: another round would change nothing."""
        return True

    def _has_converged(self, row: Row) -> bool:
        return True

    def run(self, grid: Grid, *, resume: bool = False) -> None:
        """Enrol the clients, make the sum, solve, and tell everyone."""
        super().run(grid, resume=resume)
        if self.at_home:
            self.deliver(grid)

    def deliver(self, grid: Grid) -> None:
        """Send every client the public result; take simulated clients' own results."""
        deliver(self, grid, self.public_record(), self.take_personal)


__all__ = ["PERSONAL", "BadReply", "OneSum"]
