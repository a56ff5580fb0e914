"""The server of server-graph: config -> strategy -> result."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from apps.common.recording import StudyRun
from apps.common.results import RunResult
from apps.common.seeds import generator
from apps.common.servers import build_topology
from apps.common.settings import ConfigError
from strategies.core.base import Client
from strategies.core.secure import SecureSum
from strategies.server_graph.exchange import servers
from strategies.server_graph.failures import Outage, alive, parse_failures
from strategies.server_graph.strategy import ServerGraph, ServerPlan
from strategies.topology.graph import Topology

from .config import ServerGraphConfig
from .losses import loss_by_name, start
from .release import paper_epsilon, sound_epsilon, statement, warnings
from .report.page import export_graphs, sections
from .truth import steady_state, true_model

log = logging.getLogger("trellis.run")

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Run the study and keep its result."""
    run = StudyRun(context, grid, ServerGraphConfig)
    config = run.config
    strategy = build_strategy(config, run.seed, run.strategy_arguments())
    strategy.on_enrolled = partial(_enrolled, config, run.result, strategy)
    strategy.evaluate = partial(_evaluate, config, run.seed, strategy)
    with run.recording(strategy):
        strategy.run(grid, resume=run.resume)
        run.result.ledger = _ledger(config, strategy)
        _fill(run.result, config, run.seed, strategy)
    run.write_report(sections, export_graphs)


def build_strategy(
    config: ServerGraphConfig, seed: int, arguments: Mapping[str, Any]
) -> ServerGraph:
    """Return the strategy of the run's method."""
    graph = build_topology(config, seed, config.weights)
    method = "none" if config.method == "fedavg" else config.method
    try:
        outages = parse_failures(config.failures, graph.servers)
    except ValueError as error:
        raise ConfigError(str(error)) from None
    if config.method == "masked" and config.sigma == 0.0:
        _refuse_bare_edges(graph, outages)
    return ServerGraph(
        **arguments,
        servers=ServerPlan(graph, outages, config.on_server_loss == "rehome"),
        exchange=servers(
            method,
            graph.servers,
            config.sigma,
            lambda server, server_round: generator(seed, "server noise", server, server_round),
        ),
        secure=SecureSum if config.masks_clients else None,
        epsilons=partial(_epsilons, config, graph),
    )


def _refuse_bare_edges(graph: Topology, outages: Sequence[Outage]) -> None:
    """Refuse masks without noise where in some round a server has a single neighbour."""
    changes = {1} | {o.first for o in outages}
    changes |= {int(o.last) + 1 for o in outages if o.last < math.inf}
    for server_round in sorted(changes):
        up = alive(tuple(outages), server_round, graph.servers)
        degree = graph.adjacency[:, up].sum(axis=1)
        bare = np.flatnonzero(up & (degree == 1))
        if bare.size:
            raise ConfigError(
                f"sigma=0.0: in round {server_round} {graph.names[bare[0]]} has one neighbour, "
                "from whom masks can hide nothing; set sigma > 0 for the noise on such an edge, "
                "or choose a topology without"
            )


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


def _epsilons(
    config: ServerGraphConfig, graph: Topology, server_round: int, size: int
) -> dict[str, float]:
    """Return the privacy spent up to a round, by the paper's formula and by the corrected one."""
    if config.method not in ("hybrid", "iid") or config.clip == 0.0 or config.sigma == 0.0:
        return {}
    releases = int(np.max(graph.degree)) if config.method == "iid" else 1
    return {
        "epsilon-paper": paper_epsilon(config, server_round),
        "epsilon-sound": sound_epsilon(config, server_round, size, releases),
    }


def _ledger(config: ServerGraphConfig, strategy: ServerGraph) -> dict[str, Any]:
    """Return the run's account: what every server has told the others."""
    graph, rounds = strategy.servers.topology, len(strategy.progress.rows)
    spent = _epsilons(config, graph, rounds, strategy.first_model.size) if rounds else {}
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


def _evaluate(
    config: ServerGraphConfig, seed: int, strategy: ServerGraph, state: Mapping[str, Any]
) -> dict[str, float]:
    """Return the mean-square deviation (dB) of the centroid and of single servers."""
    server_round = strategy.current_round
    truth = true_model(config, seed, strategy.clients, strategy.homes_in(server_round))
    if truth is None:
        return {}
    up = strategy.up(server_round)
    models = state["models"][up]
    return {
        "msd": _decibel(np.sum((np.mean(models, axis=0) - truth) ** 2)),
        "msd-servers": _decibel(np.mean(np.sum((models - truth) ** 2, axis=1))),
    }


def _decibel(power: float) -> float:
    return float(10.0 * np.log10(max(float(power), 1e-300)))


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
