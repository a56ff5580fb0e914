"""How long something takes, beside a peer, for benchmarks.

Nothing here is a best of several: a ratio is the median over runs in which ours and the peer's take
turns, so that what else the machine does meets both, and its spread stands beside it.
"""

from __future__ import annotations

import os
import resource
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

Result = TypeVar("Result")


def median_time(repeats: int, work: Callable[[], Result]) -> tuple[float, Result]:
    """Return the median seconds and the last result; a first run, which imports, is not timed."""
    result = work()
    times = []
    for _ in range(repeats):
        seconds, result = timed(work)
        times.append(seconds)
    return float(np.median(times)), result


def timed(work: Callable[[], Result]) -> tuple[float, Result]:
    """Return the seconds on the clock, and the result."""
    begin = time.perf_counter()
    result = work()
    return time.perf_counter() - begin, result


def in_turns(
    runs: int, ours: Callable[[], float], peer: Callable[[], float]
) -> tuple[list[float], list[float]]:
    """Return what ours and the peer measure in each of several runs, in turns.

    Both functions return their own measurement, in the same unit.
    """
    found: tuple[list[float], list[float]] = ([], [])
    for _ in range(runs):
        found[0].append(ours())
        found[1].append(peer())
    return found


def peak_memory(begin: bool = False) -> float:
    """Return this process's peak of memory in KB; ``begin`` lets it begin anew, as Linux can.

    Linux's own count of this program: ``ru_maxrss`` of a new process is at least what the one that
    started it had.
    """
    if begin:
        with suppress(OSError):
            Path("/proc/self/clear_refs").write_text("5")
    with suppress(OSError):
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return float(line.split()[1])
    return float(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)


def entry(
    name: str,
    ours: Sequence[float],
    peer: Sequence[float],
    *,
    peer_version: str,
    unit: str,
    setting: str,
    ours_cores: int,
    peer_cores: int,
    more_is_better: bool = False,
    **more: Any,
) -> dict[str, Any]:
    """Return one row of the results.

    Parameters
    ----------
    ours, peer : what each run measured, in the order of the runs
    unit : of both
    ours_cores, peer_cores : how many cores each side kept busy
    more_is_better : for what counts per second; otherwise less is better
    more : anything else worth keeping
    """
    a, b = np.asarray(ours, dtype=float), np.asarray(peer, dtype=float)
    ratios = a / b if more_is_better else b / a
    return {
        "name": name,
        "ours": float(np.median(a)),
        "peer": float(np.median(b)),
        "peer_version": peer_version,
        "ratio": float(np.median(ratios)),
        "ratio_spread": [float(ratios.min()), float(ratios.max())],
        "runs": int(ratios.size),
        "unit": unit,
        "ours_cores": ours_cores,
        "peer_cores": peer_cores,
        "machine_cores": os.cpu_count(),
        "setting": setting,
        **more,
    }
