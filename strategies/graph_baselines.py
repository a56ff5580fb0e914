"""The baselines of consensus-graph: learning alone (IGL) and one graph for all (FedAvg)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .base import BadReply, Client, Row
from .consensus_graph import ConsensusGraph, GraphReply, Vector


class IndependentGraphs(ConsensusGraph):
    """Every client learns alone (method ``igl``); there is no consensus, it stays zero."""

    def pull(self, client: int) -> float:
        """Return 0: nothing pulls."""
        return 0.0

    def settled(self, row: Row) -> bool:
        """Return whether clients are done: after one round where they solve exactly."""
        return bool(np.all(self.seen)) if not self.send_own else super().settled(row)

    def combine(self, replies: Mapping[int, GraphReply]) -> None:
        """Learn no consensus."""
        self.consensus = np.zeros_like(self.consensus)
        self.gamma = np.zeros_like(self.gamma)

    def objective(self, local: Vector) -> float:
        """Return the sum of the clients' objectives."""
        return float(np.sum(local))


class AveragedGraph(ConsensusGraph):
    """One graph for all clients (method ``fedavg``): the minimiser of (36).

    Averaging full local solutions does not minimise (36): every client drifts to its own optimum.
    Clients' parts of (36) differ in a linear term only, the slope 2 zbar_i. Each client sends its
    slope with its graph and is sent the difference between the mean slope and its own, to add to
    its problem (the control variates of SCAFFOLD); with exact local solves the second round is
    exact. The slope tells the server zbar_i itself.

    ``gamma`` holds the weights N_i / N of the mean.
    """

    def begin(self, clients: Sequence[Client]) -> None:
        """Weigh clients by their number of signals."""
        super().begin(clients)
        counts = np.array([client.count for client in clients], dtype=np.float64)
        self.gamma = counts / np.sum(counts)
        self.slopes = np.zeros_like(self.weights)
        self.shift = np.zeros_like(self.weights)

    def pull(self, client: int) -> float:
        """Return 0: the shared graph is a start, not a target."""
        return 0.0

    def extra_arrays(self, client: int) -> dict[str, Vector]:
        """Send the correction for drift."""
        return {"shift": self.shift[client]}

    def read_reply(self, client: int, content: Any) -> GraphReply:
        """Check a reply, which must carry a slope too."""
        reply = super().read_reply(client, content)
        if reply.slope is None:
            raise BadReply("slope is missing")
        return reply

    def combine(self, replies: Mapping[int, GraphReply]) -> None:
        """Average graphs and slopes, over the clients that ever answered."""
        for client, reply in replies.items():
            if reply.slope is not None:
                self.slopes[client] = reply.slope
        share = np.where(self.seen, self.gamma, 0.0)
        share = share / np.sum(share)
        mean_slope = np.sum(share[:, None] * self.slopes, axis=0)
        self.shift = np.where(self.seen[:, None], mean_slope - self.slopes, 0.0)
        self.consensus = np.sum(share[:, None] * self.weights, axis=0)
        # All clients share one graph; what each proposed is of no further use.
        self.weights = np.tile(self.consensus, (len(self.seen), 1))

    def objective(self, local: Vector) -> float:
        """Return the weighted mean of the clients' objectives, at the graphs they proposed."""
        share = self.gamma[self.seen]
        return float(np.sum(share * local) / np.sum(share))

    def state(self) -> dict[str, NDArray[Any]]:
        """Return the arrays of the next round."""
        return {**super().state(), "slopes": self.slopes, "shift": self.shift}
