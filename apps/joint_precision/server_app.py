"""The server of joint-precision: config -> strategy -> result."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache, partial
from typing import Any

import numpy as np
from flwr.app import ArrayRecord, Context, RecordDict
from flwr.serverapp import Grid, ServerApp
from numpy.typing import NDArray

from trellis.apps.common.own_data.standardising import tell
from trellis.apps.common.recording import StudyRun
from trellis.strategies.bounded_grid import BoundedGrid
from trellis.strategies.core import wire
from trellis.strategies.core.closing.deliver import deliver
from trellis.strategies.core.declared import Client
from trellis.strategies.core.enrolment import StudyError
from trellis.strategies.enrolled_grid import EnrolledGrid
from trellis.strategies.joint_precision.baselines import GatheredPrecision
from trellis.strategies.joint_precision.path import path_points, refuse_unbounded
from trellis.strategies.joint_precision.private import PersonalMatrices, PooledPrecision, layout
from trellis.strategies.joint_precision.strategy import BOUND, JointPrecision
from trellis.strategies.node_strategy import NodeStrategy
from trellis.strategies.pooled import NoTraining
from trellis.strategies.rounds import Middleware, Rounds

from .config import STREAM_FROM, JointPrecisionConfig
from .data import Truth, synthetic_truth
from .gathered import (
    points_of,
    read_correlations,
    read_data,
    read_matrices,
    solve_once,
    solve_pooled,
    stack,
)
from .methods import METHODS
from .outcome import Learned, fill, fill_packed, fill_private, graph_scores, learned
from .private.concordance import FRACTION_BITS, learning_count
from .private.consensus import estimate
from .private.forecast import forecast_of

log = logging.getLogger("trellis.run")

app = ServerApp()

Run = StudyRun[JointPrecisionConfig]
# What a method does when clients are known, with numbers in place of auto.
Enrolled = Callable[[JointPrecisionConfig, Sequence[Client]], None]


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Run the study and keep its result."""
    run = StudyRun(context, grid, JointPrecisionConfig)
    row = METHODS.row(run.config.method, run.config.privacy)
    rounds: Rounds = METHODS.load(row.server)(run)
    with run.recording(rounds):
        rounds.run(grid, resume=run.resume)
        names = [client.name for client in rounds.clients]
        run.result.ledger = run.ledger.report(names, dict(row.claim))
        _finish(run, rounds, grid)
        if run.result.ledger.get("epsilon"):
            run.result.headline["epsilon"] = float(run.result.ledger["epsilon"])
    run.write_report()


# --- the rounds of each method ------------------------------------------------------------------


def group(run: Run) -> Rounds:
    """Return FEDJEM with the group penalty (17)."""
    return _joint(run, "group")


def fused(run: Run) -> Rounds:
    """Return FEDJEM with the fused penalty (18)."""
    return _joint(run, "fused")


def _joint(run: Run, penalty: str) -> Rounds:
    config = run.config
    strategy = JointPrecision(
        *(penalty, config.lambda1, config.lambda2),
        rho=config.rho,
        rounds=config.rounds,
        tolerance=config.tolerance,
        path=config.path,
        subsamples=config.subsamples,
        screening=config.screening,
        dtype=config.wire,
        stream_from=STREAM_FROM if config.may_stream else 0,
        sampler=run.sampler(),
    )

    def enrolled(chosen: JointPrecisionConfig, clients: Sequence[Client]) -> None:
        strategy.lambda1, strategy.lambda2 = chosen.lambda1, chosen.lambda2
        refuse_unbounded(clients, penalty, chosen.lambda1, chosen.lambda2)
        counts = {number: client.counted for number, client in enumerate(clients, 1)}
        strategy.describe(counts, len(clients[0].variables))
        if len(clients) == 1:
            _note(
                run,
                "There is one client: nothing is shared, and the joint penalty is only more "
                "sparsity (group) or none at all (fused).",
            )

    def bounded(grid: EnrolledGrid) -> Grid:
        return BoundedGrid(grid, run.robust, BOUND, strategy.drop) if run.robust.bound else grid

    rounds = _rounds(run, strategy, enrolled, bounded)
    rounds.plan = replace(rounds.plan, rounds=strategy.most_rounds())
    return rounds


def alone(run: Run) -> Rounds:
    """Return the baselines in which every client learns from its own data only."""

    def parts(chosen: JointPrecisionConfig, clients: Sequence[Client]) -> _Parts:
        points = points_of(chosen)
        refuse_unbounded(clients, "alone", *points[-1].tolist())
        read = partial(read_matrices, variables=len(clients[0].variables), points=len(points))
        return points, read, partial(stack, points, clients)

    return _gathered(run, parts)


def pooled(run: Run) -> Rounds:
    """Return the baseline with all raw data in one place."""

    def parts(chosen: JointPrecisionConfig, clients: Sequence[Client]) -> _Parts:
        points = points_of(chosen)
        refuse_unbounded(clients, chosen.penalty, *points[-1].tolist())
        read = partial(read_data, columns=clients[0].variables, kind=chosen.correlation)
        return points, read, partial(solve_pooled, chosen, points, clients)

    return _gathered(run, parts)


def one_shot(run: Run) -> Rounds:
    """Return (9) solved in one exchange, at the server."""

    def parts(chosen: JointPrecisionConfig, clients: Sequence[Client]) -> _Parts:
        refuse_unbounded(clients, chosen.penalty, chosen.lambda1, chosen.lambda2)
        size = len(clients[0].variables)
        read = partial(read_correlations, variables=size, dtype=chosen.wire)
        return points_of(chosen), read, partial(solve_once, chosen, clients)

    return _gathered(run, parts)


# Penalties, how a reply is read, and how the solution is made of all replies.
_Parts = tuple[NDArray[np.float64], Callable[..., Any], Callable[..., Any]]


def _gathered(
    run: Run, parts: Callable[[JointPrecisionConfig, Sequence[Client]], _Parts]
) -> Rounds:
    strategy = GatheredPrecision(np.zeros((0, 2)), _not_enrolled, _not_enrolled)

    def enrolled(chosen: JointPrecisionConfig, clients: Sequence[Client]) -> None:
        if len(clients[0].variables) < 2:
            raise StudyError("one variable has no graph: at least two are needed")
        strategy.points, strategy.read, strategy.assemble = parts(chosen, clients)
        strategy.members = list(range(1, len(clients) + 1))

    return _rounds(run, strategy, enrolled)


def _not_enrolled(*given: Any) -> Any:
    raise StudyError("no client has enrolled")


def pooled_consensus(run: Run) -> Rounds:
    """Return the private consensus: one noisy secure sum, solved once."""
    from trellis.strategies.core.secure import SecureSum
    from trellis.strategies.secure_grid import SecureGrid

    config = run.config
    sums = SecureSum(FRACTION_BITS, noisy=True, dropout=config.dropout, colluding=config.colluding)
    strategy = PooledPrecision(
        *(_not_enrolled, {}),
        scored=config.held_out > 0.0,
        helped=config.at_home,
    )

    def enrolled(chosen: JointPrecisionConfig, clients: Sequence[Client]) -> None:
        size = len(clients[0].variables)
        strategy.parts = layout(size)
        strategy.estimate = partial(
            estimate,
            variables=size,
            points=own_points(chosen),
            tolerance=config.tolerance,
        )
        counts = [client.counted for client in clients]
        _note(run, forecast_of(config, counts, size).text())

    return _rounds(run, strategy, enrolled, lambda grid: SecureGrid(grid, sums))


def on_devices(run: Run) -> Rounds:
    """Return no rounds at all: every client learns on its device, and nothing is sent."""
    return _rounds(run, NoTraining(), lambda chosen, clients: None)


def own_points(config: JointPrecisionConfig) -> NDArray[np.float64]:
    """Return the penalties (L,) of the clients' own paths."""
    return path_points(config.lambda1, 0.0, 1.0, config.path)[:, 0]


def _rounds(
    run: Run,
    strategy: NodeStrategy,
    enrolled: Enrolled,
    middleware: Middleware = lambda grid: grid,
) -> Rounds:
    """Return a strategy's rounds, with what every method of the study has in common."""

    def on_enrolled(clients: Sequence[Client]) -> None:
        if run.config.privacy != "dp":
            _note(run, METHODS.row(run.config.method, run.config.privacy).claim["claim"])
        enrolled(_chosen(run, clients), clients)

    rounds = Rounds(
        strategy,
        lambda clients: ArrayRecord(),
        middleware=middleware,
        on_enrolled=on_enrolled,
        admits=False,
        **run.round_arguments(),
    )
    rounds.evaluate = partial(_evaluate, run, rounds)
    return rounds


def _note(run: Run, text: str) -> None:
    """Say what a reader of the result must know, before the first round."""
    log.warning(text)
    run.result.notes.append(text)


def _chosen(run: Run, clients: Sequence[Client]) -> JointPrecisionConfig:
    """Return the settings with numbers in place of auto, and note these."""
    config = run.config
    names = [name for name in config.auto_settings if config.is_auto(name) and name in config.used]
    variables = len(clients[0].variables)
    chosen = config.resolved(variables, _counts(config, clients))
    if names:
        counts = _counts(config, clients)
        values = [f"{name}={getattr(chosen, name):.3g}" for name in names]
        size = f"{variables} variables, {sum(counts) / len(counts):.4g} samples"
        tell(run.result, f"{', '.join(values)} (auto: {size})")
    return chosen


def _counts(config: JointPrecisionConfig, clients: Sequence[Client]) -> list[int]:
    """Return how many samples clients learn from."""
    counts = [client.counted for client in clients]
    if config.sums or config.at_home:  # else they enrol with those
        return [learning_count(count, config.held_out) for count in counts]
    return counts


# --- the result ---------------------------------------------------------------------------------


def _finish(run: Run, rounds: Rounds, grid: Grid) -> None:
    """Put what was learned into the result, and send every client its own."""
    result, config = run.result, run.config
    truth = _truth(run, rounds)
    result.headline = {"rounds": float(len(rounds.progress.rows))}
    if config.at_home:
        fill_private(result, config, rounds, _deliver_public(run, rounds, grid), truth)
        return
    if config.sums:
        fill_private(result, config, rounds, None, truth)
        _deliver_matrices(run, rounds, grid, np.ones(len(rounds.clients), dtype=bool))
        return
    found: Learned = learned(config, rounds)
    if config.streams(len(rounds.clients[0].variables)):
        fill_packed(result, config, found)
        return
    fill(result, config, found, truth)
    _deliver_matrices(run, rounds, grid, found.present)


def _deliver_public(run: Run, rounds: Rounds, grid: Grid) -> PersonalMatrices:
    """Send the consensus, if any; return what simulated clients have made of it."""
    points = own_points(_resolved(run.config, rounds.clients))
    personal = PersonalMatrices(len(rounds.clients[0].variables), points)
    public = {name: a for name, a in rounds.arrays.items() if name == "consensus"}
    content = RecordDict({"arrays": wire.record({**public, "points": points})})
    deliver(rounds, grid, content, personal.take)
    return personal


def _resolved(config: JointPrecisionConfig, clients: Sequence[Client]) -> JointPrecisionConfig:
    return config.resolved(len(clients[0].variables), _counts(config, clients))


def _deliver_matrices(run: Run, rounds: Rounds, grid: Grid, present: NDArray[np.bool_]) -> None:
    """Send every device its own matrices, and with joint methods the edges that all have."""
    arrays = run.result.arrays
    sparse = arrays["sparse"]
    upper = np.triu_indices(sparse.shape[-1], 1)
    shared = np.all(sparse[present][:, *upper] != 0.0, axis=0)
    joint = run.config.sums or "lambda2" in run.config.used

    def content(client: int) -> RecordDict:
        sent = {name: arrays[name][client] for name in ("precision", "sparse")}
        return RecordDict({"arrays": wire.record({**sent, "shared": shared} if joint else sent)})

    deliver(rounds, grid, content)


def _truth(run: Run, rounds: Rounds) -> Truth | None:
    """Return the networks behind the clients' data, where that was made by this study."""
    config, clients = run.config, rounds.clients
    partitions = [client.partition for client in clients]
    # Both are the clients' word: one that lies must not stop the run.
    known = all(client.synthetic for client in clients) and not config.streams(config.variables)
    if not known or not all(0 <= partition < config.clients for partition in partitions):
        return None
    whole = _synthetic_truth(config, run.seed)
    return replace(
        whole, precision=whole.precision[partitions], covariance=whole.covariance[partitions]
    )


_synthetic_truth = lru_cache(maxsize=4)(synthetic_truth)


def _evaluate(run: Run, rounds: Rounds, arrays: ArrayRecord) -> dict[str, float]:
    """Return how well the round's graphs agree with the truth, where that is known."""
    strategy = rounds.strategy
    if not isinstance(strategy, JointPrecision) or not strategy.screened:
        return {}
    truth = _truth(run, rounds)
    if truth is None:
        return {}
    return graph_scores(strategy.split.blocks.unpack(strategy.split.psi), truth.precision)
