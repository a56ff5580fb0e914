"""The metrics of all rounds so far, eight bytes a number.

A dictionary a round would take about a kilobyte. Rounds have the same names again and again, so
these are kept once: a row is ``[kind, value, value, ...]`` in an array of float64, and ``kind``
numbers the tuple of its names. Which names a row has, and in which order, is kept as it was.
Arrays are blocks of 32 kB: one that grew to megabytes would leave a hole wherever it had been.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Iterable, Iterator, Sequence
from typing import overload

Row = dict[str, float]

_BLOCK = 4096  # numbers


class Rows(Sequence[Row]):
    """A list of rows to which some are added, and of which only the last can be changed.

    A row that is taken out is a dictionary of its own: put it back (``rows[-1] = row``) to change
    the last.
    """

    def __init__(self, rows: Iterable[Row] = ()) -> None:
        self.kinds: list[tuple[str, ...]] = []
        self._numbers: dict[tuple[str, ...], int] = {}
        self._blocks: list[array[float]] = []
        # Of every row: its block times the block's length, and its place in that.
        self._begins = array("Q")
        for row in rows:
            self.append(row)

    def append(self, row: Row) -> None:
        """Add a round's metrics."""
        names = tuple(row)
        if names not in self._numbers:
            self._numbers[names] = len(self.kinds)
            self.kinds.append(names)
        self._add(array("d", [self._numbers[names], *map(float, row.values())]))

    def _add(self, values: array[float]) -> None:
        if not self._blocks or len(self._blocks[-1]) + len(values) > _BLOCK:
            self._blocks.append(array("d"))
        last = self._blocks[-1]
        self._begins.append((len(self._blocks) - 1) * _BLOCK + len(last))
        last.extend(values)

    def __len__(self) -> int:
        return len(self._begins)

    @overload
    def __getitem__(self, place: int) -> Row: ...

    @overload
    def __getitem__(self, place: slice) -> list[Row]: ...

    def __getitem__(self, place: int | slice) -> Row | list[Row]:
        if isinstance(place, slice):
            return [self[i] for i in range(*place.indices(len(self)))]
        number, begin = divmod(self._begins[place], _BLOCK)
        block = self._blocks[number]
        names = self.kinds[int(block[begin])]
        return dict(zip(names, block[begin + 1 : begin + 1 + len(names)], strict=True))

    def __setitem__(self, place: int, row: Row) -> None:
        if place not in (-1, len(self) - 1) or not self:
            raise IndexError(f"row {place} of {len(self)}: only the last can be changed")
        del self._blocks[-1][self._begins.pop() % _BLOCK :]
        self.append(row)

    def __iter__(self) -> Iterator[Row]:
        return (self[i] for i in range(len(self)))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]  # it grows

    def __repr__(self) -> str:
        return repr(list(self))

    # --- as bytes ----------------------------------------------------------------------------

    def content(self, first: int, last: int) -> bytes:
        """Return rows ``first`` to ``last - 1`` as little-endian float64, as they are kept."""
        if first >= last:
            return b""
        low, start = divmod(self._begins[first], _BLOCK)
        high, end = len(self._blocks) - 1, len(self._blocks[-1])
        if last < len(self):
            high, end = divmod(self._begins[last], _BLOCK)
        parts = self._blocks[low : high + 1]
        parts[-1] = parts[-1][:end]
        parts[0] = parts[0][start:]
        return b"".join(_little(part).tobytes() for part in parts)

    @classmethod
    def read(cls, kinds: Sequence[Sequence[str]], content: bytes) -> Rows:
        """Return the rows of a `content` that begins with the first, and of these `kinds`.

        Raises
        ------
        ValueError
            Where the bytes are no such rows.
        """
        found = cls()
        found.kinds = [tuple(names) for names in kinds]
        found._numbers = {names: number for number, names in enumerate(found.kinds)}
        values = array("d")
        values.frombytes(content)
        values = _little(values)
        place = 0
        while place < len(values):
            kind = values[place]
            if not 0 <= kind < len(found.kinds) or kind != int(kind):
                raise ValueError(f"number {place} is {kind}, which is no kind of row")
            end = place + 1 + len(found.kinds[int(kind)])
            if end > len(values):
                raise ValueError("the last row is not whole")
            found._add(values[place:end])
            place = end
        return found


def _little(values: array[float]) -> array[float]:
    """Return numbers with their bytes as on most machines; on these the very same array."""
    if sys.byteorder == "big":
        values = values[:]
        values.byteswap()
    return values
