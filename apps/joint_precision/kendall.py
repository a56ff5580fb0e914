"""Kendall's tau between all columns of a table, exact, in bounded memory.

For X : (n, p) and s_j(r, r') = sign(X_rj - X_r'j), with all sums over the pairs of rows r < r',

    c_jk  = sum s_j s_k                     concordant minus discordant pairs, a whole number
    tau_a = c_jk / (n (n - 1) / 2)          a pair of rows tied in j or k counts 0
    tau_b = c_jk / sqrt(c_jj c_kk)          pairs tied in j (in k) leave the normaliser as well

c_jj is the number of pairs that column j does not tie, so without ties both are the same. (The
paper's factor is half of 2 / (n (n - 1)): it sums over ordered pairs.)

There are three ways to the same whole numbers, hence to the same bits:

``gemm``
    c = s's, a matrix product of signs in float32, O(n^2 p^2): quicker for few rows.
``sort``
    one pair of columns at a time by sorted ranks and a Fenwick tree, compiled in scipy,
    O(n log n p^2): quicker for many rows.

``bits``
    signs packed into bits and counted, see `large.bits`: quicker than products where there are many
    pairs of columns without ties, and much quicker where numba is installed.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .counting import BLOCK_BYTES, METHODS, RANKING_ENTRIES, chosen_method, count_into

Matrix = NDArray[np.float64]


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
    method : ``gemm``, ``sort``, ``bits``, or ``auto``, the one expected to be quickest
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
    if method not in ("auto", *METHODS):
        raise ValueError(f"method={method!r}: choose one of auto, {', '.join(METHODS)}")
    table = checked_table(X, columns, allow_constant=variant == "a")
    n, p = table.shape
    method = chosen_method(table) if method == "auto" else method
    counts = np.empty((p, p))  # whole numbers below 2^53
    count_into(counts, table, method, block_bytes)
    _normalise(counts, n * (n - 1) // 2 if variant == "a" else None, block_bytes)
    return counts


def checked_table(
    X: ArrayLike, columns: Sequence[str] | None = None, *, allow_constant: bool = False
) -> NDArray[Any]:
    """Return ``X`` as an (n, p) array of finite numbers, or refuse it by row and column."""
    # A mask the next line would drop in silence; whoever has one has loaded the module.
    if "numpy.ma" in sys.modules and np.ma.is_masked(X):
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
    rows = max(1, RANKING_ENTRIES // p)
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


def _normalise(counts: Matrix, pairs: int | None, block_bytes: int) -> None:
    """Divide c by the number of pairs (tau_a) or by sqrt(c_jj c_kk) (tau_b), in place."""
    untied = np.diagonal(counts).copy()
    rows = max(1, block_bytes // (32 * untied.size))
    for start in range(0, untied.size, rows):
        block = counts[start : start + rows]
        block /= pairs or np.sqrt(np.outer(untied[start : start + rows], untied))
    np.fill_diagonal(counts, 1.0)
