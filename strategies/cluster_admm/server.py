"""What one server of cluster-admm knows, tells its neighbours and makes of what they tell.

A round of a server: it `tell`s its neighbours, from its own clients' answers and what it heard so
far; then it `hear`s what they told, and has its next model. Nothing else passes between servers, so
a server may live on its own machine. The mathematics is in `mixing`.

``paper`` mixing tells wt_s (8) and takes the mean over whoever was heard, however old it is.

``exact`` mixing gives every edge s - p its own dual lambda_sp, with psi_s = sum over p of
lambda_sp. Both ends must add the same two models to it, with opposite signs: then lambda_sp =
-lambda_ps, all psi_s sum to zero, and where the servers come to rest is the optimum. In step that
is so every round. A neighbour may be slower, though, so exchanges along an edge are numbered:

- For exchange n + 1 a server tells p its model, and tells p *that same* model until p's for
  exchange n + 1 has come. Meanwhile it iterates with its other neighbours and its own clients.
- Then both models of exchange n + 1 are known: lambda_sp takes its step, the middle z_sp moves, and
  the next letter has the model of then, for exchange n + 2.
- The letter for n + 2 has the one for n + 1 with it (``before``). Who writes it has p's for n + 1,
  so p is at n + 1 or n + 2, and needs no letter but the latest.

A neighbour that is gone is `drop`ped: lambda_sp leaves psi_s and z_sp leaves the mean, so that the
duals of those that are left sum to zero again. It is still told; an exchange that succeeds makes it
a neighbour that counts again. Both ends have to forget together, or lambda_sp = -lambda_ps is lost:
letters also say how often their edge began anew (``link``), who is behind begins anew too, and what
is left of an earlier link is not used. A server that comes back with an old memory, or none, says
so with `join`; that its numbers were used before does not matter.

Adversary: a neighbour sees this server's models, in the clear. What it sends is checked for its
form and size only.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trellis.strategies.core import wire
from trellis.strategies.network.mailbox import BadLetter, Letter

from .mixing import (
    Array,
    Centres,
    Places,
    aggregate,
    edge_step,
    exact_model,
    over_clusters,
    over_servers,
)

_CALM = 1e100  # a sum of squares below: no entry is infinite, none or out of all proportion
_MOST = 2**62  # of exchanges: numbers beyond cannot be counted on in 64 bits


class MixingServer(ABC):
    """One server and what it knows.

    Parameters
    ----------
    index : s
    neighbours : p, the servers that it tells and hears
    shape : (Q, d) of its model, which starts at zero

    Attributes
    ----------
    model : (Q, d) what its clients are sent
    dual : (Q, d) psi_s; zero with ``paper`` mixing
    """

    def __init__(self, index: int, neighbours: Iterable[int], shape: tuple[int, int]) -> None:
        self.index, self.shape = index, shape
        self.model: Array = np.zeros(shape)
        self.dual: Array = np.zeros(shape)
        self._neighbours = sorted(int(neighbour) for neighbour in neighbours)

    @property
    def neighbours(self) -> tuple[int, ...]:
        """Whom it tells and hears, rising."""
        return tuple(self._neighbours)

    @abstractmethod
    def tell(self, sent: Array, clusters: Places, tau: float) -> dict[int, Letter]:
        """Return what it tells every neighbour.

        Parameters
        ----------
        sent : (n, d) w_k - phi_k / rho of those of its own clients that count
        clusters : (n,) theirs
        tau : how much clusters learn from each other in this round
        """

    @abstractmethod
    def hear(self, letters: Mapping[int, Letter]) -> None:
        """Take what neighbours told, by neighbour, after `tell`; letters may be missing.

        Raises
        ------
        BadLetter
            Names the neighbour and what is wrong; nothing of any letter is used then.
        """

    @abstractmethod
    def drop(self, neighbour: int) -> None:
        """Let a neighbour that is gone count no more, until it is heard again."""

    @abstractmethod
    def join(self, neighbour: int) -> None:
        """Begin anew with a neighbour, old or new, whatever it remembers of this server."""

    @abstractmethod
    def settle(self, model: Array, dual: Array, others: Array) -> None:
        """Go on as if the last round, in step with all neighbours, had ended with these.

        Parameters
        ----------
        model, dual : (Q, d) its own
        others : (S, Q, d) the models of all servers, of which it takes its neighbours'
        """

    def state(self) -> dict[str, NDArray[Any]]:
        """Return every array that its next round depends on."""
        neighbours = np.array(self._neighbours, dtype=np.int64)
        return {"model": self.model, "dual": self.dual, "neighbours": neighbours}

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Take back `state`. Neighbours that went on meanwhile have to be `join`ed then."""
        for name, now in (("model", self.model), ("dual", self.dual)):
            if state[name].shape != now.shape:
                raise ValueError(
                    f"{name} of server {self.index} in the checkpoint has shape "
                    f"{state[name].shape}, this run's is {now.shape}"
                )
        self.model, self.dual = state["model"].copy(), state["dual"].copy()
        self._neighbours = state["neighbours"].tolist()

    def _read(self, neighbour: int, letter: Letter, name: str = "model") -> Array:
        """Return a model out of a letter, checked."""
        if neighbour not in self._neighbours:
            raise BadLetter(
                neighbour, f"server {neighbour} wrote to server {self.index}, no neighbour of it"
            )
        if name not in letter:
            raise self._bad(neighbour, f"holds {sorted(letter)}, no {name}")
        model = letter[name]
        if model.dtype == np.float64 and model.shape == self.shape:
            flat = model.ravel()
            if flat.dot(flat) < _CALM:
                return model
        try:
            wire.check_reals(model, name, self.shape)
        except wire.BadReply as error:
            raise self._bad(neighbour, str(error)) from None
        return model

    def _bad(self, neighbour: int, reason: str) -> BadLetter:
        return BadLetter(
            neighbour,
            f"the letter of server {neighbour} to server {self.index} is refused: {reason}. All "
            "servers of a run need the same settings, data columns and version",
        )


class PaperServer(MixingServer):
    """A server that mixes as the paper prints it, (8)-(10).

    Parameters
    ----------
    centres : another statistic than the mean in (8), see `mixing.aggregate`
    """

    def __init__(
        self,
        index: int,
        neighbours: Iterable[int],
        shape: tuple[int, int],
        centres: Centres | None = None,
    ) -> None:
        super().__init__(index, neighbours, shape)
        self._centres = centres
        self._told, self._tau = self.model, 0.0

    def tell(self, sent: Array, clusters: Places, tau: float) -> dict[int, Letter]:
        """Return wt_s (8), the same for all."""
        self._told, self._tau = aggregate(sent, clusters, self.model, self._centres), tau
        return {neighbour: {"model": self._told} for neighbour in self._neighbours}

    def hear(self, letters: Mapping[int, Letter]) -> None:
        """Apply (9) to whoever was heard, and (10)."""
        heard = [self._read(neighbour, letters[neighbour]) for neighbour in sorted(letters)]
        self.model = over_clusters(over_servers(self._told, heard), self._tau)

    def drop(self, neighbour: int) -> None:
        """Do nothing: who is not heard does not count."""

    def join(self, neighbour: int) -> None:
        """Tell and hear a neighbour from now on."""
        if neighbour not in self._neighbours:
            self._neighbours = sorted([*self._neighbours, neighbour])

    def settle(self, model: Array, dual: Array, others: Array) -> None:
        """Go on from another model."""
        self.model, self.dual = model, dual


@dataclass(slots=True)
class Edge:
    """What a server remembers of the exchanges with one neighbour.

    Attributes
    ----------
    part : lambda_sp (Q, d), this edge's part of psi_s
    link : how often the edge began anew
    number : n, of the last exchange that succeeded
    own, heard : u_s and u_p (Q, d) of that exchange; None before the first
    told : u_s (Q, d) of exchange n + 1; None before it was told
    unsure : whether this server began anew without knowing what the neighbour remembers
    """

    part: Array
    link: int = 0
    number: int = 0
    own: Array | None = None
    heard: Array | None = None
    told: Array | None = None
    unsure: bool = False


_KEPT = ("own", "heard", "told")


class ExactServer(MixingServer):
    """A server with a dual for every neighbour: ADMM on the whole graph.

    All servers of a run start at zero, so their exchange 0 has succeeded: both told zero.

    Parameters
    ----------
    rho : of the augmented Lagrangian
    servers : S

    Attributes
    ----------
    edges : what it remembers, by neighbour
    """

    def __init__(
        self,
        index: int,
        neighbours: Iterable[int],
        shape: tuple[int, int],
        rho: float,
        servers: int,
    ) -> None:
        super().__init__(index, neighbours, shape)
        self.rho, self.servers = rho, servers
        zero: Array = np.zeros(shape)
        self.edges = {p: Edge(zero, own=zero, heard=zero) for p in self._neighbours}

    def tell(self, sent: Array, clusters: Places, tau: float) -> dict[int, Letter]:
        """Return u_s, or what a neighbour is still told, and which exchange it is for."""
        pull = 2.0 * tau / (self.rho * self.servers)
        state = self.model, self.dual, self._middles()
        self.model = exact_model(sent, clusters, *state, self.rho, pull)
        return {neighbour: self._letter(edge) for neighbour, edge in self.edges.items()}

    def _middles(self) -> list[Array]:
        """Return z_sp of every neighbour with which an exchange has succeeded."""
        return [
            0.5 * (edge.own + edge.heard)
            for edge in self.edges.values()
            if edge.own is not None and edge.heard is not None
        ]

    def _letter(self, edge: Edge) -> Letter:
        if edge.told is None:
            edge.told = self.model
        letter = {
            "model": edge.told,
            "pair": np.array(edge.number + 1, dtype=np.int64),
            "link": np.array(edge.link, dtype=np.int64),
        }
        return letter if edge.own is None else {**letter, "before": edge.own}

    def hear(self, letters: Mapping[int, Letter]) -> None:
        """Add exchanges that succeeded to the duals; see to it that edges begin anew together."""
        came = {p: self._exchange(p, letters[p]) for p in sorted(letters)}
        for neighbour, (link, number, heard) in came.items():
            edge = self.edges[neighbour]
            if edge.unsure and link >= edge.link:
                # These numbers may have been used with an earlier life of this server.
                self._begin(neighbour, link + 1)
            elif link > edge.link:
                self._begin(neighbour, link)
            elif heard is not None and edge.told is not None:
                step = edge_step(edge.told, heard, self.rho)
                edge.part, self.dual = edge.part + step, self.dual + step
                edge.own, edge.heard, edge.told = edge.told, heard, None
                edge.number += 1
            elif heard is None and link == edge.link and number > edge.number + 1:
                # It remembers exchanges of which this server knows nothing.
                self._begin(neighbour, link + 1)
            edge.unsure = False

    def _exchange(self, neighbour: int, letter: Letter) -> tuple[int, int, Array | None]:
        """Return a letter's numbers, and the neighbour's model of the exchange that is due."""
        model = self._read(neighbour, letter)
        link, number = (self._number(neighbour, letter, name) for name in ("link", "pair"))
        edge = self.edges[neighbour]
        if link != edge.link:
            return link, number, None
        if number == edge.number + 1:
            return link, number, model
        if number == edge.number + 2 and "before" in letter:
            return link, number, self._read(neighbour, letter, "before")
        return link, number, None

    def _number(self, neighbour: int, letter: Letter, name: str) -> int:
        array = letter.get(name)
        if array is None or array.dtype != np.int64 or array.shape != ():
            raise self._bad(neighbour, f"has no whole number {name}")
        number = int(array)
        if not 0 <= number <= _MOST:
            raise self._bad(neighbour, f"{name} is {number}")
        return number

    def _begin(self, neighbour: int, link: int, unsure: bool = False) -> None:
        """Forget all exchanges with a neighbour; it does not pull until the next succeeds."""
        self.dual = self.dual - self.edges[neighbour].part
        self.edges[neighbour] = Edge(np.zeros(self.shape), link, unsure=unsure)

    def drop(self, neighbour: int) -> None:
        """Take the edge's part out of the dual, and its middle out of the mean."""
        self._begin(neighbour, self.edges[neighbour].link + 1)

    def join(self, neighbour: int) -> None:
        """Begin anew with a neighbour, whatever it remembers of this server."""
        if neighbour not in self.edges:
            self._neighbours = sorted([*self._neighbours, neighbour])
            self.edges[neighbour] = Edge(np.zeros(self.shape))
            self.edges = {p: self.edges[p] for p in self._neighbours}
        self._begin(neighbour, self.edges[neighbour].link + 1, unsure=True)

    def settle(self, model: Array, dual: Array, others: Array) -> None:
        """Go on as if the last exchange with every neighbour had been of these models.

        The edges' parts are not known then: this is for servers that live together, whose
        neighbours are never gone.
        """
        self.model, self.dual = model, dual
        for neighbour, edge in self.edges.items():
            edge.own, edge.heard, edge.told = model, others[neighbour], None

    def state(self) -> dict[str, NDArray[Any]]:
        """Return every array that its next round depends on; nan where nothing was told yet."""
        edges, nothing = list(self.edges.values()), np.full(self.shape, np.nan)
        numbers = [(edge.link, edge.number, edge.unsure) for edge in edges]
        kept: dict[str, NDArray[Any]] = {
            "numbers": np.array(numbers, dtype=np.int64).reshape(-1, 3),
            "parts": self._stacked(edge.part for edge in edges),
        }
        for name in _KEPT:
            arrays = (getattr(edge, name) for edge in edges)
            kept[name] = self._stacked(nothing if array is None else array for array in arrays)
        return super().state() | kept

    def _stacked(self, arrays: Iterable[Array]) -> Array:
        return np.array(list(arrays)).reshape(-1, *self.shape)

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Take back `state`. Neighbours that went on meanwhile have to be `join`ed then."""
        super().restore(state)
        self.edges = {}
        for place, neighbour in enumerate(self._neighbours):
            link, number, unsure = state["numbers"][place].tolist()
            edge = Edge(state["parts"][place].copy(), link, number, unsure=bool(unsure))
            for name in _KEPT:
                array = state[name][place].copy()
                setattr(edge, name, None if np.any(np.isnan(array)) else array)
            self.edges[neighbour] = edge
