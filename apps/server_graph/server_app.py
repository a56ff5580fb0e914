"""The server of server-graph: config -> strategy -> result."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from trellis.apps.common.own_data.standardising import standardise, tell
from trellis.apps.common.recording import StudyRun
from trellis.apps.common.results import RunResult
from trellis.apps.common.seeds import generator
from trellis.strategies.core.base import Client
from trellis.strategies.core.checkpoint import Checkpoint
from trellis.strategies.server_graph.noise import ServerNoise
from trellis.strategies.server_graph.strategy import ServerGraph
from trellis.strategies.server_graph.sums import NoisySums

from .build import build_strategy, deviation, releases_in
from .closing import close, deliver_models
from .config import ServerGraphConfig
from .data import told_classes
from .forecast import sum_warnings
from .losses import loss_by_name, start
from .release import chosen, statement, warnings
from .truth import deviations, steady_state, truth_of

log = logging.getLogger("trellis.run")

app = ServerApp()

_SIMULATORS = ("local", "flower")  # engines that can have clients that are no devices


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Run the study and keep its result."""
    run = StudyRun(context, grid, ServerGraphConfig)
    config = run.config
    arguments = run.strategy_arguments()
    checkpoint: Checkpoint | None = arguments["checkpoint"]
    noise = ServerNoise(
        partial(generator, run.seed, "server noise"),
        None if checkpoint is None else checkpoint.folder,
        run.resume,
    )
    strategy = build_strategy(config, run.seed, arguments, noise=noise, place=run.place)
    strategy.on_enrolled = partial(_enrolled, config, run.result, strategy, noise)
    strategy.evaluate = partial(deviations, config, run.seed, strategy)
    with run.recording(strategy):
        try:
            strategy.run(grid, resume=run.resume)
        finally:  # also of a run that fails: what was told is told
            if strategy.clients and not isinstance(strategy, NoisySums):
                run.result.ledger = _ledger(config, strategy, noise.simulated)
        if isinstance(strategy, NoisySums):
            close(run.result, config, run.seed, strategy, grid)
        else:
            _fill(run.result, config, run.seed, strategy)
            last = strategy.current_round
            open_servers = config.privacy == "none"
            centroid = strategy.centroid(last) if open_servers else None
            deliver_models(strategy, grid, strategy.models, centroid)
    run.write_report()


def _enrolled(
    config: ServerGraphConfig,
    result: RunResult,
    strategy: ServerGraph,
    noise: ServerNoise,
    clients: Sequence[Client],
) -> None:
    """Set the model's size and the noise, and say what a reader must know beforehand."""
    # The seed may make noise only where there is nobody to protect.
    simulated = result.engine in _SIMULATORS and all(client.simulated for client in clients)
    noise.decide(simulated)
    loss = loss_by_name(config.loss)
    numbers = getattr(loss, "targets", "labels") == "numbers"
    standardise(strategy, config, result, clients, numbers=numbers, ask=strategy.ask_units)
    strategy.first_model = start(loss, strategy.parameters(clients))
    _tell_step(config, result, strategy)
    if isinstance(strategy, NoisySums):
        for note in sum_warnings(config, clients, strategy.first_model.size):
            log.warning(note)
            result.notes.append(note)
        log.info("servers: %s", strategy.servers.topology.describe())
        return
    apart = strategy.alone is not None
    if not simulated and not apart:
        strategy.epsilons = lambda server_round, size: {}  # of one process none is true
    graph = strategy.servers.topology
    releases = releases_in(config, graph)
    result.notes += chosen(config, strategy.first_model.size, releases)
    for note in warnings(config, strategy.first_model.size, releases, simulated, apart):
        log.warning(note)
        result.notes.append(note)
    log.info("servers: %s", graph.describe())


def _tell_step(config: ServerGraphConfig, result: RunResult, strategy: ServerGraph) -> None:
    """Choose the step, and say so, where it is left to the study."""
    if not config.is_auto("step"):
        return
    size = strategy.first_model.size
    step = config.pace(size)
    if isinstance(strategy, NoisySums):
        strategy.sums = replace(strategy.sums, step=step)
    more = "" if strategy.intercept else "; features are not standardised, and it may not fit them"
    tell(result, f"step={step:.3g} (auto: {size} parameters, loss {config.loss}{more})")


def _ledger(config: ServerGraphConfig, strategy: ServerGraph, simulated: bool) -> dict[str, Any]:
    """Return the run's account: what every server has told the others."""
    graph, rounds = strategy.servers.topology, len(strategy.progress.rows)
    spent = strategy.epsilons(rounds, strategy.first_model.size) if rounds else {}
    account: dict[str, Any] = {
        "mode": config.privacy,
        "simulated": simulated,
        **statement(config, simulated, strategy.alone is not None),
    }
    if spent:
        account |= {
            "epsilon_paper": spent["epsilon-paper"],
            "epsilon_corrected": spent["epsilon-sound"],
        }
    if config.privacy == "none":
        return {**account, "clients": []}
    names = graph.names if strategy.alone is None else (graph.names[strategy.alone],)
    if not simulated and strategy.alone is None:
        return {**account, "clients": [{"name": name, "events": []} for name in names]}
    key = "epsilon-paper" if config.privacy == "paper" else "epsilon-sound"
    total = {"epsilon": spent.get(key, 0.0), "delta": config.delta}
    account["sigma"] = deviation(config, graph, strategy.first_model.size)
    entries = [{"name": name, **total, "events": []} for name in names]
    return {**account, **total, "clients": entries}


def _fill(result: RunResult, config: ServerGraphConfig, seed: int, strategy: ServerGraph) -> None:
    """Put the models and the headline numbers into the result."""
    rows = strategy.progress.rows
    last = strategy.current_round
    graph = strategy.servers.topology
    result.arrays = {
        "models": strategy.known_models,
        "centroid": strategy.centroid(last),
        "combination": np.array(graph.weights),
        "homes": strategy.homes_in(last),
        "alive": strategy.running(last),
        **told_classes(strategy.clients),
        **strategy.preprocessing,
    }
    truth = truth_of(config, seed, strategy)
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
    if config.is_auto("step"):
        result.headline["step"] = config.pace(strategy.first_model.size)
