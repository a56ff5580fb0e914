"""The nearest graphs, and the graphs that are far from all, without solving all pairs.

D : (N, N). Of a graph i, let t_i be the k-th smallest of the distances that are solved, infinite
while there are fewer. t_i only falls, and a pair whose lower bound is above t_i is not among the k
nearest of i, nor tied with the k-th: it is never solved. Pairs are taken in the order of their
bounds, so that t_i falls early; a solved pair serves both its graphs. What is left open at the end
is above the k-th distance, so the answers, ties included, are those of the whole matrix.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..space import Matrix, Vector
from .partial import Flags, PartialDistances, Places

_STEP = 0.1  # of a graph's open pairs are taken before looking again, and one at least


@dataclass(frozen=True)
class Neighbours:
    """The nearest graphs of some graphs.

    Attributes
    ----------
    places : (Q, k), nearest first, of equally near ones the first; -1 where there are fewer
    distances : (Q, k), infinite where there are fewer
    share : of the pairs of different graphs that have been solved so far, 0 to 1
    """

    places: Places
    distances: Matrix
    share: float


def nearest(
    known: PartialDistances,
    k: int,
    *,
    queries: Places | None = None,
    allowed: Flags | None = None,
) -> Neighbours:
    """Return the k nearest graphs of each query, as the whole matrix would give them.

    Parameters
    ----------
    known : distances, of which more are solved as needed
    k : >= 1
    queries : (Q,) graphs; None asks for all
    allowed : (N, N), whether graph j may be a neighbour of graph i; None allows all others
    """
    rows, allowed = _checked(known, k, queries, allowed)
    _settle(known, k, rows, allowed)
    places, distances = _answers(known, k, rows, allowed)
    return Neighbours(places, distances, known.share)


def outliers(known: PartialDistances, k: int, count: int) -> Neighbours:
    """Return the graphs farthest from their k-th nearest graph, the farthest first.

    A graph is let go as soon as its k-th solved distance is below what ``count`` others have for
    sure. Of equally far ones the first in number come first.

    Parameters
    ----------
    known : distances, of which more are solved as needed
    k : >= 1, which neighbour's distance is a graph's score
    count : how many graphs

    Returns
    -------
    Places (count, 1) and scores (count, 1).
    """
    rows, allowed = _checked(known, k, None, None)
    if k >= len(known):
        raise ValueError(f"k={k}: {len(known)} graphs have {max(0, len(known) - 1)} neighbours")
    if count < 1:
        raise ValueError(f"count={count}: must be >= 1")
    _settle(known, k, rows, allowed, most=count)
    values, bounds = (np.where(allowed, part, np.nan) for part in known.between(rows))
    # The scores of graphs that were let go are not known; they are below those that count.
    scores, least = _kth(values, k), _kth(bounds, k)
    sure = np.where(scores == least, scores, -np.inf)
    order = np.argsort(-sure, kind="stable")[:count].astype(np.int64)
    return Neighbours(order[:, None], scores[order, None], known.share)


def _checked(
    known: PartialDistances, k: int, queries: Places | None, allowed: Flags | None
) -> tuple[Places, Flags]:
    count = len(known)
    if k < 1:
        raise ValueError(f"k={k}: must be >= 1")
    rows = np.arange(count) if queries is None else np.asarray(queries, dtype=np.int64)
    if rows.ndim != 1 or (rows.size and not (rows.min() >= 0 and rows.max() < count)):
        raise ValueError(f"queries: numbers of graphs, 0 to {count - 1}, are needed")
    if allowed is not None and np.shape(allowed) != (count, count):
        raise ValueError(f"allowed: shape {np.shape(allowed)}, ({count}, {count}) is needed")
    others = ~np.eye(count, dtype=bool)
    return rows, others if allowed is None else others & np.asarray(allowed, dtype=bool)


def _settle(
    known: PartialDistances, k: int, rows: Places, allowed: Flags, *, most: int = 0
) -> None:
    """Solve pairs until nothing that is open can change the k nearest of ``rows``.

    With ``most``, of the rows with the largest k-th distance only.
    """
    rows = np.unique(rows)
    try:
        while rows.size:
            values, bounds = known.between(rows)
            values = np.where(allowed[rows], values, np.nan)
            limits = _kth(values, k)
            open_ = allowed[rows] & np.isnan(values) & (bounds <= limits[:, None])
            if 0 < most <= len(rows):
                least = _kth(np.where(allowed[rows], bounds, np.nan), k)
                open_ &= limits[:, None] >= -np.partition(-least, most - 1)[most - 1]
            known.tell(_settled(len(known), rows, open_))
            wanting = open_.any(axis=1)
            if not wanting.any():
                break
            missing = k - np.sum(~np.isnan(values), axis=1)
            at, pairs = _next(rows, open_, bounds, missing)
            known.solve(pairs, limits[at])
            # A row without open pairs stays so; among the farthest it still counts for others.
            rows = rows if most else rows[wanting]
    finally:
        known.close()


def _next(
    rows: Places, open_: Flags, bounds: Matrix, missing: Places
) -> tuple[Places, NDArray[np.int64]]:
    """Return the open pairs with the least bounds: whose turn they are, and the pairs."""
    left = open_.sum(axis=1)
    some = np.ceil(_STEP * left).astype(np.int64)
    take = np.minimum(left, np.where(missing > 0, missing, some))
    order = np.argsort(np.where(open_, bounds, np.inf), axis=1, kind="stable")
    chosen = np.arange(order.shape[1]) < take[:, None]
    at, place = np.nonzero(chosen)
    return at, np.column_stack([rows[at], order[at, place]])


def _settled(count: int, rows: Places, open_: Flags) -> int:
    """Return how many of the pairs are not open for any row."""
    whole = np.zeros((count, count), dtype=bool)
    whole[rows] = open_
    return count * (count - 1) // 2 - int(np.triu(whole | whole.T, k=1).sum())


def _kth(values: Matrix, k: int) -> Vector:
    """Return the k-th smallest number of each row, infinite where there are fewer."""
    if values.shape[1] < k:
        return np.full(len(values), np.inf)
    filled = np.where(np.isnan(values), np.inf, values)
    return np.partition(filled, k - 1, axis=1)[:, k - 1]


def _answers(
    known: PartialDistances, k: int, rows: Places, allowed: Flags
) -> tuple[Places, Matrix]:
    values = known.between(rows)[0]
    filled = np.where(np.isnan(values) | ~allowed[rows], np.inf, values)
    order = np.argsort(filled, axis=1, kind="stable")[:, :k].astype(np.int64)
    distances = np.take_along_axis(filled, order, axis=1)
    short = max(0, k - order.shape[1])
    places = np.where(np.isfinite(distances), order, -1)
    return (
        np.pad(places, ((0, 0), (0, short)), constant_values=-1),
        np.pad(distances, ((0, 0), (0, short)), constant_values=np.inf),
    )
