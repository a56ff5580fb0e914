"""What a setting may be, as data: for refusals, ``trellis info`` and the reference alike."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Limit:
    """A range of numbers, some words, or a form of text.

    Attributes
    ----------
    least, most : the ends of the range
    least_out, most_out : whether an end itself is refused
    beside : numbers outside of the range that are taken as well, as 0 for "choose"
    words : the words that are taken; of a number those beside it, as ``auto``
    form : what a text must look like, in words
    """

    least: float = -math.inf
    most: float = math.inf
    least_out: bool = False
    most_out: bool = False
    beside: tuple[float, ...] = ()
    words: tuple[str, ...] = ()
    form: str = ""

    @property
    def bounded(self) -> bool:
        """Whether there is a range of numbers."""
        return math.isfinite(self.least) or math.isfinite(self.most)

    def takes(self, value: float) -> bool:
        """Return whether a number is in the range, or beside it."""
        above = value > self.least if self.least_out else value >= self.least
        below = value < self.most if self.most_out else value <= self.most
        return value in self.beside or (above and below and math.isfinite(value))

    def told(self) -> str:
        """Return it in words, as in ``must be ...``."""
        extra = [short(number) for number in self.beside]
        if self.bounded:
            return ", or ".join([self._range(), *extra, *self.words])
        return self.form or ", ".join(self.words)

    def _range(self) -> str:
        least, most = short(self.least), short(self.most)
        if math.isinf(self.most):
            return f"{'>' if self.least_out else '>='} {least}"
        if self.least_out and not self.most_out:
            return f"above {least} and at most {most}"
        if self.most_out and not self.least_out:
            return f"at least {least} and below {most}"
        return f"between {least} and {most}" + (", both excluded" if self.least_out else "")

    def within(self, other: Limit) -> Limit:
        """Return what both of two checks take; the later one's words and form."""
        low = max((self, other), key=lambda limit: (limit.least, limit.least_out))
        high = min((self, other), key=lambda limit: (limit.most, not limit.most_out))
        return replace(
            other,
            least=low.least,
            least_out=low.least_out,
            most=high.most,
            most_out=high.most_out,
            words=other.words or self.words,
            form=other.form or self.form,
        )


def short(number: float) -> str:
    """Return a number as people write it; a third as 1/3."""
    return "1/3" if math.isclose(number, 1.0 / 3.0) else f"{number:g}"


_noted: ContextVar[dict[str, Limit] | None] = ContextVar("noted", default=None)


@contextmanager
def noting() -> Iterator[dict[str, Limit]]:
    """Collect every check that is made meanwhile, by the setting's name in Python."""
    found: dict[str, Limit] = {}
    token = _noted.set(found)
    try:
        yield found
    finally:
        _noted.reset(token)


def note(name: str, limit: Limit) -> None:
    """Write a check down, where somebody collects them."""
    found = _noted.get()
    if found is not None:
        found[name] = found[name].within(limit) if name in found else limit
