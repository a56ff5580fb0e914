"""What one server of a graph saw of its neighbours, and when: for its report."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

log = logging.getLogger("trellis.network")


class Seen:
    """Letters by round and neighbour, and what happened on the way.

    Parameters
    ----------
    names : of all servers
    server : this one
    neighbours : L of them

    Attributes
    ----------
    round : the one that is under way, 0 before the first
    events : what a reader should know: round, seconds since the start, server, what
    """

    def __init__(self, names: Sequence[str], server: int, neighbours: Sequence[int]) -> None:
        self.names, self.server, self.neighbours = list(names), server, list(neighbours)
        self.round = 0
        self.events: list[dict[str, Any]] = []
        self._began = time.monotonic()
        self._rows: list[NDArray[np.float64]] = []  # (L, 3): round, weight, seconds
        self._came = dict.fromkeys(self.neighbours, np.nan)

    def begin(self, server_round: int) -> None:
        """Begin a round."""
        self.round = server_round
        row = np.zeros((len(self.neighbours), 3))
        row[:, 2] = np.nan
        self._rows.append(row)

    def note(self, server_round: int, server: int, what: str) -> None:
        """Keep what happened with a neighbour, and say it."""
        last = self.events[-1] if self.events else {}
        if (last.get("server"), last.get("what")) == (server, what):
            return  # the same again
        seconds = round(time.monotonic() - self._began, 3)
        self.events.append(
            {"round": server_round, "seconds": seconds, "server": server, "what": what}
        )
        log.warning("round %d: %s %s", server_round, self.names[server], what)

    def came(self, server: int) -> None:
        """Take the time of a letter."""
        self._came[server] = time.monotonic() - self._began

    def used(self, server: int, number: int) -> None:
        """Note that this round takes a letter of round ``number``; weight 1 unless `weigh` says."""
        place = self.neighbours.index(server)
        self._rows[-1][place] = number, 1.0, self._came[server]

    def weigh(self, weights: NDArray[np.float64]) -> None:
        """Note the weights (P,) that the letters of this round have."""
        row = self._rows[-1]
        row[:, 1] = np.where(row[:, 0] > 0.0, weights[self.neighbours], 0.0)
        row[row[:, 1] == 0.0, 0] = 0.0  # it came, and could not be used

    def row(self) -> dict[str, float]:
        """Return this round's metrics: how many letters, and by how many rounds the oldest is."""
        rounds = self._rows[-1][:, 0]
        there = rounds[rounds > 0.0]
        oldest = float(max(0.0, self.round - there.min())) if there.size else 0.0
        return {"links": float(there.size), "oldest": oldest}

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return ``link_rounds``, ``link_weights`` and ``link_seconds``, each (R, L)."""
        whole = np.array(self._rows).reshape(len(self._rows), len(self.neighbours), 3)
        return {
            "link_rounds": whole[:, :, 0].astype(np.int64),
            "link_weights": whole[:, :, 1],
            "link_seconds": whole[:, :, 2],
        }

    # --- checkpoints -------------------------------------------------------------------------

    def state(self) -> NDArray[np.float64]:
        """Return the letters of all rounds so far (R, L, 3)."""
        return np.array(self._rows).reshape(len(self._rows), len(self.neighbours), 3)

    def restore(self, state: NDArray[np.float64]) -> None:
        """Take back `state`; times begin anew."""
        self._rows = list(state)
