"""All pairs of graphs: the matrix of their Gromov-Wasserstein discrepancies, parallel, resumable.

    D_ab = GW(C_a, p_a; C_b, p_b)                                    C_a : (n_a, n_a), p_a : (n_a,)

Only pairs a < b of *different* spaces are solved: graphs that are the same after lumping and
sorting (`space`) share their row. Pairs are dealt in chunks of like cost, the expensive ones first,
to processes, or to what else ``joblib.parallel_config`` names (`pool`). Every value depends on its
own pair and on the solver (`many`) alone: number of processes, their kind, order and interruptions
do not change a bit.

A checkpoint is one file with the values so far, replaced whole every few seconds. It holds digests
of all inputs and the solver's name: one of other inputs, or by another solver, is refused and not
continued.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from threadpoolctl import threadpool_limits

from trellis.install import pip_install
from trellis.strategies.core.jobs import how_many_at_once

from .losses import LOSSES, Loss
from .many import METRICS as COMPILED_METRICS
from .many import SOLVERS, Solver, choose, ready, warm_up
from .pool import Chunk, Metric, Pairs, Task, share_out, solve
from .progress import PairFile, digest
from .rows import lump_rows
from .space import Matrix, Space, Vector

Progress = Callable[[int, int], None]

METRICS = ("gw", "fgw", "wasserstein")
_WORTH_A_POOL = 2.0  # seconds of estimated work
_CHUNK = (0.05, 0.5)  # seconds of estimated work, least and most


def pairwise(
    matrices: Sequence[ArrayLike] | None,
    weights: Sequence[ArrayLike | None] | None = None,
    *,
    metric: Metric = "gw",
    features: Sequence[ArrayLike] | None = None,
    alpha: float = 0.5,
    restarts: int = 0,
    seed: int = 0,
    workers: int | None = None,
    checkpoint: Path | None = None,
    on_progress: Progress | None = None,
    lump: bool = True,
    loss: Loss = "square",
    solver: Solver | None = None,
    on_solver: Callable[[Solver], None] | None = None,
) -> Matrix:
    """Return the distances between all pairs of graphs, (N, N), symmetric with a zero diagonal.

    Parameters
    ----------
    matrices : N distance matrices, square, symmetric, not negative; None with ``wasserstein``
    weights : N vectors of sum one (None: uniform), or None for uniform weights everywhere
    metric : ``gw``: the discrepancy [JC] (1), not its root. ``fgw``: with squared distances of
        features. ``wasserstein``: W2 between features alone, matrices are not read
    features : N matrices (n, d) of rows in one common space, for ``fgw`` and ``wasserstein``
    alpha : of ``fgw``, the weight of the *structure* as in POT
    restarts, seed : more starts of every pair, of which the best is kept
    workers : processes; 1 stays in this one, None takes the cores there are if it is worth it. An
        ``n_jobs`` of ``joblib.parallel_config`` goes before any number but 1
    checkpoint : file for the values so far; if it is there, its values are not computed again
    on_progress : called with the numbers of finished and of all pairs, after every chunk
    lump : whether to merge identical nodes first; exact either way
    loss : of ``gw`` and ``fgw`` between two distances: ``square``, or ``kl`` as in POT, which is
        not symmetric, so the mean of both ways is returned; it has no compiled solver (`losses`)
    solver : ``compiled`` needs numba, ``pot`` does not; None goes by the amount of work (`many`)
    on_solver : called with the solver that is taken
    """
    problem = read_problem(
        matrices,
        weights,
        metric=metric,
        features=features,
        alpha=alpha,
        restarts=restarts,
        seed=seed,
        workers=workers,
        checkpoint=checkpoint,
        lump=lump,
        loss=loss,
        solver=solver,
    )
    if on_solver is not None:
        on_solver(problem.task.solver)
    distinct, inverse = problem.spaces, problem.inverse
    pairs, file = problem.pairs, problem.file
    values = np.full(len(pairs), np.nan) if file is None else file.load(len(pairs))
    _compute(distinct, problem.task, pairs, values, workers, file, on_progress)

    small = np.zeros((len(distinct), len(distinct)))
    small[pairs[:, 0], pairs[:, 1]] = small[pairs[:, 1], pairs[:, 0]] = values
    return small[np.ix_(inverse, inverse)]


@dataclass(frozen=True)
class Problem:
    """Graphs as they are compared.

    Attributes
    ----------
    spaces : the different ones
    inverse : (N,), of each graph its space
    pairs : (k, 2), all a < b of the spaces
    task : what all pairs have in common
    file : for the values so far
    """

    spaces: list[Space]
    inverse: NDArray[np.int64]
    pairs: Pairs
    task: Task
    file: PairFile | None


def read_problem(
    matrices: Sequence[ArrayLike] | None,
    weights: Sequence[ArrayLike | None] | None = None,
    *,
    metric: Metric = "gw",
    features: Sequence[ArrayLike] | None = None,
    alpha: float = 0.5,
    restarts: int = 0,
    seed: int = 0,
    workers: int | None = None,
    checkpoint: Path | None = None,
    lump: bool = True,
    loss: Loss = "square",
    solver: Solver | None = None,
) -> Problem:
    """Return what is to be solved, checked; arguments as of `pairwise`."""
    spaces, fingerprints = _read(matrices, weights, metric, features, lump)
    if not 0.0 <= alpha <= 1.0:
        raise ValueError(f"alpha={alpha}: 0 (features only) to 1 (structure only)")
    if restarts < 0:
        raise ValueError(f"restarts={restarts}: must be >= 0")
    if workers is not None and workers < 1:
        raise ValueError(f"workers={workers}: must be >= 1")
    if loss not in LOSSES:
        raise ValueError(f"loss={loss!r}: is not one of {', '.join(LOSSES)}")
    if loss != "square" and metric == "wasserstein":
        raise ValueError(f"loss={loss!r}: metric='wasserstein' compares rows, not distances")
    first, inverse = _distinct(spaces)
    distinct = [spaces[i] for i in first]
    pairs = np.column_stack(np.triu_indices(len(distinct), k=1)).astype(np.int64)
    if loss != "square":
        if solver == "compiled":
            raise ValueError(f"solver='compiled' is for loss='square', not {loss}")
        solver = "pot"
    chosen = _solver(solver, metric, distinct, pairs, restarts)
    task = Task(metric, alpha, restarts, seed, chosen, loss)
    settings: dict[str, Any] = {"metric": metric, "restarts": restarts, "lump": lump}
    settings |= {"solver": task.solver}
    settings |= {"seed": seed} if restarts else {}
    settings |= {"alpha": alpha} if metric == "fgw" else {}
    settings |= {"loss": loss} if loss != "square" else {}
    file = None if checkpoint is None else PairFile(Path(checkpoint), settings, fingerprints)
    return Problem(distinct, inverse, pairs, task, file)


def _read(
    matrices: Sequence[ArrayLike] | None,
    weights: Sequence[ArrayLike | None] | None,
    metric: str,
    features: Sequence[ArrayLike] | None,
    lump: bool,
) -> tuple[list[Space], list[str]]:
    """Return the spaces and a digest of each graph as it was given."""
    if metric not in METRICS:
        raise ValueError(f"metric={metric!r}: is not one of {', '.join(METRICS)}")
    if (needed := metric != "gw") and features is None:
        raise ValueError(f"metric={metric!r} compares features: pass features=")
    if matrices is None and metric != "wasserstein":
        raise ValueError(f"metric={metric!r} compares distance matrices: pass them")
    count = len(features) if metric == "wasserstein" and features is not None else 0
    count = len(matrices) if matrices is not None else count
    for name, given in (("weights", weights), ("features", features)):
        if given is not None and len(given) != count:
            raise ValueError(f"{name}: {len(given)} of them for {count} graphs")
    spaces, fingerprints = [], []
    for i in range(count):
        p = None if weights is None else weights[i]
        x = features[i] if needed and features is not None else None
        if metric == "wasserstein" or matrices is None:
            rows, mass = lump_rows(() if x is None else x, p, f"features {i}")
            spaces.append(Space.prepared(np.zeros((len(rows), len(rows))), mass, rows))
            fingerprints.append(digest(None, p, x))
        else:
            spaces.append(Space.of(matrices[i], p, x, lump=lump, name=f"matrix {i}")[0])
            fingerprints.append(digest(matrices[i], p, x))
        if (found := spaces[-1].features) is not None:
            wanted = spaces[0].features
            if wanted is not None and wanted.shape[1] != found.shape[1]:
                raise ValueError(
                    f"features {i}: rows of {found.shape[1]}, those of graph 0 have "
                    f"{wanted.shape[1]}; they must lie in one common space"
                )
    return spaces, fingerprints


def _distinct(spaces: Sequence[Space]) -> tuple[list[int], NDArray[np.int64]]:
    """Return the first of each group of equal spaces, and of each space its group."""
    groups: dict[bytes, int] = {}
    inverse = np.array([groups.setdefault(s.content(), len(groups)) for s in spaces], dtype=int)
    first = [int(np.argmax(inverse == group)) for group in range(len(groups))]
    return first, inverse.astype(np.int64)


def _solver(
    asked: Solver | None, metric: Metric, spaces: Sequence[Space], pairs: Pairs, restarts: int
) -> Solver:
    """Return who solves all pairs, also those that a checkpoint has already."""
    if asked is None:
        sizes = np.array([space.weights.size for space in spaces])
        return choose(metric, float(_estimate(sizes, pairs, restarts, "pot").sum()))
    if asked not in SOLVERS:
        raise ValueError(f"solver={asked!r}: is not one of {', '.join(SOLVERS)}")
    if asked == "compiled" and metric not in COMPILED_METRICS:
        raise ValueError(f"solver='compiled' is for {', '.join(COMPILED_METRICS)}, not {metric}")
    if asked == "compiled" and not ready():
        raise ImportError(f"solver='compiled' needs numba: {pip_install('gnn')}")
    return asked


def _compute(
    spaces: Sequence[Space],
    task: Task,
    pairs: Pairs,
    values: Vector,
    workers: int | None,
    file: PairFile | None,
    on_progress: Progress | None,
) -> None:
    """Fill what is not a number in ``values``."""
    open_ = np.flatnonzero(np.isnan(values))
    sizes = np.array([space.weights.size for space in spaces])
    seconds = _estimate(sizes, pairs[open_], task.restarts, task.solver)
    if workers is None and seconds.sum() <= _WORTH_A_POOL:
        workers = 1
    at_once = how_many_at_once(len(open_), workers)
    chunks = [open_[chunk] for chunk in _chunks(seconds, at_once)]

    def finished() -> None:
        if file is not None:
            file.keep(values)
        if on_progress is not None:
            on_progress(int(len(values) - np.isnan(values).sum()), len(values))

    try:
        with threadpool_limits(1, user_api="blas"):
            if at_once == 1 or len(chunks) == 1:
                for chunk in chunks:
                    values[chunk] = solve(spaces, task, pairs[chunk])
                    finished()
            else:
                at_once = min(at_once, len(chunks))
                if task.solver == "compiled":
                    warm_up()
                share_out(spaces, task, pairs, chunks, at_once, values, finished)
    finally:
        if file is not None:
            file.save(values)  # also after Ctrl-C


def _estimate(sizes: NDArray[np.int64], pairs: Pairs, restarts: int, solver: Solver) -> Vector:
    """Return roughly how many seconds each pair takes; for fair chunks, not for clocks."""
    product = (sizes[pairs[:, 0]] * sizes[pairs[:, 1]]).astype(np.float64)
    return (1 + restarts) * seconds_of(product, solver)


def seconds_of(product: Vector, solver: Solver) -> Vector:
    """Return roughly how many seconds pairs take, by the product of their numbers of nodes."""
    first, more = (1e-4, 1.5e-7) if solver == "pot" else (2e-6, 9e-9)
    return first + more * product**1.35


def _chunks(seconds: Vector, at_once: int) -> list[Chunk]:
    """Return positions in chunks of like cost, expensive pairs first."""
    order = np.argsort(-seconds, kind="stable")
    share = float(np.clip(seconds.sum() / (16 * at_once), *_CHUNK))
    number = (np.cumsum(seconds[order]) / share).astype(np.int64)
    return np.split(order, np.flatnonzero(np.diff(number)) + 1) if order.size else []
