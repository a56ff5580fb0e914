"""How long something takes, for benchmarks."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

import numpy as np

Result = TypeVar("Result")


def median_time(repeats: int, work: Callable[[], Result]) -> tuple[float, Result]:
    """Return the median seconds and the last result; a first run, which imports, is not timed."""
    result = work()
    times = []
    for _ in range(repeats):
        begin = time.perf_counter()
        result = work()
        times.append(time.perf_counter() - begin)
    return float(np.median(times)), result
