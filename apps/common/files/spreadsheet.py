"""csv files for people: names that clients chose must not become formulas in a spreadsheet."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence

# What spreadsheets take for the beginning of a formula, wide forms included.
_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠")  # noqa: RUF001


def csv_text(rows: Iterable[Sequence[object]], end: str = "\n") -> str:
    """Return rows as csv; a text that a spreadsheet would take for a formula begins with '."""
    text = io.StringIO()
    csv.writer(text, lineterminator=end).writerows(map(cell, row) for row in rows)
    return text.getvalue()


def cell(value: object) -> object:
    """Return what to write for a value: numbers, and texts of numbers, as they are."""
    if not isinstance(value, str) or not value.startswith(_FORMULA):
        return value
    try:
        float(value)
    except ValueError:
        return f"'{value}"
    return value
