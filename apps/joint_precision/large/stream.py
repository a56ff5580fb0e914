"""Correlations of many variables tile by tile, and those of them that are large enough to matter.

A correlation matrix of p = 20,000 variables has 3.2 GB. What screening asks of it is only which
entries are above a threshold, so the upper triangle goes by in tiles and the few entries above
are kept: neither S nor tau is ever held. Kendall's counts are whole numbers, so that the entries
are the dense matrix's to the last bit.

Most of Kendall's tiles need not even be counted where the threshold is high. Let A_j be the signs
of a column's differences, (n, n) and antisymmetric. The part of A_j of the form u 1' - 1 u' has
u = A_j 1 / n, ranks but for a constant, and what is left is orthogonal to every such part, so

    |c_jk - g_jk| <= sqrt((c_jj - g_jj) (c_kk - g_kk)),    g_jk = (A_j 1)'(A_k 1) / n

with one thin matrix product for all g. Without ties this is Daniels's inequality between Kendall's
tau and Spearman's rho (1950); with ties it holds as well. It leaves out nothing below tau = 1/3.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from trellis.privacy.numerics import rankdata

from ..correlation import KINDS, cosine_factors, latent_from_spearman, latent_from_tau
from ..counting import chosen_method, concordance_tiles, count_pairs, tiles, untied_pairs
from ..kendall import checked_table

Matrix = NDArray[np.float64]
Vector = NDArray[np.float64]
Indices = NDArray[np.int32]

STREAM_BYTES = 256 << 20
MOST_BYTES = 1 << 30
_BYTES_AN_ENTRY = 16
# Candidates are counted one by one where they are fewer than this share of a tile.
_FEW = 0.05
_ROUNDING = 1e-12


class Entries(NamedTuple):
    """Entries of the upper triangle of a symmetric matrix, row by row.

    Attributes
    ----------
    rows, columns : (q,), rows < columns
    values : (q,)
    """

    rows: Indices
    columns: Indices
    values: Vector


class TooManyEntries(ValueError):
    """More entries are above the threshold than there is memory for."""


def correlation_tiles(
    X: ArrayLike,
    kind: str,
    *,
    columns: Sequence[str] | None = None,
    block_bytes: int = STREAM_BYTES,
) -> Iterator[tuple[slice, slice, Matrix]]:
    """Yield the latent correlations of ``X`` (n, p) in tiles: rows, columns and S there.

    The tiles cover the upper triangle; those on the diagonal are whole.

    Parameters
    ----------
    kind : ``kendall``, ``spearman`` or ``pearson``
    block_bytes : memory to use at most, beyond ``X``, its ranks or a copy, and a tile
    """
    if kind == "kendall":
        table = checked_table(X, columns)
        untied = untied_pairs(table)
        for first, second, counted in concordance_tiles(table, chosen_method(table), block_bytes):
            tile = counted()
            tile /= np.sqrt(np.outer(untied[first], untied[second]))
            yield first, second, _unit_diagonal(latent_from_tau(tile), first, second)
        return
    for first, second, tile in _cosine_tiles(X, kind, columns, block_bytes):
        yield first, second, _unit_diagonal(tile, first, second)


def large_entries(
    X: ArrayLike,
    kind: str,
    threshold: float,
    *,
    columns: Sequence[str] | None = None,
    block_bytes: int = STREAM_BYTES,
    most_bytes: int = MOST_BYTES,
    progress: Callable[[float], None] | None = None,
) -> Entries:
    """Return the latent correlations of ``X`` (n, p) whose size is above ``threshold``.

    Parameters
    ----------
    threshold : >= 0
    block_bytes : memory to use at most, beyond ``X``, its ranks or a copy, and what is returned
    most_bytes : of what is returned
    progress : told the share of the pairs that is done, after every tile

    Raises
    ------
    TooManyEntries
        Where what is above the threshold does not fit into ``most_bytes``.
    """
    if not threshold >= 0.0:
        raise ValueError(f"threshold={threshold}: must be >= 0")
    if kind not in KINDS:
        raise ValueError(f"correlation={kind!r}: choose one of {', '.join(KINDS)}")
    table = checked_table(X, columns)
    p = table.shape[1]
    if kind == "kendall":
        found = _large_kendall(table, threshold, block_bytes)
    else:
        found = _large_cosines(table, kind, threshold, columns, block_bytes)
    kept: list[Entries] = []
    size, done, pairs = 0, 0.0, p * (p - 1) / 2
    for tile_pairs, part in found:
        size, done = size + part.values.size, done + tile_pairs
        if size * _BYTES_AN_ENTRY > most_bytes:
            expected = size * pairs / max(done, 1.0)
            raise TooManyEntries(
                f"about {expected:,.0f} of {pairs:,.0f} correlations are above {threshold:g}, "
                f"which needs {expected * _BYTES_AN_ENTRY / 1e9:.1f} GB; {most_bytes / 1e9:.1f} GB "
                "are allowed. Raise lambda1"
            )
        kept.append(part)
        if progress is not None:
            progress(done / max(pairs, 1.0))
    rows, columns_, values = (np.concatenate(parts) for parts in zip(*kept, strict=True))
    order = np.lexsort((columns_, rows))
    return Entries(rows[order], columns_[order], values[order])


def _large_kendall(
    table: NDArray[Any], threshold: float, block_bytes: int
) -> Iterator[tuple[int, Entries]]:
    untied = untied_pairs(table)
    scale = np.sqrt(untied)
    least = (1.0 - _ROUNDING) * 2.0 / np.pi * np.arcsin(min(threshold, 1.0))
    filtering = _Filter.of(table, untied, least)
    for first, second, counted in concordance_tiles(table, chosen_method(table), block_bytes):
        some = None if filtering is None else filtering.candidates(first, second)
        size = (first.stop - first.start) * (second.stop - second.start)
        if some is not None and some[0].size <= _FEW * size:
            rows, columns = some
            counts = count_pairs(table, first.start + rows, second.start + columns)
        else:
            tile = counted()
            high = np.abs(tile) > least * np.outer(scale[first], scale[second])
            rows, columns = _upper(high, first, second)
            counts = tile[rows, columns]
        rows, columns = rows + first.start, columns + second.start
        values = latent_from_tau(counts / np.sqrt(untied[rows] * untied[columns]))
        yield _pairs(first, second), _above(rows, columns, values, threshold)


class _Filter(NamedTuple):
    """What tells of two columns, without counting, that their tau is not large."""

    ranks: NDArray[np.float32]  # (n, p) A_j 1: whole numbers
    scale: Vector  # sqrt(c_jj)
    rest: Vector  # sqrt(c_jj - g_jj)
    least: float

    @classmethod
    def of(cls, table: NDArray[Any], untied: NDArray[np.int64], least: float) -> _Filter | None:
        """Return the filter, or None where it could leave out nothing."""
        n = len(table)
        ranks = np.empty(table.shape, dtype=np.float32)
        for start in range(0, table.shape[1], 256):
            part = slice(start, start + 256)
            ranks[:, part] = 2.0 * rankdata(table[:, part]) - (n + 1)
        own = np.einsum("nj,nj->j", ranks, ranks, dtype=np.float64) / n
        rest = np.sqrt(np.maximum(untied - own, 0.0))
        scale = np.sqrt(untied)
        useful = least > float(np.min(rest / scale)) ** 2
        return cls(ranks, scale, rest, least) if useful else None

    def candidates(self, first: slice, second: slice) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """Return the pairs of a tile, by place in it, whose tau may be above the least."""
        n = len(self.ranks)
        gradients = self.ranks[:, first].T @ self.ranks[:, second]
        np.abs(gradients, out=gradients)
        # float32 sums n products of whole numbers below n.
        slack = n * n * np.finfo(np.float32).eps * n
        bound = self.least * np.outer(self.scale[first], self.scale[second])
        bound -= np.outer(self.rest[first], self.rest[second])
        return _upper(gradients > bound * n - slack * n, first, second)


def _large_cosines(
    table: NDArray[Any],
    kind: str,
    threshold: float,
    names: Sequence[str] | None,
    block_bytes: int,
) -> Iterator[tuple[int, Entries]]:
    for first, second, tile in _cosine_tiles(table, kind, names, block_bytes):
        rows, columns = _upper(np.abs(tile) > threshold, first, second)
        values = tile[rows, columns]
        found = _above(rows + first.start, columns + second.start, values, threshold)
        yield _pairs(first, second), found


def _cosine_tiles(
    X: ArrayLike, kind: str, names: Sequence[str] | None, block_bytes: int
) -> Iterator[tuple[slice, slice, Matrix]]:
    factors = cosine_factors(X, kind, names)
    p = factors.shape[1]
    width = max(1, int(np.sqrt(block_bytes / (8 * 3))))
    for first, second in tiles(p, width):
        tile = factors[:, first].T @ factors[:, second]
        np.clip(tile, -1.0, 1.0, out=tile)
        yield first, second, latent_from_spearman(tile) if kind == "spearman" else tile


def _above(
    rows: NDArray[np.intp], columns: NDArray[np.intp], values: Vector, threshold: float
) -> Entries:
    large = np.abs(values) > threshold
    return Entries(rows[large].astype(np.int32), columns[large].astype(np.int32), values[large])


def _upper(
    mask: NDArray[np.bool_], first: slice, second: slice
) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Return where a tile's mask is true, above the diagonal of the whole."""
    rows, columns = np.nonzero(mask)
    if first == second:
        above = rows < columns
        rows, columns = rows[above], columns[above]
    return rows, columns


def _pairs(first: slice, second: slice) -> int:
    size = first.stop - first.start
    return size * (size - 1) // 2 if first == second else size * (second.stop - second.start)


def _unit_diagonal(tile: Matrix, first: slice, second: slice) -> Matrix:
    if first == second:
        np.fill_diagonal(tile, 1.0)
    return tile
