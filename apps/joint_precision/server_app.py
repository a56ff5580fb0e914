"""The server of joint-precision: config -> strategy -> result."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache, partial
from typing import Any

import numpy as np
from flwr.app import Context, RecordDict
from flwr.serverapp import Grid, ServerApp

from trellis.apps.common.own_data.standardising import tell
from trellis.apps.common.recording import StudyRun
from trellis.apps.common.results import RunResult
from trellis.strategies.core import wire
from trellis.strategies.core.base import Client
from trellis.strategies.core.closing.deliver import deliver
from trellis.strategies.joint_precision.alone import GatheredPrecision
from trellis.strategies.joint_precision.one_sum import PooledPrecision
from trellis.strategies.joint_precision.rehearsal import Rehearsal
from trellis.strategies.joint_precision.strategy import JointPrecision, PrecisionTask

from .config import JOINT_METHODS, STREAM_FROM, JointPrecisionConfig
from .data import Truth, synthetic_truth
from .gathered import gathered_strategy, set_path
from .outcome import fill, fill_packed, graph_scores
from .private.concordance import learning_count
from .private.server import fill_pooled, pooled_strategy
from .private.server import set_path as set_own_path
from .problem import step_of
from .release import exposure, forecast, statement

log = logging.getLogger("trellis.run")

app = ServerApp()

Strategies = JointPrecision | GatheredPrecision | PooledPrecision


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Run the study and keep its result."""
    run = StudyRun(context, grid, JointPrecisionConfig)
    config = run.config
    # Until clients have enrolled, and what is left to the study is chosen, for synthetic data.
    strategy = build_strategy(
        config.resolved(config.variables, config.sample_counts()),
        run.strategy_arguments(),
        chosen_later=config.chosen_later,
    )
    strategy.on_enrolled = partial(_enrolled, config, run.result, strategy)
    strategy.evaluate = partial(_evaluate, config, run.seed, strategy)
    with run.recording(strategy):
        strategy.run(grid, resume=run.resume)
        names = [client.name for client in strategy.clients]
        run.result.ledger = run.ledger.report(names, statement(config))
        truth = _truth(config, run.seed, strategy.clients)
        large = not isinstance(strategy, PooledPrecision) and config.streams(
            len(strategy.clients[0].variables)
        )
        if isinstance(strategy, PooledPrecision):
            fill_pooled(run.result, config, strategy, truth)
        elif large:
            fill_packed(run.result, config, strategy)
        else:
            fill(run.result, config, strategy, truth)
        if not config.at_home and not large:
            _deliver(strategy, grid, run.result, joint=config.method not in ("glasso", "clime"))
    run.write_report()


def _deliver(strategy: Strategies, grid: Grid, result: RunResult, *, joint: bool) -> None:
    """Send every device its own matrices, and with joint methods the edges that all have."""
    sparse = result.arrays["sparse"]
    upper = np.triu_indices(sparse.shape[-1], 1)
    present = np.asarray(strategy.answered) > 0
    shared = np.all(sparse[present][:, *upper] != 0.0, axis=0)

    def content(client: int) -> RecordDict:
        arrays = {name: result.arrays[name][client] for name in ("precision", "sparse")}
        if joint:
            arrays["shared"] = shared
        return RecordDict({"arrays": wire.record(arrays)})

    deliver(strategy, grid, content)


def build_strategy(
    config: JointPrecisionConfig, arguments: Mapping[str, Any], *, chosen_later: bool = False
) -> Strategies:
    """Return the strategy of the run's method.

    ``chosen_later`` says that lambda1 and lambda2 are set when clients have enrolled.
    """
    if config.sums:
        return pooled_strategy(config, arguments)
    if config.method not in JOINT_METHODS:
        return gathered_strategy(config, arguments, chosen_later=chosen_later)
    task = PrecisionTask(
        penalty=config.method,
        lambda1=config.lambda1,
        lambda2=config.lambda2,
        rho=config.rho,
        rounds=config.rounds,
        path=config.path,
        subsamples=config.subsamples,
        screening=config.screening,
        dtype=config.wire,
        one_exchange=config.exchanges_once,
        chosen_later=chosen_later,
        stream_from=STREAM_FROM if config.may_stream else 0,
    )
    plan = replace(arguments["plan"], rounds=task.most_rounds())
    rehearsal = Rehearsal(step_of) if config.accelerated or config.exchanges_once else None
    return JointPrecision(**{**arguments, "plan": plan}, task=task, rehearsal=rehearsal)


def _enrolled(
    config: JointPrecisionConfig,
    result: RunResult,
    strategy: Strategies,
    clients: Sequence[Client],
) -> None:
    """Choose what is left to the study, and say what a reader must know beforehand."""
    if config.chosen_later:
        variables = len(clients[0].variables)
        counts = [client.counted for client in clients]
        if config.sums:  # else those that are learned from are told
            counts = [learning_count(count, config.held_out) for count in counts]
        chosen = config.resolved(variables, counts)
        if isinstance(strategy, JointPrecision):
            lambdas = {"lambda1": chosen.lambda1, "lambda2": chosen.lambda2}
            strategy.task = replace(strategy.task, **lambdas)  # type: ignore[arg-type]
        elif isinstance(strategy, PooledPrecision):
            set_own_path(strategy, chosen)
        else:
            set_path(strategy, chosen)
        names = [name for name in config.auto_settings if config.is_auto(name)]
        if config.method in ("glasso", "clime"):
            names = [name for name in names if name != "lambda2"]  # which they do not have
        values = [f"{name}={getattr(chosen, name):.3g}" for name in names]
        samples = sum(counts) / len(counts)
        tell(result, f"{', '.join(values)} (auto: {variables} variables, {samples:.4g} samples)")
    _warn(config, result, clients)


def _warn(config: JointPrecisionConfig, result: RunResult, clients: Sequence[Client]) -> None:
    """Say what a reader of the result must know, before the first round."""
    notes = []
    if config.privacy == "sound":
        counts = [client.counted for client in clients]
        notes.append(forecast(config, len(clients[0].variables), counts))
    else:
        notes.append(f"privacy={config.privacy!r}: {exposure(config)}")
    if len(clients) == 1 and config.method in JOINT_METHODS:
        notes.append(
            "There is one client: nothing is shared, and the joint penalty is only more sparsity "
            "(group) or none at all (fused)."
        )
    for note in notes:
        log.warning(note)
    result.notes += notes


def _truth(config: JointPrecisionConfig, seed: int, clients: Sequence[Client]) -> Truth | None:
    """Return the networks behind the clients' data, where that was made by this study."""
    partitions = [client.partition for client in clients]
    # Both are the clients' word: one that lies must not stop the run.
    known = all(client.synthetic for client in clients) and not config.streams(config.variables)
    if not known or not all(0 <= partition < config.clients for partition in partitions):
        return None
    whole = _synthetic_truth(config, seed)
    return replace(
        whole, precision=whole.precision[partitions], covariance=whole.covariance[partitions]
    )


_synthetic_truth = lru_cache(maxsize=4)(synthetic_truth)


def _evaluate(
    config: JointPrecisionConfig, seed: int, strategy: Strategies, state: Mapping[str, Any]
) -> dict[str, float]:
    """Return how well the round's graphs agree with the truth, where that is known."""
    if not isinstance(strategy, JointPrecision) or not strategy.screened:
        return {}
    truth = _truth(config, seed, strategy.clients)
    if truth is None:
        return {}
    return graph_scores(strategy.split.blocks.unpack(state["psi"]), truth.precision)
