"""Graph federated learning of [RS]: P servers, each with its clients, combine over their graph.

A round i:

    w_{p,k,i} = E gradient steps from w_{p,i-1}                 client k of server p, (6)
    psi_p = mean over the clients that answered                 server p, (7)
    w_p = sum_m a_mp (psi_m + g_mp)                             servers among themselves, (8)

What servers send each other goes through a `Post` and through nothing else. By default all servers
are inside one ServerApp. With a `LonePost` this ServerApp is one of them, with a SuperLink of its
own, and the others are elsewhere: then only its row of the models is known, and only its clients
are here. A server whose clients all failed keeps its model as psi. A server that is down keeps its
model until it is back; the others combine by the matrix of the survivors, `Topology.without`.

.. [RS] E. Rizk, A. H. Sayed, A graph federated architecture with privacy preserving learning.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.serverapp import Grid
from numpy.typing import NDArray

from trellis.strategies.core import wire
from trellis.strategies.core.enrolment import StudyError
from trellis.strategies.node_strategy import NodeStrategy
from trellis.strategies.places import ask_places
from trellis.strategies.topology.clients import drawn_by_server
from trellis.strategies.topology.graph import Topology

from .exchange import Server, whole_matrix
from .failures import Outage, alive, homes_now
from .post import Post

Vector = NDArray[np.float64]
Matrix = NDArray[np.float64]
Homes = NDArray[np.intp]
# What stands in the place of the means (7): of rows (n, M), their servers (n,) and models (P, M).
Centre = Callable[[Matrix, Homes, Matrix], Matrix]

_DIVERGED = 1e50  # before clients refuse such a model without knowing why


def server_means(rows: Matrix, homes: Homes, clients: Vector, before: Matrix) -> Matrix:
    """Return psi (P, M), (7): every server's mean over its clients.

    Parameters
    ----------
    rows : (n, M) models that came
    homes : (n,) the server that each of them is of
    clients : (n,) of how many clients each is the mean; 1 if nothing has added them up
    before : (P, M) the servers' models, which those without an answer keep
    """
    total, count = np.zeros_like(before), np.zeros(len(before))
    np.add.at(total, homes, clients[:, None] * rows)
    np.add.at(count, homes, clients)
    psi = np.where(count[:, None] > 0, total / np.maximum(count, 1.0)[:, None], before)
    # The only one of its server is that server's mean, to the last bit.
    only = np.bincount(homes, minlength=len(before))[homes] == 1
    psi[homes[only]] = rows[only]
    return psi


class ServerGraph(NodeStrategy):
    """(7) and (8) of [RS] as a Flower strategy.

    Start it with ``initial_arrays`` = ``model`` (M,), where all servers begin. ``Result.arrays``
    has the learned ``model``: the mean (15) of the servers' models that are up; `models` (P, M) has
    every server's own. Servers keep their models from round to round: what a wrapper makes of the
    mean in between has no effect.

    Sent with ``train``:
        arrays   ``model`` (M,) float64: that of the client's server
        config   ``server``, its number, int; ``server-round``; and ``train_config``
    Expected back:
        arrays   ``model`` (M,) float64, finite: w after the client's steps, (6)
        metrics  optional ``clients``: of how many clients the reply is the mean, as from a
                 `SecureGrid`; others, ``num-examples`` among them, do not count: all clients of
                 a server count alike in (7)
    Sent with ``evaluate`` (if ``fraction_evaluate`` > 0):
        arrays   ``model`` of the node's server; config ``evaluate_config``
    Sent with ``query.place``, on a grid without enrolment, to learn a node's server: see `places`.

    Parameters
    ----------
    topology : the servers' graph and its combination matrix
    exchange : the P servers and how they disguise what they send; not at all by default
    outages, rehome : servers that stop, and whether their clients go to others meanwhile
    sample : L, how many clients a server asks in a round, drawn at random; 0 is all
    draws : generator of a round's random choices
    centre : robust means in place of (7)
    post : what carries the servers' messages; within this process by default
    options : of `NodeStrategy`
    """

    def __init__(
        self,
        topology: Topology,
        exchange: Sequence[Server] | None = None,
        *,
        outages: tuple[Outage, ...] = (),
        rehome: bool = False,
        sample: int = 0,
        draws: Callable[[int], np.random.Generator] = np.random.default_rng,
        centre: Centre | None = None,
        post: Post | None = None,
        **options: Any,
    ) -> None:
        super().__init__(**options)
        self.topology = topology
        self.exchange = exchange or [Server(m) for m in range(topology.servers)]
        self.outages, self.rehome = outages, rehome
        self.sample, self.draws, self.centre = sample, draws, centre
        self.post = post or Post()
        self.models = np.zeros((topology.servers, 0))  # w_p
        self.server_of: dict[int, int] = {}  # by node; where it goes while that is up
        self.current_round = 0
        self._homes: dict[bytes, dict[int, int]] = {}  # where nodes are, by which servers are up
        self._matrices: dict[bytes, Matrix] = {}

    def begin(self, model: Vector) -> None:
        """Let all servers begin at ``model`` (M,)."""
        self.models = np.tile(model, (self.topology.servers, 1))

    # --- a round ------------------------------------------------------------------------------

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Send each client the model of its server."""
        if server_round == 1 or not self.models.size:
            self.begin(wire.unpack(arrays["model"]))
        chosen = self.nodes(grid, server_round)
        homes = self.homes(server_round)
        sent: dict[int, dict[str, Any]] = {}
        for server in {homes[node] for node in chosen}:
            told = {**config, "server-round": server_round, "server": server}
            model = wire.record({"model": self.models[server]})
            sent[server] = {"arrays": model, "config": ConfigRecord(told)}
        label = str(server_round)
        return (
            Message(RecordDict(sent[homes[node]]), node, "train", group_id=label) for node in chosen
        )

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Average by server (7), and combine over the graph (8)."""
        good = self.usable(replies, lambda content: self.read(content, "model"))
        if not good:
            return None, None
        rows = np.stack([row for row, _ in good.values()])
        metrics = self.advance(server_round, list(good), rows, [n for _, n in good.values()])
        return self.learned(), MetricRecord(dict(metrics))

    def advance(
        self, server_round: int, nodes: Sequence[int], rows: Matrix, clients: Sequence[float]
    ) -> dict[str, float]:
        """Make the servers' part of a round, from replies ``rows`` (n, M) of ``nodes``."""
        homes = self.homes_of(server_round, nodes)
        if self.centre is not None:
            psi = self.centre(rows, homes, self.models)
        else:
            psi = server_means(rows, homes, np.asarray(clients, dtype=np.float64), self.models)
        return self.combine(server_round, psi)

    def combine(self, server_round: int, psi: Matrix) -> dict[str, float]:
        """Let servers exchange psi (P, M) and combine, (8); return the round's metrics."""
        sent, up = self.post.bytes, self.up(server_round)
        weights = self.combination(up) if self.alone is None else self.topology.weights
        combined = self.post.exchange(
            *(self.exchange, server_round, dict(enumerate(psi)), weights),
            np.flatnonzero(up).tolist(),
        )
        self.current_round = server_round
        before, models = np.mean(self.models[up], axis=0), self.models.copy()
        for server, model in combined.items():
            models[server] = model
        self.models = models
        after = np.mean(models[up], axis=0)
        largest = float(np.max(np.abs(models[up])))
        if not largest < _DIVERGED:
            raise StudyError(
                f"round {server_round}: the models have grown to {largest:.3g}, they diverge; "
                "lower step"
            )
        # A server alone does not see the others' models: by how much they have moved its own.
        apart = models[up] - (after if self.alone is None else psi[up])
        norm = max(*(float(np.linalg.norm(model)) for model in (before, after)), 1e-12)
        return {
            "change": float(np.linalg.norm(after - before)) / norm,
            "disagreement": float(np.mean(np.sum(apart**2, axis=1))),
            "servers": self.post.running_with(up),
            "between-servers": float(self.post.bytes - sent),
        }

    def read(self, content: RecordDict, name: str) -> tuple[Vector, float]:
        """Return the array ``name`` (M,) of a reply and how many clients it is of, checked."""
        arrays = wire.arrays(content["arrays"])
        if set(arrays) != {name}:
            raise wire.BadReply(f"holds {sorted(arrays)}, not a {name}")
        wire.check_reals(arrays[name], name, self.models.shape[1:])
        metrics = content.get("metrics")
        clients = metrics.get("clients", 1.0) if isinstance(metrics, MetricRecord) else 1.0
        if not isinstance(clients, int | float) or not 1.0 <= clients < 2.0**31:
            raise wire.BadReply(f"clients={clients!r}: of how many clients it is, 1 at least")
        return arrays[name], float(clients)

    # --- who is where -------------------------------------------------------------------------

    @property
    def alone(self) -> int | None:
        """Which server this is, if the others are elsewhere; None if all are here."""
        return None if self.post.own is None else self.post.own[0]

    def up(self, server_round: int) -> NDArray[np.bool_]:
        """Return which servers (P,) run in a round, here."""
        if self.alone is not None:
            return np.arange(self.topology.servers) == self.alone
        return alive(self.outages, server_round, self.topology.servers)

    def nodes(self, grid: Grid, server_round: int) -> list[int]:
        """Wait for enough nodes; return L of every server that is up, in ascending order."""
        there = super().nodes(grid, server_round)
        self._ask_places(grid, there)
        self.asked = self.choose(server_round, there)
        return self.asked

    def choose(self, server_round: int, nodes: Sequence[int]) -> list[int]:
        """Return L of the nodes of every server that is up, drawn at random."""
        up = np.flatnonzero(self.up(server_round))
        rng = self.draws(server_round) if self.sample else None
        homes = self.homes_of(server_round, nodes)
        return [nodes[place] for place in drawn_by_server(homes, up, self.sample, rng)]

    def _ask_places(self, grid: Grid, nodes: Iterable[int]) -> None:
        """Find out which server nodes belong to that are new."""
        new = [node for node in nodes if node not in self.server_of]
        if not new:
            return
        if self.alone is not None or self.topology.servers == 1:
            self.server_of |= dict.fromkeys(new, self.alone or 0)
        else:
            places = ask_places(grid, new, {"server": self.topology.servers})
            self.server_of |= {node: place["server"] for node, place in places.items()}
        self._homes.clear()

    def homes(self, server_round: int) -> dict[int, int]:
        """Return the server of every node in a round, -1 for none."""
        up = self.up(server_round)
        key = up.tobytes()
        if key not in self._homes:
            nodes = sorted(self.server_of)
            homes = np.array([self.server_of[node] for node in nodes], dtype=np.intp)
            now = homes_now(homes, up, self.topology.adjacency, self.rehome)
            self._homes[key] = dict(zip(nodes, now.tolist(), strict=True))
        return self._homes[key]

    def homes_of(self, server_round: int, nodes: Iterable[int]) -> Homes:
        """Return the server (n,) of each of some nodes in a round, -1 for none."""
        homes = self.homes(server_round)
        return np.array([homes[node] for node in nodes], dtype=np.intp)

    def combination(self, up: NDArray[np.bool_]) -> Matrix:
        """Return A (P, P) of the servers that are up; the others stand by themselves."""
        key = up.tobytes()
        if key not in self._matrices:
            rest = self.topology.without(int(p) for p in np.flatnonzero(~up))
            here = np.flatnonzero(up).tolist()
            self._matrices[key] = whole_matrix(rest.weights, here, up.size)
        return self._matrices[key]

    # --- what is learned ----------------------------------------------------------------------

    @property
    def kept(self) -> Matrix:
        """The models (P, M) that the run has learned."""
        return self.models

    @property
    def known(self) -> Matrix:
        """The learned models (P, M), nan for servers that are elsewhere."""
        found = self.kept.copy()
        if self.alone is not None:
            found[np.arange(len(found)) != self.alone] = np.nan
        return found

    def centroid(self) -> Vector:
        """Return the mean learned model (15) of the servers that are up."""
        return np.asarray(np.mean(self.kept[self.up(self.current_round)], axis=0))

    def learned(self) -> ArrayRecord:
        """Return the mean learned model."""
        return wire.record({"model": self.centroid()})

    def model_of(self, node: int, arrays: ArrayRecord) -> ArrayRecord:
        """Return the model of a node's server."""
        server = self.server_of.get(node)
        return arrays if server is None else wire.record({"model": self.kept[server]})

    def handshake(self) -> tuple[bytes, dict[str, Any]]:
        """Return this server's key for masks, if it is one of several SuperLinks."""
        return (b"" if self.alone is None else self.exchange[self.alone].hello()), {}

    def state_dict(self) -> dict[str, NDArray[Any]]:
        """Return the models and where nodes belong; of a server alone also its delivery log."""
        nodes = sorted(self.server_of)
        return {
            "models": self.models,
            "round": np.array(self.current_round),
            "nodes": np.array(nodes, dtype=np.uint64),
            "servers": np.array([self.server_of[node] for node in nodes], dtype=np.int64),
            **self.post.state_dict(),
        }

    def load_state_dict(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Restore `state_dict`."""
        models = state["models"]
        if len(models) != self.topology.servers:
            raise ValueError(f"models in the checkpoint have shape {models.shape}")
        self.models = models.copy()
        self.current_round = int(state["round"])
        nodes = [int(node) for node in state["nodes"]]
        self.server_of = dict(zip(nodes, state["servers"].tolist(), strict=True))
        self._homes.clear()
        self.post.load_state_dict(state)
