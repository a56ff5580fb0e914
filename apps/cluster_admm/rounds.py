"""The rounds of the study without messages: all clients of all servers at once [GG].

Every draw (who takes part, noise) is the one that ``trellis run cluster-admm`` makes with the same
seed, so both have the same models but for rounding. A round is the clients' steps (4) of `steps`,
noise (12), then the servers' steps of `strategies.cluster_admm.mixing` and the duals (5).

Noise from a seed protects nobody: this is arithmetic, not a protocol.
"""

from __future__ import annotations

import numpy as np

from apps.common.seeds import generator
from privacy.accounting.zcdp import decaying_sigma
from strategies.cluster_admm.divergence import DivergenceWatch
from strategies.cluster_admm.mixing import aggregate, exact_update, over_clusters, over_servers
from strategies.core.base import StudyError
from strategies.topology.clients import drawn_by_server
from strategies.topology.graph import Topology

from .config import ClusterAdmmConfig
from .data import ONE_TASK
from .release import projected, sensitivity, simulated_noise
from .steps import Array, Places, Tables, all_steps


class Rounds:
    """The state of the servers, models (S, Q, d), and of the clients, (K, d).

    Parameters
    ----------
    graph : the servers'
    clusters : (K,) of every client; clients are dealt to servers in order
    tables : X and y of every client, clipped where the settings say so
    """

    def __init__(
        self,
        config: ClusterAdmmConfig,
        seed: int,
        graph: Topology,
        clusters: Places,
        tables: Tables,
    ) -> None:
        self._config, self._seed = config, seed
        one_task = config.method in ONE_TASK
        servers, count = graph.servers, 1 if one_task else config.cluster_count
        apart = config.method == "clusterfl"
        self._adjacency = np.zeros_like(graph.adjacency) if apart else graph.adjacency
        self.homes: Places = np.arange(config.clients, dtype=np.intp) * servers // config.clients
        self.groups: Places = np.zeros_like(self.homes) if one_task else clusters
        mates = self.groups if config.mixing == "exact" else self.homes
        self._shares = 1.0 / np.bincount(mates)[mates]
        self._counts = [len(y) for _, y in tables]
        self._steps = all_steps(config.loss, tables, config.ridge, self._shares, config.rho)
        self.models = np.zeros((servers, count, tables[0][0].shape[1]))
        self._server_duals = np.zeros_like(self.models)
        self._duals = np.zeros((config.clients, self.models.shape[2]))
        self.clients, self.sent = np.zeros_like(self._duals), np.zeros_like(self._duals)
        self._seen = np.zeros(config.clients, dtype=np.bool_)
        self._watch = DivergenceWatch()

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
        if self._watch.diverges(self.models, before, server_round):
            raise StudyError(
                f"round {server_round}: the models diverge (an entry of size "
                f"{np.max(np.abs(self.models)):.3g}). rho={rho:g} is too small for tau={tau:g} on "
                "this graph; use a larger rho"
            )
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
