"""The study without messages: all clients of all servers at once, for tables over many seeds.

Nothing is written twice. Clients' steps (6) are those of `problem`, called with all clients that
take part in place of one; who takes part, servers' means (7) and what they send each other (8) are
the strategy's own. Every draw (clients, batches, noise, graph) is the one that `apps.run` makes
with the same seed, so both have the same models, but for the last bits of sums that are gathered
under masks.

For the losses of this study only, which take a batch of clients. Masks are not made: they cancel
exactly. Noise from a seed protects nobody: this is arithmetic, not a protocol.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from trellis.apps.common.evaluation.holding import drawn_rows
from trellis.apps.common.seeds import generator
from trellis.apps.common.servers import build_topology
from trellis.apps.common.settings import ConfigError
from trellis.privacy.accounting.sampled import spent_by
from trellis.privacy.mechanisms.shares import Share, Together, simulated_sum_noise
from trellis.privacy.secagg.graph import expected_noisers
from trellis.strategies.core.declared import Client
from trellis.strategies.core.robust import clipped_rows
from trellis.strategies.server_graph.post import Post
from trellis.strategies.server_graph.strategy import ServerGraph
from trellis.strategies.server_graph.sums import GradientSums
from trellis.strategies.topology.graph import Topology

from .build import gradient_sums, parties, server_graph
from .config import LOSSES, ServerGraphConfig
from .data import synthetic_table
from .losses import loss_by_name
from .private import GRADIENTS, Terms, clipped_mean, draw_batch
from .problem import Rows, draw_batches, local_steps, takes_all
from .spending import settled
from .truth import distances, true_model

Array = NDArray[np.float64]

FRACTION_BITS = 32  # of `SecureSum`


@dataclass(frozen=True)
class Simulation:
    """What a run of the study would have learned.

    Attributes
    ----------
    msd, msd_servers : (T,) mean-square deviation of the centroid and of single servers, dB
    disagreement : (T,) mean squared distance of the servers that are up to their centroid
    models : (P, M)
    truth : (M,) the minimiser over the clients of the last round
    topology : the servers' graph
    centroids : (T, M) mean of the models of the servers that are up
    epsilon : what the client that spent most has spent, with noise in sums; else 0
    """

    msd: Array
    msd_servers: Array
    disagreement: Array
    models: Array
    truth: Array
    topology: Topology
    centroids: Array
    epsilon: float = 0.0


def simulate(
    config: ServerGraphConfig, seed: int, rounds: int | None = None, *, shares: bool = True
) -> Simulation:
    """Run the study's arithmetic on its synthetic data; ``rounds`` in place of the setting.

    With noise in sums every client's share is drawn, as in a run. Without ``shares`` the noise of a
    sum is one draw of the same law, which is faster.

    Raises
    ------
    ConfigError
        For a loss that is not the study's own, and for ``masked`` without noise on a graph where a
        server has one neighbour only, which the study itself refuses.
    """
    if config.loss not in LOSSES:
        raise ConfigError(f"loss={config.loss!r}: only {', '.join(LOSSES)} can be simulated")
    if config.held_out and not config.sums:
        raise ConfigError(
            f"held-out={config.held_out}: without noise in sums it scores results on devices, and "
            "here there are none; set held-out=0"
        )
    last = config.rounds if rounds is None else rounds
    data = _federation(_of_data(config), seed)
    graph = build_topology(config, seed, config.weights)
    clients = data.clients(graph.servers)
    size = loss_by_name(config.loss).size(config.features)
    strategy: ServerGraph
    learn: _Round
    if config.sums:
        strategy = sums = gradient_sums(replace(config, rounds=max(last, 1)), seed, topology=graph)
        sums.step = config.pace(size)
        learn = _NoisyRound(config, data, sums, clients, shares)
    else:
        exchange = parties(config, seed, graph, masks=False)
        for party in exchange:
            party.use_noise(settled(config, size).sigma)
        strategy = server_graph(config, seed, exchange, topology=graph)
        learn = _OpenRound(config, data, strategy, clients)
    strategy.server_of = {number: client.server for number, client in enumerate(clients, 1)}
    strategy.begin(np.zeros(size))
    found, known = np.empty((3, last)), dict[bytes, Array]()
    centroids = np.empty((last, size))

    def truth(server_round: int) -> Array:
        homes = strategy.homes_of(server_round, range(1, len(clients) + 1))
        if homes.tobytes() not in known:
            w = true_model(config, seed, clients, homes)
            assert w is not None  # data and loss are the study's own
            known[homes.tobytes()] = w
        return known[homes.tobytes()]

    for i in range(1, last + 1):
        row = learn.make(i)
        up = strategy.models[strategy.up(i)]
        centroids[i - 1] = up.mean(axis=0)
        row |= distances(up, truth(i))
        found[:, i - 1] = row["msd"], row["msd-servers"], row["disagreement"]
    end = strategy.kept, truth(max(last, 1)), graph, centroids
    return Simulation(found[0], found[1], found[2], *end, learn.epsilon)


class _Round:
    """A round of all clients that take part at once."""

    def __init__(
        self,
        config: ServerGraphConfig,
        data: _Federation,
        strategy: ServerGraph,
        clients: Sequence[Client],
    ) -> None:
        self.config, self.data, self.strategy, self.clients = config, data, strategy, clients
        self.loss = loss_by_name(config.loss)
        self.nodes = range(1, len(clients) + 1)

    def make(self, server_round: int) -> dict[str, float]:
        """Make one round; return its metrics."""
        raise NotImplementedError

    @property
    def epsilon(self) -> float:
        """What the client that spent most has spent."""
        return 0.0


class _OpenRound(_Round):
    """Clients make their steps, servers take the means."""

    def make(self, server_round: int) -> dict[str, float]:
        config, data, strategy = self.config, self.data, self.strategy
        asked = strategy.choose(server_round, self.nodes)
        chosen = np.array(asked, dtype=np.intp) - 1
        begin = strategy.models[strategy.homes_of(server_round, asked)]
        rows = data.rows(server_round, chosen)
        terms = config.pace(config.features), config.ridge, config.clip
        models = local_steps(self.loss, begin, data.X, data.y, *terms, rows, chosen)
        models = clipped_rows(models, begin, config.norm_bound)
        return strategy.advance(server_round, asked, models, [1.0] * len(asked))


class _NoisyRound(_Round):
    """Servers add up all clients' clipped gradients, with every client's share of the noise."""

    def __init__(
        self,
        config: ServerGraphConfig,
        data: _Federation,
        strategy: GradientSums,
        clients: Sequence[Client],
        shares: bool,
    ) -> None:
        super().__init__(config, data, strategy, clients)
        self.shares, self.terms = shares, Terms.of(config)
        # Releases of every client, by ratio and sampling.
        self.releases: dict[int, Counter[tuple[float, float]]] = {}

    def make(self, server_round: int) -> dict[str, float]:
        data, strategy, terms = self.data, self.strategy, self.terms
        asked = strategy.choose(server_round, self.nodes)
        chosen = np.array(asked, dtype=np.intp) - 1
        homes = strategy.homes_of(server_round, asked)
        taken, expected = data.taken(terms, server_round, chosen)
        begin = strategy.models[homes]
        X, y = data.X[chosen], data.y[chosen]
        u = clipped_mean(self.loss, begin, X, y, terms.clip, taken, expected)
        words = np.rint(u * 2.0**FRACTION_BITS)  # as the ring has them; noise is of such steps
        counts = np.bincount(homes, minlength=len(strategy.models))
        laws: dict[tuple[Share, int], list[int]] = {}
        for server in np.flatnonzero(counts).tolist():
            here = np.flatnonzero(homes == server).tolist()
            share = self._add_shares(server_round, server, here, chosen, words)
            laws.setdefault((share, len(here)), []).append(here[0])
        if not self.shares:
            for place, ((share, size), places) in enumerate(laws.items()):
                source = generator(data.seed, "noise of sums", place, server_round)
                together = replace(share, size=share.size * len(places))
                drawn = simulated_sum_noise(source, together, size) / share.grid
                words[places] += drawn.reshape(len(places), -1)
        clients = [1.0] * len(asked)
        return strategy.advance(server_round, asked, words * 2.0**-FRACTION_BITS, clients)

    def _add_shares(
        self,
        server_round: int,
        server: int,
        here: Sequence[int],
        chosen: NDArray[np.intp],
        words: Array,
    ) -> Share:
        """Count a server's clients' releases, and add their shares of the noise to ``words``."""
        config, terms = self.config, self.terms
        homes = self.strategy.homes(server_round)
        deviation = terms.needed_by_all(
            client.count for n, client in enumerate(self.clients, 1) if homes[n] == server
        )
        m = expected_noisers(len(here), config.dropout, config.colluding)
        for place in here:
            k = int(chosen[place])
            n = self.clients[k].count
            sensitivity, sampling = terms.sensitivity(n), terms.rates(n).sampling
            own = terms.ratio(n), sensitivity, words.shape[1], m
            share = _share(Together(deviation, terms.least_ratio), *own, sampling < 1.0)
            self.releases.setdefault(k, Counter())[share.ratio, sampling] += 1
            if self.shares:  # of the first attempt: without messages there is no other
                source = generator(self.data.seed, f"sum noise {GRADIENTS} 1", k, server_round)
                words[place] += share.draw(source)
        return share

    @property
    def epsilon(self) -> float:
        """What the client that spent most has spent."""
        kinds = {tuple(sorted(known.items())) for known in self.releases.values()}
        spent = (spent_by(dict(kind), self.config.delta) for kind in kinds)
        return max(spent, default=0.0)


@lru_cache(maxsize=1024)
def _learning_rows(samples: int, kept_back: int, seed: int) -> NDArray[np.intp]:
    return np.flatnonzero(~drawn_rows(samples, kept_back, generator(seed, "held out")))


@lru_cache(maxsize=256)
def _share(
    together: Together, ratio: float, sensitivity: float, size: int, noisers: int, sampled: bool
) -> Share:
    return together.plan(FRACTION_BITS, ratio, sensitivity, size, noisers, sampled=sampled)


@dataclass(frozen=True)
class Cost:
    """What a round between servers takes: messages, bytes, seconds; ``key_bytes`` once a run."""

    messages: float
    bytes: float
    key_bytes: int
    seconds: float


def cost(config: ServerGraphConfig, graph: Topology, rounds: int = 20) -> Cost:
    """Return what a round between the servers costs, by running `rounds` of them for real."""
    exchange, post = parties(config, 0, graph), Post()
    for party in exchange:
        party.use_noise(settled(config, config.features).sigma)
    psi = dict(enumerate(np.ones((graph.servers, config.features))))
    began = time.perf_counter()
    for i in range(1, rounds + 1):
        post.exchange(exchange, i, psi, graph.weights)
    seconds = (time.perf_counter() - began) / rounds
    return Cost(post.messages / rounds, post.bytes / rounds, post.key_bytes, seconds)


class _Federation:
    """Data and batches of a seed: what method, graph, noise, step and clipping do not change.

    ``X`` (K, N, M) and ``y`` (K, N) are filled up with zeros, which no batch takes, for clients
    with fewer samples than others.
    """

    def __init__(self, config: ServerGraphConfig, seed: int) -> None:
        self._config, self.seed = config, seed
        self._counts = config.sample_counts()
        self.X = np.zeros((config.clients, max(self._counts), config.features))
        self.y = np.zeros(self.X.shape[:2])
        for k, n in enumerate(self._counts):
            table = synthetic_table(config, seed, k)
            self.X[k, :n], self.y[k, :n] = table.X, table.y
        self._drawn = not all(takes_all(n, config.batch) for n in self._counts)
        self._rows: dict[tuple[int, bytes], Rows] = {}

    def taken(
        self, terms: Terms, server_round: int, chosen: NDArray[np.intp]
    ) -> tuple[NDArray[np.bool_], Array]:
        """Return which samples (C, N) come into batches drawn in secret, and their sizes (C,)."""
        taken = np.zeros((chosen.size, self.X.shape[1]), dtype=bool)
        expected = np.empty(chosen.size)
        for place, k in enumerate(chosen.tolist()):
            n = self._counts[k]
            kept, rates = _learning_rows(n, terms.kept_back(n), self.seed), terms.rates(n)
            expected[place] = rates.expected
            if rates.sampling >= 1.0:
                taken[place, kept] = True
                continue
            source = generator(self.seed, "batch", k, server_round)
            taken[place, kept] = draw_batch(kept.size, rates.sampling, source)
        return taken, expected

    def clients(self, count: int) -> list[Client]:
        """Return the clients as they would enrol with ``count`` servers."""
        names = [f"x{j + 1}" for j in range(self._config.features)]
        homes = np.arange(len(self._counts)) * count // len(self._counts)
        return [
            Client(f"client-{k + 1}", k, n, names, k, synthetic=True, server=int(homes[k]))
            for k, n in enumerate(self._counts)
        ]

    def rows(self, server_round: int, chosen: NDArray[np.intp]) -> Rows:
        """Return the rows (E, C, b) of the clients' batches; -1 fills up."""
        config, most = self._config, max(self._counts)
        # Kept for the next method on the same data; where nothing is drawn rounds are alike.
        key = server_round if self._drawn else 0, chosen.tobytes()
        if not self._drawn and key not in self._rows:
            self._rows.clear()
        if key not in self._rows:
            width = min(config.batch or most, most)
            rows = np.full((config.local_steps, chosen.size, width), -1, dtype=np.int64)
            for place, k in enumerate(chosen.tolist()):
                n, source = self._counts[k], None
                if not takes_all(n, config.batch):
                    source = generator(self.seed, "batch", k, server_round)
                batch = draw_batches(n, config.batch, config.local_steps, source)
                rows[:, place, : batch.shape[1]] = batch
            self._rows[key] = rows
        return self._rows[key]


def _of_data(config: ServerGraphConfig) -> ServerGraphConfig:
    """Return settings in which only those of data and batches differ from the defaults."""
    names = ("clients", "features", "samples", "spread", "loss", "batch", "local_steps")
    return replace(
        ServerGraphConfig(), servers=1, **{name: getattr(config, name) for name in names}
    )


@lru_cache(maxsize=4)
def _federation(config: ServerGraphConfig, seed: int) -> _Federation:
    return _Federation(config, seed)
