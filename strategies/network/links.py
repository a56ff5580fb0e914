"""Which links of a server count in a round, and with which weights, from what it knows itself.

No server knows who else is up. Each server p announces, in every letter of round r, from whom it
will take letters from round r + 1 on: its *list* L_p, with the epoch of each. So before round r
both ends of a link know both lists, and the link is used in round r where each stands in the
other's. Its weight follows from the two lists alone:

    metropolis    a_pq = 1 / (1 + max(|L_p|, |L_q|)),    a_pp = 1 - sum of the a_pq that are used
    other rules   a_pq as in the whole graph, and what a lost link had stays with its two ends

A is then symmetric and doubly stochastic in every round in which letters go both ways or neither,
whoever is down: `Topology.without` once the lists have changed, two rounds after a server was last
heard, and meanwhile a part of the matrix before with the rest on the diagonal. A letter that is
lost in one direction only makes A asymmetric for that round: server p gives the weight to itself
and q does not know.

Who sends no letter within the time is off the list. Whoever is heard again, or has started anew,
is put on it, and counts two rounds later.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trellis.privacy.secagg.errors import BadMessage
from trellis.strategies.topology.graph import Topology

Matrix = NDArray[np.float64]
List = dict[int, int]  # epochs by server


class Links:
    """What one server knows of the links around it.

    Parameters
    ----------
    graph : of all servers, as it was planned
    server : this one
    epoch : which start of it this is

    Attributes
    ----------
    counted : the list that this server announces next
    """

    def __init__(self, graph: Topology, server: int, epoch: int) -> None:
        self.graph, self.server, self.epoch = graph, server, epoch
        self.neighbours: list[int] = [int(p) for p in graph.neighbours(server)]
        self.counted: List = {}
        self._announced: List = {}
        self._told: dict[int, List] = {}  # what neighbours have announced
        self._mine: List = {}
        self._theirs: dict[int, List] = {}

    # --- what is to come ---------------------------------------------------------------------

    def begin(self, up: Mapping[int, int]) -> None:
        """Count neighbours by epoch from the first round on, without having announced them."""
        self.counted = {p: up[p] for p in self.neighbours if p in up}
        self._announced = dict(self.counted)

    def announce(self) -> List:
        """Return the list that holds from the next round on."""
        self._announced = dict(self.counted)
        return self._announced

    def heard(self, server: int, epoch: int, notes: Mapping[str, Any] | None = None) -> None:
        """Count a neighbour, and take what it announces, if it does."""
        if notes is not None:
            self._told[server] = _read_list(notes, "next", self.graph.servers)
        self.counted[server] = epoch

    def began_anew(self, server: int, epoch: int) -> None:
        """Count a neighbour that has started again: it will take letters from whoever lists it."""
        self._told.pop(server, None)
        self.counted[server] = epoch

    def gone(self, server: int) -> None:
        """Count a neighbour no more."""
        self.counted.pop(server, None)

    # --- this round --------------------------------------------------------------------------

    def turn(self) -> None:
        """Begin a round: what was announced before it holds until the next."""
        self._mine, self._theirs = dict(self._announced), dict(self._told)

    def still(self, server: int) -> bool:
        """Return whether a neighbour counts as it did when this round began."""
        return server in self._mine and self.counted.get(server) == self._mine[server]

    @property
    def mine(self) -> List:
        """The list of this round, as it was announced."""
        return self._mine

    def used(self) -> list[int]:
        """Return the neighbours whose letters are exchanged in this round."""
        return sorted(p for p in self._mine if self._lists_me(p))

    def _lists_me(self, server: int) -> bool:
        theirs = self._theirs.get(server)
        return theirs is None or theirs.get(self.server) == self.epoch

    def list_of(self, server: int) -> List:
        """Return a neighbour's list; where it has announced none, all that may be on it."""
        if server in self._theirs:
            return self._theirs[server]
        known = {self.server: self.epoch, **self._mine}
        return {int(q): known.get(int(q), 0) for q in self.graph.neighbours(server)}

    def weights(self, without: Collection[int] = ()) -> Matrix:
        """Return A (P, P) of this round.

        Right are this server's row and column, and which entries of its neighbours' rows are zero:
        from whom else they take letters.

        Parameters
        ----------
        without : neighbours whose letters did not come: their weight stays here
        """
        used = [p for p in self.used() if p not in without]
        if len(used) == len(self.neighbours) and self._as_planned():
            return self.graph.weights
        me, linked = self.server, self.graph.adjacency.copy()
        for p in self.neighbours:
            linked[p] &= _chosen(self.list_of(p), len(linked))
        linked[me] = _chosen(used, len(linked))
        linked[:, me] = linked[me]
        across = np.where(linked, self._across(), 0.0)
        return across + np.diag(1.0 - across.sum(axis=1))

    def _across(self) -> Matrix:
        """Return the weights of links by the lists at their ends."""
        if self.graph.rule != "metropolis":
            return self.graph.weights
        sizes = self.graph.degree.copy()
        sizes[self.server] = len(self._mine)
        for p in self.neighbours:
            sizes[p] = len(self.list_of(p))
        return np.asarray(1.0 / (1.0 + np.maximum.outer(sizes, sizes)))

    def _as_planned(self) -> bool:
        return all(
            set(self.list_of(p)) == set(self.graph.neighbours(p).tolist()) for p in self.neighbours
        )


def _chosen(servers: Collection[int], count: int) -> NDArray[np.bool_]:
    row = np.zeros(count, dtype=bool)
    row[list(servers)] = True
    return row


def _read_list(notes: Mapping[str, Any], key: str, servers: int) -> List:
    try:
        found = {int(server): int(epoch) for server, epoch in notes[key].items()}
        if any(not 0 <= server < servers for server in found):
            raise ValueError("no such server")
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise BadMessage(f"a letter whose list {key!r} cannot be read: {error}") from None
    return found
