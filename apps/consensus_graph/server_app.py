"""The server of consensus-graph: config -> strategy -> result."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from functools import lru_cache, partial
from typing import Any

import numpy as np
from flwr.app import Context, RecordDict
from flwr.serverapp import Grid, ServerApp

from trellis.apps.common.metrics import (
    EDGE_THRESHOLD,
    LOOSE_EDGE_THRESHOLD,
    matthews,
    matthews_each,
    relative_error,
)
from trellis.apps.common.own_data.standardising import tell
from trellis.apps.common.recording import StudyRun
from trellis.apps.common.results import RunResult
from trellis.strategies.consensus_graph.baselines import AveragedGraph, IndependentGraphs
from trellis.strategies.consensus_graph.exact import ReleasedStatistics
from trellis.strategies.consensus_graph.foresight import ForeseenConsensus
from trellis.strategies.consensus_graph.private import AloneAtHome, PrivateConsensus, Shared
from trellis.strategies.consensus_graph.strategy import ConsensusGraph
from trellis.strategies.core import wire
from trellis.strategies.core.base import Client
from trellis.strategies.core.closing.deliver import deliver
from trellis.strategies.core.declared import total_note

from .config import ConsensusGraphConfig
from .data import Truth, synthetic_truth
from .private import pooled
from .private.forecast import EACH_ADVICE, forecast_of
from .private.score import held_out_count
from .problem import Vector, objective, recover_statistic
from .release import statement
from .solver import solve

log = logging.getLogger("trellis.run")

app = ServerApp()

Strategy = ConsensusGraph | AveragedGraph | PrivateConsensus

# Metrics of the last round that stand in the headline.
_LAST = ("objective", "noise", "held-out", "held-out-noise", "helped", "helped-noise")
GATHERED = (
    "Clients' own graphs were made from their raw data and gathered for evaluation, as this is a "
    "simulation. On devices they stay where they are made."
)
KEPT = (
    "Clients made their own graphs from their raw data and keep them, in the folder results of "
    "their state folder; nobody else has seen them."
)


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Run the study and keep its result."""
    run = StudyRun(context, grid, ConsensusGraphConfig)
    config = run.config.resolved()
    for note in _warnings(config):
        run.result.notes.append(note)
        log.warning(note)
    later = run.config.is_auto("rho")
    strategy = build_strategy(config, run.strategy_arguments(), chosen_later=later)
    strategy.evaluate = partial(_evaluate, config, run.seed, strategy)
    strategy.on_enrolled = partial(_enrolled, run.config, run.result, strategy)
    with run.recording(strategy):
        strategy.run(grid, resume=run.resume)
        names = [client.name for client in strategy.clients]
        run.result.ledger = run.ledger.report(names, statement(config))
        _fill(run.result, strategy, _truth(config, run.seed, strategy))
        if not config.at_home:
            _deliver(strategy, grid, shared=config.method != "igl")
    run.write_report()


def _deliver(strategy: Strategy, grid: Grid, *, shared: bool) -> None:
    """Send every device its own graph and, where there is one, the consensus."""

    def content(client: int) -> RecordDict:
        arrays = {"weights": strategy.weights[client]}
        if shared:
            arrays["consensus"] = strategy.consensus
        return RecordDict({"arrays": wire.record(arrays)})

    deliver(strategy, grid, content)


def build_strategy(
    config: ConsensusGraphConfig, arguments: Mapping[str, Any], *, chosen_later: bool = False
) -> Strategy:
    """Return the strategy of the run's method.

    ``chosen_later`` says that rho and lambda are set when clients have enrolled.
    """
    send_own = config.local_steps > 0
    if config.sums or config.at_home:
        return _private_strategy(config, arguments)
    if config.method == "fedavg":
        secure = None
        if config.secure_aggregation:
            from trellis.strategies.core.secure import (
                SecureSum,  # here: other runs do without its modules
            )

            secure = SecureSum()
        return AveragedGraph(
            **arguments,
            objective=partial(objective, alpha=config.alpha, beta=config.beta),
            send_own=send_own,
            beta=config.beta,
            secure=secure,
            exact=(lambda z: solve(z, config.alpha, config.beta).w) if config.accelerated else None,
        )
    penalties = {"rho": config.rho, "lambda_": config.lambda_}
    # A pull that goes by the number of nodes waits until enrolment has told it.
    opens = not chosen_later
    if config.exchanges_once:

        def local(z: Vector, pull: float, consensus: Vector) -> tuple[Vector, float]:
            w = solve(z, config.alpha, config.beta, pull, consensus).w
            return w, objective(w, z, config.alpha, config.beta)

        return ReleasedStatistics(**arguments, **penalties, local=local)
    if config.accelerated and config.method == "fedgl":
        alpha, beta = config.alpha, config.beta
        return ForeseenConsensus(
            **arguments,
            **penalties,
            opens=opens,
            local=lambda z, pull, consensus: solve(z, alpha, beta, pull, consensus).w,
            recover=partial(recover_statistic, alpha=alpha, beta=beta),
        )
    made = IndependentGraphs if config.method == "igl" else ConsensusGraph
    return made(**arguments, **penalties, send_own=send_own, opens=config.accelerated and opens)


def _private_strategy(
    config: ConsensusGraphConfig, arguments: Mapping[str, Any]
) -> PrivateConsensus:
    """Return the strategy of one noisy sum, or of none where clients learn alone at home."""

    def make(total: Mapping[str, Vector], count: int, noise: float) -> Shared:
        signals = pooled.signals_in(total, count, config.clip, noise)
        known = pooled.pool(total, signals, config.clip, noise)
        return Shared(pooled.consensus_of(known, config.alpha), known.noise, signals)

    made = PrivateConsensus if config.sums else AloneAtHome
    from trellis.strategies.core.secure import SecureSum

    secure = SecureSum(
        pooled.FRACTION_BITS, noisy=True, dropout=config.dropout, colluding=config.colluding
    )
    return made(
        **arguments,
        secure=secure,
        at_home=config.at_home,
        parts=partial(pooled.layout, clip=config.clip),
        make=make,
        learning=lambda count: count - held_out_count(count, config.held_out),
        scored=config.held_out > 0.0,
    )


def _fill(result: RunResult, strategy: Strategy, truth: Truth | None) -> None:
    """Put the graphs and the headline numbers into the result."""
    weights, consensus = strategy.weights, strategy.consensus
    result.arrays = {"weights": weights, "consensus": consensus, "gamma": strategy.gamma}
    rows = strategy.progress.rows
    headline: dict[str, float] = {"rounds": float(len(rows))}
    headline["consensus-edges"] = float(np.count_nonzero(consensus))
    last = rows[-1] if rows else {}
    headline |= {name: last[name] for name in _LAST if name in last}
    if result.ledger.get("epsilon"):
        headline["epsilon"] = float(result.ledger["epsilon"])
    if isinstance(strategy, PrivateConsensus):
        result.notes += total_note(strategy.clients, strategy.declared, strategy.signals)
        if strategy.at_home:
            _mark_personal(result, strategy)
    if truth is not None:
        result.arrays |= {"truth": truth.weights, "truth_consensus": truth.consensus}
        known, alone = (result.arrays.get(name) for name in ("weights", "alone"))
        if alone is not None:
            headline["alone-mcc"] = scores("igl", alone, consensus, truth)["mcc"]
        headline |= scores(str(result.config["method"]), known, consensus, truth)
    result.headline = headline


def _mark_personal(result: RunResult, strategy: PrivateConsensus) -> None:
    """Say where clients' own graphs are; keep them where simulated clients sent them."""
    if np.all(strategy.gathered):
        result.arrays |= {"alone": strategy.alone}
        if strategy.progress.rows:
            result.arrays |= {"pulls": strategy.pulls, "gains": strategy.gains}
        result.notes.append(GATHERED)
        return
    # Devices keep theirs: there is nothing to show of some clients and not of others.
    for name in ("weights", "gamma"):
        result.arrays.pop(name)
    result.notes.append(KEPT)


def _truth(config: ConsensusGraphConfig, seed: int, strategy: Strategy) -> Truth | None:
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
    strategy: Strategy,
    state: Mapping[str, Any],
) -> dict[str, float]:
    truth = _truth(config, seed, strategy)
    if truth is None:
        return {}
    # Graphs that are made at home come after the last round, if at all.
    return scores(config.method, state.get("weights"), state["consensus"], truth)


def scores(method: str, weights: Any, consensus: Any, truth: Truth) -> dict[str, float]:
    """Return MCC (34) at both thresholds and RE (35), of the clients' mean and of the consensus."""
    found: dict[str, float] = {}
    if weights is not None:
        pairs = zip(weights, truth.weights, strict=True)
        levels = {"mcc": EDGE_THRESHOLD, "mcc-loose": LOOSE_EDGE_THRESHOLD}
        found = {
            name: float(np.mean(matthews_each(weights, truth.weights, level)))
            for name, level in levels.items()
        }
        found["re"] = float(np.mean([relative_error(w, t) for w, t in pairs]))
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
    each = config.privacy == "sound" and not config.sums and not config.at_home
    if each and config.epsilon <= 1.0:
        return [
            f"epsilon={config.epsilon:g} with release='each': with up to a thousand signals and a "
            "handful of clients, no mechanism beat learning alone in relative error. " + EACH_ADVICE
        ]
    return []


def _enrolled(
    config: ConsensusGraphConfig, result: RunResult, strategy: Strategy, clients: Sequence[Client]
) -> None:
    """Set what is chosen by the size of the graphs, and say what a reader must know beforehand."""
    chosen = config.resolved(len(clients[0].variables))
    if isinstance(strategy, ConsensusGraph):
        strategy.rho, strategy.lambda_ = chosen.rho, chosen.lambda_
    if config.standardise == "auto":
        tell(result, f"standardise={config.units} (auto: {_UNITS[config.units]}).")
    if names := [name for name in config.auto_settings if config.is_auto(name)]:
        values = [f"{name.rstrip('_')}={getattr(chosen, name):.3g}" for name in names]
        size = f"{len(clients[0].variables)} nodes, {config.clients} clients"
        tell(result, f"{', '.join(values)} (auto: {size})")
    if config.sums:
        _foretell(chosen, result, clients)


_UNITS = {
    "own": "every client's columns have mean 0 and deviation 1, by its own records",
    "public": "the offsets and scales that were given",
    "none": "with privacy directions of signals are summed, as they are; name public scales by "
    "scales where columns have different units",
}


def _foretell(config: ConsensusGraphConfig, result: RunResult, clients: Sequence[Client]) -> None:
    """Say what to expect, from what enrolment told, before anything is released."""
    counts = [client.counted for client in clients]
    text = forecast_of(config, counts, len(clients[0].variables)).text()
    result.notes.append(text)
    log.info(text)
