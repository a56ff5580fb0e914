"""Independent jobs side by side, by joblib: on this machine's cores, or wherever its user says.

joblib starts processes of its own (loky). Another backend is chosen outside, around the call:

    ray.init(); ray.util.joblib.register_ray()
    with joblib.parallel_config(backend="ray"):
        pairwise(...)

Which job runs where, and which ends first, must not matter to who asks: values come with their
place among the items. Processes end with the one that started them, even if that is killed.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import time
import warnings
from collections.abc import Callable, Generator, Iterable
from typing import Literal, TypeVar

from trellis.install import pip_install

Item = TypeVar("Item")
Found = TypeVar("Found")

_LOOK = 1.0  # seconds between two looks for the process that started this one


def how_many_at_once(jobs: int, workers: int | None = None) -> int:
    """Return how many of some jobs to run side by side.

    ``joblib.parallel_config(n_jobs=...)`` has the first word, then ``workers``, then the cores
    there are: of this machine or, on another backend, of its cluster. Inside such a job it is one,
    as the others have the cores.
    """
    if jobs <= 1 or workers == 1:
        return 1
    try:
        from joblib import effective_n_jobs
        from joblib.parallel import get_active_backend
    except ImportError as error:
        raise ImportError(f"more than one process needs joblib: {pip_install('laptop')}") from error
    backend, configured = get_active_backend()
    if backend.nesting_level:
        return 1
    wanted = configured if configured is not None else -1 if workers is None else workers
    return min(jobs, int(effective_n_jobs(wanted)))


def side_by_side(
    function: Callable[[Item], Found],
    items: Iterable[Item],
    at_once: int,
    *,
    begin: Callable[[], None] | None = None,
    batch: int | Literal["auto"] = "auto",
) -> Generator[tuple[int, Found], None, None]:
    """Yield the place of every item and its value, in the order in which they are finished.

    Parameters
    ----------
    function : of one item; it and the items are pickled
    items : taken one after the other, shortly before their turn
    at_once : jobs side by side, see `how_many_at_once`; 1 stays in this process, without joblib
    begin : called once in every new process, before its first job
    batch : items a message; joblib's own choice is a fifth of a second of work or more
    """
    if at_once == 1:
        for place, item in enumerate(items):
            yield place, function(item)
        return
    from joblib import Parallel, delayed
    from joblib.externals.loky.process_executor import TerminatedWorkerError
    from joblib.parallel import get_active_backend

    backend, _ = get_active_backend()
    if not backend.supports_return_generator:
        # Ray's backend inherits this from that of multiprocessing, whose pool may hang when it is
        # stopped half-way. Its own does not, and joblib's lists are made of this same generator.
        backend.supports_return_generator = True
    parallel = Parallel(
        at_once,
        backend,
        return_as="generator_unordered",
        batch_size=batch,
        max_nbytes=None,  # arrays arrive as they would in this process: writable, in memory
        initializer=_begin_worker,
        initargs=(begin,),
    )
    try:
        # This call submits the first jobs, so a worker's death surfaces here as well as below.
        found = parallel(delayed(_job)(function, place, item) for place, item in enumerate(items))
        try:
            for place, value in found:  # not `yield from`, which closes it on its own
                yield place, value
        finally:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # that jobs were begun in vain: whoever stops knows
                found.close()
    except TerminatedWorkerError as error:
        raise RuntimeError(
            "a worker process died, most likely because memory ran out: take fewer, "
            "joblib.parallel_config(n_jobs=...); 1 computes without processes"
        ) from error


def _job(function: Callable[[Item], Found], place: int, item: Item) -> tuple[int, Found]:
    return place, function(item)


def _begin_worker(begin: Callable[[], None] | None) -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:  # a child of the process that waits; Ray looks after its own
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the process that waits
        threading.Thread(target=_end_with, args=(parent.pid,), daemon=True).start()
    if begin is not None:
        begin()


def _end_with(parent: int | None) -> None:
    """End this process when the one that started it is gone, however it went.

    Left alone, loky's processes wait five minutes for more to do.
    """
    while os.getppid() == parent:
        time.sleep(_LOOK)
    os._exit(1)
