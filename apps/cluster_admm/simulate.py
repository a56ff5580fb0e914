"""The rounds of the study without messages: all clients of all servers at once [GG].

Nothing is written twice. Clients' steps (4) are those of `steps`, called with all clients that take
part in place of one; who takes part, the servers' steps (8)-(10) and the duals (5) are the
strategy's own. Every draw (who takes part, noise) is the one that ``trellis run cluster-admm``
makes with the same seed, so both have the same models but for rounding.

Noise from a seed protects nobody: this is arithmetic, not a protocol.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from trellis.apps.common.settings import ConfigError
from trellis.strategies.core.robust import clipped_rows
from trellis.strategies.topology.graph import Topology

from . import build
from .config import ClusterAdmmConfig
from .data import Truth, synthetic_table, synthetic_truth
from .problem import Array, Tables, nmsd
from .steps import Places, alone, primal_steps


class Rounds:
    """A run of a method with ADMM as it goes; clients are nodes 0 to K - 1.

    Parameters
    ----------
    clusters : (K,) of every client; clients are dealt to servers in order
    tables : X and y of every client

    Attributes
    ----------
    strategy : the study's, with the servers' models (S, Q, d)
    homes, groups : (K,) the server and the cluster of every client, as places in ``models``
    clients, sent : (K, d) the clients' last w_k, and what they sent for it, noise included
    """

    def __init__(
        self, config: ClusterAdmmConfig, seed: int, clusters: Places, tables: Tables
    ) -> None:
        self._config, self._seed = config, seed
        self._counts = [len(y) for _, y in tables]
        size, count = tables[0][0].shape[1], len(tables)
        self.strategy = build.STRATEGIES[config.method](config, seed)
        servers = len(self.strategy.adjacency)
        self.strategy.begin(size)
        self.strategy.assign(
            {
                k: {"server": k * servers // config.clients, "cluster": int(clusters[k])}
                for k in range(count)
            }
        )
        places = np.array([self.strategy.places[k] for k in range(count)], dtype=np.intp)
        self.homes, self.groups = places[:, 0], places[:, 1]
        shares = [self.strategy.share(k) for k in range(count)]
        self._steps = primal_steps(config.loss, tables, config.ridge, shares, self.strategy.rho)
        self.clients, self.sent = np.zeros((count, size)), np.zeros((count, size))

    @property
    def models(self) -> Array:
        """The servers' models (S, Q, d)."""
        return self.strategy.models

    def step(self, server_round: int) -> Places:
        """Run one round and return who took part."""
        strategy, everyone = self.strategy, range(len(self.clients))
        drawn = strategy.sampler(server_round, everyone) if strategy.sampler else everyone
        chosen = np.array(drawn, dtype=np.intp)
        target = np.array([strategy.target(k) for k in chosen.tolist()])
        found = self._steps.solve(target, chosen)
        self.clients[chosen] = found
        if self._config.has_noise:
            found = found + self._noise(server_round, chosen)
        found = clipped_rows(found, target / strategy.rho, self._config.norm_bound)
        self.sent[chosen] = found
        strategy.update(server_round, dict(zip(chosen.tolist(), found, strict=True)))
        return chosen

    def _noise(self, server_round: int, clients: Places) -> Array:
        """Return the noise (n, d) of (12) that clients add."""
        from .as_printed import round_noise, round_sigma

        size = self.clients.shape[1]
        return np.array(
            [
                round_sigma(self._config, server_round, self._counts[k], self.strategy.rho)
                * round_noise(self._seed, k, server_round).standard_normal(size)
                for k in clients.tolist()
            ]
        )


@dataclass(frozen=True)
class Simulation:
    """What a run of the study would have learned.

    Attributes
    ----------
    nmsd : (T,) of the clients' own last models, dB
    nmsd_servers : (T,) of the models that clients' servers have for them, dB
    models : (S, Q, d); of ``local`` (K, 1, d), every client its own server
    clients, sent : (K, d) the clients' last w_k, and what they sent for it, noise included; zero
        for a client never scheduled
    homes, groups : (K,) the server and the cluster of every client, as places in ``models``
    took_part : (T, K) bool
    truth : the synthetic data's
    graph : the servers'
    """

    nmsd: Array
    nmsd_servers: Array
    models: Array
    clients: Array
    sent: Array
    homes: Places
    groups: Places
    took_part: NDArray[np.bool_]
    truth: Truth
    graph: Topology


def simulate(config: ClusterAdmmConfig, seed: int) -> Simulation:
    """Run the study's arithmetic on its synthetic data.

    Raises
    ------
    ConfigError
        For another loss than ``ridge``, for a method without rounds of ADMM but ``local``, and
        where clusters are to be found.
    StudyError
        Where the models diverge.
    """
    if config.loss != "ridge":
        raise ConfigError(f"loss={config.loss!r}: only ridge can be simulated without messages")
    if config.searches:
        raise ConfigError(
            f"clusters={config.clusters!r}: finding clusters takes messages; set their number"
        )
    if config.held_out:
        raise ConfigError(
            f"held-out={config.held_out}: it scores results on devices, and here there are none; "
            "set held-out=0"
        )
    truth = synthetic_truth(config, seed)
    graph = build.graph(config, seed)
    if config.method not in build.STRATEGIES:
        return _alone(config, seed, truth, graph)
    run = Rounds(config, seed, truth.clusters, client_tables(config, seed))
    homes, groups = run.homes, run.groups
    targets = truth.models[truth.clusters]
    own, servers = np.empty(config.rounds), np.empty(config.rounds)
    took_part = np.zeros((config.rounds, config.clients), dtype=np.bool_)
    for server_round in range(1, config.rounds + 1):
        took_part[server_round - 1, run.step(server_round)] = True
        own[server_round - 1] = nmsd(run.clients, targets)
        servers[server_round - 1] = nmsd(run.models[homes, groups], targets)
    last = run.models, run.clients, run.sent, homes, groups
    return Simulation(own, servers, *last, took_part, truth, graph)


def client_tables(config: ClusterAdmmConfig, seed: int) -> Tables:
    """Return X and y of every client of the synthetic data."""
    return _tables(_of_data(config), seed)


def _alone(config: ClusterAdmmConfig, seed: int, truth: Truth, graph: Topology) -> Simulation:
    """Return argmin f_k of every client."""
    w = alone(config.loss, client_tables(config, seed), config.ridge)
    level = np.full(config.rounds, nmsd(w, truth.models[truth.clusters]))
    places = np.arange(config.clients, dtype=np.intp)
    nobody = np.zeros((config.rounds, config.clients), dtype=np.bool_)
    groups = np.zeros_like(places)
    return Simulation(
        level, level.copy(), w[:, None], w, np.zeros_like(w), places, groups, nobody, truth, graph
    )


def _of_data(config: ClusterAdmmConfig) -> ClusterAdmmConfig:
    """Return settings in which only those of the data differ from the defaults."""
    names = ("clients", "clusters", "features", "samples", "similarity", "noise", "loss")
    return replace(ClusterAdmmConfig(), **{name: getattr(config, name) for name in names})


@lru_cache(maxsize=16)
def _tables(config: ClusterAdmmConfig, seed: int) -> Tables:
    tables = (synthetic_table(config, seed, k) for k in range(config.clients))
    return tuple((table.X, table.y) for table in tables)
