"""The strategy of cluster-admm where noise is in secure sums: no client's model is ever seen [GG].

Every exchange is one secure sum over all clients of all servers. Clients put the moments of their
samples, with their share of the noise, into the slots of their clusters (the slots of others hold
noise alone), so a sum has the noise of one mechanism a cluster, where one sum for each pair of
server and cluster would have it S times, and pairs with fewer than three clients could have none.
From the sums so far `Releases` makes the models, the same for all servers: the servers' graph has
nothing left to do, and neither have rho, tau and ridge, whose places the evidence takes.

Where the bounds of samples are to be found, a sum of counts comes first. In the end every client is
sent the models, to make its own from its raw samples, at home. Where samples are held out, one more
sum scores the models before that.

An exchange that has to be made again costs as much as another, so devices refuse the last one then:
the models are those of the exchanges before it, and the run says so.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from flwr.app import ConfigRecord, RecordDict
from flwr.serverapp import Grid
from numpy.typing import NDArray

from trellis.strategies.core import wire
from trellis.strategies.core.base import Client, Row, StudyError
from trellis.strategies.core.one_sum import OneSum
from trellis.strategies.topology.graph import Topology

from .releases import Bounds, Releases
from .strategy import placed

Array = NDArray[np.float64]

log = logging.getLogger("trellis.strategy")


@dataclass(frozen=True)
class SumTask:
    """What to learn, and from how many exchanges.

    Attributes
    ----------
    topology : the servers' graph
    clusters : Q
    bounds : of samples
    exchanges : T, sums that teach
    taught : how many of a client's samples teach, by how many it has
    scales : from the sum of counts and its noise, B and Y (None: hidden by noise); None where they
        are given
    score : from the sum over so many held-out samples, its noise and Y, the score and its error;
        None where no samples are held out
    shapes : of the sums ``scales`` and ``score``
    units : layout of the sum that tells the units of so many features; None where none is asked for
    """

    topology: Topology
    clusters: int
    bounds: Bounds
    exchanges: int
    taught: Callable[[int], int]
    scales: Callable[[Array, float], tuple[float | None, float | None]] | None = None
    score: Callable[[Array, int, float], tuple[float, float]] | None = None
    shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    units: Callable[[int], Mapping[str, tuple[int, ...]]] | None = None

    @property
    def asks(self) -> list[str]:
        """What every exchange asks for, in order."""
        first = ["units"] if self.units is not None else []
        first += ["scales"] if self.scales is not None else []
        last = ["score"] if self.score is not None else []
        return [*first, *["moments"] * self.exchanges, *last]


class SummedClusters(OneSum):
    """One model a cluster, from noisy sums.

    Parameters
    ----------
    task : what to learn

    Attributes
    ----------
    releases : the models as sums come
    own : (K, d) simulated clients' own models, gathered to be evaluated; nan of devices
    choices : (K, 3) the cluster, the scale and the pull that they chose
    """

    def __init__(self, *args: Any, task: SumTask, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.task = task
        self.ask, self.cut_short = "moments", False
        # Called with the sum of counts of features' sizes and its noise; sets `beside`.
        self.on_units: Callable[[Array, float], None] = lambda total, noise: None

    def places(self) -> Mapping[str, int]:
        """Return how many servers and clusters there are."""
        return {"server": self.task.topology.servers, "cluster": self.task.clusters}

    def begin(self, clients: Sequence[Client]) -> None:
        """Start at zero, every client with its server and its cluster."""
        task, self.size = self.task, self.parameters(clients)
        self.homes = placed(clients, "server", task.topology.servers)
        self.groups = placed(clients, "cluster", task.clusters)
        self._start(task.bounds)
        self.own = np.full((len(clients), self.size), np.nan)
        self.choices = np.full((len(clients), 3), np.nan)
        self.scored = np.full(2, np.nan)

    def _start(self, bounds: Bounds) -> None:
        self.bounds = bounds
        self.releases = Releases(self.task.clusters, self.size, bounds)
        self._taken: list[tuple[dict[str, Array], Array, float]] = []

    @property
    def models(self) -> Array:
        """The models (S, Q, d): every server has the same."""
        servers = self.task.topology.servers
        return np.tile(self.releases.models, (servers, 1, 1))

    def participants(self, server_round: int) -> list[int]:
        """Return the clients that have not failed: waiting for them again costs a release."""
        return [c for c, known in enumerate(self.clients) if not known.failures]

    def layout(self) -> dict[str, tuple[int, ...]]:
        """Return what clients add to the sum in hand."""
        if self.ask == "units" and self.task.units is not None:
            return dict(self.task.units(len(self.clients[0].variables)))
        if self.ask != "moments":
            return {self.ask: self.task.shapes[self.ask]}
        clusters, size = self.releases.models.shape
        found: dict[str, tuple[int, ...]] = {"cross": (clusters + 1, size), "power": (1,)}
        if self.releases.taken == 0:
            found["square"] = (size * (size + 1) // 2,)
        return found

    def payload(self, server_round: int, client: int) -> RecordDict:
        """Return the models so far, and what is asked about them; the same for all clients."""
        releases = self.releases
        order = ConfigRecord({"round": server_round, "ask": self.ask})
        if self.ask == "score":
            order["width"] = self.bounds.width
        if self.ask == "moments":
            order["length"], order["width"] = self.bounds.length, releases.width
            order["weight"], order["whole"] = releases.weight, releases.taken == 0
        arrays = wire.record({"models": releases.models, **self.preprocessing})
        return RecordDict({"arrays": arrays, "order": order})

    def gather(self, grid: Grid, server_round: int) -> Row:
        """Gather one sum; where a later one fails, stay with the models of those before."""
        self.ask = self.task.asks[server_round - 1]
        try:
            return super().gather(grid, server_round)
        except StudyError as error:
            if self.releases.taken == 0:
                raise
            log.warning(
                "exchange %d failed, the models are of those before: %s", server_round, error
            )
            self.cut_short = True
            return {
                "clients": 0.0,
                "failed": float(len(self.clients)),
                "change": 0.0,
                **self.evaluate(self.state()),
            }

    def solve(self, total: Mapping[str, Array], clients: Sequence[int]) -> Row:
        """Take a sum: find the models anew, or score them."""
        present = np.array(clients, dtype=np.intp)
        held = [self.clients[c].counted for c in clients]
        taught = np.array([self.task.taught(count) for count in held], dtype=np.float64)
        if self.ask == "units":
            (places,) = total.values()
            self.on_units(places, self.noise)
            return {"change": 1.0}
        if self.ask == "scales":
            return self._scale(total["scales"])
        if self.ask == "score":
            return self._score(total["score"], int(sum(held) - taught.sum()))
        counts: Array = np.zeros(self.task.clusters)
        np.add.at(counts, self.groups[present], taught)
        before = self.releases.models
        self._enter(dict(total), counts, self.noise)
        now = self.releases.models
        length = max(float(np.linalg.norm(now)), float(np.linalg.norm(before)), 1e-12)
        return {"change": float(np.linalg.norm(now - before)) / length, "noise": self.noise}

    def _enter(self, total: dict[str, Array], counts: Array, sigma: float) -> None:
        self.releases.take(total, counts, sigma)
        self._taken.append((total, counts, sigma))

    def _scale(self, total: Array) -> Row:
        assert self.task.scales is not None
        length, width = self.task.scales(total, self.noise)
        given = self.task.bounds
        if given.logistic:
            width = given.width
        self._start(replace(given, length=length or given.length, width=width or given.width))
        return {"change": 1.0}

    def _score(self, total: Array, count: int) -> Row:
        if self.task.score is None or count < 1:
            return {}
        score, error = self.task.score(total, count, self.noise)
        self.scored[:] = score, error
        return {"score": score, "score-error": error}

    def _has_converged(self, row: Row) -> bool:
        return self.cut_short or row["round"] >= self.plan.rounds

    # --- what devices make of it ---------------------------------------------------------------

    @property
    def pulls(self) -> Array:
        """How strongly a device should lean on the models (Q,), by how sure the sums are of them.

        The variance of a sample's error over that of a coefficient; of a log likelihood the half.
        Zero, which is learning alone, where nothing but noise was seen.
        """
        found, releases = self.releases.found, self.releases
        if found is None or found.common == 0.0:
            return np.zeros(self.task.clusters)
        variance = np.maximum(found.doubt * releases.unit**2 / self.size, 1e-300)
        if self.bounds.logistic:
            return np.asarray(0.5 / variance)
        return np.asarray(found.unexplained * self.bounds.width**2 / variance)

    def public_record(self) -> RecordDict:
        """Return the models, and how strongly to lean on them."""
        arrays = {"models": self.releases.models, "pulls": self.pulls, **self.preprocessing}
        return RecordDict({"arrays": wire.record(arrays)})

    def take_personal(self, client: int, content: RecordDict) -> None:
        """Take a simulated client's own model, for evaluation."""
        arrays = wire.arrays(content["arrays"])
        wire.check_reals(arrays["model"], "model", (self.size,))
        wire.check_reals(arrays["choice"], "choice", (3,))
        self.own[client], self.choices[client] = arrays["model"], arrays["choice"]

    # --- checkpoints ---------------------------------------------------------------------------

    def state(self) -> dict[str, NDArray[Any]]:
        """Return every sum that came; models are made from them anew."""
        bounds = np.array([self.bounds.length, self.bounds.width])
        found: dict[str, NDArray[Any]] = {"scored": self.scored.copy(), "bounds": bounds}
        for number, (total, counts, sigma) in enumerate(self._taken):
            found |= {f"{number}.{name}": array for name, array in total.items()}
            found[f"{number}.counts"], found[f"{number}.sigma"] = counts, np.array([sigma])
        return found

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Take back `state`."""
        length, width = state["bounds"].tolist()
        self._start(replace(self.task.bounds, length=length, width=width))
        while f"{len(self._taken)}.counts" in state:
            number = f"{len(self._taken)}."
            kept = {key[len(number) :]: a for key, a in state.items() if key.startswith(number)}
            counts, sigma = kept.pop("counts"), float(kept.pop("sigma")[0])
            self._enter(kept, counts, sigma)
        self.scored = state["scored"].copy()
