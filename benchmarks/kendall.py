"""Kendall's tau matrix: ours next to pandas and to a loop over scipy.stats.kendalltau.

Same data (Gaussian, no ties), one process, one BLAS thread; the others do not use BLAS. pandas runs
whole. Where the scipy loop would take minutes it runs on a sample of the pairs of columns, and its
time is scaled to all of them: every pair costs it the same. The results must agree to 1e-14.
"""

from __future__ import annotations

from importlib import import_module, metadata
from typing import Any

import numpy as np
import scipy.stats

from trellis.apps.common.threads import one_blas_thread
from trellis.apps.joint_precision.kendall import Matrix, kendall

from .timing import entry, in_turns, median_time, timed

SIZES = ((150, 1280), (1000, 160), (10_000, 54))
QUICK = ((150, 320), (1000, 54))
MOST_PAIRS, SAMPLED_PAIRS = 20_000, 2000


def run(full: bool = False) -> list[dict[str, Any]]:
    """Return two rows a size: against pandas, and against the loop; in full, all sizes."""
    sizes = SIZES if full else QUICK
    with one_blas_thread():
        return [row for rows, columns in sizes for row in _compare(rows, columns, full)]


def _compare(rows: int, columns: int, full: bool) -> list[dict[str, Any]]:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(rows, columns)) + rng.normal(size=(rows, 1))
    frame = import_module("pandas").DataFrame(X)
    tau, theirs = kendall(X), frame.corr("kendall").to_numpy()  # not timed: imports
    ours, pandas = in_turns(
        3 if full else 1,
        lambda: median_time(3, lambda: kendall(X))[0],
        lambda: timed(lambda: frame.corr("kendall"))[0],
    )

    first, second = np.triu_indices(columns, 1)
    whole = first.size <= MOST_PAIRS
    sample = np.arange(first.size) if whole else rng.permutation(first.size)[:SAMPLED_PAIRS]
    pairs = list(zip(first[sample], second[sample], strict=True))
    seconds, sampled = median_time(1, lambda: _scipy_loop(X, pairs))
    loop = [seconds / len(pairs) * first.size] * len(ours)

    error = max(
        float(np.abs(tau - theirs).max()),
        float(np.abs(tau[first[sample], second[sample]] - sampled).max()),
    )
    if not error <= 1e-14:
        raise RuntimeError(f"n = {rows}, p = {columns}: the results differ by {error:.1e}")
    setting = f"tau matrix, n = {rows}, p = {columns}"
    scaled = "" if whole else f"; loop scaled from {len(pairs)} of {first.size} pairs"
    return [
        _entry(ours, pandas, f"pandas {metadata.version('pandas')}", setting, error),
        _entry(
            ours,
            loop,
            f"scipy {metadata.version('scipy')} (kendalltau loop)",
            setting + scaled,
            error,
        ),
    ]


def _entry(
    ours: list[float], peer: list[float], version: str, setting: str, error: float
) -> dict[str, Any]:
    return entry(
        "kendall",
        ours,
        peer,
        peer_version=version,
        unit="s",
        setting=setting,
        ours_cores=1,
        peer_cores=1,
        largest_difference=error,
    )


def _scipy_loop(X: Matrix, pairs: list[tuple[int, int]]) -> Matrix:
    return np.array([scipy.stats.kendalltau(X[:, j], X[:, k]).statistic for j, k in pairs])
