"""The server of consensus-graph: config -> strategy -> result."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache, partial
from typing import Any

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Context, RecordDict
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
from trellis.strategies.bounded_grid import Bounded, BoundedGrid
from trellis.strategies.consensus_graph.baselines import (
    AveragedGraph,
    IndependentGraphs,
    OneShotConsensus,
)
from trellis.strategies.consensus_graph.bound import GRAPH, graph_and_slope
from trellis.strategies.consensus_graph.private import PersonalGraphs, PooledConsensus, Shared
from trellis.strategies.consensus_graph.strategy import ConsensusGraph, first_graph, robust_mean
from trellis.strategies.core import wire
from trellis.strategies.core.closing.deliver import deliver
from trellis.strategies.core.declared import Client, total_note
from trellis.strategies.core.rules import FEWEST
from trellis.strategies.enrolled_grid import EnrolledGrid
from trellis.strategies.node_strategy import NodeStrategy
from trellis.strategies.pooled import NoTraining
from trellis.strategies.rounds import Middleware, Rounds

from .config import ConsensusGraphConfig
from .data import Truth, synthetic_truth
from .methods import METHODS, SECURE
from .private import pooled
from .private.forecast import forecast_of
from .problem import Matrix, Vector, objective
from .solver import solve

log = logging.getLogger("trellis.run")

app = ServerApp()

Run = StudyRun[ConsensusGraphConfig]

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
    row = METHODS.row(run.config.method, run.config.privacy)
    for note in _warnings(run.config):
        run.result.notes.append(note)
        log.warning(note)
    rounds: Rounds = METHODS.load(row.server)(run)
    with run.recording(rounds):
        rounds.run(grid, resume=run.resume)
        personal = _deliver(rounds, grid, run.config)
        names = [client.name for client in rounds.clients]
        run.result.ledger = run.ledger.report(names, statement(run.config))
        _fill(run, rounds, personal)
    run.write_report()


# --- the rounds of each method ------------------------------------------------------------------


def fedgl(run: Run) -> Rounds:
    """Return Algorithm 1."""
    config = run.config.resolved()
    strategy = ConsensusGraph(config.rho, config.lambda_, **_graph_options(run, config))

    def enrolled(clients: Sequence[Client]) -> None:
        chosen = run.config.resolved(len(clients[0].variables))
        strategy.rho, strategy.lambda_ = chosen.rho, chosen.lambda_

    return _rounds(run, strategy, enrolled=enrolled, bounded=GRAPH)


def independent(run: Run) -> Rounds:
    """Return the baseline in which every client learns from its own data only."""
    config = run.config.resolved()
    steps = config.local_steps > 0
    strategy = IndependentGraphs(1.0, 0.0, send_own=steps, sampler=run.sampler())
    return _rounds(run, strategy)


def one_shot(run: Run) -> Rounds:
    """Return (8) solved in one exchange, at the server."""
    config = run.config.resolved()

    def local(z: Vector, pull: float, consensus: Vector) -> tuple[Vector, float]:
        w = solve(z, config.alpha, config.beta, pull, consensus).w
        return w, objective(w, z, config.alpha, config.beta)

    strategy = OneShotConsensus(
        *(config.rho, config.lambda_),
        local=local,
        iterations=config.rounds,
        tolerance=config.tolerance,
    )

    def enrolled(clients: Sequence[Client]) -> None:
        chosen = run.config.resolved(len(clients[0].variables))
        strategy.rho, strategy.lambda_ = chosen.rho, chosen.lambda_

    return _rounds(run, strategy, enrolled=enrolled, admits=False)


def averaged(run: Run) -> Rounds:
    """Return the baseline that learns one graph for all, its means secure if asked for."""
    config = run.config.resolved()
    middle = run.robust.replaces_mean
    strategy = AveragedGraph(
        partial(objective, alpha=config.alpha, beta=config.beta),
        send_own=config.local_steps > 0,
        centre=run.robust.centre if middle else None,
        fewest=FEWEST if middle else 1,
        sampler=run.sampler(),
    )
    if config.secure_aggregation:
        from trellis.strategies.secure_grid import SecureGrid

        return _rounds(run, strategy, middleware=SecureGrid, admits=False)
    return _rounds(run, strategy, bounded=graph_and_slope(config.beta))


def pooled_consensus(run: Run) -> Rounds:
    """Return the private consensus: one noisy secure sum, solved once."""
    from trellis.strategies.core.secure import SecureSum
    from trellis.strategies.secure_grid import SecureGrid

    config = run.config.resolved()

    def make(total: Mapping[str, Vector], count: int, noise: float) -> Shared:
        signals = pooled.signals_in(total, count, config.clip, noise)
        known = pooled.pool(total, signals, config.clip, noise)
        return Shared(pooled.consensus_of(known, config.alpha), known.noise, signals)

    sums = SecureSum(
        pooled.FRACTION_BITS, noisy=True, dropout=config.dropout, colluding=config.colluding
    )
    strategy = PooledConsensus(make, {}, scored=config.held_out > 0.0, helped=config.at_home)

    def enrolled(clients: Sequence[Client]) -> None:
        strategy.parts = pooled.layout(len(clients[0].variables), config.clip)
        counts = [client.counted for client in clients]
        tell(run.result, forecast_of(config, counts, len(clients[0].variables)).text())

    return _rounds(
        *(run, strategy),
        middleware=lambda grid: SecureGrid(grid, sums),
        enrolled=enrolled,
        admits=False,
    )


def on_devices(run: Run) -> Rounds:
    """Return no rounds at all: every client learns on its device, and nothing is sent."""
    return _rounds(run, NoTraining())


def _graph_options(run: Run, config: ConsensusGraphConfig) -> dict[str, Any]:
    options: dict[str, Any] = {"send_own": config.local_steps > 0, "sampler": run.sampler()}
    return options | (robust_mean(run.robust.centre) if run.robust.replaces_mean else {})


def _rounds(
    run: Run,
    strategy: NodeStrategy,
    *,
    middleware: Middleware | None = None,
    bounded: Bounded | None = None,
    enrolled: Callable[[Sequence[Client]], None] = lambda clients: None,
    admits: bool = True,
) -> Rounds:
    """Return a strategy's rounds, with what every method of the study has in common."""

    def bounding(grid: EnrolledGrid) -> Grid:
        if bounded is None or not run.robust.bound:
            return grid
        return BoundedGrid(grid, run.robust, bounded, strategy.drop)

    def on_enrolled(clients: Sequence[Client]) -> None:
        _tell_choices(run, clients)
        enrolled(clients)

    rounds = Rounds(
        strategy,
        lambda clients: wire.record({"consensus": first_graph(len(clients[0].variables))}),
        middleware=middleware or bounding,
        on_enrolled=on_enrolled,
        admits=admits,
        **run.round_arguments(),
    )
    rounds.evaluate = partial(_evaluate, run, rounds)
    return rounds


# --- the result ---------------------------------------------------------------------------------


def _deliver(rounds: Rounds, grid: Grid, config: ConsensusGraphConfig) -> PersonalGraphs | None:
    """Send every client its result; return simulated clients' own graphs, if they made any."""
    if not config.at_home:
        weights, consensus = _graphs(rounds)

        def content(client: int) -> RecordDict:
            arrays = {"weights": weights[client]}
            if not isinstance(rounds.strategy, IndependentGraphs):
                arrays["consensus"] = consensus
            return RecordDict({"arrays": wire.record(arrays)})

        deliver(rounds, grid, content)
        return None
    personal = PersonalGraphs(len(rounds.clients), _size(rounds))
    public = RecordDict({"config": ConfigRecord({"alone": True})})
    if isinstance(rounds.strategy, PooledConsensus):
        public = RecordDict({"arrays": rounds.arrays})
    deliver(rounds, grid, public, personal.take)
    return personal


def _size(rounds: Rounds) -> int:
    d = len(rounds.clients[0].variables)
    return d * (d - 1) // 2


def _graphs(rounds: Rounds) -> tuple[Matrix, Vector]:
    """Return every client's graph (I, p) and the consensus (p,)."""
    strategy, consensus = rounds.strategy, wire.unpack(rounds.arrays["consensus"])
    if isinstance(strategy, ConsensusGraph):
        known = [strategy.graphs.get(n, consensus) for n in range(1, len(rounds.clients) + 1)]
        return np.stack(known), consensus
    return np.tile(consensus, (len(rounds.clients), 1)), consensus


def _gamma(rounds: Rounds) -> Vector:
    """Return how much every client weighs in the consensus (I,)."""
    numbers = range(1, len(rounds.clients) + 1)
    strategy = rounds.strategy
    if isinstance(strategy, ConsensusGraph):
        return np.array([strategy.gamma.get(n, 1.0 / len(rounds.clients)) for n in numbers])
    if isinstance(strategy, AveragedGraph):
        counts = np.array([client.counted for client in rounds.clients], dtype=np.float64)
        return np.asarray(counts / np.sum(counts))
    return np.zeros(len(rounds.clients))


def _fill(run: Run, rounds: Rounds, personal: PersonalGraphs | None) -> None:
    """Put the graphs and the headline numbers into the result."""
    result, config = run.result, run.config
    weights, consensus = _graphs(rounds)
    if isinstance(rounds.strategy, NoTraining):
        consensus = np.zeros_like(consensus)
    result.arrays = {"weights": weights, "consensus": consensus, "gamma": _gamma(rounds)}
    rows = rounds.progress.rows
    headline: dict[str, float] = {"rounds": float(len(rows))}
    headline["consensus-edges"] = float(np.count_nonzero(consensus))
    last = rows[-1] if rows else {}
    headline |= {name: last[name] for name in _LAST if name in last}
    if result.ledger.get("epsilon"):
        headline["epsilon"] = float(result.ledger["epsilon"])
    if isinstance(rounds.strategy, PooledConsensus):
        pool = rounds.strategy
        result.notes += total_note(rounds.clients, pool.declared, pool.signals)
    if personal is not None:
        _mark_personal(result, personal, with_consensus=bool(rows))
    truth = _truth(config, run.seed, rounds)
    if truth is not None:
        result.arrays |= {"truth": truth.weights, "truth_consensus": truth.consensus}
        known, alone = (result.arrays.get(name) for name in ("weights", "alone"))
        if alone is not None:
            headline["alone-mcc"] = scores("igl", alone, consensus, truth)["mcc"]
        headline |= scores(config.method, known, consensus, truth)
    result.headline = headline


def _mark_personal(result: RunResult, personal: PersonalGraphs, *, with_consensus: bool) -> None:
    """Say where clients' own graphs are; keep them where simulated clients sent them."""
    if np.all(personal.gathered):
        result.arrays |= {"weights": personal.own, "gamma": personal.gamma}
        result.arrays |= {"alone": personal.alone}
        if with_consensus:
            result.arrays |= {"pulls": personal.pulls, "gains": personal.gains}
        result.notes.append(GATHERED)
        return
    # Devices keep theirs: there is nothing to show of some clients and not of others.
    for name in ("weights", "gamma"):
        result.arrays.pop(name)
    result.notes.append(KEPT)


def _truth(config: ConsensusGraphConfig, seed: int, rounds: Rounds) -> Truth | None:
    """Return the graphs behind the clients' data, where that was made by this study."""
    partitions = [client.partition for client in rounds.clients]
    # Both are the clients' word: one that lies must not stop the run.
    known = all(client.synthetic for client in rounds.clients)
    if not known or not all(0 <= partition < config.clients for partition in partitions):
        return None
    whole = _synthetic_truth(config, seed)
    if partitions == list(range(len(whole.weights))):
        return whole
    return Truth(whole.consensus, whole.weights[partitions])


_synthetic_truth = lru_cache(maxsize=4)(synthetic_truth)


def _evaluate(run: Run, rounds: Rounds, arrays: ArrayRecord) -> dict[str, float]:
    """Return how a round's graphs do, where the truth is known."""
    truth = _truth(run.config, run.seed, rounds)
    if truth is None:
        return {}
    weights, consensus = _graphs(rounds)
    # Graphs that are made on devices come after the last round, if at all.
    return scores(run.config.method, None if run.config.sums else weights, consensus, truth)


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
            "raw data leaves through the others. Use privacy='dp'."
        ]
    return []


def statement(config: ConsensusGraphConfig) -> dict[str, str]:
    """Return what a run with these settings claims, for the ledger and the report."""
    secure = {"secure_aggregation": SECURE} if config.secure_aggregation else {}
    return {**METHODS.row(config.method, config.privacy).claim, **secure}


def _tell_choices(run: Run, clients: Sequence[Client]) -> None:
    """Note what was chosen by the size of the graphs."""
    config = run.config
    chosen = config.resolved(len(clients[0].variables))
    if config.standardise == "auto":
        tell(run.result, f"standardise={config.units} (auto: {_UNITS[config.units]}).")
    used = METHODS.row(config.method, config.privacy).settings
    names = [n for n in config.auto_settings if config.is_auto(n) and n.rstrip("_") in used]
    if names:
        values = [f"{name.rstrip('_')}={getattr(chosen, name):.3g}" for name in names]
        size = f"{len(clients[0].variables)} nodes, {config.clients} clients"
        tell(run.result, f"{', '.join(values)} (auto: {size})")


_UNITS = {
    "own": "every client's columns have mean 0 and deviation 1, by its own records",
    "public": "the offsets and scales that were given",
    "none": "with privacy directions of signals are summed, as they are; name public scales by "
    "scales where columns have different units",
}
