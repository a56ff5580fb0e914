"""The study without messages: all clients of all servers in one product a round.

For tables over many seeds, and for the methods side by side in a report. Every draw (clients,
batches, noise, graph) is the one that `apps.run` makes with the same seed, so both have the same
models but for rounding: (6) for the clients C that take part, with X (C, b, M) their batches,

    W = w[home of c] - mu (1/b sum_b clip_B(Q'(h'w, y) h) + rho w)                          [RS] (6)
    psi_p = mean of W over p's clients                                                     [RS] (7)
    w_p = sum_m a_mp psi_m + noise of the method                                           [RS] (8)

For the losses of this study only: both have gradients Q'(h'w, y) h. Masks are not made: they cancel
exactly. Noise from a seed protects nobody: this is arithmetic, not a protocol.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from apps.common.seeds import generator
from apps.common.servers import build_topology
from apps.common.settings import ConfigError
from privacy.mechanisms.laplace import laplace_noise
from strategies.server_graph.exchange import servers, whole_matrix
from strategies.server_graph.failures import alive, homes_now, parse_failures
from strategies.server_graph.post import Post
from strategies.topology.graph import Topology

from .config import LOSSES, NOISY_METHODS, ServerGraphConfig
from .data import synthetic_table
from .losses import loss_by_name
from .problem import clip_rows, draw_batches, minimiser

Array = NDArray[np.float64]
Indices = NDArray[np.integer[Any]]
Slope = Callable[[Array, Array], Array]

_SLOPES: dict[str, Slope] = {
    "logistic": lambda margin, y: -y * expit(-y * margin),
    "least-squares": lambda margin, y: margin - y,
}


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
    """

    msd: Array
    msd_servers: Array
    disagreement: Array
    models: Array
    truth: Array
    topology: Topology


def simulate(config: ServerGraphConfig, seed: int, rounds: int | None = None) -> Simulation:
    """Run the study's arithmetic on its synthetic data; ``rounds`` in place of the setting.

    Raises
    ------
    ConfigError
        For a loss that is not the study's own, and for ``masked`` without noise on a graph where a
        server has one neighbour only, which the study itself refuses.
    """
    if config.loss not in LOSSES:
        raise ConfigError(f"loss={config.loss!r}: only {', '.join(LOSSES)} can be simulated")
    federation = _federation(_common(config), seed)
    models = np.zeros((federation.graph.servers, config.features))
    found = np.empty((3, config.rounds if rounds is None else rounds))
    for i in range(1, found.shape[1] + 1):
        phase = federation.phase(i)
        chosen, rows = federation.draws(i)
        homes = phase.homes[chosen]
        updates = _steps(config, models[homes], federation.X, federation.y, chosen, rows)
        psi = _means(updates, homes, models)
        combined = phase.A.T @ psi + _noise(config, seed, i, phase)
        models = np.where(phase.up[:, None], combined, models)
        running = models[phase.up]
        centre = np.mean(running, axis=0)
        found[:, i - 1] = (
            np.sum((centre - phase.truth) ** 2),
            np.mean(np.sum((running - phase.truth) ** 2, axis=1)),
            np.mean(np.sum((running - centre) ** 2, axis=1)),
        )
    decibels = 10.0 * np.log10(np.maximum(found[:2], 1e-300))
    truth = federation.phase(max(found.shape[1], 1)).truth
    return Simulation(decibels[0], decibels[1], found[2], models, truth, federation.graph)


@dataclass(frozen=True)
class Cost:
    """What a round between servers takes: messages, bytes, seconds; ``key_bytes`` once a run."""

    messages: float
    bytes: float
    key_bytes: int
    seconds: float


def cost(config: ServerGraphConfig, graph: Topology, rounds: int = 20) -> Cost:
    """Return what a round between the servers costs, by running `rounds` of them for real."""
    method = "none" if config.method == "fedavg" else config.method
    noise = partial(generator, 0, "server noise")
    parties, post = servers(method, graph.servers, config.sigma, noise), Post()
    psi = dict(enumerate(np.ones((graph.servers, config.features))))
    began = time.perf_counter()
    for i in range(1, rounds + 1):
        post.exchange(parties, i, psi, graph.weights)
    seconds = (time.perf_counter() - began) / rounds
    return Cost(post.messages / rounds, post.bytes / rounds, post.key_bytes, seconds)


def _steps(
    config: ServerGraphConfig, w: Array, X: Array, y: Array, chosen: Indices, rows: Indices
) -> Array:
    """Return w_{p,k,i} (C, M) from ``w`` (C, M), by ``rows`` (E, C, b), -1 for none."""
    slope = _SLOPES[config.loss]
    for batch in rows:
        h, target = X[chosen[:, None], batch], y[chosen[:, None], batch]
        taken = batch >= 0
        pull = slope(np.einsum("cbm,cm->cb", h, w), target) * taken
        G = pull[:, :, None] * h
        if config.clip:
            G = clip_rows(G.reshape(-1, w.shape[1]), config.clip).reshape(G.shape)
        mean = G.sum(axis=1) / np.count_nonzero(taken, axis=1)[:, None]
        w = w - config.step * (mean + config.ridge * w)
    return w


def _means(updates: Array, homes: Indices, models: Array) -> Array:
    """Return psi (P, M); a server without clients keeps its model."""
    sums = np.zeros_like(models)
    np.add.at(sums, homes, updates)
    counts = np.bincount(homes, minlength=len(models))[:, None]
    return np.where(counts > 0, sums / np.maximum(counts, 1), models)


def _noise(config: ServerGraphConfig, seed: int, server_round: int, phase: _Phase) -> Array:
    """Return what the noise of the method adds to the models (P, M) in a round."""
    total = np.zeros((phase.up.size, config.features))
    if config.method not in NOISY_METHODS:
        return total
    across = phase.A - np.diag(np.diag(phase.A))
    if config.method == "masked":  # only to servers that have no other neighbour
        across = np.where(np.count_nonzero(across, axis=0) == 1, across, 0.0)
        if config.sigma == 0.0 and np.any(across):
            lonely = int(np.flatnonzero(np.any(across, axis=0))[0])
            raise ConfigError(
                f"sigma=0: masks cannot hide anything from server {lonely}, which has one "
                "neighbour; set sigma > 0 for its edge"
            )
    if config.sigma == 0.0:
        return total
    scale, size = config.sigma / math.sqrt(2.0), config.features
    for m in np.flatnonzero(np.any(across, axis=1)):
        source = generator(seed, "server noise", int(m), server_round)
        near = np.flatnonzero(across[m])
        if config.method == "iid":
            g = laplace_noise(source, near.size * size, scale).reshape(near.size, size)
            total[near] += across[m, near, None] * g
        else:  # one draw for all, taken back by the server itself, (24)
            g = laplace_noise(source, size, scale)
            total += across[m][:, None] * g
            total[m] -= across[m].sum() * g
    return total


@dataclass(frozen=True)
class _Phase:
    """Rounds with the same servers ``up`` (P,): homes (K,), the minimiser (M,), A (P, P)."""

    up: NDArray[np.bool_]
    homes: Indices
    truth: Array
    A: Array


class _Federation:
    """Data, graph and draws of a seed: what method, noise, step and clipping do not change.

    ``X`` (K, N, M) and ``y`` (K, N) are filled up with zeros, which no batch takes, for clients
    with fewer samples than others.
    """

    def __init__(self, config: ServerGraphConfig, seed: int) -> None:
        self._config, self._seed = config, seed
        self.graph = build_topology(config, seed, config.weights)
        self._outages = parse_failures(config.failures, self.graph.servers)
        self._counts = config.sample_counts()
        self.X = np.zeros((config.clients, max(self._counts), config.features))
        self.y = np.zeros(self.X.shape[:2])
        for k, n in enumerate(self._counts):
            table = synthetic_table(config, seed, k)
            self.X[k, :n], self.y[k, :n] = table.X, table.y
        self._homes = np.arange(config.clients) * self.graph.servers // config.clients
        self._phases: dict[bytes, _Phase] = {}
        self._draws: dict[int, tuple[Indices, Indices]] = {}

    def phase(self, server_round: int) -> _Phase:
        """Return who is there in a round."""
        up = alive(self._outages, server_round, self.graph.servers)
        key = up.tobytes()
        if key not in self._phases:
            rehome = self._config.on_server_loss == "rehome"
            homes = homes_now(self._homes, up, self.graph.adjacency, rehome)
            rest = self.graph.without(np.flatnonzero(~up).tolist())
            A = whole_matrix(rest.weights, np.flatnonzero(up).tolist(), up.size)
            self._phases[key] = _Phase(up, homes, self._minimiser(homes), A)
        return self._phases[key]

    def _minimiser(self, homes: Indices) -> Array:
        """Return w^o of (1) over the clients that have a server."""
        samples = [(X[:n], y[:n]) for X, y, n in zip(self.X, self.y, self._counts, strict=True)]
        groups = [
            [samples[k] for k in np.flatnonzero(homes == server)]
            for server in range(self.graph.servers)
        ]
        return minimiser(loss_by_name(self._config.loss), groups, self._config.ridge)

    def draws(self, server_round: int) -> tuple[Indices, Indices]:
        """Return who takes part (C,), and the rows (E, C, b) of their batches; -1 fills up."""
        if server_round not in self._draws:
            config, phase = self._config, self.phase(server_round)
            rng = generator(self._seed, "sampling", 0, server_round)
            parts = []
            for server in np.flatnonzero(phase.up):
                own = np.flatnonzero(phase.homes == server)
                if config.sample and own.size > config.sample:
                    own = rng.choice(own, config.sample, replace=False)
                parts.append(own)
            chosen = np.sort(np.concatenate(parts))
            most = max(self._counts)
            width = min(config.batch or most, most)
            rows = np.full((config.local_steps, chosen.size, width), -1, dtype=np.int32)
            for place, k in enumerate(chosen.tolist()):
                source = generator(self._seed, "batch", k, server_round)
                batch = draw_batches(self._counts[k], config.batch, config.local_steps, source)
                rows[:, place, : batch.shape[1]] = batch
            self._draws[server_round] = chosen, rows
        return self._draws[server_round]


def _common(config: ServerGraphConfig) -> ServerGraphConfig:
    """Return the settings that draws depend on, the others at fixed values."""
    method = "fedavg" if config.method == "fedavg" else "none"
    return replace(
        config,
        method=method,
        privacy="none",
        step=1.0,
        clip=0.0,
        sigma=0.0,
        rounds=1,
        secure_aggregation="off",
    )


@lru_cache(maxsize=4)
def _federation(config: ServerGraphConfig, seed: int) -> _Federation:
    return _Federation(config, seed)
