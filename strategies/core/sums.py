"""Strategies whose update rule sees nothing of the replies but their sum.

That is what secure aggregation can serve: with ``secure`` given, clients' replies reach the server
masked and it learns the sum over the clients that answered, and who they were, but no single reply.
With ``SecureSum(noisy=True)`` devices add noise before they mask, and the sum itself is a counted
release (`apps.common.private.noisy_sum`). A rule that needs single replies (a median, the distances
of (20) in consensus-graph) is no `SumStrategy` and cannot be given one.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from flwr.app import RecordDict
from flwr.serverapp import Grid
from numpy.typing import NDArray

from . import wire
from .base import BadReply, Row, StudyError, StudyStrategy
from .exchange import Answers
from .rules import FEWEST
from .sum_noise import noise_in as noise_in  # until all studies import it from there

# Only a run that gathers its sums masked needs it, and has loaded it then.
if TYPE_CHECKING:
    from .secure import SecureAnswers, SecureSum

Summands = dict[str, NDArray[np.float64]]


def add_up(replies: Sequence[Summands], names: Iterable[str]) -> Summands:
    """Return the named arrays of all replies, added up in the order of the replies."""
    return {name: np.sum([reply[name] for reply in replies], axis=0) for name in names}


class SumStrategy(StudyStrategy[Summands]):
    """A strategy whose update rule is a function of the sum of the clients' replies.

    Parameters
    ----------
    secure : gather the sum by secure aggregation; None gathers the replies in the clear

    Every client's payload must be the same: devices mask with what they were sent, so a sum over
    clients that were sent different things does not open.

    ``per_count`` names the arrays that are a client's ``count`` times a vector of its own, whose
    weighted mean the rule takes. With ``robust`` median or trimmed it is given the total count
    times the middle of those vectors instead, all clients alike.
    """

    per_count: ClassVar[tuple[str, ...]] = ()

    def __init__(self, *args: Any, secure: SecureSum | None = None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.secure = secure
        # Of one entry of the last sum: the standard deviation of its noise, by the clients' word.
        self.noise = 0.0

    @abstractmethod
    def layout(self) -> dict[str, tuple[int, ...]]:
        """Return names and shapes of the arrays that every client replies with."""

    @abstractmethod
    def update_from_sum(
        self, server_round: int, total: Mapping[str, NDArray[np.float64]], clients: Sequence[int]
    ) -> Row:
        """Apply the update rule to the sum over ``clients``; return metrics, ``change`` in them."""

    def read_reply(self, client: int, content: RecordDict) -> Summands:
        """Check a reply in the clear: the arrays of `layout`, float64 and finite."""
        found = wire.arrays(content["arrays"])
        self._check(found)
        return found

    def update(self, server_round: int, replies: Mapping[int, Summands]) -> Row:
        """Add the replies up, in the order of clients, and apply the rule."""
        order = sorted(replies)
        total = add_up([replies[client] for client in order], self.layout())
        if self.robust.replaces_mean:
            total |= self._middles(server_round, replies)
        return self.update_from_sum(server_round, total, order)

    def count_in(self, client: int, reply: Summands) -> float:
        """Return by how much a client's vectors are multiplied in its reply."""
        return float(reply["count"][0])

    def _middles(self, server_round: int, replies: Mapping[int, Summands]) -> Summands:
        """Return the sums of the arrays in ``per_count`` as if all had sent their middle."""
        counts = {c: self.count_in(c, reply) for c, reply in sorted(replies.items())}
        counts = {client: count for client, count in counts.items() if count > 0.0}
        if len(counts) < FEWEST:
            raise StudyError(
                f"round {server_round}: {len(counts)} usable replies; robust="
                f"{self.robust.rule!r} cannot tell the liar among fewer than {FEWEST}"
            )
        whole = sum(counts.values())
        names = set(self.per_count) & set(self.layout())
        rows = {n: np.array([replies[c][n] / count for c, count in counts.items()]) for n in names}
        return {name: whole * self.robust.centre(found) for name, found in rows.items()}

    def gather(self, grid: Grid, server_round: int) -> Row:
        """Gather the round's sum, masked where ``secure`` is given, and apply the rule."""
        if self.secure is None:
            return super().gather(grid, server_round)
        asked = {c: self.payload(server_round, c) for c in self.participants(server_round)}
        found = self.secure_sum(grid, asked, server_round, self.layout())
        self.noise = noise_in(found)
        answers = Answers({}, dict(found.failures), found.bytes_down, found.bytes_up)
        metrics = self.update_from_sum(server_round, found.total, found.survivors)
        return self._row(answers, found.survivors, metrics)

    def secure_sum(
        self,
        grid: Grid,
        asked: Mapping[int, RecordDict],
        server_round: int,
        layout: Mapping[str, tuple[int, ...]],
    ) -> SecureAnswers:
        """Gather one secure sum; enter what was released for it and who failed.

        What was masked counts, also where the sum does not open and nobody has seen it.
        """
        from .secure import NoSum

        assert self.secure is not None
        try:
            found = self.secure.gather(
                *(grid, asked, self.clients, server_round, self.plan.timeout),
                layout=layout,
            )
        except NoSum as error:
            self._enter_sent(error.found)
            raise
        self._enter_sent(found)
        for name, array in found.total.items():
            wire.check_reals(array, name, layout[name])
        self.note_failures(server_round, Answers({}, dict(found.failures)))
        return found

    def _enter_sent(self, found: SecureAnswers) -> None:
        for client, content in found.sent:
            self._enter_releases(client, content)

    def _check(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        layout = self.layout()
        if set(arrays) != set(layout):
            raise BadReply(f"holds {sorted(arrays)}, not {sorted(layout)}")
        for name, array in arrays.items():
            wire.check_reals(array, name, layout[name])
