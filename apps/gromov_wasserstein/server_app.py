"""The server of gromov-wasserstein: config -> strategy -> embeddings -> distances -> result."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import Context, RecordDict
from flwr.serverapp import Grid, ServerApp

from trellis.apps.common.own_data.standardising import tell
from trellis.apps.common.progress import publish
from trellis.apps.common.recording import StudyRun
from trellis.apps.common.results import RunResult
from trellis.apps.common.seeds import generator
from trellis.apps.common.settings import ConfigError
from trellis.strategies.core import wire
from trellis.strategies.core.base import Client
from trellis.strategies.core.checkpoint import CheckpointError
from trellis.strategies.core.closing.deliver import deliver
from trellis.strategies.gromov_wasserstein.descent import Descent
from trellis.strategies.gromov_wasserstein.embeddings import Released, ReleaseTerms
from trellis.strategies.gromov_wasserstein.private import NoisyGnn, UntrainedGnn
from trellis.strategies.gromov_wasserstein.pruning.partial import PartialDistances
from trellis.strategies.gromov_wasserstein.strategy import FederatedGnn, GnnStart

from .config import GromovWassersteinConfig
from .data import feature_count, split_counts
from .distances import distances, partial_distances, split
from .downstream.judge import judge
from .downstream.needed import solve_needed
from .forecast import bits_forecast, training_forecast
from .model.gnn import build_model, weights
from .owner.result import MOST_NEAR, NEIGHBOURS, neighbours_of
from .release import code_of, half_of, of_a_node, statement, warnings

log = logging.getLogger("trellis.run")

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Run the study and keep its result."""
    run = StudyRun(context, grid, GromovWassersteinConfig)
    config = run.config
    for note in warnings(config):
        run.result.notes.append(note)
        log.warning(note)
    if config.standardise == "auto":
        chosen = f"learning-rate={config.rate:g} (auto: model {config.model})"
        open_ = f", {chosen}" if config.trains and not config.learning_rate else ""
        tell(run.result, f"standardise=graph (auto: each graph's features by themselves){open_}")
    strategy = build_strategy(config, run.seed, run.strategy_arguments())
    with run.recording(strategy):
        strategy.run(grid, resume=run.resume)
        names = [client.name for client in strategy.clients]
        run.result.ledger = run.ledger.report(names, statement(config))
        run.result.ledger |= of_a_node(config, run.ledger, names)
        # Training and embeddings are kept whatever becomes of the distances.
        _keep_released(run.result, strategy)
        run.result.notes += _forecasts(config, strategy)
        _fill(run.result, config, run.seed, strategy.released, run.folder)
        _deliver(strategy, grid, run.result)
    run.write_report()


def _deliver(strategy: FederatedGnn, grid: Grid, result: RunResult) -> None:
    """Send every device the shared weights and the graphs that are nearest to its own."""
    last = int(strategy.progress.rows[-1]["round"])

    def content(client: int) -> RecordDict:
        found = neighbours_of(client, result.arrays["distances"], result.arrays["owner"])
        sent = strategy.payload(last, client)
        if len(found["own"]):
            sent[NEIGHBOURS] = wire.record(found)
        return sent

    deliver(strategy, grid, content)


def build_strategy(
    config: GromovWassersteinConfig, seed: int, arguments: Mapping[str, Any]
) -> FederatedGnn:
    """Return the strategy of the run's method."""
    start = partial(first_model, config, seed)
    if not config.trains:
        plan = replace(arguments["plan"], rounds=1, sample=0)  # one release, by all
        arguments = {**arguments, "plan": plan, "start": start, "at_home": config.at_home}
        return UntrainedGnn(**arguments)
    if not (config.sums or config.secure_aggregation):
        return FederatedGnn(**arguments, start=start, every=config.release_every)
    from trellis.strategies.core.secure import SecureSum  # here: other runs do without its modules

    if not config.sums:
        return FederatedGnn(
            **arguments, start=start, every=config.release_every, secure=SecureSum()
        )
    return NoisyGnn(
        **arguments,
        start=start,
        at_home=config.at_home,
        secure=SecureSum(noisy=True, dropout=config.dropout, colluding=config.colluding),
        descent=Descent(config.rate, config.weight_decay),
        bound=config.gradient_bound,
        counts=partial(split_counts, held_out=config.held_out),
        score=config.score_epsilon > 0.0,
    )


def first_model(config: GromovWassersteinConfig, seed: int, clients: Sequence[Client]) -> GnnStart:
    """Return the weights to start from and what a release will look like.

    Raises
    ------
    ConfigError
        Where clients have no labels of two classes, or rows are shorter than ``bits``.
    """
    features = feature_count(clients[0].variables)
    classes = config.classes or max(client.classes for client in clients)
    if classes < 2:
        what = "graphs" if config.task == "graph" else "nodes"
        raise ConfigError(
            f"task={config.task!r}: the clients' {what} have labels of {max(classes, 0)} classes; "
            "two are needed to learn from. Give labels, choose the other task, or, to learn from "
            "none, set method=untrained and classes=4"
        )
    drawn = int(generator(seed, "first weights").integers(2**62))
    model = build_model(config.model, features, classes, config.task, config.width, seed=drawn)
    h = classes if config.task == "node" else config.width
    return GnnStart(weights(model), release_terms(config, h), classes)


def release_terms(config: GromovWassersteinConfig, h: int) -> ReleaseTerms:
    """Return what a client's release must look like, for rows of length h."""
    if config.privacy == "none":
        return ReleaseTerms(h)
    if config.bits > h:
        raise ConfigError(f"bits={config.bits}: the rows of an embedding have {h} entries")

    def bits(nodes: int) -> int:
        code = code_of(config, h, nodes)
        return half_of(config, code).m if config.estimator == "double" else code.m

    encodings = 2 if config.estimator == "double" else 1
    return ReleaseTerms(h, bits, of_graph=config.privacy == "paper", encodings=encodings)


def _keep_released(result: RunResult, strategy: FederatedGnn) -> None:
    released, rows = strategy.released, strategy.progress.rows
    result.arrays = {
        "owner": released.owner,
        "sizes": released.sizes,
        "labels": released.labels,
        "codes": released.codes,
        "weights": strategy.weights,
        "classes": np.array(strategy.classes),
    }
    if released.second.size:
        result.arrays["second"] = released.second
    result.headline = {"rounds": float(len(rows)), "graphs": float(len(released.sizes))}
    told = ("loss", "validation-accuracy", "test-accuracy", "held-out-accuracy", "held-out-noise")
    result.headline |= {name: rows[-1][name] for name in told if name in rows[-1]}
    if result.ledger.get("epsilon"):
        result.headline["epsilon"] = float(result.ledger["epsilon"])
    _keep_own(result, strategy)


def _keep_own(result: RunResult, strategy: FederatedGnn) -> None:
    """Put what simulated clients tell of the models they keep into the headline."""
    told = list(strategy.personal_results.values())
    items = sum(one.get("test-items", 0.0) for one in told)
    for name in ("shared", "tuned", "alone", "kept") if items else ():
        if all(f"{name}-right" in one for one in told):
            right = sum(one[f"{name}-right"] for one in told)
            result.headline[f"home-{name}-accuracy"] = right / items
    if told:
        result.notes.append(
            f"Accuracies at home are those of {len(told)} simulated clients on their own test "
            "graphs, gathered for evaluation: a device tells nobody."
        )


def _forecasts(config: GromovWassersteinConfig, strategy: FederatedGnn) -> list[str]:
    """Return what was to be expected of the noise, in words."""
    if config.privacy != "sound":
        return []
    told = bits_forecast(config, strategy.released.sizes.tolist())
    if config.sums:
        counts = [client.counted for client in strategy.clients]
        graphs = sum(split_counts(count, config.held_out)[0] for count in counts)
        told += training_forecast(config, strategy.weights.size, graphs, len(counts))
    return told


def _fill(
    result: RunResult,
    config: GromovWassersteinConfig,
    seed: int,
    released: Released,
    folder: Path | None,
) -> None:
    """Put the distances between all graphs, and what is learned from them, into the result."""
    rows = split(released.codes, released.sizes)
    second = split(released.second, released.sizes) if released.second.size else None
    log.info("distances between %d graphs", len(rows))
    file = None if folder is None else folder / "checkpoint" / "distances.npz"
    solvers: list[str] = []
    how = distances if config.pairs == "all" else partial_distances
    compute = partial(
        how, config, rows, second, seed=seed, on_progress=_progress, on_solver=solvers.append
    )
    try:
        found = compute(checkpoint=file)
    except CheckpointError:
        # Of an earlier run in this folder, or of one with fewer rounds of training.
        if file is not None:
            file.unlink(missing_ok=True)
        found = compute(checkpoint=file)
    if solvers[-1] == "compiled":
        result.notes.append(
            "Distances are those of the compiled solver (numba). Without numba they differ in the "
            "last digits, and where distances tie they may be other local minima."
        )
    if isinstance(found, PartialDistances):
        solve_needed(config, seed, found, released.labels, MOST_NEAR)
        _keep_partial(result, found)
        told = judge(config, seed, found.bounds, released, found)
    else:
        result.arrays["distances"] = found
        told = judge(config, seed, found, released)
    result.notes += told.notes
    result.arrays |= told.arrays
    result.headline |= told.numbers


def _keep_partial(result: RunResult, known: PartialDistances) -> None:
    """Put what was solved into the result, and how much that is of all."""
    result.arrays |= {"distances": known.values, "bounds": known.bounds}
    result.headline["pairs-solved"] = known.share
    result.notes.append(
        f"pairs=needed: {100.0 * known.share:.1f} % of the pairs of different graphs were solved; "
        "lower bounds say of the others that nothing here depends on them."
    )


def _progress(done: int, total: int) -> None:
    publish("gromov-wasserstein distances", total, {"round": float(done)})
