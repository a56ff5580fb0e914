"""The strategy of server-graph [RS]: P servers, each with its clients, combine over their graph.

A round i:

    w_{p,k,i} = E gradient steps from w_{p,i-1}                 client k of server p, (6)
    psi_p = mean over the clients that answered                 server p, (7)
    w_p = sum_m a_mp (psi_m + g_mp)                             servers among themselves, (8)

What servers tell each other goes through `Post` and through nothing else. By default they are
logical, all inside one ServerApp. With a `LonePost` this ServerApp is one of them, with a SuperLink
of its own, and the others are elsewhere: then only its row of the models is known, and only its
clients are here. A server whose clients all failed keeps its model as psi. A server that is down
keeps its model until it is back; the others combine by the matrix of the survivors,
`Topology.without`.

With ``secure`` every server learns the sum of its clients' models only (23). A server that is to
ask fewer than three cannot: the round is refused before anyone is asked. Where so many of those
asked fail that there is no sum, the server keeps its model as psi.

``norm-bound`` limits |w_{p,k,i} - w_{p,i-1}|; with ``robust`` median or trimmed, psi_p is that of
the server's clients in place of their mean (7), and its own model where fewer than three answered.

Arrays: ``models`` (P, M); of a server alone the rows of others are where all began.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from flwr.app import ConfigRecord, RecordDict
from flwr.serverapp import Grid
from numpy.typing import NDArray

from trellis.privacy.secagg.graph import FEWEST
from trellis.strategies.core import wire
from trellis.strategies.core.base import Client, Row, StudyError, StudyStrategy
from trellis.strategies.core.exchange import Answers
from trellis.strategies.core.sums import noise_in
from trellis.strategies.topology.clients import drawn_by_server
from trellis.strategies.topology.graph import Topology

from .exchange import Server, whole_matrix
from .failures import Outage, alive, homes_now
from .post import Post

# Loaded by who needs them: runs with masks, and servers with SuperLinks of their own.
if TYPE_CHECKING:
    from trellis.strategies.core.secure import SecureAnswers, SecureSum

    from .lone import LonePost

log = logging.getLogger("trellis.strategy")

Vector = NDArray[np.float64]
Matrix = NDArray[np.float64]

_DIVERGED = 1e50  # before clients refuse such a model without knowing why


@dataclass(frozen=True)
class ServerPlan:
    """Who serves whom.

    Attributes
    ----------
    topology : the servers' graph and its combination matrix
    outages : servers that stop
    rehome : whether clients of a server that is down go to others
    """

    topology: Topology
    outages: tuple[Outage, ...] = ()
    rehome: bool = False


class ServerGraph(StudyStrategy[Vector]):
    """One model over a graph of servers.

    Parameters
    ----------
    servers : the graph, failures
    exchange : the P servers and how they disguise what they send, `server_exchange.servers`
    secure : makes the secure sums of servers' clients; None takes updates in the clear
    epsilons : privacy spent up to a round by a model of a size, for the round's metrics
    deviation : sigma_g for a model of a size; by default as ``exchange`` has it
    post : what carries the servers' messages; within this process by default

    `first_model` (M,), where all servers start, is set before the first round, when the clients'
    variables are known.
    """

    def __init__(
        self,
        *args: Any,
        servers: ServerPlan,
        exchange: Sequence[Server],
        secure: Callable[[], SecureSum] | None = None,
        epsilons: Callable[[int, int], Row] | None = None,
        deviation: Callable[[int], float] | None = None,
        post: Post | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(*args, **kwargs)
        self.servers = servers
        self.post = post or Post()
        if self._lone is not None:
            from trellis.strategies.network.member import GraphMember

            self.network = GraphMember(self._lone.mail)
        self._exchange = exchange
        # One session for all servers, as a client keeps to one: it may be re-homed.
        self._secure = None if secure is None else secure()
        self.epsilons = epsilons or (lambda server_round, size: {})
        self._deviation = deviation
        self.first_model = np.zeros(0)
        self.current_round = 0
        self._matrices: dict[bytes, Matrix] = {}
        self._homes: dict[bytes, NDArray[np.intp]] = {}

    # --- who is there ------------------------------------------------------------------------

    def places(self) -> Mapping[str, int]:
        """Return how many servers there are; one that lives alone looks at its clients itself."""
        return {"server": self.servers.topology.servers} if self.alone is None else {}

    def begin(self, clients: Sequence[Client]) -> None:
        """Start all servers at zero, and give every client its server."""
        count = self.servers.topology.servers
        if not self.first_model.size:
            self.first_model = np.zeros(self.parameters(clients))
        if self._deviation is not None:
            for party in self._exchange:
                party.use_noise(self._deviation(self.first_model.size))
        self.homes = np.array([self._home(client) for client in clients], dtype=np.intp)
        self._homes.clear()
        here = range(count) if self.alone is None else [self.alone]
        for server in sorted(set(here) - set(self.homes.tolist())):
            log.warning(
                "server %s has no clients: it passes on what its neighbours say",
                self.servers.topology.names[server],
            )
        self.models = np.tile(self.first_model, (count, 1))

    def _home(self, client: Client) -> int:
        """Return the server of a client; one server has all, whatever they say."""
        count = self.servers.topology.servers
        if self.alone is not None and client.server != self.alone and not self.servers.rehome:
            names = self.servers.topology.names
            raise StudyError(
                f"client {client.name} belongs to server {client.server}, this is {self.alone} "
                f"({names[self.alone]}); connect it to its own SuperLink, or set "
                "on-server-loss=rehome to take in clients of servers that are gone"
            )
        if self.alone is not None:
            return self.alone
        if count > 1 and not 0 <= client.server < count:
            raise StudyError(
                f"client {client.name} belongs to server {client.server}; they are numbered 0 "
                f"to {count - 1}. Set server in its node config or in assignment.csv"
            )
        return client.server if count > 1 else 0

    @property
    def alone(self) -> int | None:
        """Which server this is, where the others are elsewhere; None where all are here."""
        return None if self.post.own is None else self.post.own[0]

    @property
    def _lone(self) -> LonePost | None:
        """The letters of a server whose others are elsewhere."""
        return None if self.post.own is None else cast("LonePost", self.post)

    @property
    def known_models(self) -> Matrix:
        """The models (P, M), nan for servers that are elsewhere."""
        return self._known(self.models)

    def _known(self, models: Matrix) -> Matrix:
        found = models.copy()
        if self.alone is not None:
            found[np.arange(len(found)) != self.alone] = np.nan
        return found

    def running(self, server_round: int) -> NDArray[np.bool_]:
        """Return which servers (P,) run, as far as it is known here."""
        return self.up(server_round) if self._lone is None else self._lone.running()

    def greeting(self) -> tuple[bytes, dict[str, Any]]:
        """Return this server's key for masks."""
        if self.alone is None:
            return b"", {}
        return self._exchange[self.alone].hello(), {"clients": len(self.clients)}

    def admit(self, client: Client) -> bool:
        """Give a late client its server."""
        self.homes = np.append(self.homes, np.intp(self._home(client)))
        self._homes.clear()
        return True

    def up(self, server_round: int) -> NDArray[np.bool_]:
        """Return which servers (P,) run in a round, here."""
        if self.alone is not None:
            return np.arange(self.servers.topology.servers) == self.alone
        return alive(self.servers.outages, server_round, self.servers.topology.servers)

    def homes_in(self, server_round: int) -> NDArray[np.intp]:
        """Return the server (K,) of every client in a round, -1 for none."""
        up = self.up(server_round)
        key = up.tobytes()
        if key not in self._homes:
            adjacency = self.servers.topology.adjacency
            self._homes[key] = homes_now(self.homes, up, adjacency, self.servers.rehome)
        return self._homes[key]

    def participants(self, server_round: int) -> list[int]:
        """Return L clients of every server that is up, drawn at random."""
        up = np.flatnonzero(self.up(server_round))
        rng = self.sampler(server_round) if self.plan.sample else None
        return drawn_by_server(self.homes_in(server_round), up, self.plan.sample, rng)

    def combination(self, up: NDArray[np.bool_]) -> Matrix:
        """Return A (P, P) of the servers that are up; the others stand by themselves."""
        key = up.tobytes()
        if key not in self._matrices:
            rest = self.servers.topology.without(int(p) for p in np.flatnonzero(~up))
            here = np.flatnonzero(up).tolist()
            self._matrices[key] = whole_matrix(rest.weights, here, up.size)
        return self._matrices[key]

    # --- a round -----------------------------------------------------------------------------

    def payload(self, server_round: int, client: int) -> RecordDict:
        """Return the model of the client's server."""
        server = self.homes_in(server_round)[client]
        arrays = wire.record({"model": self.models[server], **self.preprocessing})
        return RecordDict({"arrays": arrays, "order": ConfigRecord({"round": server_round})})

    def read_reply(self, client: int, content: RecordDict) -> Vector:
        """Check a reply: finite, of the model's size."""
        arrays = wire.arrays(content["arrays"])
        if set(arrays) != {"model"}:
            raise wire.BadReply(f"holds {sorted(arrays)}, not a model")
        wire.check_reals(arrays["model"], "model", self.first_model.shape)
        return arrays["model"]

    def update(self, server_round: int, replies: Mapping[int, Vector]) -> Row:
        """Average by server (7) and combine (8)."""
        answered = sorted(replies)
        homes = self.homes_in(server_round)[answered]
        counts = np.bincount(homes, minlength=len(self.models)).astype(np.float64)
        rows = np.array([replies[client] for client in answered])
        if self.robust.replaces_mean:
            middles = self.robust.centres(rows, homes, self.models)
            return self._combine(server_round, middles, np.ones_like(counts))
        sums = np.zeros_like(self.models)
        np.add.at(sums, homes, rows)
        return self._combine(server_round, sums, counts)

    def bounded_part(
        self, server_round: int, client: int, reply: Vector
    ) -> tuple[Vector, Vector] | None:
        """Return a client's model and its server's, from which it started."""
        return reply, self.models[self.homes_in(server_round)[client]]

    def with_part(self, client: int, reply: Vector, part: Vector) -> Vector:
        """Return another model."""
        return part

    def gather(self, grid: Grid, server_round: int) -> Row:
        """Gather every server's mean, masked where ``secure`` is given."""
        if self._secure is None:
            return super().gather(grid, server_round)
        answers, survivors = Answers(), []
        sums, counts = np.zeros_like(self.models), np.zeros(len(self.models))
        asked = {
            server: {client: self.payload(server_round, client) for client in own}
            for server, own in self._asked_by_server(server_round).items()
        }
        found = self._secure.gather_groups(
            grid,
            asked,
            self.clients,
            server_round,
            self.plan.timeout,
            layout={"model": self.first_model.shape, "count": (1,)},
        )
        for server, one in found.items():
            answers.failures |= one.failures
            answers.bytes_up += one.bytes_up
            answers.bytes_down += one.bytes_down
            if one.error:  # too few are left: nothing was learnt
                answers.failures |= dict.fromkeys(asked[server], f"server {server}: {one.error}")
                continue
            sums[server], counts[server] = one.total["model"], one.total["count"][0]
            survivors += one.survivors
        self.note_failures(server_round, answers)
        if not survivors:
            reasons = " | ".join(sorted(set(answers.failures.values())))
            largest = float(np.max(np.abs(self.models)))
            grown = f" The models have grown to {largest:.3g}; lower step." if largest > 1e6 else ""
            raise StudyError(f"round {server_round}: no server has a sum.{grown} {reasons}")
        return self._row(answers, survivors, self._combine(server_round, sums, counts))

    # --- before the rounds -------------------------------------------------------------------

    def units_order(self) -> ConfigRecord:
        """Return the order for sums that tell the units of features."""
        return ConfigRecord({"round": 0, "units": True})

    def ask_units(
        self, grid: Grid, layout: Mapping[str, tuple[int, ...]]
    ) -> tuple[dict[str, NDArray[np.float64]], float]:
        """Return one secure sum over the clients of all servers, and the noise in it."""
        found = self.sum_over_all(grid, RecordDict({"order": self.units_order()}), layout)
        return found.total, noise_in(found)

    def sum_over_all(
        self, grid: Grid, content: RecordDict, layout: Mapping[str, tuple[int, ...]]
    ) -> SecureAnswers:
        """Gather one secure sum over the clients of all servers, who are all sent the same."""
        from trellis.strategies.core.secure import NoSum

        assert self._secure is not None
        asked = {client: RecordDict(dict(content)) for client in range(len(self.clients))}
        last = self.current_round
        try:
            found = self._secure.gather(
                *(grid, asked, self.clients, last, self.plan.timeout), layout=layout
            )
        except NoSum as error:
            self.enter(last, error.found)
            raise
        self.enter(last, found)
        self.progress.bytes_up += found.bytes_up
        self.progress.bytes_down += found.bytes_down
        return found

    def enter(self, server_round: int, found: SecureAnswers) -> None:
        """Enter what was released for a sum; without noise nothing is counted."""

    def _asked_by_server(self, server_round: int) -> dict[int, list[int]]:
        """Return the clients asked in a round, by server; refuse too few for a secure sum."""
        homes = self.homes_in(server_round)
        asked: dict[int, list[int]] = {}
        for client in self.participants(server_round):
            asked.setdefault(int(homes[client]), []).append(client)
        for server, own in sorted(asked.items()):
            if len(own) < FEWEST:
                raise StudyError(
                    f"round {server_round}: server {server} asks {len(own)} clients; the sum of "
                    f"fewer than {FEWEST} would tell one of them the others' models. Give every "
                    f"server {FEWEST} clients, set sample=0 or at least {FEWEST}, or "
                    "secure-aggregation=off"
                )
        return dict(sorted(asked.items()))

    def _combine(self, server_round: int, sums: Matrix, counts: Vector) -> Row:
        began, sent = time.perf_counter(), self.post.bytes
        self.current_round = server_round
        up = self.up(server_round)
        psi = np.where(counts[:, None] > 0, sums / np.maximum(counts, 1.0)[:, None], self.models)
        servers = np.flatnonzero(up).tolist()
        weights = self.servers.topology.weights if self.alone is not None else self.combination(up)
        combined = self.post.exchange(
            self._exchange, server_round, dict(enumerate(psi)), weights, servers
        )
        before, models = self.centroid(server_round), self.models.copy()
        for server, model in combined.items():
            models[server] = model
        self.models = models
        after = self.centroid(server_round)
        largest = float(np.max(np.abs(self.models[up])))
        if not largest < _DIVERGED:
            raise StudyError(
                f"round {server_round}: the models have grown to {largest:.3g}, they diverge; "
                "lower step"
            )
        # A server alone does not see the others' models: by how much they have moved its own.
        apart = self.models[up] - (after if self.alone is None else psi[up])
        norm = max(*(float(np.linalg.norm(model)) for model in (before, after)), 1e-12)
        return {
            "change": float(np.linalg.norm(after - before)) / norm,
            "disagreement": float(np.mean(np.sum(apart**2, axis=1))),
            "servers": float(self._servers_heard(up)),
            "between-servers": float(self.post.bytes - sent),
            **self.epsilons(server_round, self.first_model.size),
            "server-seconds": time.perf_counter() - began,
        }

    def _servers_heard(self, up: NDArray[np.bool_]) -> float:
        return 1.0 + self.network.row()["links"] if self.alone is not None else up.sum()

    def centroid(self, server_round: int) -> Vector:
        """Return the mean model (15) of the servers that are up."""
        return np.mean(self.models[self.up(server_round)], axis=0)

    def state(self) -> dict[str, NDArray[Any]]:
        """Return the models; of a server alone also which letters it used."""
        found = {"models": self.models, "round": np.array(self.current_round)}
        if self._lone is not None:
            found["letters"] = self._lone.mail.seen.state()
        return found

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Take back `state`."""
        if state["models"].shape != self.models.shape:
            raise ValueError(f"models in the checkpoint have shape {state['models'].shape}")
        self.models = state["models"].copy()
        self.current_round = int(state["round"])
        if self._lone is not None:
            self._lone.mail.seen.restore(state["letters"])
