"""Which of many clients are drawn and tabled, and the words that say so.

One rule everywhere: clients are put in an order that the page names, such as from the closest to
the consensus to the furthest. As many as there is room for are taken: all where they fit; else, of
drawings, places spread evenly over that order, both ends among them; of a table's rows both ends,
ten each, and places spread evenly between.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from trellis.apps.common.files.spreadsheet import csv_text
from trellis.apps.common.results import write_atomically
from trellis.apps.pages.page import Table

MOST_ROWS = 50  # of a table with a row a client; a longer one nobody reads
ALL_DRAWN, FEW_DRAWN = 6, 4  # clients: so many are all drawn; of more, so many
_ENDS = 10

Places = NDArray[np.intp]


def ranked(values: ArrayLike) -> Places:
    """Return places (n,) by falling value; equal ones as they came, what is not a number last."""
    numbers = np.asarray(values, dtype=np.float64)
    return np.argsort(np.where(np.isnan(numbers), np.inf, -numbers), kind="stable")


def drawn(values: ArrayLike, all_drawn: int = ALL_DRAWN, few: int = FEW_DRAWN) -> Places:
    """Return the clients to draw: all in their own order, or a few by falling value."""
    order = ranked(values)
    if order.size <= all_drawn:
        return np.arange(order.size)
    return order[np.linspace(0, order.size - 1, few).round().astype(np.intp)]


def shown(values: ArrayLike, also: ArrayLike = (), most: int = MOST_ROWS) -> Places:
    """Return the rows of a table: all in their own order, or some by falling value.

    ``also`` are rows that must be among them, such as the clients that are drawn.
    """
    order = ranked(values)
    if order.size <= most:
        return np.arange(order.size)
    between = np.linspace(_ENDS, order.size - _ENDS - 1, most - 2 * _ENDS).round()
    ranks = np.concatenate([np.arange(_ENDS), between, np.arange(order.size - _ENDS, order.size)])
    kept = np.zeros(order.size, dtype=bool)
    kept[ranks.astype(np.intp)] = True
    kept |= np.isin(order, np.asarray(also, dtype=np.intp))
    return order[kept]


def table_of(
    columns: Mapping[str, Sequence[object]],
    rows: Places,
    caption: str,
    order: tuple[str, str],
    where: str,
    noun: str = "clients",
) -> Table:
    """Return a table of some rows of ``columns``; where there are more, the caption says which.

    Parameters
    ----------
    columns : header -> one value a row
    rows : the rows that are `shown`
    order : the two ends of the order, such as ("closest to the consensus", "furthest from it")
    where : what has all rows, such as ``clients.csv``
    """
    count = len(next(iter(columns.values())))
    lines = [[values[k] for values in columns.values()] for k in rows.tolist()]
    if len(lines) < count:
        which = (
            f"{len(lines):,} of {count:,} {noun}, in order: the ten {order[0]}, the ten "
            f"{order[1]}, and places spread evenly between. All are in {where}."
        )
        caption = f"{caption.strip()} {which}".strip()
    return Table(list(columns), lines, caption)


def first_of(values: ArrayLike, most: int = MOST_ROWS) -> Places:
    """Return all rows in their own order, or the ``most`` of largest value, the largest first."""
    order = ranked(values)
    return np.arange(order.size) if order.size <= most else order[:most]


def listed(words: Sequence[str], most: int = 12) -> str:
    """Return names in a row, and how many more there are."""
    more = f" and {len(words) - most:,} more" if len(words) > most else ""
    return ", ".join(words[:most]) + more


def write_table(path: Path, columns: Mapping[str, Sequence[Any]]) -> Path:
    """Write all rows as csv, one a client."""
    rows = zip(*columns.values(), strict=True)
    write_atomically(path, csv_text([list(columns), *rows]).encode())
    return path
