"""A matrix of distances of which only a part is solved, and lower bounds of the rest.

    values : (N, N) distances that are solved, not-a-number elsewhere
    bounds : (N, N) numbers that no distance is below

Whoever asks names pairs and, for each, the *limit* above which its distance is of no use. A pair
whose third bound is above its limit is not solved: its bound is kept instead. Pairs are solved as
in `pairwise`: by the same solver, in chunks, in this process or wherever joblib says, with a
checkpoint in the same format. So a run that needed few pairs can be continued by one that wants
all, and a value is the same bits either way.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike, NDArray
from threadpoolctl import ThreadpoolController, threadpool_limits

from trellis.strategies.core.jobs import how_many_at_once

from .. import pairwise as whole
from ..many import Solver
from ..pool import Metric, Pairs, Parcel, Task, share_out, solve
from ..progress import PairFile
from ..space import Matrix, Space, Vector
from .bounds import Signatures, row_cells, third_bound

Flags = NDArray[np.bool_]
Places = NDArray[np.int64]
Progress = Callable[[int, int], None]


class PartialDistances:
    """Distances between N graphs, solved as they are asked for.

    Parameters
    ----------
    spaces : the different spaces, prepared
    inverse : (N,), of each graph its space
    task : what all pairs have in common
    workers : processes, as for `pairwise`
    file : where solved values are kept
    on_progress : called with the numbers of pairs that are settled (solved, or not needed for what
        is being looked for) and of all pairs
    third : whether Memoli's third bound is asked before a pair is solved. It leaves fewer pairs to
        solve and is a transport problem itself: None asks it where a pair takes longer than that,
        which is by POT's solver and not by the compiled one
    """

    def __init__(
        self,
        spaces: Sequence[Space],
        inverse: NDArray[np.int64],
        task: Task,
        *,
        workers: int | None = None,
        file: PairFile | None = None,
        on_progress: Progress | None = None,
        third: bool | None = None,
    ) -> None:
        self._spaces, self._inverse, self._task = spaces, inverse, task
        self._workers, self._file, self._on_progress = workers, file, on_progress
        self._third = task.solver == "pot" if third is None else third
        count = len(spaces)
        self._pairs = np.column_stack(np.triu_indices(count, k=1)).astype(np.int64)
        known = np.full(len(self._pairs), np.nan) if file is None else file.load(len(self._pairs))
        self._known: Vector = known
        found = Signatures.of(spaces, structure=task.metric != "wasserstein")
        self._bounds = found.bounds(task.metric, task.alpha)
        self._values = np.full((count, count), np.nan)
        np.fill_diagonal(self._values, 0.0)
        self._enter(self._pairs, self._known)
        self._rows: dict[int, Matrix] = {}
        # Found once: a search is many short turns, and looking for libraries takes milliseconds.
        self._libraries = ThreadpoolController().select(user_api="blas")

    @classmethod
    def of(
        cls,
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
        solver: Solver | None = None,
        on_solver: Callable[[Solver], None] | None = None,
        third: bool | None = None,
    ) -> PartialDistances:
        """Return the distances between graphs, none of them solved; arguments as of `pairwise`."""
        problem = whole.read_problem(
            matrices,
            weights,
            metric=metric,
            features=features,
            alpha=alpha,
            restarts=restarts,
            seed=seed,
            workers=workers,
            checkpoint=checkpoint,
            solver=solver,
        )
        if on_solver is not None:
            on_solver(problem.task.solver)
        return cls(
            problem.spaces,
            problem.inverse,
            problem.task,
            workers=workers,
            file=problem.file,
            on_progress=on_progress,
            third=third,
        )

    @classmethod
    def solved(cls, distances: ArrayLike) -> PartialDistances:
        """Return a matrix (N, N) of which all is known, for the same questions."""
        d = np.array(distances, dtype=np.float64)
        if d.ndim != 2 or d.shape[0] != d.shape[1] or not np.isfinite(d).all():
            raise ValueError(f"distances: shape {d.shape}; finite numbers (N, N) are needed")
        self = cls.__new__(cls)
        self._inverse, self._values, self._bounds = np.arange(len(d)), d, d
        self._on_progress = self._file = None
        return self

    def __len__(self) -> int:
        return len(self._inverse)

    @property
    def values(self) -> Matrix:
        """(N, N), not-a-number where a pair is not solved."""
        return self.between(np.arange(len(self)))[0]

    @property
    def bounds(self) -> Matrix:
        """(N, N), where a pair is solved its value."""
        return self.between(np.arange(len(self)))[1]

    def between(self, rows: Places, columns: Places | None = None) -> tuple[Matrix, Matrix]:
        """Return values and bounds of some graphs to others, or to all."""
        ends = self._inverse if columns is None else self._inverse[columns]
        some = np.ix_(self._inverse[rows], ends)
        return self._values[some], self._bounds[some]

    @property
    def share(self) -> float:
        """How many of the pairs of different graphs are solved, 0 to 1."""
        apart = self._values.size - len(self._values)
        return (apart - int(np.isnan(self._values).sum())) / apart if apart else 1.0

    def solve(self, pairs: Pairs, limits: Vector) -> None:
        """Settle pairs of graphs: solve them, or raise their bounds above their limits.

        Parameters
        ----------
        pairs : (k, 2) graphs
        limits : (k,), above which a distance is of no use; infinite where it is wanted at any rate
        """
        ends = np.sort(self._inverse[pairs], axis=1)
        open_ = np.isnan(self._values[ends[:, 0], ends[:, 1]])
        if not open_.any():
            return
        # Equal graphs ask for the same pair: once, with the larger limit.
        keys, place = np.unique(
            ends[open_, 0] * len(self._values) + ends[open_, 1], return_inverse=True
        )
        most = np.full(len(keys), -np.inf)
        np.maximum.at(most, place, limits[open_] if self._third else np.inf)
        asked = np.column_stack(divmod(keys, len(self._values)))
        self._compute(asked, most)

    def tell(self, settled: int) -> None:
        """Report how many of all pairs of graphs are settled."""
        if self._on_progress is not None:
            count = len(self)
            self._on_progress(settled, count * (count - 1) // 2)

    def close(self) -> None:
        """Keep what is solved in the checkpoint."""
        if self._file is not None:
            self._file.save(self._known)

    def _compute(self, pairs: Pairs, limits: Vector) -> None:
        found = np.full((len(pairs), 2), np.nan)
        sizes = np.array([space.weights.size for space in self._spaces])
        seconds = whole._estimate(sizes, pairs, self._task.restarts, self._task.solver)
        workers = self._workers
        if workers is None and seconds.sum() <= whole._WORTH_A_POOL:
            workers = 1
        at_once = how_many_at_once(len(pairs), workers)
        chunks = whole._chunks(seconds, at_once)
        kept = np.zeros(len(pairs), dtype=bool)

        def finished() -> None:
            fresh = ~np.isnan(found[:, 1]) & ~kept
            self._enter(pairs[fresh], found[fresh, 0])
            self._raise(pairs[fresh], found[fresh, 1])
            kept[fresh] = True
            if self._file is not None:
                self._file.keep(self._known)

        try:
            if at_once == 1 or len(chunks) == 1:
                with self._libraries.limit(limits=1):
                    for chunk in chunks:
                        parcel = Parcel(self._spaces, self._task, pairs[chunk], limits[chunk])
                        found[chunk] = settle(parcel, self._rows)
                        finished()
            else:
                at_once = min(at_once, len(chunks))
                share_out(
                    self._spaces,
                    self._task,
                    pairs,
                    chunks,
                    at_once,
                    found,
                    finished,
                    limits=limits,
                    job=_settle_there,
                )
        except BaseException:  # also Ctrl-C
            self.close()
            raise

    def _enter(self, pairs: Pairs, values: Vector) -> None:
        """Take in values of pairs of spaces a < b; not-a-number says nothing."""
        there = ~np.isnan(values)
        (a, b), v = pairs[there].T, values[there]
        self._values[a, b] = self._values[b, a] = v
        self._bounds[a, b] = self._bounds[b, a] = v
        count = len(self._values)
        self._known[a * count - a * (a + 1) // 2 + b - a - 1] = v  # as `triu_indices` orders them

    def _raise(self, pairs: Pairs, bounds: Vector) -> None:
        a, b = pairs.T
        higher = np.where(np.isnan(self._values[a, b]), bounds, -np.inf)
        self._bounds[a, b] = self._bounds[b, a] = np.maximum(self._bounds[a, b], higher)


def settle(parcel: Parcel, rows: dict[int, Matrix]) -> Matrix:
    """Return value and lower bound of every pair, (k, 2); no value where its bound is too high.

    ``rows`` are the `row_cells` of spaces by their place, those that are missing are added.
    """
    task, spaces, pairs, limits = parcel.task, parcel.spaces, parcel.pairs, parcel.limits
    found = np.full((len(pairs), 2), np.nan)
    found[:, 1] = 0.0
    # W2 of rows is one transport problem itself: a bound by another saves nothing.
    checked = np.zeros(len(pairs), dtype=bool)
    if limits is not None and task.metric != "wasserstein":
        checked = np.isfinite(limits)
    for place in np.flatnonzero(checked).tolist():
        i, j = pairs[place].tolist()
        for one in (i, j):
            if one not in rows:
                rows[one] = row_cells(spaces[one])
        found[place, 1] = third_bound(
            spaces[i], spaces[j], rows[i], rows[j], metric=task.metric, alpha=task.alpha
        )
    wanted = np.ones(len(pairs), dtype=bool) if limits is None else found[:, 1] <= limits
    found[wanted, 0] = solve(spaces, task, pairs[wanted])
    return found


def _settle_there(parcel: Parcel) -> Matrix:
    with threadpool_limits(1, user_api="blas"):
        return settle(parcel, {})
