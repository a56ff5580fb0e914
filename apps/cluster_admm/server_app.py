"""The server of cluster-admm: config -> strategy -> result."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from functools import lru_cache, partial
from typing import Any

import numpy as np
from flwr.app import Context
from flwr.serverapp import Grid, ServerApp
from numpy.typing import NDArray

from apps.recording import StudyRun
from apps.servers import build_topology
from sim.config import ConfigError
from sim.record import RunResult
from strategies.base import Client
from strategies.cluster_admm import ClusterAdmm, ClusterTask

from .config import ClusterAdmmConfig
from .data import Truth, synthetic_truth
from .problem import nmsd
from .release import statement, warnings

log = logging.getLogger("trellis.run")

app = ServerApp()

ONE_TASK = ("gfl", "fedavg")


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Run the study and keep its result."""
    run = StudyRun(context, grid, ClusterAdmmConfig)
    config = run.config
    for note in warnings(config, range(1, config.rounds + 1)):
        run.result.notes.append(note)
        log.warning(note)
    strategy = build_strategy(config, run.seed, run.strategy_arguments())
    strategy.evaluate = partial(_evaluate, config, run.seed, strategy)
    with run.recording(strategy):
        strategy.run(grid, resume=run.resume)
        names = [client.name for client in strategy.clients]
        run.result.ledger = run.ledger.report(names, statement(config))
        _fill(run.result, strategy, _truth(config, run.seed, strategy.clients))


def build_strategy(
    config: ClusterAdmmConfig, seed: int, arguments: Mapping[str, Any]
) -> ClusterAdmm:
    """Return the strategy of the run's method."""
    if config.method == "local" or config.finds_clusters:
        raise ConfigError(
            f"method={config.method!r}, clusters={config.clusters!r}: the server needs given "
            "clusters and clients that share; see `simulate` for clients alone"
        )
    one_task = config.method in ONE_TASK
    task = ClusterTask(
        topology=build_topology(config, seed),
        clusters=1 if one_task else config.cluster_count,
        rho=config.rho,
        tau=(lambda server_round: 0.0) if one_task else partial(_tau, config),
        exact=config.mixing == "exact",
        apart=config.method == "clusterfl",
    )
    return ClusterAdmm(**arguments, task=task)


def _tau(config: ClusterAdmmConfig, server_round: int) -> float:
    return config.tau * config.tau_decay**server_round


def _truth(config: ClusterAdmmConfig, seed: int, clients: Sequence[Client]) -> Truth | None:
    """Return the models behind the clients' data, where that was made by this study."""
    partitions = [client.partition for client in clients]
    # Both are the clients' word: one that lies must not stop the run.
    known = all(client.synthetic for client in clients)
    if not known or not all(0 <= partition < config.clients for partition in partitions):
        return None
    whole = _synthetic_truth(config, seed)
    return Truth(whole.models, whole.clusters[partitions])


_synthetic_truth = lru_cache(maxsize=4)(synthetic_truth)


def client_models(strategy: ClusterAdmm) -> NDArray[np.float64]:
    """Return the model (K, d) that every client uses: of its server and its cluster."""
    return strategy.models[strategy.homes, strategy.groups]


def _evaluate(
    config: ClusterAdmmConfig, seed: int, strategy: ClusterAdmm, state: Mapping[str, Any]
) -> dict[str, float]:
    truth = _truth(config, seed, strategy.clients)
    if truth is None:
        return {}
    return {"nmsd": nmsd(client_models(strategy), truth.models[truth.clusters])}


def _fill(result: RunResult, strategy: ClusterAdmm, truth: Truth | None) -> None:
    """Put the models and the headline numbers into the result."""
    rows = strategy.progress.rows
    result.arrays = {
        "models": strategy.models,
        "clients": client_models(strategy),
        "homes": strategy.homes,
        "clusters": strategy.groups,
    }
    result.headline = {"rounds": float(len(rows)), "change": rows[-1]["change"]}
    if truth is not None:
        result.arrays["truth"] = truth.models
        result.headline["nmsd"] = rows[-1]["nmsd"]
    if result.ledger.get("epsilon"):
        result.headline["epsilon"] = float(result.ledger["epsilon"])
