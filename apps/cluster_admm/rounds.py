"""The rounds of the study without messages: all clients of all servers at once [GG].

Nothing is written twice. Clients' steps (4) are those of `steps`, called with all clients that take
part in place of one; who takes part, the servers' steps (8)-(10) and the duals (5) are the
strategy's own. Every draw (who takes part, noise) is the one that ``trellis run cluster-admm``
makes with the same seed, so both have the same models but for rounding.

Noise from a seed protects nobody: this is arithmetic, not a protocol.
"""

from __future__ import annotations

from functools import partial

import numpy as np

from trellis.apps.common.seeds import generator
from trellis.strategies.core.base import Client, RoundPlan
from trellis.strategies.core.robust import Robust, clipped_rows

from .build import build_strategy
from .config import ClusterAdmmConfig
from .problem import Array, Tables
from .release import simulated_release
from .steps import Places, primal_steps


class Rounds:
    """A run of the study as it goes.

    Parameters
    ----------
    clusters : (K,) of every client; clients are dealt to servers in order
    tables : X and y of every client, clipped where the settings say so

    Attributes
    ----------
    strategy : the study's, with the servers' models (S, Q, d)
    clients, sent : (K, d) the clients' last w_k, and what they sent for it, noise included
    """

    def __init__(
        self, config: ClusterAdmmConfig, seed: int, clusters: Places, tables: Tables
    ) -> None:
        self._config, self._seed = config, seed
        plan = RoundPlan(config.rounds, 0.0, config.clients, config.sample)
        sampler = partial(generator, seed, "sampling", 0)
        robust = Robust(config.robust, config.norm_bound, config.trim)
        arguments = {"plan": plan, "sampler": sampler, "robust": robust}
        self.strategy = build_strategy(config, seed, arguments)
        servers, size = self.strategy.task.topology.servers, tables[0][0].shape[1]
        self.strategy.clients = [
            Client(
                name=f"client-{k + 1}",
                partition=k,
                count=len(y),
                variables=[f"x{j + 1}" for j in range(size)],
                node_id=k,
                synthetic=True,
                server=k * servers // config.clients,
                cluster=int(clusters[k]),
            )
            for k, (_, y) in enumerate(tables)
        ]
        self.strategy.begin(self.strategy.clients)
        self._shares = [self.strategy.share(k) for k in range(len(tables))]
        self._steps = primal_steps(
            config.loss, tables, config.ridge, self._shares, self.strategy.task.rho
        )
        self.clients = np.zeros((len(tables), size))

    @property
    def models(self) -> Array:
        """The servers' models (S, Q, d)."""
        return self.strategy.models

    @property
    def sent(self) -> Array:
        """What clients sent last (K, d), noise included."""
        return self.strategy.last

    def step(self, server_round: int) -> Places:
        """Run one round and return who took part."""
        chosen = np.array(self.strategy.participants(server_round), dtype=np.intp)
        target = self.strategy.target(chosen)
        found = self._steps.solve(target, chosen)
        self.clients[chosen] = found
        if self._config.privacy != "none":
            found = np.array(
                [
                    self._released(int(k), w, server_round)
                    for k, w in zip(chosen, found, strict=True)
                ]
            )
        found = clipped_rows(found, target / self.strategy.task.rho, self._config.norm_bound)
        self.strategy.update(server_round, dict(zip(chosen.tolist(), found, strict=True)))
        return chosen

    def _released(self, client: int, w: Array, server_round: int) -> Array:
        """Return what a client sends for its w, (12)."""
        config, count = self._config, self.strategy.clients[client].count
        step = server_round, count, self.strategy.task.rho, self._shares[client]
        return simulated_release(config, self._seed, client, w, *step)
