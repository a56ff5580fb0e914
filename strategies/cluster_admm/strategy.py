"""Personalised graph federated learning: the servers of [GG], one model per cluster.

S servers on a graph, Q clusters that cut across them; client k belongs to server s and cluster q.

    min  sum_k loss_k(w_k) / D_k + R   s.t.  clients of a server and cluster agree, neighbours agree

is solved in rounds. A client solves (4), for which it needs v_k = phi_k + rho w_{s,q} and no more:

    w_k = argmin_w  loss_k(w) / D_k + share_k R(w) - <phi_k, w> + rho/2 |w - w_{s,q}|^2      (4)

and the servers compute, for every server s and cluster q,

    wt_{s,q} = mean over the clients that answered of w_k - phi_k / rho                       (8)
    wh_{s,q} = mean over s and its neighbours p of wt_{p,q}                                   (9)
    w_{s,q}  = (1 - tau_n) wh_{s,q} + tau_n / (Q - 1) sum_{r != q} wh_{s,r}                  (10)
    phi_k   += rho (w_{s,q} - w_k)   for the clients that answered                            (5)

The duals phi_k are kept here and not by the clients: the iterates are those of the paper, with half
the traffic, and a device may crash and come back. A client that was not asked or failed keeps its
dual; a pair (s, q) without an answer keeps its model as wt.

All servers usually live in this process. Servers with SuperLinks of their own run this strategy
with one server each, and a `Bridges` carries what they send each other (`server`, `mixing`).

.. [GG] Gauthier et al., Personalized graph federated learning with differential privacy.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.serverapp import Grid
from numpy.typing import NDArray

from trellis.strategies.bounded_grid import Bounded
from trellis.strategies.core import wire
from trellis.strategies.core.enrolment import StudyError
from trellis.strategies.core.rules import FEWEST
from trellis.strategies.network.mailbox import BadLetter, Letter, Mailbox
from trellis.strategies.node_strategy import NodeStrategy
from trellis.strategies.places import ask_places

from .divergence import DivergenceWatch
from .mixing import Centres, neighbourhood_means
from .server import ExactServer, MixingServer, PaperServer

if TYPE_CHECKING:
    from trellis.strategies.network.bridges import Bridges

Vector = NDArray[np.float64]
Place = tuple[int, int]

log = logging.getLogger("trellis.strategy")

_MEMORY = "memory_"  # what a server remembers whose neighbours are elsewhere
_CLIENTS = "clients-by-cluster"


@dataclass(frozen=True)
class PaperMixing:
    """Servers mix as the paper prints it, (8)-(10).

    Attributes
    ----------
    centres : another statistic than the mean in (8), see `mixing.aggregate`
    """

    centres: Centres | None = None

    def server(
        self, number: int, neighbours: list[int], shape: tuple[int, int], rho: float, servers: int
    ) -> MixingServer:
        """Return a server at zero."""
        return PaperServer(number, neighbours, shape, self.centres)

    def counted(self, answered: list[int], last: Mapping[int, Vector]) -> list[int]:
        """Return whose models count in (8): those that answered."""
        return answered

    def mates(self, place: Place) -> tuple[str, int]:
        """Return with whom a client shares the regulariser: all clients of its server."""
        return "server", place[0]


@dataclass(frozen=True)
class ExactMixing:
    """Servers reach the optimum of (1) on every connected graph; see `mixing`."""

    centres: None = None  # it solves for a sum over clients

    def server(
        self, number: int, neighbours: list[int], shape: tuple[int, int], rho: float, servers: int
    ) -> MixingServer:
        """Return a server at zero."""
        return ExactServer(number, neighbours, shape, rho, servers)

    def counted(self, answered: list[int], last: Mapping[int, Vector]) -> list[int]:
        """Return whose last models count: all that ever answered."""
        return sorted(last)

    def mates(self, place: Place) -> tuple[str, int]:
        """Return with whom a client shares the regulariser: all clients of its cluster."""
        return "cluster", place[1]


Mixing = PaperMixing | ExactMixing


class ClusterAdmm(NodeStrategy):
    """One model per cluster over a graph of servers: (4), (5) and (8)-(10) of [GG].

    Start it with ``initial_arrays`` = ``models`` (S, Q, d), zeros for the paper's start;
    ``Result.arrays`` has the learned ``models`` w_{s,q}.

    Sent with ``query.place`` to nodes that are new: see `trellis.strategies.places`.
    Sent with ``train``:
        arrays   ``v`` (d,) float64: phi_k + rho w_{s,q}
        config   ``rho``; ``share``, the client's part of the regulariser R; ``server-round``; and
                 ``train_config``
    Expected back:
        arrays   ``model`` (d,) float64, finite: w_k, the solution of (4)
        metrics  ``num-examples``
    Sent with ``evaluate`` (if ``fraction_evaluate`` > 0):
        arrays   ``model`` (d,): w_{s,q} of the node's server and cluster; config
                 ``evaluate_config``

    Parameters
    ----------
    adjacency : (S, S) bool, the servers' graph
    clusters : Q
    rho : > 0, weight of the augmented Lagrangian
    tau, tau_decay : tau_n = tau tau_decay^n, how much clusters learn from each other in round n
    mixing : how servers combine models: `PaperMixing` (default) or `ExactMixing`
    mailbox : carries what servers send each other; None is for servers that all live in this
        process, a `Bridges` for one with a SuperLink of its own
    options : of `NodeStrategy`

    Attributes
    ----------
    models, server_duals : (S, Q, d); rows of servers that are elsewhere are nan
    duals, last : phi_k and the last w_k, by node
    places : server and cluster, by node
    """

    def __init__(
        self,
        adjacency: NDArray[np.bool_],
        clusters: int,
        rho: float,
        tau: float = 0.0,
        *,
        tau_decay: float = 1.0,
        mixing: Mixing | None = None,
        mailbox: Mailbox | Bridges | None = None,
        **options: Any,
    ) -> None:
        super().__init__(**options)
        self.adjacency = np.asarray(adjacency, dtype=np.bool_)
        self.clusters, self.rho = clusters, rho
        self.tau, self.tau_decay = tau, tau_decay
        self.mixing = mixing or PaperMixing()
        self.mailbox = Mailbox(len(self.adjacency)) if mailbox is None else mailbox
        self.apart = len(self.mailbox.own) < len(self.adjacency)
        if not isinstance(self.mailbox, Mailbox):
            self.mailbox.on_gone = lambda neighbour: self._lone.drop(neighbour)
            self.mailbox.on_join = lambda neighbour: self._lone.join(neighbour)
        self.places: dict[int, Place] = {}
        self.duals: dict[int, Vector] = {}
        self.last: dict[int, Vector] = {}
        self.examples: dict[int, int] = {}
        self.servers: dict[int, MixingServer] = {}
        self.models = self.server_duals = np.zeros((len(self.adjacency), clusters, 0))
        self.elsewhere = np.zeros(clusters)  # clients of every cluster at servers elsewhere
        self.watch = DivergenceWatch()
        self._shares: dict[tuple[str, int], float] = {}

    def begin(self, size: int) -> ArrayRecord:
        """Start at zero with models of ``size`` parameters; return them."""
        servers, unknown = len(self.adjacency), np.nan if self.apart else 0.0
        self.models = np.full((servers, self.clusters, size), unknown)
        self.server_duals = np.full_like(self.models, unknown)
        for number in (int(number) for number in self.mailbox.own):
            neighbours = np.flatnonzero(self.adjacency[number]).tolist()
            shape = self.clusters, size
            server = self.mixing.server(number, neighbours, shape, self.rho, servers)
            self.servers[number] = server
            self.models[number], self.server_duals[number] = server.model, server.dual
        return wire.record({"models": self.models})

    # --- a round ------------------------------------------------------------------------------

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Send each client v_k = phi_k + rho w_{s,q}, and what (4) needs besides."""
        self.before_round(server_round, arrays, grid)
        for node in self.nodes(grid, server_round):
            told = {"rho": self.rho, "share": self.share(node), "server-round": server_round}
            content = RecordDict(
                {
                    "arrays": wire.record({"v": self.target(node)}),
                    "config": ConfigRecord({**config, **told}),
                }
            )
            yield Message(content, node, "train", group_id=str(server_round))

    def before_round(self, server_round: int, arrays: ArrayRecord, grid: Grid) -> None:
        """Take the models as they are now, and ask new nodes where they belong."""
        models = wire.unpack(arrays["models"])
        if not self.servers:
            self.begin(models.shape[2])
        if not self.apart:
            self.models = models
        there = grid.get_node_ids()
        if new := [node for node in there if node not in self.places]:
            self.assign(ask_places(grid, new, self.numbers()))

    def numbers(self) -> dict[str, int]:
        """Return how many servers and clusters nodes can belong to."""
        return {"server": len(self.adjacency), "cluster": self.clusters}

    def target(self, node: int) -> Vector:
        """Return v_k = phi_k + rho w_{s,q} (d,)."""
        return np.asarray(self.duals[node] + self.rho * self.models[self.places[node]])

    def share(self, node: int) -> float:
        """Return the client's part of the regulariser: one over how many share it."""
        return self._shares[self.mixing.mates(self.places[node])]

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Compute the servers' models (8)-(10), then the duals (5)."""
        good = self.usable(replies, self._read)
        if not good:
            return None, None
        self.examples |= {node: count for node, (_, count) in good.items()}
        metrics = self.update(server_round, {node: model for node, (model, _) in good.items()})
        return wire.record({"models": self.models}), MetricRecord(dict(metrics))

    def update(self, server_round: int, w: Mapping[int, Vector]) -> dict[str, float]:
        """Apply (8)-(10), or the exact update, and (5) to the models w_k that came, by node."""
        before, answered, tau = self.models, sorted(w), self.tau_in(server_round)
        self.last |= w
        if not self.apart:
            # The models may have been changed from outside; in step they say what servers remember.
            for number, server in self.servers.items():
                server.settle(self.models[number], self.server_duals[number], self.models)
        sent: dict[int, list[Vector]] = {number: [] for number in self.servers}
        groups: dict[int, list[int]] = {number: [] for number in self.servers}
        for node in self.mixing.counted(answered, self.last):
            number, cluster = self.places[node]
            sent[number].append(self.last[node] - self.duals[node] / self.rho)
            groups[number].append(cluster)
        local: dict[int, dict[int, Letter]] = {}
        for number, server in self.servers.items():
            rows = np.array(sent[number]).reshape(-1, before.shape[2])
            local[number] = server.tell(rows, np.array(groups[number], dtype=np.intp), tau)  # (8)
        heard = self.mailbox.carry(server_round, local, self.adjacency)
        self.models, self.server_duals = before.copy(), self.server_duals.copy()
        for number, server in self.servers.items():
            self._hear(server_round, server, heard.get(number, {}))  # (9), (10)
            self.models[number], self.server_duals[number] = server.model, server.dual
        for node in answered:
            own = self.models[self.places[node]]
            self.duals[node] = self.duals[node] + self.rho * (own - self.last[node])  # (5)
        here = list(self.servers)
        self._refuse_divergence(server_round, tau, self.models[here], before[here])
        return {"change": relative(self.models[here], before[here]), "tau": tau}

    def tau_in(self, server_round: int) -> float:
        """Return tau_n, how much clusters learn from each other in a round."""
        return self.tau * self.tau_decay**server_round

    def _hear(self, server_round: int, server: MixingServer, heard: Mapping[int, Letter]) -> None:
        """Let a server take what its neighbours sent; what is of no use is left out."""
        good = dict(heard)
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
        if self.watch.diverges(models, before, server_round):
            size = float(np.max(np.abs(models)))
            values = np.abs(np.linalg.eigvals(neighbourhood_means(self.adjacency)))
            radius = float(np.sort(values)[-2]) if len(values) > 1 else 0.0
            raise StudyError(
                f"round {server_round}: the models diverge (an entry of size {size:.3g}). "
                f"rho={self.rho:g} is too small for tau={tau:g} on this graph (second eigenvalue "
                f"of (9) {radius:.3g}); use a larger rho"
            )

    def _read(self, content: RecordDict) -> tuple[Vector, int]:
        """Return a reply's model and its number of examples; raise `BadReply`."""
        arrays = wire.arrays(content["arrays"])
        if set(arrays) != {"model"}:
            raise wire.BadReply(f"holds {sorted(arrays)}, not a model")
        wire.check_reals(arrays["model"], "model", self.models.shape[2:])
        return arrays["model"], number_of_examples(content)

    def model_of(self, node: int, arrays: ArrayRecord) -> ArrayRecord:
        """Return the model of the node's server and cluster."""
        return ArrayRecord({"model": wire.pack(self.models[self.places[node]].copy())})

    # --- who belongs where --------------------------------------------------------------------

    def assign(self, places: Mapping[int, Mapping[str, Any]]) -> None:
        """Give nodes their server and their cluster, and a dual of zero."""
        first, size = not self.places, self.models.shape[2]
        for node in sorted(places):
            self.places[node] = self._place(node, places[node])
            if self.places[node][0] not in self.mailbox.own:
                raise StudyError(self.not_here(f"node {node}", self.places[node][0]))
            self.duals.setdefault(node, np.zeros(size))
        self._count()
        if first and self.mixing.centres is not None:
            self._name_small_pairs()

    def _place(self, node: int, said: Mapping[str, Any]) -> Place:
        found = [
            int(said[name]) if number > 1 else 0
            for name, number in (("server", len(self.adjacency)), ("cluster", self.clusters))
        ]
        return found[0], found[1]

    def not_here(self, client: str, server: int) -> str:
        """Return why a client that belongs to another server cannot take part."""
        return (
            f"{client} belongs to server {server} and has come to server {self.mailbox.own[0]}. "
            "Let its SuperNode connect to its own server's SuperLink, or set server in its node "
            "config"
        )

    def _count(self) -> None:
        """Count with how many others every client shares the regulariser."""
        counts = {("cluster", q): float(n) for q, n in enumerate(self.elsewhere)}
        for place in self.places.values():
            mates = self.mixing.mates(place)
            counts[mates] = counts.get(mates, 0.0) + 1.0
        self._shares = {mates: 1.0 / count for mates, count in counts.items() if count}

    def _name_small_pairs(self) -> None:
        """Log which servers learn nothing of a cluster from their own clients."""
        sizes = np.zeros(self.models.shape[:2], dtype=np.intp)
        for place in self.places.values():
            sizes[place] += 1
        for server, cluster in np.argwhere((sizes > 0) & (sizes < FEWEST)).tolist():
            log.warning(
                "server %d has %d clients of cluster %d; it takes no middle of fewer than %d and "
                "learns that cluster from its neighbours only",
                *(server, sizes[server, cluster], cluster, FEWEST),
            )

    def drop(self, node: int) -> None:
        """Count a client's last model no more."""
        self.last.pop(node, None)

    # --- a graph of SuperLinks ----------------------------------------------------------------

    @property
    def _lone(self) -> MixingServer:
        """The one server that lives here."""
        return self.servers[int(self.mailbox.own[0])]

    def handshake(self) -> tuple[bytes, dict[str, Any]]:
        """Return how many clients of every cluster are here."""
        clusters = [cluster for _, cluster in self.places.values()]
        return b"", {_CLIENTS: np.bincount(clusters, minlength=self.clusters).tolist()}

    def joined(self, first: int, planned: int) -> None:
        """Count the clients of other servers; begin anew with those that went on meanwhile."""
        if isinstance(self.mailbox, Mailbox):
            return
        from trellis.strategies.network.greeting import KEPT_ROUND

        mail, me = self.mailbox, self.mailbox.place.server
        told = {s: g.facts.get(_CLIENTS) for s, g in mail.board.greetings.items() if s != me}
        self.elsewhere = sum((self._counts(s, t) for s, t in told.items()), np.zeros(self.clusters))
        self._count()
        kept = {s: g.facts.get(KEPT_ROUND) for s, g in mail.board.greetings.items()}
        for neighbour in self._lone.neighbours:
            if neighbour not in mail.links.counted:
                self._lone.drop(neighbour)
            elif first != planned or kept.get(neighbour) != planned - 1:
                self._lone.join(neighbour)

    def _counts(self, server: int, told: Any) -> Vector:
        """Return a server's numbers of clients (Q,)."""
        whole = isinstance(told, list) and all(type(n) is int and n >= 0 for n in told)
        if not whole or len(told) != self.clusters:
            raise StudyError(
                f"server {server} declares {told!r} clients by cluster; {self.clusters} numbers "
                "are needed"
            )
        return np.array(told, dtype=np.float64)

    # --- checkpoints --------------------------------------------------------------------------

    def state_dict(self) -> dict[str, NDArray[Any]]:
        """Return places, duals and last models by node, and what servers remember."""
        size = self.models.shape[2]
        nodes, answered = sorted(self.places), sorted(self.last)
        memories = {
            f"{_MEMORY}{number}_{name}": array
            for number, server in self.servers.items()
            for name, array in server.state().items()
            if self.apart  # of servers that live together the models say it all
        }
        return {
            "nodes": np.array(nodes, dtype=np.uint64),
            "places": np.array([self.places[n] for n in nodes], dtype=np.int64).reshape(-1, 2),
            "examples": np.array([self.examples.get(n, 0) for n in nodes], dtype=np.int64),
            "duals": np.array([self.duals[n] for n in nodes]).reshape(-1, size),
            "answered": np.array(answered, dtype=np.uint64),
            "last": np.array([self.last[n] for n in answered]).reshape(-1, size),
            "server-duals": self.server_duals,
            "watch": self.watch.memory,
            **memories,
        }

    def load_state_dict(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Restore `state_dict`."""
        if not self.servers:
            self.begin(state["server-duals"].shape[2])
        if state["server-duals"].shape != self.models.shape:
            raise ValueError(f"models in the checkpoint have shape {state['server-duals'].shape}")
        nodes = [int(node) for node in state["nodes"]]
        for node, (server, cluster) in zip(nodes, state["places"].tolist(), strict=True):
            self.places[node] = server, cluster
        known = zip(nodes, state["examples"].tolist(), strict=True)
        self.examples = {node: count for node, count in known if count}
        self.duals |= {n: row.copy() for n, row in zip(nodes, state["duals"], strict=True)}
        answered = [int(node) for node in state["answered"]]
        self.last = {n: row.copy() for n, row in zip(answered, state["last"], strict=True)}
        self.server_duals = state["server-duals"].copy()
        self.watch.memory = state["watch"].copy()
        self._count()
        for number, server in self.servers.items() if self.apart else ():
            own = f"{_MEMORY}{number}_"
            kept = {key[len(own) :]: array for key, array in state.items() if key.startswith(own)}
            server.restore(kept)
            self.models[number], self.server_duals[number] = server.model, server.dual


def number_of_examples(content: RecordDict) -> int:
    """Return a reply's ``num-examples``; 1 if it has none."""
    metrics = content.get("metrics")
    count = metrics.get("num-examples", 1) if isinstance(metrics, MetricRecord) else 1
    if not isinstance(count, int | float) or not 1 <= count < 2**53:
        raise wire.BadReply(f"num-examples={count!r}")
    return int(count)


def relative(now: Vector, before: Vector) -> float:
    """Return |now - before| by the larger of the two norms."""
    norm = max(float(np.linalg.norm(now)), float(np.linalg.norm(before)), 1e-12)
    return float(np.linalg.norm(now - before)) / norm


def _replace(content: RecordDict, model: Vector) -> None:
    content["arrays"] = wire.record({"model": model})


def _center(sent: RecordDict) -> tuple[Array, float] | None:
    """Return v_k and rho of a ``train`` message."""
    arrays, config = sent.get("arrays"), sent.get("config")
    if not isinstance(arrays, ArrayRecord) or "v" not in arrays:
        return None
    return arrays["v"], float(config["rho"])  # type: ignore[index,arg-type]


# What ``norm-bound`` limits: the client's step |w_k - v_k / rho|. What (8) averages,
# w_k - phi_k / rho, is then as close to w_{s,q}, whatever the dual.
STEP = Bounded(
    reference=_center,
    vector=lambda reply, _: wire.unpack(reply.array_records["arrays"]["model"]),
    origin=lambda _, sent: np.asarray(wire.unpack(sent[0]) / sent[1]),
    replace=_replace,
)
