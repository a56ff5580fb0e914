"""Chunks of pairs, solved in this process or side by side in others.

A chunk carries the spaces it needs and no others. Sending them costs next to nothing: solving a
pair of n nodes takes a second for every ten megabytes sent, or more. Ctrl-C waits for chunks under
way and hands them over.
"""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from trellis.strategies.core.jobs import side_by_side

from .losses import Loss
from .many import Solver, solve_many
from .pair import couple
from .rows import couple_rows, squared_distances
from .simplex import load_light
from .space import Space, Vector

Pairs = NDArray[np.int64]  # (k, 2)
Chunk = NDArray[np.int64]  # positions of pairs
Metric = Literal["gw", "fgw", "wasserstein"]


@dataclass(frozen=True)
class Task:
    """What all pairs have in common."""

    metric: Metric
    alpha: float
    restarts: int
    seed: int
    solver: Solver = "pot"
    loss: Loss = "square"

    def solve(self, x: Space, y: Space) -> float:
        """Return the distance of one pair, by POT's simplex; of ``kl`` the mean of both ways."""
        if self.metric == "wasserstein":
            if x.features is None or y.features is None:
                raise ValueError(f"metric={self.metric!r} needs features")
            return couple_rows((x.features, x.weights), (y.features, y.weights))
        if self.loss == "square":
            return self._from(x, y)
        x, y = (x, y) if x.before(y) else (y, x)  # so that the mean is the same bits both ways
        return (self._from(x, y) + self._from(y, x)) / 2.0

    def _from(self, x: Space, y: Space) -> float:
        """Return the (fused) discrepancy from x to y."""
        costs, alpha = None, 1.0
        if self.metric == "fgw":
            if x.features is None or y.features is None:
                raise ValueError(f"metric={self.metric!r} needs features")
            costs, alpha = squared_distances(x.features, y.features), self.alpha
        found = couple(
            x, y, costs=costs, alpha=alpha, restarts=self.restarts, seed=self.seed, loss=self.loss
        )
        return found.value


def solve(spaces: Sequence[Space], task: Task, pairs: Pairs) -> Vector:
    """Return the distances of pairs, one after the other."""
    values = np.full(len(pairs), np.nan)
    if task.solver == "compiled":
        fused = task.metric == "fgw"
        alpha = task.alpha if fused else 1.0
        values = solve_many(
            spaces, pairs, fused=fused, alpha=alpha, restarts=task.restarts, seed=task.seed
        )
    for place in np.flatnonzero(np.isnan(values)).tolist():
        i, j = pairs[place].tolist()
        values[place] = task.solve(spaces[i], spaces[j])
    return values


def share_out(
    spaces: Sequence[Space],
    task: Task,
    pairs: Pairs,
    chunks: Sequence[Chunk],
    at_once: int,
    values: NDArray[np.float64],
    finished: Callable[[], None],
    *,
    limits: Vector | None = None,
    job: Callable[[Parcel], NDArray[np.float64]] | None = None,
) -> None:
    """Solve chunks side by side, until none is left.

    Parameters
    ----------
    spaces, task, pairs : the whole work
    chunks : positions in ``pairs``
    at_once : how many chunks, at least two
    values : (pairs,), filled in at the positions of the chunks
    finished : called after every chunk
    limits : (pairs,), for a job that looks at them
    job : what is done with a parcel, in the other process; None solves its pairs
    """

    def parcels() -> Iterator[Parcel]:
        for chunk in chunks:
            if stop_asked():
                return
            used, ends = np.unique(pairs[chunk], return_inverse=True)
            most = None if limits is None else limits[chunk]
            yield Parcel([spaces[i] for i in used.tolist()], task, ends.reshape(-1, 2), most)

    with (
        _ctrl_c_asks() as stop_asked,
        contextlib.closing(
            side_by_side(job or _solve_parcel, parcels(), at_once, begin=load_light, batch=1)
        ) as found,
    ):
        for place, solved in found:
            values[chunks[place]] = solved
            finished()


@dataclass(frozen=True)
class Parcel:
    """A chunk for another process: ``pairs`` count in these spaces."""

    spaces: Sequence[Space]
    task: Task
    pairs: Pairs
    limits: Vector | None = None


def _solve_parcel(parcel: Parcel) -> Vector:
    with threadpool_limits(1, user_api="blas"):
        return solve(parcel.spaces, parcel.task, parcel.pairs)


@contextlib.contextmanager
def _ctrl_c_asks() -> Iterator[Callable[[], bool]]:
    """Yield whether Ctrl-C was pressed, and raise KeyboardInterrupt at the end; a second is raised.

    Raised anywhere, it may come between taking a lock and remembering so. Then nobody releases the
    lock, and threads that collect results wait for it for ever.
    """
    asked = False
    before = signal.getsignal(signal.SIGINT)

    def ask(*_: object) -> None:
        nonlocal asked
        asked = True
        signal.signal(signal.SIGINT, before)

    here = threading.current_thread() is threading.main_thread()
    if ours := here and before is signal.default_int_handler:
        signal.signal(signal.SIGINT, ask)
    try:
        yield lambda: asked
    finally:
        if ours:
            signal.signal(signal.SIGINT, before)
        if asked:  # whatever else: a terminal's Ctrl-C also ends workers that have only just begun
            raise KeyboardInterrupt
