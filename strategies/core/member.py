"""What a strategy does besides its rounds where its server is one of a graph; nothing elsewhere.

`Rounds` have a `Member`: of no graph by default, so that all of this is nothing. The other,
``strategies.network.member.GraphMember``, greets the other servers before the first round, has
letters asked for when a round begins, follows servers that are ahead, agrees with them when to
stop, and tells them the end.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any

from flwr.serverapp import Grid

log = logging.getLogger("trellis.strategy")


class Member:
    """A server, or several in one process, that need nobody else."""

    def bridge(self, server: int, node: int) -> None:
        """Take note of a bridge; here it has nothing to do."""
        log.warning("node %d is a bridge of server %d; this run has no other servers", node, server)

    def begin(
        self,
        grid: Grid,
        kept: int,
        mask: bytes,
        facts: Mapping[str, Any],
        look: Callable[[], None],
    ) -> int:
        """Return the first round, after the last that was kept."""
        return kept + 1

    def expect(self, grid: Grid, server_round: int) -> None:
        """Begin a round."""

    def row(self) -> dict[str, float]:
        """Return a round's metrics of the graph."""
        return {}

    def next(self, server_round: int) -> int:
        """Return the round after this one."""
        return server_round + 1

    def may_stop(self, server_round: int, converged: bool) -> bool:
        """Return whether to stop, where this server by itself has or has not converged."""
        return converged

    def end(self, server_round: int) -> None:
        """End, after this round or because something went wrong."""
