"""The strategy of cluster-admm [GG]: S servers, Q clusters across them, duals at the server.

A client is sent v_k = phi_k + rho w_{s,q} and returns w_k, (4); the servers' steps are in
`cluster_mixing`. Clients keep nothing: the iterates are those of the paper, which keeps the duals
at the clients, with half the traffic, and a device may crash and come back.

A client that is not scheduled keeps its dual, and a pair of server and cluster without a scheduled
client keeps its model. With ``exact`` mixing every client that ever answered counts with its last
w_k.

``norm-bound`` limits |w_k - v_k / rho|, the client's step: what (8) averages, w_k - phi_k / rho, is
then as close to w_{s,q}, whatever the dual. With ``robust`` median or trimmed, (8) takes that of
the clients of a server and cluster in place of their mean; a pair with fewer than three learns from
other servers and clusters only.

Arrays: ``models`` (S, Q, d), ``duals`` and ``last`` (K, d), ``server_duals`` (S, Q, d).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from flwr.app import ConfigRecord, RecordDict
from numpy.typing import NDArray

from strategies.core import wire
from strategies.core.base import Client, Row, StudyError, StudyStrategy
from strategies.core.rules import FEWEST
from strategies.topology.clients import drawn_by_server
from strategies.topology.graph import Topology

from .divergence import DivergenceWatch
from .mixing import aggregate, exact_update, over_clusters, over_servers

Vector = NDArray[np.float64]

log = logging.getLogger("trellis.strategy")

_KEPT = ("models", "server_duals", "duals", "last", "seen", "groups")


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
    """

    held_out = 0.0  # the part of its samples that a client leaves out when it trains

    def __init__(self, *args: Any, task: ClusterTask, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.task = task
        self._counted: tuple[NDArray[np.intp], list[float]] | None = None
        graph = task.topology
        self.adjacency = np.zeros_like(graph.adjacency) if task.apart else graph.adjacency

    def begin(self, clients: Sequence[Client]) -> None:
        """Start at zero, every client with its server and its cluster."""
        self.size = len(clients[0].variables)
        self.homes = placed(clients, "server", self.task.topology.servers)
        self.groups = placed(clients, "cluster", self.task.clusters)
        self.set_up(self.task.clusters)
        if self.robust.replaces_mean:
            self._name_small_pairs()

    def _name_small_pairs(self) -> None:
        """Say which servers learn nothing of a cluster from their own clients."""
        sizes = np.zeros(self.models.shape[:2], dtype=np.intp)
        np.add.at(sizes, (self.homes, self.groups), 1)
        for server, cluster in np.argwhere((sizes > 0) & (sizes < FEWEST)).tolist():
            log.warning(
                "robust=%s: server %d has %d clients of cluster %d; it takes no middle of fewer "
                "than %d and learns that cluster from its neighbours only",
                *(self.robust.rule, server, sizes[server, cluster], cluster, FEWEST),
            )

    def set_up(self, clusters: int) -> None:
        """Start at zero with so many clusters."""
        count, size = len(self.homes), self.size
        self.models = np.zeros((self.task.topology.servers, clusters, size))
        self.server_duals = np.zeros_like(self.models)
        self.duals = np.zeros((count, size))
        self.last = np.zeros_like(self.duals)
        self.seen = np.zeros(count, dtype=bool)
        self.watch = DivergenceWatch()

    def admit(self, client: Client) -> bool:
        """Give a late client its server, its cluster and a dual of zero."""
        home = placed([client], "server", self.task.topology.servers)
        group = placed([client], "cluster", self.task.clusters)
        self.homes = np.concatenate([self.homes, home])
        self.groups = np.concatenate([self.groups, group])
        self.duals = np.vstack([self.duals, np.zeros(self.size)])
        self.last = np.vstack([self.last, np.zeros(self.size)])
        self.seen = np.append(self.seen, False)
        return True

    def iteration(self, server_round: int) -> int:
        """Return n, which iteration of the algorithm this round is."""
        return server_round

    def tau(self, iteration: int) -> float:
        """Return how much clusters learn from each other in an iteration."""
        return self.task.tau(iteration)

    def participants(self, server_round: int) -> list[int]:
        """Return a sample of every server's clients."""
        servers = range(self.task.topology.servers)
        rng = self.sampler(self.iteration(server_round))
        return drawn_by_server(self.homes, servers, self.plan.sample, rng)

    def share(self, client: int) -> float:
        """Return the client's part of the regulariser: of its server's, or of its cluster's."""
        mates = self.groups if self.task.exact else self.homes
        # Counted anew where clients have moved only; they are asked for one by one.
        if self._counted is None or self._counted[0] is not mates:
            self._counted = mates, (1.0 / np.bincount(mates)[mates]).tolist()
        return self._counted[1][client]

    def target(self, clients: int | NDArray[np.intp]) -> Vector:
        """Return v_k = phi_k + rho w_{s,q} of a client (d,), or of several (n, d)."""
        models = self.models[self.homes[clients], self.groups[clients]]
        return self.duals[clients] + self.task.rho * models

    def payload(self, server_round: int, client: int) -> RecordDict:
        """Return v_k, rho and the client's share of the regulariser."""
        arrays = wire.record({"v": self.target(client)})
        order = ConfigRecord({"round": self.iteration(server_round), "rho": self.task.rho})
        order["share"] = self.share(client)
        if self.held_out:
            order["held_out"] = self.held_out
        return RecordDict({"arrays": arrays, "order": order})

    def read_reply(self, client: int, content: RecordDict) -> Vector:
        """Check a reply: finite, of the model's size."""
        arrays = wire.arrays(content["arrays"])
        if set(arrays) != {"model"}:
            raise wire.BadReply(f"holds {sorted(arrays)}, not a model")
        wire.check_reals(arrays["model"], "model", (self.models.shape[2],))
        return arrays["model"]

    def bounded_part(
        self, server_round: int, client: int, reply: Vector
    ) -> tuple[Vector, Vector] | None:
        """Return w_k and v_k / rho, from which its step is measured."""
        return reply, self.target(client) / self.task.rho

    def with_part(self, client: int, reply: Vector, part: Vector) -> Vector:
        """Return another model."""
        return part

    def forget(self, client: int) -> None:
        """Count a client's last model no more."""
        self.seen[client] = False

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
        tau = self.tau(self.iteration(server_round))
        if task.exact:
            self.models, self.server_duals = exact_update(
                sent, *places, before, self.server_duals, self.adjacency, task.rho, tau
            )
        else:
            centre = self.robust.centres if self.robust.replaces_mean else None
            aggregated = aggregate(sent, *places, before, centre)
            self.models = over_clusters(over_servers(aggregated, self.adjacency), tau)
        own = self.models[self.homes[answered], self.groups[answered]]
        self.duals[answered] += task.rho * (own - self.last[answered])  # (5)
        self._refuse_divergence(server_round, tau, before)
        return {"change": relative(self.models, before), "tau": tau}

    def _refuse_divergence(self, server_round: int, tau: float, before: Vector) -> None:
        """Stop when models grow without bound."""
        if self.watch.diverges(self.models, before, self.iteration(server_round)):
            size = float(np.max(np.abs(self.models)))
            raise StudyError(
                f"round {server_round}: the models diverge (an entry of size {size:.3g}). "
                f"rho={self.task.rho:g} is too small for tau={tau:g} on this graph (spectral "
                f"radius {self.task.topology.spectral_radius:.3g}); use a larger rho"
            )

    def state(self) -> dict[str, NDArray[Any]]:
        """Return every array that the next round depends on."""
        kept = {name: getattr(self, name) for name in _KEPT}
        return kept | {"watch": self.watch.memory}

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Take back `state`."""
        for name, now in self.state().items():
            if state[name].shape != now.shape:
                raise ValueError(f"{name} in the checkpoint has shape {state[name].shape}")
        for name in _KEPT:
            setattr(self, name, state[name].copy())
        self.watch.memory = state["watch"].copy()


def placed(clients: Sequence[Client], what: str, count: int) -> NDArray[np.intp]:
    """Return the server or the cluster (K,) that clients say they belong to; 0 of one."""
    places = [getattr(client, what) if count > 1 else 0 for client in clients]
    for client, place in zip(clients, places, strict=True):
        if not 0 <= place < count:
            raise StudyError(
                f"client {client.name} belongs to {what} {place}; they are numbered 0 to "
                f"{count - 1}. Set {what} in its node config or in assignment.csv"
            )
    return np.array(places, dtype=np.intp)


def relative(now: NDArray[np.float64], before: NDArray[np.float64]) -> float:
    """Return |now - before| by the larger of the two norms."""
    norm = max(float(np.linalg.norm(now)), float(np.linalg.norm(before)), 1e-12)
    return float(np.linalg.norm(now - before)) / norm
