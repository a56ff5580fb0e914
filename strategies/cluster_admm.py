"""The strategy of cluster-admm [GG]: S servers, Q clusters across them, duals at the server.

A client is sent v_k = phi_k + rho w_{s,q} and returns w_k, (4); the servers' steps are in
`cluster_mixing`. Clients keep nothing: the iterates are those of the paper, which keeps the duals
at the clients, with half the traffic, and a device may crash and come back.

A client that is not scheduled keeps its dual, and a pair of server and cluster without a scheduled
client keeps its model. With ``exact`` mixing every client that ever answered counts with its last
w_k.

Arrays: ``models`` (S, Q, d), ``duals`` and ``last`` (K, d), ``server_duals`` (S, Q, d).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from flwr.app import ConfigRecord, RecordDict
from numpy.typing import NDArray

from . import wire
from .base import Client, Row, StudyError, StudyStrategy
from .cluster_mixing import aggregate, exact_update, over_clusters, over_servers
from .server_clients import drawn_by_server
from .topology import Topology

Vector = NDArray[np.float64]

# A model this many times larger than the largest of the first rounds is on its way to infinity.
_EXPLOSION = 1e3
_FIRST_ROUNDS = 10


@dataclass(frozen=True)
class ClusterTask:
    """What to solve.

    Attributes
    ----------
    topology : the servers' graph
    clusters : Q
    rho : of the augmented Lagrangian
    tau : by round, how much clusters learn from each other
    exact : mix exactly, or as the paper does
    apart : servers do not talk to each other
    """

    topology: Topology
    clusters: int
    rho: float
    tau: Callable[[int], float]
    exact: bool = False
    apart: bool = False


class ClusterAdmm(StudyStrategy[Vector]):
    """One model a cluster over a graph of servers.

    Parameters
    ----------
    task : what to solve
    size : d, the number of a model's parameters; set when the clients' variables are known
    """

    def __init__(self, *args: Any, task: ClusterTask, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.task = task
        graph = task.topology
        self.adjacency = np.zeros_like(graph.adjacency) if task.apart else graph.adjacency

    def begin(self, clients: Sequence[Client]) -> None:
        """Start at zero, every client with its server and its cluster."""
        servers, clusters = self.task.topology.servers, self.task.clusters
        for client in clients:
            for what, value, count in (
                ("server", client.server, servers),
                ("cluster", client.cluster, clusters),
            ):
                if count > 1 and not 0 <= value < count:
                    raise StudyError(
                        f"client {client.name} belongs to {what} {value}; they are numbered 0 to "
                        f"{count - 1}. Set {what} in its node config or in assignment.csv"
                    )
        self.homes = np.array([c.server if servers > 1 else 0 for c in clients], dtype=np.intp)
        self.groups = np.array([c.cluster if clusters > 1 else 0 for c in clients], dtype=np.intp)
        size = len(clients[0].variables)
        self.models = np.zeros((servers, clusters, size))
        self.server_duals = np.zeros_like(self.models)
        self.duals = np.zeros((len(clients), size))
        self.last = np.zeros_like(self.duals)
        self.seen = np.zeros(len(clients), dtype=bool)
        self.largest = 0.0

    def participants(self, server_round: int) -> list[int]:
        """Return a sample of every server's clients."""
        servers = range(self.task.topology.servers)
        return drawn_by_server(self.homes, servers, self.plan.sample, self.sampler(server_round))

    def share(self, client: int) -> float:
        """Return the client's part of the regulariser: of its server's, or of its cluster's."""
        mates = (
            self.groups == self.groups[client]
            if self.task.exact
            else (self.homes == self.homes[client])
        )
        return 1.0 / float(np.count_nonzero(mates))

    def payload(self, server_round: int, client: int) -> RecordDict:
        """Return v_k, rho and the client's share of the regulariser."""
        model = self.models[self.homes[client], self.groups[client]]
        arrays = wire.record({"v": self.duals[client] + self.task.rho * model})
        order = {"round": server_round, "rho": self.task.rho, "share": self.share(client)}
        return RecordDict({"arrays": arrays, "order": ConfigRecord({"task": "step", **order})})

    def read_reply(self, client: int, content: RecordDict) -> Vector:
        """Check a reply: finite, of the model's size."""
        arrays = wire.arrays(content["arrays"])
        if set(arrays) != {"model"}:
            raise wire.BadReply(f"holds {sorted(arrays)}, not a model")
        wire.check_reals(arrays["model"], "model", (self.models.shape[2],))
        return arrays["model"]

    def update(self, server_round: int, replies: Mapping[int, Vector]) -> Row:
        """Apply (8)-(10), or the exact update, then (5)."""
        task, before = self.task, self.models
        answered = np.array(sorted(replies), dtype=np.intp)
        for client in answered:
            self.last[client] = replies[int(client)]
        self.seen[answered] = True
        counted = np.flatnonzero(self.seen) if task.exact else answered
        sent = self.last[counted] - self.duals[counted] / task.rho
        places = self.homes[counted], self.groups[counted]
        tau = task.tau(server_round)
        if task.exact:
            self.models, self.server_duals = exact_update(
                sent, *places, before, self.server_duals, self.adjacency, task.rho, tau
            )
        else:
            aggregated = aggregate(sent, *places, before)
            self.models = over_clusters(over_servers(aggregated, self.adjacency), tau)
        own = self.models[self.homes[answered], self.groups[answered]]
        self.duals[answered] += task.rho * (own - self.last[answered])  # (5)
        self._refuse_divergence(server_round, tau)
        return {"change": _relative(self.models, before), "tau": tau}

    def _refuse_divergence(self, server_round: int, tau: float) -> None:
        """Stop when models grow without bound."""
        size = float(np.max(np.abs(self.models), initial=0.0))
        if server_round <= _FIRST_ROUNDS and np.isfinite(size):
            self.largest = max(self.largest, size)
        elif not size <= _EXPLOSION * max(self.largest, 1e-300):
            raise StudyError(
                f"round {server_round}: the models diverge (an entry of size {size:.3g}). "
                f"rho={self.task.rho:g} is too small for tau={tau:g} on this graph (spectral "
                f"radius {self.task.topology.spectral_radius:.3g}); use a larger rho"
            )

    def state(self) -> dict[str, NDArray[Any]]:
        """Return every array that the next round depends on."""
        return {
            "models": self.models,
            "server_duals": self.server_duals,
            "duals": self.duals,
            "last": self.last,
            "seen": self.seen,
            "groups": self.groups,
            "largest": np.array(self.largest),
        }

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Take back `state`."""
        for name, now in self.state().items():
            if state[name].shape != now.shape:
                raise ValueError(f"{name} in the checkpoint has shape {state[name].shape}")
            setattr(self, name, state[name].copy())
        self.largest = float(state["largest"])


def _relative(now: NDArray[np.float64], before: NDArray[np.float64]) -> float:
    norm = max(float(np.linalg.norm(now)), float(np.linalg.norm(before)), 1e-12)
    return float(np.linalg.norm(now - before)) / norm
