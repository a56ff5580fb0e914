"""Noisy sums without messages: the strategy's own arithmetic on sums over all clients at once [GG].

Samples of a cluster's clients are put together before their moments are taken, which is the same
sum but for rounding, and the noise of all clients is drawn as one. Noise from a seed protects
nobody: this is arithmetic, not a protocol.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from trellis.apps.common.evaluation.holding import drawn_rows
from trellis.apps.common.seeds import generator
from trellis.privacy.mechanisms.shares import plan_share, simulated_sum_noise
from trellis.strategies.cluster_admm.moments import SCALES, SCORE, ClusterMoments

from ..build import FRACTION_BITS, moments
from ..config import ClusterAdmmConfig
from ..data import held_out_count
from ..problem import Array, Tables
from . import moments as moment
from . import scales, score
from .budget import scales_ratio, scoring_ratio, teaching_ratio
from .own import own_model

Places = NDArray[np.intp]


def summed(
    config: ClusterAdmmConfig, seed: int, tables: Tables, clusters: Places
) -> ClusterMoments:
    """Return the strategy after all its exchanges; clients are nodes 0 to K - 1.

    Parameters
    ----------
    tables : X and y of every client
    clusters : (K,) of every client
    """
    strategy = moments(config)
    strategy.begin(tables[0][0].shape[1], strategy.given)
    several = strategy.clusters > 1
    strategy.groups = {k: int(clusters[k]) if several else 0 for k in range(len(tables))}
    parts = [_parts(config, seed, table) for table in tables]
    taught = _stacked(strategy, [learning for learning, _ in parts])
    tested = _stacked(strategy, [held for _, held in parts]) if config.held_out else []
    for number, wanted in enumerate(strategy.sums, start=1):
        whole, sensitivity, ratio = _sum(config, strategy, wanted, taught, tested)
        total, noise = _noised(config, seed, number, whole, sensitivity, ratio, len(tables))
        place = 1 if wanted == SCORE else 0
        counts = {k: float(len(part[place][1])) for k, part in enumerate(parts)}
        strategy.take(total, counts, noise)
    return strategy


def own_models(
    config: ClusterAdmmConfig, strategy: ClusterMoments, tables: Tables, clients: Sequence[int]
) -> Array:
    """Return the models (n, d) that ``clients`` make on their devices, of their ``tables``."""
    models, pulls = strategy.releases.models, strategy.pulls
    return np.array(
        [
            own_model(
                *(config.loss, *tables[k], models, pulls),
                *(strategy.groups[k], config.ridge),
            ).model
            for k in clients
        ]
    )


def _parts(
    config: ClusterAdmmConfig, seed: int, table: tuple[Array, Array]
) -> tuple[tuple[Array, Array], tuple[Array, Array]]:
    """Return the samples that a client learns from, and those that it holds out."""
    X, y = table
    number = held_out_count(len(y), config.held_out)
    held = drawn_rows(len(y), number, generator(seed, "held out"))
    return (X[~held], y[~held]), (X[held], y[held])


def _stacked(strategy: ClusterMoments, tables: Tables) -> list[tuple[Array, Array]]:
    """Return the samples of every cluster, of all its clients."""
    found = []
    for q in range(strategy.clusters):
        parts = [tables[k] for k, group in strategy.groups.items() if group == q]
        X = [X for X, _ in parts] or [np.zeros((0, tables[0][0].shape[1]))]
        found.append((np.concatenate(X), np.concatenate([y for _, y in parts] or [np.zeros(0)])))
    return found


def _sum(
    config: ClusterAdmmConfig,
    strategy: ClusterMoments,
    wanted: str,
    taught: list[tuple[Array, Array]],
    tested: list[tuple[Array, Array]],
) -> tuple[dict[str, Array], float, float]:
    """Return the sum in hand without noise, its sensitivity and its ratio."""
    loss, releases = config.loss, strategy.releases
    if wanted == SCALES:
        counts = [scales.scale_counts(loss, X, y) for X, y in taught]
        return {"scales": np.sum(counts, axis=0)}, scales.SENSITIVITY[loss], scales_ratio(config)
    if wanted == SCORE:
        width = strategy.bounds.width
        terms = [
            score.score_terms(loss, X, y, model, width)
            for (X, y), model in zip(tested, releases.models, strict=True)
        ]
        return {"score": np.sum(terms, axis=0)}, score.SENSITIVITY[loss], scoring_ratio(config)
    question = moment.Question(
        releases.models,
        strategy.bounds.length,
        *(releases.width, releases.weight, releases.taken == 0),
    )
    parts = [moment.moments(loss, X, y, q, question) for q, (X, y) in enumerate(taught)]
    total = {name: np.sum([part[name] for part in parts], axis=0) for name in parts[0]}
    return total, moment.SENSITIVITY, teaching_ratio(config)


def _noised(
    config: ClusterAdmmConfig,
    seed: int,
    number: int,
    total: dict[str, Array],
    sensitivity: float,
    ratio: float,
    clients: int,
) -> tuple[dict[str, Array], float]:
    """Return the sum with its noise, and the deviation of that."""
    size = sum(array.size for array in total.values())
    lost = math.floor(config.dropout * clients + 1e-9)
    bad = math.floor(config.colluding * clients + 1e-9)
    share = plan_share(FRACTION_BITS, ratio, sensitivity, size, max(clients - lost - bad, 1))
    drawn = simulated_sum_noise(generator(seed, "sum of noise", 0, number), share, clients)
    found, place = {}, 0
    for name, array in total.items():
        found[name] = array + drawn[place : place + array.size].reshape(array.shape)
        place += array.size
    return found, share.grid * float(share.steps) * math.sqrt(clients)
