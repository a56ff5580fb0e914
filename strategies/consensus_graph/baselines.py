"""The baselines of consensus-graph: learning alone (IGL) and one graph for all (FedAvg)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from flwr.app import ConfigRecord, RecordDict
from numpy.typing import NDArray

from trellis.strategies.core import wire
from trellis.strategies.core.base import Client, Row
from trellis.strategies.core.sums import Summands, SumStrategy

from .bound import joined, parted, sent_terms
from .strategy import ConsensusGraph, GraphReply, Vector, first_graph, relative_change


class IndependentGraphs(ConsensusGraph):
    """Every client learns alone (method ``igl``); there is no consensus, it stays zero."""

    def first_pull(self) -> float:
        """Return 0: nothing pulls."""
        return 0.0

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


class AveragedGraph(SumStrategy):
    """One graph for all clients (method ``fedavg``): the minimiser of (36).

    Averaging full local solutions does not minimise (36): every client drifts to its own optimum.
    Clients' parts of (36) differ in a linear term only, the slope 2 zbar_i. Clients send their
    slopes with their first graphs and are sent the mean slope, to put in the place of their own
    (the control variates of SCAFFOLD); with exact local solves the second round is exact.

    The first round asks all clients, whatever ``sample`` is, for N_i times their graph, slope and
    objective. Slopes never change, so they are summed once, over one set of clients: sums over
    sets that change from round to round would be equations to solve for every client's own. Later
    rounds ask for N_i times the graph, which is computed from what the server sends. N_i is known
    from enrolment. Only sums are used, so they can be gathered by secure aggregation; in the clear
    a slope tells the server zbar_i itself.

    A client that is missing in the first round has no part in the mean slope.

    With the mean slope the server knows all that it needs, and given ``exact`` it solves (36) by
    itself: one round is all there is.

    Parameters
    ----------
    objective : the objective of (36) at a graph (p,) with the mean zbar (p,)
    send_own : also send the shared graph as the start of gradient steps
    beta : ridge of (36); of what ``norm-bound`` limits, see `bound`
    exact : the minimiser of (36) from the mean zbar (p,); None asks clients for it
    """

    per_count = ("weights", "slope")

    def __init__(
        self,
        *args: Any,
        objective: Callable[[Vector, Vector], float],
        send_own: bool = False,
        beta: float = 1.0,
        exact: Callable[[Vector], Vector] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(*args, **kwargs)
        self.objective = objective
        self.exact = exact
        self.send_own = send_own
        self.beta = beta

    def begin(self, clients: Sequence[Client]) -> None:
        """Start from the complete graph with equal weights."""
        self.consensus = first_graph(clients)
        self.slope = np.zeros(0)  # not known before the first round
        self._weigh(clients)

    def admit(self, client: Client) -> bool:
        """Make room for a late client, and ask all for their slopes anew; not under masks.

        Two sums of slopes, with and without it, would tell its own.
        """
        if self.slope.size and self.secure is not None:
            return False
        self.slope = np.zeros(0)
        self._weigh([*self.clients, client])
        return True

    def _weigh(self, clients: Sequence[Client]) -> None:
        self.counts = np.array([client.count for client in clients], dtype=np.float64)
        self.gamma = self.counts / np.sum(self.counts)

    def opening(self) -> RecordDict | None:
        """Return the one round's order; what is masked waits for keys."""
        if self.exact is None or self.secure is not None:
            return None
        return RecordDict({"order": ConfigRecord({"round": 1, "pull": 0.0})})

    @property
    def weights(self) -> Vector:
        """Every client's graph (I, p), the same for all."""
        return np.tile(self.consensus, (len(self.gamma), 1))

    def participants(self, server_round: int) -> list[int]:
        """Return the clients asked in this round: all where slopes are to be told."""
        return super().participants(server_round) if self.slope.size else [*range(len(self.gamma))]

    def layout(self) -> dict[str, tuple[int, ...]]:
        """Return what a client replies with."""
        p = self.consensus.shape
        return {"weights": p} if self.slope.size else {"weights": p, "slope": p, "objective": (1,)}

    def payload(self, server_round: int, client: int) -> RecordDict:
        """Return the shared graph and the mean slope."""
        arrays = {"consensus": self.consensus}
        if self.slope.size:
            arrays["slope"] = self.slope
        if self.send_own:
            arrays["own"] = self.consensus
        order = ConfigRecord({"round": server_round, "pull": 0.0})
        return RecordDict({"arrays": wire.record(arrays), "order": order})

    def count_in(self, client: int, reply: Summands) -> float:
        """Return N_i, as many signals as the client has enrolled with."""
        return float(self.clients[client].count)

    def bounded_part(
        self, server_round: int, client: int, reply: Summands
    ) -> tuple[Vector, Vector] | None:
        """Return a client's graph and slope, and those it was sent; see `bound`."""
        count, slope = self.count_in(client, reply), reply.get("slope")
        own = reply["weights"] / count, None if slope is None else slope / count
        mean = self.slope if self.slope.size else None
        sent = sent_terms(self.consensus, mean, slope is not None)
        return joined(own, self.beta), joined(sent, self.beta)

    def with_part(self, client: int, reply: Summands, part: Vector) -> Summands:
        """Return the reply with another graph and slope."""
        count = self.count_in(client, reply)
        graph, slope = parted(part, self.consensus.size, self.beta)
        told = {} if slope is None else {"slope": count * slope}
        return {**reply, "weights": count * graph, **told}

    def update_from_sum(
        self, server_round: int, total: Mapping[str, Vector], clients: Sequence[int]
    ) -> Row:
        """Take the means over the clients that answered, weighted by their numbers of signals."""
        count = float(np.sum(self.counts[list(clients)]))
        before, first = self.consensus, not self.slope.size
        mean = total["weights"] / count
        self.consensus = np.maximum(mean, 0.0)
        if first:
            self.slope = total["slope"] / count
            value = float(total["objective"][0]) / count
        if first and self.exact is not None:
            self.consensus = self.exact(0.5 * self.slope)
            value = self.objective(self.consensus, 0.5 * self.slope)
        elif not first:
            # All that answered have this graph, so their mean objective is that of the mean slope.
            value = self.objective(mean, 0.5 * self.slope)
        return {
            "change": relative_change(self.consensus, before),
            "consensus-edges": float(np.count_nonzero(self.consensus)),
            "objective": value,
        }

    def settled(self, row: Row) -> bool:
        """Return whether the shared graph is known; solved from the mean slope, it is."""
        return self.exact is not None or super().settled(row)

    def _has_converged(self, row: Row) -> bool:
        return self.exact is not None or super()._has_converged(row)

    def state(self) -> dict[str, NDArray[Any]]:
        """Return the arrays of the next round."""
        return {"consensus": self.consensus, "weights": self.weights, "slope": self.slope}

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Take back `state`."""
        if state["consensus"].shape != self.consensus.shape:
            raise ValueError(f"consensus in the checkpoint has shape {state['consensus'].shape}")
        self.consensus, self.slope = state["consensus"].copy(), state["slope"].copy()
