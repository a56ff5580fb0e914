"""Rows of results as words: the same on the screen and in the page."""

from __future__ import annotations

import math
from typing import Any

_UNKNOWN = "-"


def figure(value: float) -> str:
    """Return a number with three digits that count, whole ones grouped; a dash for none."""
    if not math.isfinite(value):
        return _UNKNOWN
    if value == 0.0:
        return "0"
    digits = max(0, 2 - math.floor(math.log10(abs(value))))
    return f"{value:,.{digits}f}"


def ratio_of(row: dict[str, Any]) -> str:
    """Return the ratio, and from where to where it went over the runs."""
    text = figure(row["ratio"])
    low, high = row.get("ratio_spread", (row["ratio"], row["ratio"]))
    if row.get("runs", 1) > 1 and math.isfinite(low):
        text += f" ({figure(low)} to {figure(high)} in {row['runs']} runs)"
    return text


def sides(row: dict[str, Any]) -> str:
    """Return how many cores ours and the peer kept busy, as in ``1 : 2``."""
    if "ours_cores" not in row:
        return _UNKNOWN
    return f"{row['ours_cores']} : {row['peer_cores']}"
