"""Releases of one kind, round after round, kept as one: the first, and how often.

A client of a run with ten thousand rounds makes ten thousand releases that differ in nothing but
the whole numbers in their name, and the round. `Series` is such a sequence, `Account` all that one
client has released, in the order in which it was entered, each by its name only once. What is
returned is every single release, equal to what was entered: a total over them is the same to the
bit.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from operator import attrgetter
from typing import Any

from .events import PrivacyEvent

Numbers = tuple[int, ...]
Words = tuple[str, ...]

# A whole number that stands alone, and comes back as it was: in a random token there is none.
_NUMBER = re.compile(r"(?<![0-9A-Za-z])(?:0|[1-9][0-9]{0,14})(?![0-9A-Za-z])")
_ALIKE = attrgetter(
    "what", "epsilon", "delta", "sigma", "sensitivity", "mechanism", "noisers", "sampling"
)


def split(name: str) -> tuple[Words, Numbers]:
    """Return what stands around the whole numbers of a name, and these."""
    return tuple(_NUMBER.split(name)), tuple(map(int, _NUMBER.findall(name)))


@dataclass(slots=True)
class Series:
    """Releases that are alike.

    Attributes
    ----------
    first : the first of them
    times : how many
    steps : by how much each number of the name grows from one to the next, and last the round
    """

    first: PrivacyEvent
    times: int = 1
    steps: Numbers = ()

    def takes(self, event: PrivacyEvent) -> bool:
        """Make ``event`` the next of this series, where it can be; return whether it is."""
        if _ALIKE(event) != _ALIKE(self.first):
            return False
        words, numbers = split(self.first.name)
        others, theirs = split(event.name)
        if words != others:
            return False
        grown = tuple(b - a for a, b in zip(numbers, theirs, strict=True))
        grown += (event.round - self.first.round,)
        steps = self.steps or grown
        if min(steps) < 0 or not any(steps[:-1]):  # a name that does not grow names one release
            return False
        if grown != tuple(self.times * step for step in steps):
            return False
        self.steps, self.times = steps, self.times + 1
        return True

    def at(self, place: int) -> PrivacyEvent:
        """Return one of the releases, from 0."""
        if not place:
            return self.first
        words, numbers = split(self.first.name)
        parts = [words[0]]
        for word, number, step in zip(words[1:], numbers, self.steps, strict=False):
            parts += [str(number + place * step), word]
        later = self.first.round + place * self.steps[-1]
        return replace(self.first, name="".join(parts), round=later)

    def place_of(self, numbers: Numbers) -> int | None:
        """Return which release has these numbers in its name; None where none has."""
        _, begin = split(self.first.name)
        if self.times == 1:
            return 0 if numbers == begin else None
        grows = next(i for i, step in enumerate(self.steps) if step)
        place, rest = divmod(numbers[grows] - begin[grows], self.steps[grows])
        there = tuple(a + place * s for a, s in zip(begin, self.steps, strict=False))
        return place if not rest and 0 <= place < self.times and there == numbers else None

    def __iter__(self) -> Iterator[PrivacyEvent]:
        return map(self.at, range(self.times))

    def as_record(self) -> dict[str, Any]:
        """Return the first as a flat mapping, with ``times`` and ``steps`` where there are more."""
        more = {"times": self.times, "steps": list(self.steps)} if self.times > 1 else {}
        return {**self.first.as_record(), **more}

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> Series:
        """Read `as_record` back, or a single release."""
        first = {key: value for key, value in record.items() if key not in ("times", "steps")}
        found = cls(PrivacyEvent.from_record(first), int(record.get("times", 1)))
        if found.times > 1:
            found.steps = tuple(map(int, record["steps"]))
            numbers = split(found.first.name)[1]
            whole = len(found.steps) == len(numbers) + 1 and min(found.steps) >= 0
            if not whole or not any(found.steps[:-1]):
                raise ValueError(f"not a series of releases: steps {found.steps}")
        return found


def every(records: Iterable[Mapping[str, Any]]) -> Iterator[PrivacyEvent]:
    """Return every release that the entry of a client in a ledger lists."""
    for record in records:
        yield from Series.from_record(record)


def releases(records: Iterable[Mapping[str, Any]]) -> int:
    """Return how many releases the entry of a client in a ledger lists."""
    return sum(int(record.get("times", 1)) for record in records)


@dataclass(slots=True)
class _Known:
    """The series whose names have the same words, in the order of their numbers."""

    begins: list[Numbers] = field(default_factory=list)
    series: list[Series] = field(default_factory=list)
    highest: Numbers = ()


class Account:
    """What one client has released, in the order in which it was entered."""

    def __init__(self) -> None:
        self.series: list[Series] = []
        self.count = 0
        self._known: dict[Words, _Known] = {}
        # Names that came after one with higher numbers.
        self._strays: dict[str, PrivacyEvent] = {}

    def find(self, name: str) -> PrivacyEvent | None:
        """Return the release of this name, if it was made."""
        words, numbers = split(name)
        known = self._known.get(words)
        if known is None or numbers > known.highest:
            return None
        # Series were begun above all that was known: they do not overlap.
        place = bisect_right(known.begins, numbers) - 1
        if place >= 0:
            series = known.series[place]
            found = series.place_of(numbers)
            if found is not None:
                return series.at(found)
        return self._strays.get(name)

    def enter(self, event: PrivacyEvent) -> None:
        """Enter a release of a name that `find` does not find."""
        words, numbers = split(event.name)
        known = self._known.get(words)
        if known is None:
            self._begin(words, numbers, Series(event))
        elif numbers < known.highest:
            self._strays[event.name] = event
            self.series.append(Series(event))
        elif self.series[-1] is known.series[-1] and self.series[-1].takes(event):
            known.highest = numbers
        else:
            self._begin(words, numbers, Series(event))
        self.count += 1

    def restore(self, series: Series) -> None:
        """Enter what was kept of an account, one series after the other."""
        if series.times == 1:
            self.enter(series.first)
            return
        self._begin(*split(series.first.name), series)
        self.count += series.times

    def _begin(self, words: Words, numbers: Numbers, series: Series) -> None:
        known = self._known.setdefault(words, _Known())
        known.begins.append(numbers)
        known.series.append(series)
        known.highest = split(series.at(series.times - 1).name)[1]
        self.series.append(series)

    def __iter__(self) -> Iterator[PrivacyEvent]:
        for series in self.series:
            yield from series
