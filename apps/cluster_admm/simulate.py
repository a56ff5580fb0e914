"""The study without messages: all clients of all servers at once, ridge regression only [GG].

For the paper's figures, over many seeds and settings. Every draw (data, clusters, graph, who takes
part, noise) is the one that ``trellis run cluster-admm`` makes with the same seed, so both have the
same models but for rounding. A round, with v_k = phi_k + rho w_{s,q} and U_k = sqrt(2 / D_k) X_k:

    w_k = (c_k I + U_k'U_k)^-1 (2/D_k X_k'y_k + v_k),    c_k = rho + 2 share_k ridge            (4)
        = (g - V_k'V_k g) / c_k,   V_k = L_k^-1 U_k,   L_k L_k' = c_k I + U_k U_k'    (Woodbury)

with V (K, D, d) made once, then noise (12), then the servers' steps of `strategies.cluster_mixing`.

Methods: ``gfl`` is ``pgfl`` with one task for all clients, compared with each client's own truth;
``clusterfl`` has no edges between servers; ``fedavg`` has one server and one task. ``local`` is
argmin f_k of every client for itself. It is its own server and its own cluster, so share_k = 1, and
it sends nothing, so there is no noise: the same in every round.

NMSD (50), in dB, two of it:

    ``nmsd``           mean over clients k of |w_k - w*_q|^2 / |w*_q|^2, with w_k the client's last
                       solution of (4) before its noise: as (50) is printed
    ``nmsd_servers``   the same of w_{s,q}, the model that the server of k has for k's cluster: all
                       that is known outside the clients where there is noise

They agree in the limit without scheduling and noise. In the paper's setting with noise the servers'
are up to 3 dB better: the duals (5) carry the noise of earlier rounds, which a mean over clients
lessens and one w_k does not. The study's expected numbers are those of ``nmsd``.

Noise from a seed protects nobody: this is arithmetic, not a protocol.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import solve_triangular

from apps.servers import build_topology
from privacy.zcdp import decaying_sigma
from sim.config import ConfigError
from sim.seeds import generator
from strategies.base import StudyError
from strategies.cluster_mixing import aggregate, exact_update, over_clusters, over_servers
from strategies.server_clients import drawn_by_server
from strategies.topology import Topology

from .config import ClusterAdmmConfig
from .data import ONE_TASK, Truth, synthetic_table, synthetic_truth
from .problem import nmsd
from .release import bounded, projected, sensitivity, simulated_noise

Array = NDArray[np.float64]
Places = NDArray[np.intp]
Tables = tuple[tuple[Array, Array], ...]

# As in a run: a model so many times the largest of the first rounds is on its way to infinity.
_EXPLOSION, _FIRST_ROUNDS = 1e3, 10


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
        For another loss than ``ridge``, and where clusters are to be found.
    StudyError
        Where the models diverge.
    """
    if config.loss != "ridge":
        raise ConfigError(f"loss={config.loss!r}: only ridge can be simulated without messages")
    if config.finds_clusters and config.method not in ONE_TASK:
        raise ConfigError(
            f"clusters={config.clusters!r}: finding clusters takes messages; set their number"
        )
    truth = synthetic_truth(config, seed)
    graph = build_topology(config, seed)
    if config.method == "local":
        return _alone(config, seed, truth, graph)
    run = _Run(config, seed, truth, graph)
    targets = truth.models[truth.clusters]
    own, servers = np.empty(config.rounds), np.empty(config.rounds)
    took_part = np.zeros((config.rounds, config.clients), dtype=np.bool_)
    for server_round in range(1, config.rounds + 1):
        took_part[server_round - 1, run.step(server_round)] = True
        own[server_round - 1] = nmsd(run.clients, targets)
        servers[server_round - 1] = nmsd(run.models[run.homes, run.groups], targets)
    last = run.models, run.clients, run.sent, run.homes, run.groups
    return Simulation(own, servers, *last, took_part, truth, graph)


def client_tables(config: ClusterAdmmConfig, seed: int) -> Tables:
    """Return X and y of every client, clipped where the settings say so."""
    raw = _raw_tables(_of_data(config), seed)
    return tuple(bounded(config, X, y) for X, y in raw)


class RidgeSteps:
    """The primal step (4) of all clients, factorised once.

    Parameters
    ----------
    tables : X (D_k, d) and y (D_k,) of every client
    ridge, rho : of R(w) = ridge |w|^2 and of the augmented Lagrangian
    shares : (K,) each client's part of R
    """

    def __init__(self, tables: Tables, ridge: float, shares: Array, rho: float) -> None:
        most = max(len(y) for _, y in tables)
        size = tables[0][0].shape[1]
        self._c = rho + 2.0 * ridge * shares
        self._V = np.zeros((len(tables), most, size))  # zero rows change nothing
        self._target = np.empty((len(tables), size))
        for k, (X, y) in enumerate(tables):
            U = np.sqrt(2.0 / len(y)) * X
            L = np.linalg.cholesky(self._c[k] * np.eye(len(y)) + U @ U.T)
            self._V[k, : len(y)] = solve_triangular(L, U, lower=True)
            self._target[k] = (2.0 / len(y)) * (X.T @ y)

    def solve(self, v: Array, clients: Places) -> Array:
        """Return the w_k (n, d) of ``clients`` (n,) for their ``v`` (n, d)."""
        g = (self._target[clients] + v)[..., None]
        V = self._V[clients]
        inside = g - V.transpose(0, 2, 1) @ (V @ g)
        return np.asarray(inside[..., 0] / self._c[clients, None])


class _Run:
    """The state of the servers: models (S, Q, d), of the clients (K, d)."""

    def __init__(self, config: ClusterAdmmConfig, seed: int, truth: Truth, graph: Topology) -> None:
        self._config, self._seed = config, seed
        one_task = config.method in ONE_TASK
        servers, count = graph.servers, 1 if one_task else config.cluster_count
        apart = config.method == "clusterfl"
        self._adjacency = np.zeros_like(graph.adjacency) if apart else graph.adjacency
        self.homes: Places = np.arange(config.clients, dtype=np.intp) * servers // config.clients
        self.groups: Places = np.zeros_like(self.homes) if one_task else truth.clusters
        mates = self.groups if config.mixing == "exact" else self.homes
        self._shares = 1.0 / np.bincount(mates)[mates]
        tables = client_tables(config, seed)
        self._counts = [len(y) for _, y in tables]
        self._steps = RidgeSteps(tables, config.ridge, self._shares, config.rho)
        self.models = np.zeros((servers, count, config.features))
        self._server_duals = np.zeros_like(self.models)
        self._duals = np.zeros((config.clients, config.features))
        self.clients, self.sent = np.zeros_like(self._duals), np.zeros_like(self._duals)
        self._seen = np.zeros(config.clients, dtype=np.bool_)
        self._largest = 0.0

    def step(self, server_round: int) -> Places:
        """Run one round and return who took part."""
        config, rho, before = self._config, self._config.rho, self.models
        rng = generator(self._seed, "sampling", 0, server_round)
        drawn = drawn_by_server(self.homes, range(len(before)), config.sample, rng)
        chosen = np.array(drawn, dtype=np.intp)
        v = self._duals[chosen] + rho * before[self.homes[chosen], self.groups[chosen]]
        self.clients[chosen] = self._steps.solve(v, chosen)
        self.sent[chosen] = self._released(self.clients[chosen], chosen, server_round)
        self._seen[chosen] = True
        exact = config.mixing == "exact"
        counted = np.flatnonzero(self._seen) if exact else chosen
        shifted = self.sent[counted] - self._duals[counted] / rho
        places = self.homes[counted], self.groups[counted]
        tau = config.tau * config.tau_decay**server_round
        if exact:
            self.models, self._server_duals = exact_update(
                shifted, *places, before, self._server_duals, self._adjacency, rho, tau
            )
        else:
            mixed = over_servers(aggregate(shifted, *places, before), self._adjacency)  # (8), (9)
            self.models = over_clusters(mixed, tau)  # (10)
        own = self.models[self.homes[chosen], self.groups[chosen]]
        self._duals[chosen] += rho * (own - self.sent[chosen])  # (5)
        self._refuse_divergence(server_round, tau)
        return chosen

    def _released(self, w: Array, chosen: Places, server_round: int) -> Array:
        """Return what the clients send for their w (n, d), (12)."""
        config = self._config
        if config.privacy == "none":
            return w
        sent = np.empty_like(w)
        for place, k in enumerate(chosen.tolist()):
            own = projected(w[place], config.clip_model) if config.privacy == "sound" else w[place]
            distance = sensitivity(config, self._counts[k], config.rho, float(self._shares[k]))
            sigma = decaying_sigma(config.phi0, config.zeta, distance, server_round)
            sent[place] = own + sigma * simulated_noise(self._seed, k, server_round, own.size)
        return sent

    def _refuse_divergence(self, server_round: int, tau: float) -> None:
        size = float(np.max(np.abs(self.models)))
        if server_round <= _FIRST_ROUNDS and np.isfinite(size):
            self._largest = max(self._largest, size)
        elif not size <= _EXPLOSION * max(self._largest, 1e-300):
            raise StudyError(
                f"round {server_round}: the models diverge (an entry of size {size:.3g}). "
                f"rho={self._config.rho:g} is too small for tau={tau:g} on this graph; use a "
                "larger rho"
            )


def _alone(config: ClusterAdmmConfig, seed: int, truth: Truth, graph: Topology) -> Simulation:
    """Return argmin f_k of every client."""
    w = np.empty((config.clients, config.features))
    for k, (X, y) in enumerate(client_tables(config, seed)):
        # (X'X + D ridge)^-1 X'y by singular values, the shortest solution at ridge = 0.
        left, values, right = np.linalg.svd(X, full_matrices=False)
        kept = values > 1e-12 * values[0]
        shrunk = values[kept] / (values[kept] ** 2 + len(y) * config.ridge)
        w[k] = right[kept].T @ (shrunk * (left[:, kept].T @ y))
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
def _raw_tables(config: ClusterAdmmConfig, seed: int) -> Tables:
    tables = (synthetic_table(config, seed, k) for k in range(config.clients))
    return tuple((table.X, table.y) for table in tables)
