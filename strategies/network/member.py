"""What a strategy does besides its rounds where its server is one of a graph."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from typing import Any

from flwr.serverapp import Grid

from trellis.strategies.core.member import Member

from .bridges import Bridges
from .greeting import greet

log = logging.getLogger("trellis.network")

_BEAT = 1.0  # seconds between two signs of life


class GraphMember(Member):
    """One server of a graph.

    Parameters
    ----------
    mail : its letters
    """

    def __init__(self, mail: Bridges) -> None:
        self.mail = mail
        self._ended = threading.Event()

    def bridge(self, server: int, node: int) -> None:
        """Take note of a bridge."""
        self.mail.bridge(server, node)

    def begin(
        self,
        grid: Grid,
        kept: int,
        mask: bytes,
        facts: Mapping[str, Any],
        look: Callable[[], None],
    ) -> int:
        """Greet the others, give signs of life from now on, and return the first round."""
        try:
            first = greet(
                *(self.mail, grid, kept), mask=mask, facts=facts, look=look, on_greeted=self._live
            )
        except BaseException:
            self._ended.set()  # no sign of life of a run that has not begun
            raise
        if first > kept + 1:
            log.info("the graph is at work: this server goes on with round %d", first)
        return first

    def _live(self) -> None:
        threading.Thread(target=self._beat, name="trellis-pulse", daemon=True).start()

    def _beat(self) -> None:
        while not self._ended.is_set():
            self.mail.beat()
            self._ended.wait(_BEAT)

    def expect(self, grid: Grid, server_round: int) -> None:
        """Ask for the letters of a round."""
        self.mail.expect(grid, server_round)

    def row(self) -> dict[str, float]:
        """Return how many letters a round took, and how old the oldest is."""
        return self.mail.seen.row()

    def next(self, server_round: int) -> int:
        """Return the next round: one that a neighbour is in already, or the one after this."""
        return max(server_round + 1, self.mail.ahead if self.mail.in_step else 0)

    def may_stop(self, server_round: int, converged: bool) -> bool:
        """Return whether all servers have been quiet for long enough."""
        self.mail.quiet.note(server_round, converged)
        return self.mail.quiet.may_stop(server_round)

    def end(self, server_round: int) -> None:
        """Tell the neighbours, and give no more signs of life."""
        self._ended.set()
        self.mail.close(server_round)
