"""When to stop, where nobody sees all servers: the tolerance, agreed on by what letters carry.

Each server notes since which round its own change has been within the tolerance, and passes on what
it has heard of the others, the latest of each. A note crosses the graph in fewer than P rounds. So
P rounds after the last server became quiet all know it, and all stop after the same round, unless
one has meanwhile become restless again: then it goes on without those that have stopped. Who has
not been heard of for 2 P rounds is taken for gone.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trellis.privacy.secagg.errors import BadMessage

RESTLESS = -1


class Quiet:
    """Since when servers are quiet, as far as one of them knows.

    Parameters
    ----------
    server : this one
    servers : P
    """

    def __init__(self, server: int, servers: int) -> None:
        self.server, self.servers = server, servers
        self._known: dict[int, tuple[int, int]] = {}  # since when, as of which round

    def note(self, server_round: int, quiet: bool) -> None:
        """Say whether this server is quiet after a round."""
        since = self._known.get(self.server, (RESTLESS, 0))[0]
        if not quiet:
            since = RESTLESS
        elif since == RESTLESS:
            since = server_round
        self._known[self.server] = since, server_round

    def encode(self) -> dict[str, list[int]]:
        """Return what is known, for a letter."""
        return {str(server): list(known) for server, known in self._known.items()}

    def heard(self, notes: Mapping[str, Any]) -> None:
        """Take what a neighbour knows; the latest of each server counts."""
        try:
            told = {int(s): (int(a), int(b)) for s, (a, b) in notes["quiet"].items()}
            if any(not 0 <= server < self.servers for server in told):
                raise ValueError("no such server")
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise BadMessage(f"a letter whose note 'quiet' cannot be read: {error}") from None
        for server, known in told.items():
            if server != self.server and known[1] > self._known.get(server, (0, -1))[1]:
                self._known[server] = known

    def may_stop(self, server_round: int) -> bool:
        """Return whether all servers that are heard of have been quiet for long enough."""
        recent = [s for s, last in self._known.values() if last >= server_round - 2 * self.servers]
        enough = server_round >= max(recent, default=0) + self.servers
        return enough and bool(recent) and RESTLESS not in recent
