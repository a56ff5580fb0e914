"""How a client's csv file separates its cells, and which sign its decimals have.

The header decides on the separator, and nothing else does: with ``privacy = "dp"`` no record may
decide how a file is read. Where cells are not separated by commas, a comma in a cell is a decimal
comma, each cell by itself.
"""

from __future__ import annotations

import csv
import re

_WITH_COMMA = re.compile(r"\s*[-+]?[\d.]+(,\d+)+(\.\d*)?\s*")
_QUOTED = re.compile(r'"(?:[^"]|"")*"')
# By what they are called in an error.
SEPARATORS = {",": "commas", ";": "semicolons", "\t": "tabs"}


class Ambiguous(ValueError):
    """A header that can be split in several ways."""


def separator_of(header: str) -> str:
    """Return what separates the names in the first line of a file.

    Raises
    ------
    Ambiguous
        Where two separators are there, outside quotes: says what was seen and what is wanted.
    """
    bare = _QUOTED.sub("", header)  # what is quoted belongs to a name
    found = [s for s in SEPARATORS if s in bare.strip()]
    if len(found) > 1 and "\t" in found:
        names = [name.strip() for s in found if s != "\t" for name in bare.split(s)]
        if not any("\t" in name for name in names):
            found.remove("\t")  # no more than space around the names
    if len(found) > 1:
        seen = " and ".join(SEPARATORS[s] for s in found)
        raise Ambiguous(
            f"the header {header.strip()[:200]!r} has {seen}; separate names and cells by one of "
            "commas, semicolons or tabs, and put a name that contains one in quotes"
        )
    return next(iter(found), ",")


def is_blank(line: str, separator: str) -> bool:
    """Return whether a line is no record: one whose cells are all missing is."""
    return separator not in line and not line.strip()


def split(line: str, separator: str) -> list[str]:
    """Return the cells of one line; none where it is no line of csv."""
    try:
        return next(csv.reader([line], delimiter=separator), [])
    except csv.Error:
        return []


def with_points(cells: str, separator: str) -> str:
    """Return a line or a cell with decimal points in the place of decimal commas."""
    return cells if separator == "," else cells.replace(",", ".")


def without(line: str, places: list[int], width: int, separator: str) -> str:
    """Return a line with 0 in these of its cells; as it is where it has not ``width`` of them."""
    cells = split(line, separator)
    if len(cells) != width:
        return line
    for place in places:
        cells[place] = "0"
    return separator.join(f'"{cell}"' if separator in cell else cell for cell in cells)


def two_signs(lines: list[str], separator: str) -> tuple[int, int] | None:
    """Return a row with a decimal comma and one with a decimal point, counted from 1, if any.

    A file that has both may mean thousands by one of them.
    """
    if separator == ",":
        return None
    comma, point = (
        next((number for number, line in enumerate(lines, start=1) if sign in line), 0)
        for sign in (",", ".")
    )
    return (comma, point) if comma and point else None


def other_separator(line: str, width: int, separator: str) -> str:
    """Return what else would give a row its ``width`` cells, in words; nothing if nothing would."""
    fitting = [s for s in SEPARATORS if s != separator and len(split(line, s)) == width > 1]
    if fitting:
        return (
            f"; the header is separated by {SEPARATORS[separator]}, this row by "
            f"{SEPARATORS[fitting[0]]}"
        )
    if separator == "," and len(split(line, ",")) == 2 * width:
        return "; decimal commas need semicolons or tabs between the cells"
    return ""


def not_a_number(cell: str) -> str:
    """Return in words what is wrong with a cell that is no number, and what to do."""
    if _WITH_COMMA.fullmatch(cell):
        return (
            "not a number; write decimals with a point (or separate cells by semicolons or tabs) "
            "and nothing between thousands"
        )
    return "not a number; write labels and other kinds of two as 0 and 1, or drop the column"
