"""The server of server-graph: config -> strategy -> result."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from apps.common.recording import StudyRun
from apps.common.results import RunResult
from strategies.core.base import Client
from strategies.server_graph.strategy import ServerGraph

from .build import build_strategy, epsilons
from .config import ServerGraphConfig
from .losses import loss_by_name, start
from .release import statement, warnings
from .report.page import export_graphs, sections
from .truth import deviations, steady_state, true_model

log = logging.getLogger("trellis.run")

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Run the study and keep its result."""
    run = StudyRun(context, grid, ServerGraphConfig)
    config = run.config
    strategy = build_strategy(config, run.seed, run.strategy_arguments())
    strategy.on_enrolled = partial(_enrolled, config, run.result, strategy)
    strategy.evaluate = partial(deviations, config, run.seed, strategy)
    with run.recording(strategy):
        strategy.run(grid, resume=run.resume)
        run.result.ledger = _ledger(config, strategy)
        _fill(run.result, config, run.seed, strategy)
    run.write_report(sections, export_graphs)


def _enrolled(
    config: ServerGraphConfig,
    result: RunResult,
    strategy: ServerGraph,
    clients: Sequence[Client],
) -> None:
    """Set the model's size, and say what a reader must know before the first round."""
    strategy.first_model = start(loss_by_name(config.loss), len(clients[0].variables))
    graph = strategy.servers.topology
    releases = int(np.max(graph.degree)) if config.method == "iid" else 1
    for note in warnings(config, strategy.first_model.size, releases):
        log.warning(note)
        result.notes.append(note)
    log.info("servers: %s", graph.describe())


def _ledger(config: ServerGraphConfig, strategy: ServerGraph) -> dict[str, Any]:
    """Return the run's account: what every server has told the others."""
    graph, rounds = strategy.servers.topology, len(strategy.progress.rows)
    spent = epsilons(config, graph, rounds, strategy.first_model.size) if rounds else {}
    account: dict[str, Any] = {"mode": config.privacy, **statement(config)}
    if spent:
        account |= {
            "epsilon_paper": spent["epsilon-paper"],
            "epsilon_corrected": spent["epsilon-sound"],
        }
    if config.privacy == "none":
        return {**account, "clients": []}
    key = "epsilon-paper" if config.privacy == "paper" else "epsilon-sound"
    total = {"epsilon": spent.get(key, 0.0), "delta": config.delta}
    entries = [{"name": name, **total, "events": []} for name in graph.names]
    return {**account, **total, "clients": entries}


def _fill(result: RunResult, config: ServerGraphConfig, seed: int, strategy: ServerGraph) -> None:
    """Put the models and the headline numbers into the result."""
    rows = strategy.progress.rows
    last = strategy.current_round
    graph = strategy.servers.topology
    result.arrays = {
        "models": strategy.models,
        "centroid": strategy.centroid(last),
        "combination": np.array(graph.weights),
        "homes": strategy.homes_in(last),
        "alive": strategy.up(last),
    }
    truth = true_model(config, seed, strategy.clients, strategy.homes_in(last))
    if truth is not None:
        result.arrays["truth"] = truth
    result.headline = {"rounds": float(len(rows)), "disagreement": rows[-1]["disagreement"]}
    if truth is not None:
        result.headline["msd"] = steady_state([row["msd"] for row in rows])
        result.headline["msd-servers"] = steady_state([row["msd-servers"] for row in rows])
    result.headline["spectral-gap"] = graph.spectral_gap
    result.headline["between-servers"] = sum(row["between-servers"] for row in rows)
    for name in ("epsilon-paper", "epsilon-sound"):
        if name in rows[-1]:
            result.headline[name] = rows[-1][name]
