"""The strategy of cluster-admm [GG]: S servers, Q clusters across them, duals at the server.

A client is sent v_k = phi_k + rho w_{s,q} and returns w_k, (4); a server's
steps are in `server` and `mixing`. Clients keep nothing: the iterates are those of the paper, which
keeps the duals at the clients, with half the traffic, and a device may crash and come back.

Servers know of each other what they tell, and a `Mailbox` carries that. Usually all servers live in
this process, one after the other. With another mailbox one of them lives here alone: only its rows
of ``models`` and ``server_duals`` are known, those of the others are nan, and its clients are the
only ones.

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
from typing import TYPE_CHECKING, Any

import numpy as np
from flwr.app import ConfigRecord, RecordDict
from numpy.typing import NDArray

from trellis.strategies.core import wire
from trellis.strategies.core.base import Client, Row, StudyError, StudyStrategy
from trellis.strategies.core.rules import FEWEST
from trellis.strategies.network.mailbox import BadLetter, Letter, Mailbox
from trellis.strategies.topology.clients import drawn_by_server
from trellis.strategies.topology.graph import Topology

from .divergence import DivergenceWatch
from .server import ExactServer, MixingServer, PaperServer

if TYPE_CHECKING:
    from trellis.strategies.network.bridges import Bridges

Vector = NDArray[np.float64]

log = logging.getLogger("trellis.strategy")

_KEPT = ("models", "server_duals", "duals", "last", "seen", "groups")
_MEMORY = "memory_"  # what a server remembers that lives alone
_CLIENTS = "clients-by-cluster"


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
    mailbox : carries letters between servers; None is of servers that all live in this process

    Attributes
    ----------
    servers : those that live in this process, by number
    elsewhere : (Q,) clients of every cluster at servers that do not; to be replaced as a whole
    """

    held_out = 0.0  # the part of its samples that a client leaves out when it trains
    together = ""  # why all servers have to live in one process; "" where they need not

    def __init__(
        self, *args: Any, task: ClusterTask, mailbox: Mailbox | Bridges | None = None, **kwargs: Any
    ) -> None:
        super().__init__(*args, **kwargs)
        self.task = task
        self.mailbox = Mailbox(task.topology.servers) if mailbox is None else mailbox
        self.alone = len(self.mailbox.own) < task.topology.servers
        if not isinstance(self.mailbox, Mailbox):
            from trellis.strategies.network.member import GraphMember

            self.network = GraphMember(self.mailbox)
            self.mailbox.on_gone = lambda neighbour: self._lone.drop(neighbour)
            self.mailbox.on_join = lambda neighbour: self._lone.join(neighbour)
        if self.alone and self.together:
            raise StudyError(f"servers on machines of their own: {self.together}")
        self.elsewhere = np.zeros(task.clusters)
        self._counted: tuple[NDArray[Any], NDArray[Any], list[float]] | None = None
        graph = task.topology
        self.adjacency = np.zeros_like(graph.adjacency) if task.apart else graph.adjacency

    def places(self) -> Mapping[str, int]:
        """Return how many servers and clusters there are."""
        return {"server": self.task.topology.servers, "cluster": self.task.clusters}

    def begin(self, clients: Sequence[Client]) -> None:
        """Start at zero, every client with its server and its cluster."""
        self.size = self.parameters(clients)
        self.homes = self._homes(clients)
        self.groups = placed(clients, "cluster", self.task.clusters)
        self.set_up(self.task.clusters)
        if self.robust.replaces_mean:
            self._name_small_pairs()

    @property
    def _lone(self) -> MixingServer:
        """The one server that lives here."""
        return self.servers[int(self.mailbox.own[0])]

    def greeting(self) -> tuple[bytes, dict[str, Any]]:
        """Return how many clients of every cluster are here."""
        counts = np.bincount(self.groups, minlength=self.models.shape[1])
        return b"", {_CLIENTS: counts.tolist()}

    def met(self, first: int, planned: int) -> None:
        """Count the clients of other servers, and begin anew with who has gone on meanwhile."""
        if isinstance(self.mailbox, Mailbox):
            return
        from trellis.strategies.network.greeting import KEPT_ROUND

        mail, me = self.mailbox, self.mailbox.place.server
        told = {s: g.facts.get(_CLIENTS) for s, g in mail.board.greetings.items() if s != me}
        self.elsewhere = sum(
            (self._counts(s, t) for s, t in told.items()), np.zeros(self.models.shape[1])
        )
        kept = {s: g.facts.get(KEPT_ROUND) for s, g in mail.board.greetings.items()}
        for neighbour in self._lone.neighbours:
            if neighbour not in mail.links.counted:
                self._lone.drop(neighbour)
            elif first != planned or kept.get(neighbour) != planned - 1:
                self._lone.join(neighbour)

    def _counts(self, server: int, told: Any) -> Vector:
        """Return a server's numbers of clients (Q,)."""
        clusters = self.models.shape[1]
        whole = isinstance(told, list) and all(type(n) is int and n >= 0 for n in told)
        if not whole or len(told) != clusters:
            raise StudyError(
                f"server {server} tells {told!r} clients by cluster; {clusters} numbers are needed"
            )
        return np.array(told, dtype=np.float64)

    def _homes(self, clients: Sequence[Client]) -> NDArray[np.intp]:
        """Return the server (K,) of clients, each of which must live here."""
        homes = placed(clients, "server", self.task.topology.servers)
        for client, home in zip(clients, homes.tolist(), strict=True):
            if home not in self.mailbox.own:
                raise StudyError(
                    f"client {client.name} belongs to server {home} and has come to server "
                    f"{self.mailbox.own[0]}. Let its SuperNode connect to its own server's "
                    "SuperLink, or set server in its node config"
                )
        return homes

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
        unknown = np.nan if self.alone else 0.0
        self.models = np.full((self.task.topology.servers, clusters, size), unknown)
        self.server_duals = np.full_like(self.models, unknown)
        self.servers = {int(s): self._server(int(s), (clusters, size)) for s in self.mailbox.own}
        for number, server in self.servers.items():
            self.models[number], self.server_duals[number] = server.model, server.dual
        if len(self.elsewhere) != clusters:
            self.elsewhere = np.zeros(clusters)
        self.duals = np.zeros((count, size))
        self.last = np.zeros_like(self.duals)
        self.seen = np.zeros(count, dtype=bool)
        self.watch = DivergenceWatch()

    def _server(self, number: int, shape: tuple[int, int]) -> MixingServer:
        """Return a server at zero, with its neighbours."""
        task, neighbours = self.task, np.flatnonzero(self.adjacency[number]).tolist()
        if task.exact:
            return ExactServer(number, neighbours, shape, task.rho, task.topology.servers)
        centres = self.robust.centres if self.robust.replaces_mean else None
        return PaperServer(number, neighbours, shape, centres)

    def admit(self, client: Client) -> bool:
        """Give a late client its server, its cluster and a dual of zero."""
        home = self._homes([client])
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
        rng = self.sampler(self.iteration(server_round)) if self.plan.sample else None
        return drawn_by_server(self.homes, self.mailbox.own, self.plan.sample, rng)

    def share(self, client: int) -> float:
        """Return the client's part of the regulariser: of its server's, or of its cluster's."""
        mates, elsewhere = self.groups if self.task.exact else self.homes, self.elsewhere
        # Counted anew where clients have moved only; they are asked for one by one.
        known = self._counted
        if known is None or known[0] is not mates or known[1] is not elsewhere:
            counts: NDArray[Any] = np.bincount(mates)
            if self.task.exact:
                counts = np.bincount(mates, minlength=len(elsewhere)) + elsewhere
            self._counted = known = mates, elsewhere, (1.0 / counts[mates]).tolist()
        return known[2][client]

    def target(self, clients: int | NDArray[np.intp]) -> Vector:
        """Return v_k = phi_k + rho w_{s,q} of a client (d,), or of several (n, d)."""
        models = self.models[self.homes[clients], self.groups[clients]]
        return self.duals[clients] + self.task.rho * models

    def payload(self, server_round: int, client: int) -> RecordDict:
        """Return v_k, rho and the client's share of the regulariser."""
        arrays = wire.record({"v": self.target(client), **self.preprocessing})
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
        if answered.size:
            self.last[answered] = np.array([replies[client] for client in answered.tolist()])
        self.seen[answered] = True
        counted = np.flatnonzero(self.seen) if task.exact else answered
        sent = self.last[counted] - self.duals[counted] / task.rho
        tau = self.tau(self.iteration(server_round))
        self._mix(server_round, sent, counted, tau)
        own = self.models[self.homes[answered], self.groups[answered]]
        self.duals[answered] += task.rho * (own - self.last[answered])  # (5)
        here = list(self.servers)
        found, before = self.models[here], before[here]
        self._refuse_divergence(server_round, tau, found, before)
        return {"change": relative(found, before), "tau": tau}

    def _mix(self, server_round: int, sent: Vector, clients: NDArray[np.intp], tau: float) -> None:
        """Let the servers that live here tell and hear: (8)-(10), or the exact update.

        Parameters
        ----------
        sent : (n, d) w_k - phi_k / rho
        clients : (n,) whose
        """
        if not self.alone:
            # Others may have written the models; in step they say all that servers remember.
            for number, server in self.servers.items():
                server.settle(self.models[number], self.server_duals[number], self.models)
        # Every server's clients side by side, in their order: one look for all servers.
        homes = self.homes[clients]
        by_server = np.argsort(homes, kind="stable")
        sent, groups = sent[by_server], self.groups[clients[by_server]]
        ends = np.searchsorted(homes[by_server], np.arange(self.task.topology.servers + 1))
        told: dict[int, dict[int, Letter]] = {}
        for number, server in self.servers.items():
            own = slice(ends[number], ends[number + 1])
            told[number] = server.tell(sent[own], groups[own], tau)
        letters = self.mailbox.carry(server_round, told, self.adjacency)
        self.models, self.server_duals = self.models.copy(), self.server_duals.copy()
        for number, server in self.servers.items():
            self._hear(server_round, server, letters.get(number, {}))
            self.models[number], self.server_duals[number] = server.model, server.dual

    def _hear(self, server_round: int, server: MixingServer, letters: Mapping[int, Letter]) -> None:
        """Let a server hear its neighbours; whose letter is of no use is left out."""
        good = dict(letters)
        while True:
            try:
                server.hear(good)
                return
            except BadLetter as error:
                if isinstance(self.mailbox, Mailbox):
                    raise
                del good[error.server]
                self.mailbox.seen.note(server_round, error.server, f"refused: {error}")

    def _refuse_divergence(
        self, server_round: int, tau: float, models: Vector, before: Vector
    ) -> None:
        """Stop when models grow without bound."""
        if self.watch.diverges(models, before, self.iteration(server_round)):
            size = float(np.max(np.abs(models)))
            raise StudyError(
                f"round {server_round}: the models diverge (an entry of size {size:.3g}). "
                f"rho={self.task.rho:g} is too small for tau={tau:g} on this graph (spectral "
                f"radius {self.task.topology.spectral_radius:.3g}); use a larger rho"
            )

    def state(self) -> dict[str, NDArray[Any]]:
        """Return every array that the next round depends on."""
        kept = {name: getattr(self, name) for name in _KEPT}
        return kept | {"watch": self.watch.memory} | self._memories()

    def _memories(self) -> dict[str, NDArray[Any]]:
        """Return what servers remember; of servers that live together the models say it all."""
        if not self.alone:
            return {}
        return {
            f"{_MEMORY}{number}_{name}": array
            for number, server in self.servers.items()
            for name, array in server.state().items()
        }

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Take back `state`."""
        for name, now in self.state().items():
            if not name.startswith(_MEMORY) and state[name].shape != now.shape:
                raise ValueError(f"{name} in the checkpoint has shape {state[name].shape}")
        for name in _KEPT:
            setattr(self, name, state[name].copy())
        self.watch.memory = state["watch"].copy()
        for number, server in self.servers.items() if self.alone else ():
            own = f"{_MEMORY}{number}_"
            kept = {key[len(own) :]: array for key, array in state.items() if key.startswith(own)}
            server.restore(kept)


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
