"""A client's held-out scores, and the mean of many: plain numbers, without Flower."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class ScoreTable:
    """A client's scores.

    Attributes
    ----------
    count : how many records were held out
    measures : what is measured, a name a column
    lower : the measures of which less is better
    main : the measure that a person reads first
    judge : the measure by which settings are chosen
    rows : of this result and of what it is compared with, a number a measure; nan where there is
        none
    """

    count: int
    measures: tuple[str, ...]
    lower: tuple[str, ...]
    main: str
    judge: str
    rows: Mapping[str, tuple[float, ...]]


def mean_rows(tables: list[ScoreTable]) -> dict[str, list[float | None]]:
    """Return the mean of every row that some table has, clients counting by their records.

    None where no client has a number. All tables have the same measures.
    """
    names = dict.fromkeys(name for table in tables for name in table.rows)
    found: dict[str, list[float | None]] = {}
    for name in names:
        there = [table for table in tables if name in table.rows]
        found[name] = []
        for place in range(len(tables[0].measures)):
            pairs = [(table.rows[name][place], table.count) for table in there]
            pairs = [(value, count) for value, count in pairs if math.isfinite(value)]
            whole = sum(count for _, count in pairs)
            mean = math.fsum(value * count for value, count in pairs) / whole if whole else None
            found[name].append(mean)
    return found
