"""The study without messages: all clients of all servers at once, ridge regression only [GG].

For the paper's figures, over many seeds and settings. Every draw (data, clusters, graph, who takes
part, noise) is the one that ``trellis run cluster-admm`` makes with the same seed, so both have the
same models but for rounding; the rounds themselves are in `rounds`.

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

from trellis.apps.common.servers import build_topology
from trellis.apps.common.settings import ConfigError
from trellis.strategies.topology.graph import Topology

from .config import ONE_TASK, ClusterAdmmConfig
from .data import Truth, synthetic_table, synthetic_truth
from .problem import Array, nmsd
from .release import bounded
from .rounds import Rounds
from .steps import Places, alone

Tables = tuple[tuple[Array, Array], ...]


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
    if config.held_out:
        raise ConfigError(
            f"held-out={config.held_out}: it scores results on devices, and here there are none; "
            "set held-out=0"
        )
    truth = synthetic_truth(config, seed)
    graph = build_topology(config, seed)
    if config.method == "local":
        return _alone(config, seed, truth, graph)
    run = Rounds(config, seed, truth.clusters, client_tables(config, seed))
    homes, groups = run.strategy.homes, run.strategy.groups
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
    """Return X and y of every client, clipped where the settings say so."""
    raw = _raw_tables(_of_data(config), seed)
    return tuple(bounded(config, X, y) for X, y in raw)


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
def _raw_tables(config: ClusterAdmmConfig, seed: int) -> Tables:
    tables = (synthetic_table(config, seed, k) for k in range(config.clients))
    return tuple((table.X, table.y) for table in tables)
