"""The end of a run: models for devices; with noise in sums also score, account and result."""

from __future__ import annotations

import logging

import numpy as np
from flwr.app import RecordDict
from flwr.serverapp import Grid
from numpy.typing import NDArray

from trellis.apps.common.results import RunResult
from trellis.strategies.core import wire
from trellis.strategies.core.closing.deliver import deliver
from trellis.strategies.core.enrolment import StudyError
from trellis.strategies.core.sums import noise_in
from trellis.strategies.server_graph.strategy import ServerGraph
from trellis.strategies.server_graph.sums import NoisySums

from .config import ServerGraphConfig
from .private import Terms
from .release import sum_statement
from .truth import alone, distances, truth_of

log = logging.getLogger("trellis.run")

Array = NDArray[np.float64]


def close(
    result: RunResult, config: ServerGraphConfig, seed: int, strategy: NoisySums, grid: Grid
) -> None:
    """Score the private model, send it to everyone, and fill the result."""
    headline = {"rounds": float(len(strategy.progress.rows))}
    if config.held_out:
        headline |= _score(result, config, strategy, grid)
    if config.at_home:
        strategy.deliver(grid)
    else:
        deliver_models(strategy, grid, strategy.result, strategy.result_centroid())
    names = [client.name for client in strategy.clients]
    simulated = all(client.simulated for client in strategy.clients)
    result.ledger = strategy.ledger.report(names, sum_statement(config, simulated))
    result.ledger["simulated"] = simulated
    _fill(result, config, seed, strategy, headline)


def deliver_models(
    strategy: ServerGraph, grid: Grid, models: Array, centroid: Array | None
) -> None:
    """Send every device its server's model, and the centroid where it may know it."""
    homes = strategy.homes_in(strategy.current_round)

    def content(client: int) -> RecordDict:
        # Of a server that is down, and whose clients go to no other: the model it stopped with.
        home = int(homes[client] if homes[client] >= 0 else strategy.homes[client])
        arrays = {"model": models[home]}
        if centroid is not None:
            arrays["centroid"] = centroid
        return RecordDict({"arrays": wire.record({**arrays, **strategy.preprocessing})})

    deliver(strategy, grid, content)


def _score(
    result: RunResult, config: ServerGraphConfig, strategy: NoisySums, grid: Grid
) -> dict[str, float]:
    """Return the mean score of held-out samples and the deviation of its noise."""
    terms = Terms.of(config)
    try:
        found = strategy.score(grid)
    except StudyError as error:
        result.notes.append(f"There is no score: {error}")
        return {}
    count = sum(terms.kept_back(strategy.clients[client].counted) for client in found.survivors)
    if not count:
        result.notes.append("There is no score: no client has a sample to hold out.")
        return {}
    mean = float(np.clip(found.total["terms"][0] / count, 0.0, 1.0))
    return {"score": mean, "score-noise": noise_in(found) / count}


def _fill(
    result: RunResult,
    config: ServerGraphConfig,
    seed: int,
    strategy: NoisySums,
    headline: dict[str, float],
) -> None:
    rows, last = strategy.progress.rows, strategy.current_round
    graph, models = strategy.servers.topology, strategy.known_models
    up = strategy.up(last)
    result.arrays = {
        "models": models,
        "centroid": strategy.result_centroid(),
        "combination": np.array(graph.weights),
        "homes": strategy.homes_in(last),
        "alive": strategy.running(last),
        **strategy.preprocessing,
    }
    if len(strategy.own) == len(strategy.clients):
        # Simulated clients only: gathered for evaluation.
        own = [strategy.own[client]["model"] for client in range(len(strategy.clients))]
        result.arrays["personal"] = np.array(own)
    headline["disagreement"] = rows[-1]["disagreement"]
    truth = truth_of(config, seed, strategy)
    if truth is not None:
        result.arrays["truth"] = truth
        headline |= distances(models[up], truth)
        by_itself = alone(config, seed, strategy.clients, truth)
        if by_itself is not None:
            headline["alone-msd"] = by_itself
    headline["spectral-gap"] = graph.spectral_gap
    headline["between-servers"] = sum(row["between-servers"] for row in rows)
    headline["epsilon"] = float(result.ledger.get("epsilon", 0.0))
    if config.is_auto("step"):
        headline["step"] = config.pace(strategy.first_model.size)
    result.headline = headline
