"""The minimiser of (1) behind synthetic data, and how far a run is from it in the long run."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from trellis.strategies.core.declared import Client
from trellis.strategies.server_graph.strategy import ServerGraph

from .config import LOSSES, ServerGraphConfig
from .data import synthetic_table
from .losses import loss_by_name
from .problem import minimiser

Vector = NDArray[np.float64]


def true_model(
    config: ServerGraphConfig, seed: int, clients: Sequence[Client], homes: NDArray[np.intp]
) -> Vector | None:
    """Return w^o of (1) over the clients that have a server, or None where it is not known.

    Known is it for convex losses on data that this study made. Servers count alike, and a server's
    clients count alike, so it depends on who is whose.
    """
    partitions = [client.partition for client in clients]
    # Both are the clients' word: one that lies must not stop the run.
    synthetic = all(client.synthetic for client in clients)
    known = synthetic and all(0 <= partition < config.clients for partition in partitions)
    known = known and config.standardise == "none"  # else models have other coordinates
    if not known or config.loss not in LOSSES:
        return None
    return _minimiser(config, seed, tuple(partitions), tuple(homes.tolist()))


def truth_of(
    config: ServerGraphConfig, seed: int, strategy: ServerGraph, clients: Sequence[Client]
) -> Vector | None:
    """Return w^o of a run as it is now; None if it is not known.

    One server by itself does not know it: the others' clients are not here.
    """
    if strategy.alone is not None:
        return None
    homes = strategy.homes(strategy.current_round)
    here = [homes.get(number, -1) for number in range(1, len(clients) + 1)]
    return true_model(config, seed, clients, np.array(here, dtype=np.intp))


@lru_cache(maxsize=64)
def _minimiser(
    config: ServerGraphConfig, seed: int, partitions: tuple[int, ...], homes: tuple[int, ...]
) -> Vector:
    groups: dict[int, list[tuple[Vector, Vector]]] = {}
    for partition, home in zip(partitions, homes, strict=True):
        if home >= 0:
            samples = synthetic_table(config, seed, partition)
            groups.setdefault(home, []).append((samples.X, samples.y))
    return minimiser(loss_by_name(config.loss), list(groups.values()), config.ridge)


def alone(
    config: ServerGraphConfig, seed: int, clients: Sequence[Client], truth: Vector
) -> float | None:
    """Return how far clients' own minimisers are from w^o, mean power in dB; None if unknown.

    That is what each would learn from its raw samples without any federation.
    """
    partitions = {client.partition for client in clients}
    if not all(client.synthetic and 0 <= client.partition < config.clients for client in clients):
        return None
    loss, power = loss_by_name(config.loss), 0.0
    for partition in sorted(partitions):
        table = synthetic_table(config, seed, partition)
        try:
            own = minimiser(loss, [[(table.X, table.y)]], config.ridge)
        except ValueError:  # too few samples for a minimiser
            return None
        power += float(np.sum((own - truth) ** 2)) / len(partitions)
    return _decibel(power)


def deviations(
    config: ServerGraphConfig, seed: int, strategy: ServerGraph, clients: Sequence[Client]
) -> dict[str, float]:
    """Return the mean-square deviation (dB) of the centroid and of single servers."""
    truth = truth_of(config, seed, strategy, clients)
    if truth is None:
        return {}
    return distances(strategy.models[strategy.up(strategy.current_round)], truth)


def distances(models: Vector, truth: Vector) -> dict[str, float]:
    """Return how far the centroid of models (S, M), and on average a single one, are from w^o."""
    return {
        "msd": _decibel(np.sum((np.mean(models, axis=0) - truth) ** 2)),
        "msd-servers": _decibel(np.mean(np.sum((models - truth) ** 2, axis=1))),
    }


def _decibel(power: float) -> float:
    return float(10.0 * np.log10(max(float(power), 1e-300)))


def steady_state(decibels: Sequence[float]) -> float:
    """Return the mean power over the last half of the rounds, in dB."""
    last = np.asarray(decibels[len(decibels) // 2 :], dtype=np.float64)
    return float(10.0 * np.log10(np.mean(10.0 ** (last / 10.0))))
