"""The server of consensus-graph: config -> strategy -> result."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from functools import lru_cache, partial
from typing import Any

import numpy as np
from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from apps.common.metrics import EDGE_THRESHOLD, LOOSE_EDGE_THRESHOLD, matthews, relative_error
from apps.common.recording import StudyRun
from apps.common.results import RunResult
from strategies.consensus_graph.baselines import AveragedGraph, IndependentGraphs
from strategies.consensus_graph.strategy import ConsensusGraph
from strategies.core.secure import SecureSum

from .config import ConsensusGraphConfig
from .data import Truth, synthetic_truth
from .problem import objective
from .release import statement
from .report.page import export_graphs, sections

log = logging.getLogger("trellis.run")

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Run the study and keep its result."""
    run = StudyRun(context, grid, ConsensusGraphConfig)
    config = run.config
    for note in _warnings(config):
        run.result.notes.append(note)
        log.warning(note)
    strategy = build_strategy(config, run.strategy_arguments())
    strategy.evaluate = partial(_evaluate, config, run.seed, strategy)
    with run.recording(strategy):
        strategy.run(grid, resume=run.resume)
        names = [client.name for client in strategy.clients]
        run.result.ledger = run.ledger.report(names, statement(config))
        _fill(run.result, strategy, _truth(config, run.seed, strategy))
    run.write_report(sections, export_graphs)


def build_strategy(
    config: ConsensusGraphConfig, arguments: Mapping[str, Any]
) -> ConsensusGraph | AveragedGraph:
    """Return the strategy of the run's method."""
    send_own = config.local_steps > 0
    if config.method == "fedavg":
        secure = SecureSum() if config.secure_aggregation else None
        value = partial(objective, alpha=config.alpha, beta=config.beta)
        return AveragedGraph(
            **arguments, objective=value, send_own=send_own, beta=config.beta, secure=secure
        )
    made = IndependentGraphs if config.method == "igl" else ConsensusGraph
    return made(**arguments, rho=config.rho, lambda_=config.lambda_, send_own=send_own)


def _fill(result: RunResult, strategy: ConsensusGraph | AveragedGraph, truth: Truth | None) -> None:
    """Put the graphs and the headline numbers into the result."""
    weights, consensus = strategy.weights, strategy.consensus
    result.arrays = {"weights": weights, "consensus": consensus, "gamma": strategy.gamma}
    rows = strategy.progress.rows
    headline: dict[str, float] = {"rounds": float(len(rows))}
    headline["consensus-edges"] = float(np.count_nonzero(consensus))
    if rows and "objective" in rows[-1]:
        headline["objective"] = rows[-1]["objective"]
    if result.ledger.get("epsilon"):
        headline["epsilon"] = float(result.ledger["epsilon"])
    if truth is not None:
        result.arrays |= {"truth": truth.weights, "truth_consensus": truth.consensus}
        headline |= scores(str(result.config["method"]), weights, consensus, truth)
    result.headline = headline


def _truth(
    config: ConsensusGraphConfig, seed: int, strategy: ConsensusGraph | AveragedGraph
) -> Truth | None:
    """Return the graphs behind the clients' data, where that was made by this study."""
    partitions = [client.partition for client in strategy.clients]
    # Both are the clients' word: one that lies must not stop the run.
    known = all(client.synthetic for client in strategy.clients)
    if not known or not all(0 <= partition < config.clients for partition in partitions):
        return None
    whole = _synthetic_truth(config, seed)
    return Truth(whole.consensus, whole.weights[partitions])


_synthetic_truth = lru_cache(maxsize=4)(synthetic_truth)


def _evaluate(
    config: ConsensusGraphConfig,
    seed: int,
    strategy: ConsensusGraph | AveragedGraph,
    state: Mapping[str, Any],
) -> dict[str, float]:
    truth = _truth(config, seed, strategy)
    if truth is None:
        return {}
    return scores(config.method, state["weights"], state["consensus"], truth)


def scores(method: str, weights: Any, consensus: Any, truth: Truth) -> dict[str, float]:
    """Return MCC (34) at both thresholds and RE (35), of the clients' mean and of the consensus."""
    pairs = list(zip(weights, truth.weights, strict=True))
    found = {
        "mcc": float(np.mean([matthews(w, t, EDGE_THRESHOLD) for w, t in pairs])),
        "mcc-loose": float(np.mean([matthews(w, t, LOOSE_EDGE_THRESHOLD) for w, t in pairs])),
        "re": float(np.mean([relative_error(w, t) for w, t in pairs])),
    }
    if method != "igl":  # which learns no consensus
        found["consensus-mcc"] = matthews(consensus, truth.consensus, EDGE_THRESHOLD)
        found["consensus-re"] = relative_error(consensus, truth.consensus)
    return found


def _warnings(config: ConsensusGraphConfig) -> list[str]:
    """Return what a reader of the result must know about its privacy."""
    if config.privacy == "paper":
        return [
            "privacy='paper' is NOT PRIVATE: Theorem 3 noises only the last gradient step, and the "
            "raw data leaves through the others. Use privacy='sound'."
        ]
    if config.privacy == "sound" and config.epsilon <= 1.0:
        return [
            f"epsilon={config.epsilon:g}: at epsilon <= 1, with up to a thousand signals and a "
            "handful of clients, no mechanism beat learning alone in relative error."
        ]
    return []
