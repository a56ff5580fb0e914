"""Processes that solve chunks of pairs and leave nothing behind.

Workers are spawned, as a fork of a process with threads may hang. They read the spaces from shared
memory, load of POT what they need, and end with the process that started them even if that is
killed. Ctrl-C waits for chunks under way and hands them over.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from multiprocessing import connection, shared_memory
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

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

    def solve(self, x: Space, y: Space) -> float:
        """Return the distance of one pair."""
        if self.metric == "gw":
            return couple(x, y, restarts=self.restarts, seed=self.seed).value
        if x.features is None or y.features is None:
            raise ValueError(f"metric={self.metric!r} needs features")
        if self.metric == "wasserstein":
            return couple_rows((x.features, x.weights), (y.features, y.weights))
        costs = squared_distances(x.features, y.features)
        return couple(
            x, y, costs=costs, alpha=self.alpha, restarts=self.restarts, seed=self.seed
        ).value


def solve(spaces: Sequence[Space], task: Task, pairs: Pairs) -> Vector:
    """Return the distances of pairs, one after the other."""
    return np.array([task.solve(spaces[i], spaces[j]) for i, j in pairs.tolist()])


def share_out(
    spaces: Sequence[Space],
    task: Task,
    pairs: Pairs,
    chunks: Sequence[Chunk],
    workers: int,
    values: Vector,
    finished: Callable[[], None],
) -> None:
    """Solve chunks in ``workers - 1`` processes and in this one, until none is left.

    Parameters
    ----------
    spaces, task, pairs : the whole work
    chunks : positions in ``pairs``
    workers : processes, with this one; at least two
    values : (pairs,), filled in at the positions of the chunks
    finished : called after every chunk
    """
    with _shared(spaces) as (name, layout):
        pool = ProcessPoolExecutor(
            max(1, min(workers, len(chunks)) - 1),
            mp_context=multiprocessing.get_context("spawn"),
            initializer=_begin_worker,
            initargs=(name, layout, task),
        )
        waiting: dict[Future[Vector], Chunk] = {}
        try:
            for chunk in chunks:
                waiting[pool.submit(_solve_shared, pairs[chunk])] = chunk
            # This process takes chunks from the end of the queue that nobody has begun.
            for future in reversed(list(waiting)):
                if future.cancel():
                    chunk = waiting.pop(future)
                    values[chunk] = solve(spaces, task, pairs[chunk])
                    finished()
                if _collect(waiting, values):
                    finished()
            while waiting:
                wait(waiting, return_when=FIRST_COMPLETED)
                _collect(waiting, values)
                finished()
        except BrokenProcessPool as error:
            raise RuntimeError(
                "a worker process died: out of memory, or the script that called pairwise has no "
                'if __name__ == "__main__" guard; workers=1 computes without processes'
            ) from error
        finally:
            pool.shutdown(wait=True, cancel_futures=True)
            with contextlib.suppress(Exception):  # one is on its way already, if any
                _collect(waiting, values)


def _collect(waiting: dict[Future[Vector], Chunk], values: Vector) -> bool:
    """Take over what is done, and return whether anything was."""
    done = [future for future in waiting if future.done()]
    for future in done:
        chunk = waiting.pop(future)
        if not future.cancelled():
            values[chunk] = future.result()
    return bool(done)


@contextlib.contextmanager
def _shared(spaces: Sequence[Space]) -> Iterator[tuple[str, list[tuple[int, int]]]]:
    """Put the spaces into shared memory: of each C, p and features, one after the other."""
    layout = [(s.weights.size, 0 if s.features is None else s.features.shape[1]) for s in spaces]
    arrays = [
        array.ravel()
        for s in spaces
        for array in (s.distances, s.weights, s.features)
        if array is not None
    ]
    flat = np.concatenate(arrays)
    memory = shared_memory.SharedMemory(create=True, size=flat.nbytes)
    try:
        np.ndarray(flat.shape, flat.dtype, memory.buf)[:] = flat
        yield memory.name, layout
    finally:
        memory.close()
        memory.unlink()


_worker: dict[str, Any] = {}  # of a worker process: its spaces and its task


def _begin_worker(name: str, layout: list[tuple[int, int]], task: Task) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the process that waits
    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=_end_with, args=(parent.sentinel,), daemon=True).start()
    load_light()
    _worker["limit"] = threadpool_limits(1, user_api="blas")
    memory = shared_memory.SharedMemory(name)
    spaces, begin = [], 0
    for n, width in layout:
        flat = np.ndarray(n * n + n + n * width, np.float64, memory.buf, 8 * begin)
        rows = flat[n * n + n :].reshape(n, width) if width else None
        space = Space.prepared(flat[: n * n].reshape(n, n), flat[n * n : n * n + n], rows)
        spaces.append(space)
        begin += flat.size
    _worker.update(memory=memory, spaces=spaces, task=task)


def _end_with(sentinel: int) -> None:
    """End this process when the one that started it is gone, however it went."""
    connection.wait([sentinel])
    os._exit(1)


def _solve_shared(pairs: Pairs) -> Vector:
    return solve(_worker["spaces"], _worker["task"], pairs)
