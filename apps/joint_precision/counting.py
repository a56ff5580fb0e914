"""Concordant minus discordant pairs of rows between columns, three ways: see `kendall`.

A tile is some columns against some others. `_plan` says how wide tiles are and how much is worked
on at a time, to stay within memory; `concordance_tiles` yields them; ``_count_by_...`` fills one.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator
from functools import cache, partial
from importlib import import_module
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .large import bits

Matrix = NDArray[np.float64]
Ranks = NDArray[np.intp]

BLOCK_BYTES = 64 << 20

# Pairs of rows a matrix product, at least and at most: 1024 cost up to a fifth more than 4096, and
# more than that leave the cache. float32 holds every whole number up to 2^24: the sums are exact.
_ENOUGH_ROWS, _MOST_ROWS = 1024, 4096
# An entry being ranked takes its value, order, sorted value and ranks, beside those ranked before.
_RANKING_BYTES = 80
RANKING_ENTRIES = 1 << 16
# Seconds and rows from which counting bits is worth a look; below 300 rows products are as quick.
_MANY, _ROWS_FOR_BITS = 2.0, 300


def tiles(p: int, width: int) -> Iterator[tuple[slice, slice]]:
    """Yield the tiles of an upper triangle of p columns, row by row."""
    for start in range(0, p, width):
        first = slice(start, min(p, start + width))
        for other in range(start, p, width):
            yield first, slice(other, min(p, other + width))


def count_into(counts: Matrix, table: NDArray[Any], method: str, block_bytes: int) -> None:
    """Write c of all pairs of columns into ``counts`` (p, p)."""
    n, p = table.shape
    if method == "bits":
        bits.prepare(n, p * p / 2)
    plan = _plan(n, p, method, block_bytes)
    for first, second in tiles(p, plan.width):
        _COUNTS[method](table, first, second, plan, counts[first, second])
        if second != first:
            counts[second, first] = counts[first, second].T


def concordance_tiles(
    table: NDArray[Any], method: str, block_bytes: int
) -> Iterator[tuple[slice, slice, Callable[[], Matrix]]]:
    """Yield the tiles of the upper triangle of c, each with what counts it, in bounded memory.

    A tile that nobody calls for costs nothing.
    """
    n, p = table.shape
    # Half for the counts and what is made of them: an array of a tile's size or three.
    plan = _plan(n, p, method, block_bytes // 2)
    widest = max(1, math.isqrt(block_bytes // (2 * 8 * 4)))
    plan = plan._replace(width=min(plan.width, widest))
    if method == "bits":
        bits.prepare(n, p * p / 2)

    def counted(first: slice, second: slice) -> Matrix:
        counts = np.empty((first.stop - first.start, second.stop - second.start))
        _COUNTS[method](table, first, second, plan, counts)
        return counts

    for first, second in tiles(p, plan.width):
        yield first, second, partial(counted, first, second)


def chosen_method(table: NDArray[Any]) -> str:
    """Return the method expected to be quickest for all pairs of columns of ``table``."""
    n, p = table.shape
    loading = 0.0 if "scipy.stats" in sys.modules else _LOADING
    if not _gemm_is_quicker(n, p, loading):
        return "sort"
    # Below a few seconds what is gained is less than looking for ties takes.
    many = bits.HAS_NUMPY and bits.seconds(n, p * p / 2) > _MANY and n >= _ROWS_FOR_BITS
    return "bits" if many and not has_ties(table) else "gemm"


def has_ties(table: NDArray[Any]) -> bool:
    """Return whether two rows are equal in any column."""
    n, p = table.shape
    width = max(1, RANKING_ENTRIES // n)
    parts = (np.sort(table[:, start : start + width], axis=0) for start in range(0, p, width))
    return any(bool((part[1:] == part[:-1]).any()) for part in parts)


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
    rows: int  # pairs of rows a matrix product, or columns whose bits are packed at once


def _plan(n: int, p: int, method: str, block_bytes: int) -> _Plan:
    entries = min(RANKING_ENTRIES, block_bytes // (4 * _RANKING_BYTES))
    ranked = min(p, max(1, entries // n))
    left = block_bytes - _RANKING_BYTES * n * ranked
    pairs = min(n * (n - 1) // 2, _MOST_ROWS)
    if method == "sort":
        # A tile keeps order and ranks, sorted and not; a pair of columns its ranks and the tree.
        width, rows = min(p, (left - 40 * n) // (24 * n)), 0
    elif method == "bits":
        # Both bits of both tiles; and columns being packed, a byte for every pair of rows.
        rows = max(1, min(64, left // 4 // (n * n)))
        left -= rows * n * n
        width = min(p, left // (2 * (2 * 8 * bits.words(n) + 2 * n)))
    else:
        enough = min(pairs, _ENOUGH_ROWS)
        tiles = 1 if 4 * p * (p + n + enough) <= left else 2
        # width^2 products and, of each tile, ranks and signs, in float32: 4 bytes.
        half = tiles * (n + enough) / 2
        width = min(p, int(math.sqrt(half * half + max(left, 0) / 4) - half))
        rows = min(pairs, (left // (4 * max(width, 1)) - width) // tiles - n)
    if width < 1:
        need = 200 * n + 20_000 + (8 * n * n if method == "bits" else 0)
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


def _count_by_bits(
    table: NDArray[Any], first: slice, second: slice, plan: _Plan, counts: Matrix
) -> None:
    found = []
    for tile in (first,) if first == second else (first, second):
        ranks = np.empty((tile.stop - tile.start, table.shape[0]), dtype=np.intp)
        for place, (_, _, part) in _ranked_parts(table, tile, plan):
            ranks[place] = part
        found.append(bits.sign_bits(ranks, plan.rows))
    bits.count(found[0], found[-1], table.shape[0], first == second, counts)


_COUNTS = {"gemm": _count_by_gemm, "sort": _count_by_sort, "bits": _count_by_bits}
METHODS = tuple(_COUNTS)


def untied_pairs(table: NDArray[Any]) -> NDArray[np.int64]:
    """Return c_jj (p,): how many pairs of rows every column does not tie."""
    n, p = table.shape
    found = np.empty(p, dtype=np.int64)
    whole = slice(0, p)
    for place, (_, ranks, _) in _ranked_parts(table, whole, _plan(n, p, "sort", BLOCK_BYTES)):
        found[place] = [_untied_pairs(column) for column in ranks]
    return found


def count_pairs(
    table: NDArray[Any], rows: NDArray[np.intp], columns: NDArray[np.intp]
) -> NDArray[np.float64]:
    """Return c of some pairs of columns (q,), one by one."""
    n = table.shape[0]
    found = np.empty(rows.size)
    order, x, untied = np.zeros(0, dtype=np.intp), np.zeros(0, dtype=np.intp), 0
    last = -1
    for place in np.argsort(rows, kind="stable"):
        j, k = int(rows[place]), int(columns[place])
        if j != last:
            (order,), (x,), _ = _dense_ranks(table[None, :, j])
            untied, last = _untied_pairs(x), j
        y = _dense_ranks(table[None, :, k])[2][0]
        found[place] = _balance(x, y[order], untied, _untied_pairs(y), n * (n - 1) // 2)
    return found


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
