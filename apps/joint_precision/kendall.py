"""Kendall's tau between all columns of a table, exact, in bounded memory.

For X : (n, p) and s_j(r, r') = sign(X_rj - X_r'j), with all sums over the pairs of rows r < r',

    c_jk  = sum s_j s_k                     concordant minus discordant pairs, a whole number
    tau_a = c_jk / (n (n - 1) / 2)          a pair of rows tied in j or k counts 0
    tau_b = c_jk / sqrt(c_jj c_kk)          pairs tied in j (in k) leave the normaliser as well

c_jj is the number of pairs that column j does not tie, so without ties both are the same. (The
paper's factor is half of 2 / (n (n - 1)): it sums over ordered pairs.)

There are two ways to the same whole numbers, hence to the same bits:

``gemm``
    c = s's, a matrix product of signs in float32, O(n^2 p^2): quicker for few rows.
``sort``
    one pair of columns at a time by sorted ranks and a Fenwick tree, compiled in scipy,
    O(n log n p^2): quicker for many rows.

Signs packed into bits (XOR, count the ones) are no third: 3 microseconds a pair of columns at n =
150 where the product takes 0.3, 11 at n = 1000 where it takes 16, and they cannot see ties.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from importlib import import_module
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

Matrix = NDArray[np.float64]
Ranks = NDArray[np.intp]

BLOCK_BYTES = 64 << 20

# Pairs of rows a matrix product, at least and at most: 1024 cost up to a fifth more than 4096, and
# more than that leave the cache. float32 holds every whole number up to 2^24: the sums are exact.
_ENOUGH_ROWS, _MOST_ROWS = 1024, 4096
# An entry being ranked takes its value, order, sorted value and ranks, beside those ranked before.
_RANKING_BYTES = 80
_RANKING_ENTRIES = 1 << 16


def kendall(
    X: ArrayLike,
    *,
    columns: Sequence[str] | None = None,
    variant: str = "b",
    method: str = "auto",
    block_bytes: int = BLOCK_BYTES,
) -> Matrix:
    """Return Kendall's tau (p, p) between all columns of ``X`` (n, p).

    Parameters
    ----------
    X : numbers of any real type; they are compared, never rounded
    columns : the names of the columns, for messages
    variant : ``b`` corrects for ties, and refuses a constant column, where it is 0 / 0; ``a`` does
        neither: one row moves an entry by at most 4 / n whatever the data
    method : ``gemm``, ``sort``, or ``auto``, the one expected to be quicker
    block_bytes : memory to use at most, beyond the result

    Returns
    -------
    tau, symmetric. The diagonal is 1, for ``a`` too, where the formula would give a column's share
    of untied pairs: it is a correlation matrix, and its diagonal tells nothing about the data.

    Raises
    ------
    ValueError
        For missing or infinite values, fewer than two rows, a constant column (variant ``b``); the
        message names row and column.
    """
    if variant not in ("a", "b"):
        raise ValueError(f"variant={variant!r}: choose 'a' or 'b'")
    if method not in ("auto", "gemm", "sort"):
        raise ValueError(f"method={method!r}: choose 'auto', 'gemm' or 'sort'")
    table = checked_table(X, columns, allow_constant=variant == "a")
    n, p = table.shape
    if method == "auto":
        loading = 0.0 if "scipy.stats" in sys.modules else _LOADING
        method = "gemm" if _gemm_is_quicker(n, p, loading) else "sort"

    counts = np.empty((p, p))  # whole numbers below 2^53
    plan = _plan(n, p, method, block_bytes)
    count = _count_by_gemm if method == "gemm" else _count_by_sort
    for start in range(0, p, plan.width):
        first = slice(start, min(p, start + plan.width))
        for other in range(start, p, plan.width):
            second = slice(other, min(p, other + plan.width))
            count(table, first, second, plan, counts[first, second])
            if other > start:
                counts[second, first] = counts[first, second].T
    _normalise(counts, n * (n - 1) // 2 if variant == "a" else None, block_bytes)
    return counts


def checked_table(
    X: ArrayLike, columns: Sequence[str] | None = None, *, allow_constant: bool = False
) -> NDArray[Any]:
    """Return ``X`` as an (n, p) array of finite numbers, or refuse it by row and column."""
    if np.ma.is_masked(X):  # whose mask the next line would drop in silence
        X = np.ma.filled(np.ma.asarray(X, dtype=np.float64), np.nan)
    table = np.asarray(X)
    if table.ndim != 2 or table.shape[1] == 0:
        raise ValueError(f"a table (rows, columns) is needed, this has shape {table.shape}")
    if table.dtype.kind not in "biuf":
        raise ValueError(f"numbers are needed, this table holds {table.dtype}; convert it first")
    n, p = table.shape
    if columns is not None and len(columns) != p:
        raise ValueError(f"{len(columns)} column names for {p} columns")
    if n < 2:
        raise ValueError(f"{n} row(s): a correlation needs at least 2")

    names = range(p) if columns is None else columns
    varies = np.zeros(p, dtype=bool)
    rows = max(1, _RANKING_ENTRIES // p)
    for start in range(0, n, rows):
        block = table[start : start + rows]
        if block.dtype.kind == "f" and not np.isfinite(block).all():
            row, column = np.argwhere(~np.isfinite(block))[0]
            raise ValueError(
                f"row {start + row} (the first is 0), column {names[column]!r}: "
                f"{block[row, column]}; a correlation needs every value: leave out the row or the "
                "column, or fill it in"
            )
        varies |= (block != table[0]).any(axis=0)
    if not allow_constant and not varies.all():
        column = int(np.argmin(varies))
        raise ValueError(
            f"column {names[column]!r}: constant ({table[0, column]}), so its correlation is not "
            "defined; leave it out"
        )
    return table


# Seconds to import scipy.stats, for the counter that `sort` takes from it. Both methods give the
# same bits, and on a device every message is a process of its own.
_LOADING = 0.3


def _gemm_is_quicker(n: int, p: int, loading: float = 0.0) -> bool:
    """Compare the seconds of both methods, by constants measured on one core with AVX-512."""
    gemm = n * n / 2 * (0.9e-9 * p + p * p / 90e9) + 8e-6 * n  # signs, products, calls
    sort = p * (p - 1) / 2 * (6e-6 + 26e-9 * n)  # calls, trees
    return gemm < sort + loading


class _Plan(NamedTuple):
    """How much is worked on at a time, to stay within ``block_bytes``."""

    width: int  # columns a tile
    ranked: int  # columns ranked at once
    rows: int  # pairs of rows a matrix product


def _plan(n: int, p: int, method: str, block_bytes: int) -> _Plan:
    entries = min(_RANKING_ENTRIES, block_bytes // (4 * _RANKING_BYTES))
    ranked = min(p, max(1, entries // n))
    left = block_bytes - _RANKING_BYTES * n * ranked
    pairs = min(n * (n - 1) // 2, _MOST_ROWS)
    if method == "sort":
        # A tile keeps order and ranks, sorted and not; a pair of columns its ranks and the tree.
        width, rows = min(p, (left - 40 * n) // (24 * n)), 0
    else:
        enough = min(pairs, _ENOUGH_ROWS)
        tiles = 1 if 4 * p * (p + n + enough) <= left else 2
        # width^2 products and, of each tile, ranks and signs, in float32: 4 bytes.
        half = tiles * (n + enough) / 2
        width = min(p, int(math.sqrt(half * half + max(left, 0) / 4) - half))
        rows = min(pairs, (left // (4 * max(width, 1)) - width) // tiles - n)
    if width < 1:
        need = 200 * n + 20_000
        raise ValueError(f"block_bytes={block_bytes}: too little for {n} rows, which need {need}")
    return _Plan(width, ranked, rows)


def _dense_ranks(values: NDArray[Any]) -> tuple[Ranks, Ranks, Ranks]:
    """Return order, sorted ranks and ranks (1, 2, ... without gaps) of every row of ``values``."""
    order = np.argsort(values, axis=1)
    ordered = np.take_along_axis(values, order, axis=1)
    sorted_ranks = np.ones(values.shape, dtype=np.intp)
    np.cumsum(ordered[:, 1:] != ordered[:, :-1], axis=1, out=sorted_ranks[:, 1:])
    sorted_ranks[:, 1:] += 1
    ranks = np.empty_like(sorted_ranks)
    np.put_along_axis(ranks, order, sorted_ranks, axis=1)
    return order, sorted_ranks, ranks


def _ranked_parts(
    table: NDArray[Any], tile: slice, plan: _Plan
) -> Iterator[tuple[slice, tuple[Ranks, Ranks, Ranks]]]:
    """Yield places within a tile, and the ranks of the columns there, one column a row."""
    for start in range(tile.start, tile.stop, plan.ranked):
        stop = min(tile.stop, start + plan.ranked)
        values = np.ascontiguousarray(table[:, start:stop].T)
        yield slice(start - tile.start, stop - tile.start), _dense_ranks(values)


def _count_by_gemm(
    table: NDArray[Any], first: slice, second: slice, plan: _Plan, counts: Matrix
) -> None:
    n = table.shape[0]
    ranks = []
    for tile in (first,) if first == second else (first, second):
        tile_ranks = np.empty((n, tile.stop - tile.start), dtype=np.float32)
        for place, (_, _, part) in _ranked_parts(table, tile, plan):
            tile_ranks[:, place] = part.T
        ranks.append(tile_ranks)
    signs = [np.empty((plan.rows, part.shape[1]), dtype=np.float32) for part in ranks]
    product = np.empty(counts.shape, dtype=np.float32)
    counts[:] = 0.0
    for filled, runs in _pair_blocks(n, plan.rows):
        for part, sign in zip(ranks, signs, strict=True):
            for row, later, place in runs:
                # Ranks are whole numbers: clipping their difference is its sign, and vectorised.
                np.subtract(part[later], part[row], out=sign[place])
                np.clip(sign[place], -1.0, 1.0, out=sign[place])
        # On the diagonal both factors are one array, and numpy does half the work (SYRK).
        np.matmul(signs[0][:filled].T, signs[-1][:filled], out=product)
        counts += product


def _pair_blocks(n: int, rows: int) -> Iterator[tuple[int, list[tuple[int, slice, slice]]]]:
    """Yield all pairs of rows in blocks of ``rows``: row, later rows, their place in the block."""
    runs: list[tuple[int, slice, slice]] = []
    filled = 0
    for row in range(n - 1):
        start = row + 1
        while start < n:
            size = min(n - start, rows - filled)
            runs.append((row, slice(start, start + size), slice(filled, filled + size)))
            start, filled = start + size, filled + size
            if filled == rows:
                yield filled, runs
                runs, filled = [], 0
    if runs:
        yield filled, runs


def _count_by_sort(
    table: NDArray[Any], first: slice, second: slice, plan: _Plan, counts: Matrix
) -> None:
    n = table.shape[0]
    pairs = n * (n - 1) // 2
    order, x = (np.empty((first.stop - first.start, n), dtype=np.intp) for _ in range(2))
    y = np.empty((second.stop - second.start, n), dtype=np.intp)
    for place, (part_order, part_sorted, part_ranks) in _ranked_parts(table, first, plan):
        order[place], x[place] = part_order, part_sorted
        if first == second:
            y[place] = part_ranks
    if first != second:
        for place, (_, _, part_ranks) in _ranked_parts(table, second, plan):
            y[place] = part_ranks
    untied_x, untied_y = ([_untied_pairs(ranks) for ranks in side] for side in (x, y))
    for j in range(x.shape[0]):
        if first == second:
            counts[j, j] = untied_x[j]
        for k in range(j + 1 if first == second else 0, y.shape[0]):
            counts[j, k] = _balance(x[j], y[k][order[j]], untied_x[j], untied_y[k], pairs)
            if first == second:
                counts[k, j] = counts[j, k]


def _untied_pairs(ranks: Ranks) -> int:
    sizes = np.bincount(ranks)
    return int(ranks.size * (ranks.size - 1) // 2 - np.sum(sizes * (sizes - 1) // 2))


@cache
def _compiled_discordance() -> Callable[[Ranks, Ranks], int] | None:
    """Return scipy's counter of discordant pairs (dense ranks, x sorted), a private name of its."""
    try:
        return import_module("scipy.stats._stats")._kendall_dis
    except (ImportError, AttributeError):
        return None


def _balance(x: Ranks, y: Ranks, untied_x: int, untied_y: int, pairs: int) -> int:
    """Return concordant minus discordant pairs of dense ranks, where ``x`` is sorted."""
    if untied_x == 0 or untied_y == 0:
        return 0
    discordant = _compiled_discordance()
    if discordant is None:
        from scipy.stats import kendalltau

        tau = kendalltau(x, y).statistic
        return round(float(tau) * math.sqrt(untied_x) * math.sqrt(untied_y))
    if untied_x < pairs and untied_y < pairs:
        # Pairs tied in both are unknown: count concordant pairs too, as discordant with -y.
        return discordant(x, y.max() + 1 - y) - discordant(x, y)
    return untied_x + untied_y - pairs - 2 * discordant(x, y)


def _normalise(counts: Matrix, pairs: int | None, block_bytes: int) -> None:
    """Divide c by the number of pairs (tau_a) or by sqrt(c_jj c_kk) (tau_b), in place."""
    untied = np.diagonal(counts).copy()
    rows = max(1, block_bytes // (32 * untied.size))
    for start in range(0, untied.size, rows):
        block = counts[start : start + rows]
        block /= pairs or np.sqrt(np.outer(untied[start : start + rows], untied))
    np.fill_diagonal(counts, 1.0)
