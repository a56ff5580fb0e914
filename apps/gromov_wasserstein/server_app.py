"""The server of gromov-wasserstein: config -> strategy -> embeddings -> distances -> result."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import numpy as np
from flwr.app import ConfigRecord, Context, RecordDict
from flwr.serverapp import Grid, ServerApp

from trellis.apps.common.own_data.standardising import tell
from trellis.apps.common.progress import publish
from trellis.apps.common.recording import StudyRun
from trellis.apps.common.results import RunResult
from trellis.apps.common.seeds import generator
from trellis.apps.common.settings import ConfigError
from trellis.strategies.bounded_grid import BoundedGrid
from trellis.strategies.core import wire
from trellis.strategies.core.checkpoint import CheckpointError
from trellis.strategies.core.closing.deliver import deliver
from trellis.strategies.core.declared import Client
from trellis.strategies.core.enrolment import StudyError
from trellis.strategies.core.rules import FEWEST
from trellis.strategies.enrolled_grid import EnrolledGrid
from trellis.strategies.gromov_wasserstein.descent import Descent
from trellis.strategies.gromov_wasserstein.embeddings import Released, ReleaseTerms
from trellis.strategies.gromov_wasserstein.private import NoisyGnn, UntrainedGnn
from trellis.strategies.gromov_wasserstein.pruning.partial import PartialDistances
from trellis.strategies.gromov_wasserstein.strategy import WEIGHTS, FederatedGnn, Vector
from trellis.strategies.rounds import Middleware, Rounds

from .config import GromovWassersteinConfig
from .data import feature_count, split_counts
from .distances import distances, partial_distances, split
from .downstream.judge import judge
from .downstream.needed import solve_needed
from .forecast import forecast_of, wrong_bits
from .methods import METHODS
from .model.gnn import build_model, weights
from .owner.result import MOST_NEAR, NEIGHBOURS, neighbours_of
from .release import code_of, half_of, of_a_node, statement, warnings

log = logging.getLogger("trellis.run")

app = ServerApp()

Run = StudyRun[GromovWassersteinConfig]


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
    rounds: Rounds = METHODS.load(METHODS.row(config.method, config.privacy).server)(run)
    with run.recording(rounds):
        rounds.run(grid, resume=run.resume)
        own = _simulated_results(rounds, grid) if config.at_home else {}
        names = [client.name for client in rounds.clients]
        run.result.ledger = run.ledger.report(names, statement(config))
        run.result.ledger |= of_a_node(config, run.ledger, names)
        # Training and embeddings are kept whatever becomes of the distances.
        released = released_of(rounds)
        _keep_released(run.result, rounds, released)
        _keep_own(run.result, own)
        if config.encoder == "multi-bit":
            nodes = int(np.median(released.sizes))
            tell(
                run.result,
                f"With one bit per row, {wrong_bits(config, nodes):.0%} of the bits of a graph of "
                f"{nodes} nodes are wrong (50 % are coin flips).",
            )
        _fill(run.result, config, run.seed, released, run.folder)
        _deliver(rounds, grid, run.result)
    run.write_report()


# --- the rounds of each method ------------------------------------------------------------------


def averaged(run: Run) -> Rounds:
    """Return Algorithm 2: FedAvg or FedProx, its means secure if asked for."""
    config, robust = run.config, run.robust
    strategy = FederatedGnn(
        every=config.release_every,
        centre=robust.centre if robust.replaces_mean else None,
        fewest=FEWEST if robust.replaces_mean else 1,
        sampler=run.sampler(),
    )
    if config.secure_aggregation:
        from trellis.strategies.secure_grid import SecureGrid

        return _rounds(run, strategy, middleware=SecureGrid)

    def bounding(grid: EnrolledGrid) -> Grid:
        return BoundedGrid(grid, robust, WEIGHTS, strategy.drop) if robust.bound else grid

    return _rounds(run, strategy, middleware=bounding)


def untrained(run: Run) -> Rounds:
    """Return one release of embeddings, made with the weights that the seed draws."""
    return _rounds(run, UntrainedGnn(), admits=False)


def noisy(run: Run) -> Rounds:
    """Return training by noisy secure sums of clipped gradients, one per graph."""
    from trellis.strategies.core.secure import SecureSum
    from trellis.strategies.secure_grid import SecureGrid

    config = run.config
    sums = SecureSum(noisy=True, dropout=config.dropout, colluding=config.colluding)
    strategy = NoisyGnn(
        descent=Descent(config.rate, config.weight_decay),
        bound=config.gradient_bound,
        scored=config.score_epsilon > 0.0,
    )

    def forecast(clients: Sequence[Client], start: GnnStart) -> None:
        counts = [split_counts(client.counted, config.held_out)[0] for client in clients]
        tell(run.result, forecast_of(config, counts, start.weights.size).text())

    return _rounds(
        *(run, strategy),
        middleware=lambda grid: SecureGrid(grid, sums),
        admits=False,
        enrolled=forecast,
    )


def _rounds(
    run: Run,
    strategy: FederatedGnn,
    *,
    middleware: Middleware = lambda grid: grid,
    admits: bool = True,
    enrolled: Callable[[Sequence[Client], GnnStart], None] = lambda clients, start: None,
) -> Rounds:
    """Return a strategy's rounds, with what every method of the study has in common."""
    config, start = run.config, GnnStart()

    def on_enrolled(clients: Sequence[Client]) -> None:
        vars(start).update(vars(first_model(config, run.seed, clients)))
        strategy.begin(start.terms)
        rounds.train_config = rounds.evaluate_config = {"classes": start.classes}
        # Updates are weighted by labelled items, of which a graph may have many.
        rounds.grid.bounds_counts = config.sums
        enrolled(clients, start)

    def admitted(client: Client) -> bool:
        if admits and client.classes > start.classes:
            raise StudyError(
                f"its labels are of {client.classes} classes, the model has {start.classes}; set "
                "classes for all"
            )
        return admits

    rounds = Rounds(
        strategy,
        lambda clients: wire.record({"weights": start.weights}),
        middleware=middleware,
        on_enrolled=on_enrolled,
        admits=admitted,
        **run.round_arguments(),
    )
    return rounds


# --- the first model ----------------------------------------------------------------------------


@dataclass
class GnnStart:
    """What is fixed once the clients are known: w_0 (d,), the terms of a release, the classes."""

    weights: Vector = field(default_factory=lambda: np.zeros(0))
    terms: ReleaseTerms = field(default_factory=lambda: ReleaseTerms(0))
    classes: int = 2


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
    if config.encoder == "none":
        return ReleaseTerms(h)
    if config.bits > h:
        raise ConfigError(f"bits={config.bits}: the rows of an embedding have {h} entries")

    def bits(nodes: int) -> int:
        code = code_of(config, h, nodes)
        return half_of(config, code).m if config.estimator == "double" else code.m

    encodings = 2 if config.estimator == "double" else 1
    return ReleaseTerms(h, bits, of_graph=config.encoder == "printed", encodings=encodings)


# --- the result ---------------------------------------------------------------------------------


def released_of(rounds: Rounds) -> Released:
    """Return what clients released; their owners by index."""
    strategy = rounds.strategy
    assert isinstance(strategy, FederatedGnn)
    found = copy(strategy.released)
    # A client's number is its place, from 1.
    found.owner = found.owner.astype(np.int64) - 1  # type: ignore[assignment]
    return found


def _question(rounds: Rounds) -> RecordDict:
    """Return the final weights as clients are sent them."""
    last = int(rounds.progress.rows[-1]["round"])
    told = ConfigRecord({**rounds.evaluate_config, "server-round": last})
    return RecordDict({"arrays": rounds.arrays, "config": told})


def _simulated_results(rounds: Rounds, grid: Grid) -> dict[int, dict[str, float]]:
    """Send simulated clients the final weights; return what each reports of its own model.

    Devices get theirs once the distances are known, with their graphs' neighbours.
    """
    found: dict[int, dict[str, float]] = {}

    def take(client: int, content: RecordDict) -> None:
        summary = content.metric_records["summary"]
        found[client] = {key: float(value) for key, value in summary.items()}  # type: ignore[arg-type]

    deliver(rounds, grid, _question(rounds), take, devices=False)
    return found


def _deliver(rounds: Rounds, grid: Grid, result: RunResult) -> None:
    """Send every device the shared weights and the graphs that are nearest to its own."""

    def content(client: int) -> RecordDict:
        found = neighbours_of(client, result.arrays["distances"], result.arrays["owner"])
        sent = _question(rounds)
        if len(found["own"]):
            sent[NEIGHBOURS] = wire.record(found)
        return sent

    deliver(rounds, grid, content)


def _keep_released(result: RunResult, rounds: Rounds, released: Released) -> None:
    rows = rounds.progress.rows
    result.arrays = {
        "owner": released.owner,
        "sizes": released.sizes,
        "labels": released.labels,
        "codes": released.codes,
        "weights": wire.unpack(rounds.arrays["weights"]),
        "classes": np.array(rounds.evaluate_config["classes"]),
    }
    if released.second.size:
        result.arrays["second"] = released.second
    result.headline = {"rounds": float(len(rows)), "graphs": float(len(released.sizes))}
    told = ("loss", "validation-accuracy", "test-accuracy", "held-out-accuracy", "held-out-noise")
    result.headline |= {name: rows[-1][name] for name in told if name in rows[-1]}
    if result.ledger.get("epsilon"):
        result.headline["epsilon"] = float(result.ledger["epsilon"])


def _keep_own(result: RunResult, own: Mapping[int, Mapping[str, float]]) -> None:
    """Put what simulated clients report of the models they keep into the headline."""
    told = list(own.values())
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
