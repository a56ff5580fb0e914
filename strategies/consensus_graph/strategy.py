"""The server of consensus-graph [ZW]: the update rule (19)-(20) and the Flower strategy around it.

The server holds what the paper spreads over the clients: every client's last graph w_i, its weight
gamma_i and the consensus w_con. A client that was not asked, failed or answered nonsense keeps its
last graph in the sum; one that never answered, or was left out, has no part in it.

    w_con  = soft(sum_i gamma_i w_i / C, lambda / (C rho)),   C = sum_i gamma_i      (19)
    gamma_i = 1 / (|w_i - w_con|_2 + eps)                                            (20)

``norm-bound`` limits |w_i - w_con|. With ``robust`` median or trimmed, that of the clients' graphs
stands in (19) in place of their weighted mean, all clients alike: weights gamma would let one that
repeats w_con, whose gamma is 1 / eps, hold it where it is. While fewer than three have answered it
stays what it was.

Arrays: ``weights`` (I, p), ``consensus`` (p,), ``gamma`` (I,), p = d (d - 1) / 2.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, MetricRecord, RecordDict
from numpy.typing import NDArray

from trellis.strategies.core import wire
from trellis.strategies.core.base import BadReply, Client, Row, StudyStrategy
from trellis.strategies.core.rules import FEWEST

from .start import first_of

Vector = NDArray[np.float64]

_SMALLEST_DISTANCE = 1e-6  # epsilon_gamma in (20)


def soft_threshold(x: Vector, threshold: float) -> Vector:
    """Return the proximal operator of ``threshold`` |x|_1."""
    return np.sign(x) * np.maximum(np.abs(x) - threshold, 0.0)


def consensus_update(weights: Vector, gamma: Vector, rho: float, lambda_: float) -> Vector:
    """Return w_con (p,), (19): the sparse weighted mean of the graphs ``weights`` (I, p)."""
    total = float(np.sum(gamma))
    mean = np.sum(gamma[:, None] * weights, axis=0) / total
    return soft_threshold(mean, lambda_ / (total * rho))


def gamma_update(weights: Vector, consensus: Vector) -> Vector:
    """Return gamma (I,), (20): the closer a client is to the consensus, the more it weighs."""
    gap = weights - consensus
    return 1.0 / (np.sqrt(np.sum(gap * gap, axis=1)) + _SMALLEST_DISTANCE)


def joint_objective(
    local: Vector, weights: Vector, consensus: Vector, rho: float, lambda_: float
) -> float:
    """Return the objective of (8), from the clients' own parts ``local`` (I,)."""
    gap = weights - consensus
    distances = np.sqrt(np.sum(gap * gap, axis=1))
    penalty = rho * np.sum(distances) + lambda_ * np.sum(np.abs(consensus))
    return float(np.sum(local) + penalty)


@dataclass(frozen=True)
class GraphReply:
    """One client's reply: its graph and its part of the objective."""

    weights: Vector
    objective: float


class ConsensusGraph(StudyStrategy[GraphReply]):
    """Federated graph learning with a sparse consensus (method ``fedgl``).

    Parameters
    ----------
    rho, lambda_ : > 0 and >= 0, of (8)
    send_own : also send each client its own last graph, to start gradient steps from
    opens : ask the first round's question with enrolment
    """

    def __init__(
        self,
        *args: Any,
        rho: float,
        lambda_: float,
        send_own: bool = False,
        opens: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(*args, **kwargs)
        self.rho = rho
        self.lambda_ = lambda_
        self.send_own = send_own
        self.opens = opens
        self._packed = wire.PackedOnce()

    def begin(self, clients: Sequence[Client]) -> None:
        """Start from the complete graph with equal weights and gamma_i = 1 / I."""
        count = len(clients)
        self.consensus = first_graph(clients)
        self.weights = np.tile(self.consensus, (count, 1))
        self.gamma = np.full(count, 1.0 / count)
        self.local = np.full(count, np.nan)
        self.seen = np.zeros(count, dtype=bool)

    def admit(self, client: Client) -> bool:
        """Make room for a late client, at the consensus: it has no part in it before it answers."""
        count = len(self.gamma) + 1
        self.weights = np.vstack([self.weights, self.consensus])
        self.gamma = np.append(self.gamma, 1.0 / count)
        self.local = np.append(self.local, np.nan)
        self.seen = np.append(self.seen, False)
        return True

    def opening(self) -> RecordDict | None:
        """Return the first round's pull; the graph that it starts from, clients know."""
        if not self.opens or self.send_own:
            return None
        return RecordDict({"order": ConfigRecord({"round": 1, "pull": self.first_pull()})})

    def first_pull(self) -> float:
        """Return the pull of the first round, the same for all clients."""
        return float(self.rho * (1.0 / self.plan.clients))

    def pull(self, client: int) -> float:
        """Return rho gamma_i, how hard the consensus pulls this client."""
        return float(self.rho * self.gamma[client])

    def payload(self, server_round: int, client: int) -> RecordDict:
        """Return the consensus and the pull, and the client's own graph where steps start there."""
        own = {"own": self.weights[client]} if self.send_own else {}
        return self._asking(server_round, self.pull(client), self.consensus, own)

    def _asking(
        self, server_round: int, pull: float, consensus: Vector, own: Mapping[str, Vector]
    ) -> RecordDict:
        """Return a round's question; all clients are sent the same consensus."""
        arrays = wire.record({"consensus": self._packed(consensus), **own})
        order = ConfigRecord({"round": server_round, "pull": pull})
        return RecordDict({"arrays": arrays, "order": order})

    def read_reply(self, client: int, content: RecordDict) -> GraphReply:
        """Check a reply: a finite, non-negative graph of the right size."""
        record = content["arrays"]
        if not isinstance(record, ArrayRecord):
            raise BadReply("no arrays in it")
        if "weights" not in record:
            raise BadReply("weights is missing")
        weights = wire.unpack(record["weights"])
        wire.check_reals(weights, "weights", self.consensus.shape)
        if np.min(weights) < 0.0:
            raise BadReply(f"weights has a negative entry, {np.min(weights):g}")
        value = np.nan
        metrics = content.get("metrics")
        if isinstance(metrics, MetricRecord):
            value = float(metrics["objective"])  # type: ignore[arg-type]
            if not np.isfinite(value):
                raise BadReply(f"objective is {value}")
        return GraphReply(weights, value)

    def bounded_part(
        self, server_round: int, client: int, reply: GraphReply
    ) -> tuple[Vector, Vector] | None:
        """Return a client's graph and the consensus that it was sent."""
        return reply.weights, self.consensus

    def with_part(self, client: int, reply: GraphReply, part: Vector) -> GraphReply:
        """Return another graph; between two without negative weights there is none with one."""
        return replace(reply, weights=part)

    def forget(self, client: int) -> None:
        """Count a client's last graph no more."""
        self.seen[client] = False

    def update(self, server_round: int, replies: Mapping[int, GraphReply]) -> Row:
        """Apply (19) and (20)."""
        before_weights, before_consensus = self.weights.copy(), self.consensus
        for client, reply in replies.items():
            self.weights[client] = reply.weights
            self.local[client] = reply.objective
            self.seen[client] = True
        self.combine(replies)
        change = max(
            relative_change(self.weights, before_weights),
            relative_change(self.consensus, before_consensus),
        )
        row = {"change": change, "consensus-edges": float(np.count_nonzero(self.consensus))}
        local = self.local[self.seen]
        if np.all(np.isfinite(local)):
            row["objective"] = self.objective(local)
        return row

    def combine(self, replies: Mapping[int, GraphReply]) -> None:
        """Make the consensus from the clients' graphs."""
        seen = self.seen
        if self.robust.replaces_mean and np.count_nonzero(seen) < FEWEST:
            return
        if self.robust.replaces_mean:
            middle = self.robust.centre(self.weights[seen])
            threshold = self.lambda_ / (float(np.sum(self.gamma[seen])) * self.rho)
            self.consensus = soft_threshold(middle, threshold)
        else:
            self.consensus = consensus_update(
                self.weights[seen], self.gamma[seen], self.rho, self.lambda_
            )
        self.gamma[seen] = gamma_update(self.weights[seen], self.consensus)

    def objective(self, local: Vector) -> float:
        """Return the objective that the rounds bring down."""
        return joint_objective(
            local, self.weights[self.seen], self.consensus, self.rho, self.lambda_
        )

    def state(self) -> dict[str, NDArray[Any]]:
        """Return the arrays of the next round."""
        return {
            "weights": self.weights,
            "consensus": self.consensus,
            "gamma": self.gamma,
            "local": self.local,
            "seen": self.seen,
        }

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Take back `state`."""
        for name, now in self.state().items():
            if state[name].shape != now.shape:
                raise ValueError(f"{name} in the checkpoint has shape {state[name].shape}")
            setattr(self, name, state[name].copy())


def first_graph(clients: Sequence[Client]) -> Vector:
    """Return the graph (p,) to start from, see `first_of`."""
    return first_of(len(clients[0].variables))


def relative_change(now: Vector, before: Vector) -> float:
    """Return |now - before| / |before|."""
    norm = float(np.sqrt(np.sum(before * before)))
    gap = now - before
    return float(np.sqrt(np.sum(gap * gap))) / max(norm, 1e-12)
