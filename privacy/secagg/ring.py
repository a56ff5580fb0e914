"""Real numbers as integers modulo 2^64, so that masks cancel exactly.

A number x becomes round(x * 2^f) with f = ``fraction_bits``, ties to even: deterministic, and off
by at most 2^-(f+1). A sum of n clients is therefore off by at most n * 2^-(f+1), and it does not
depend on the order of the clients. Nothing ever wraps: range, fraction bits and the number of
clients must fit together, |x| 2^f n < 2^63, which is checked before any value is seen.

A device never refuses a finite value, since a refusal that depends on a value discloses it:
`clipped` takes what is beyond the range to its end, and counts it for the device's own log. What is
not finite is an error in `clipped` as well. As 0, or any other number, it would be a summand that
nobody bounded: one record that makes a sum NaN would move it by all that the others add. So
whoever bounds a statistic has to make sure that it is finite for every record and every message
that is accepted. `encode` refuses what is out of range too; it is for a party that checks its own
numbers, such as a server.

Adversary: none; this is arithmetic. Neither the rounding nor the clipping is a privacy mechanism.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Words = NDArray[np.uint64]
Reals = NDArray[np.float64]

MOST_FRACTION_BITS = 52
_CHUNK = 1 << 14


@dataclass(frozen=True)
class Ring:
    """Fixed point modulo 2^64 for sums of at most ``clients`` vectors.

    Attributes
    ----------
    fraction_bits : f, binary digits after the point, 0 to 52
    clients : how many encoded vectors may be added up, at least 1
    largest : the declared range: values are in [-largest, largest]; 0 takes the widest that fits
    """

    fraction_bits: int = 32
    clients: int = 1
    largest: float = 0.0

    def __post_init__(self) -> None:
        if not 0 <= self.fraction_bits <= MOST_FRACTION_BITS:
            raise ValueError(f"fraction_bits={self.fraction_bits}: use 0 to {MOST_FRACTION_BITS}")
        if not 1 <= self.clients < 2**31:
            raise ValueError(f"clients={self.clients}: use 1 to 2^31 - 1")
        widest = math.ldexp(self._widest(), -self.fraction_bits)
        if not 0.0 <= self.largest <= widest:
            raise ValueError(
                f"largest={self.largest:g}: sums of {self.clients} clients with "
                f"{self.fraction_bits} fraction bits hold values up to {widest:g}; lower it, or "
                "lower fraction_bits"
            )

    @property
    def limit(self) -> float:
        """The largest |x| that can be encoded."""
        return self.largest or math.ldexp(self._widest(), -self.fraction_bits)

    def _largest(self) -> float:
        """Return the limit in units of the ring."""
        if not self.largest:
            return self._widest()
        return math.floor(math.ldexp(self.largest, self.fraction_bits))

    def _widest(self) -> float:
        # The largest float that is not above (2^63 - 1) / clients: comparisons are in floats.
        exact = (2**63 - 1) // self.clients
        rounded = float(exact)
        return rounded if int(rounded) <= exact else float(np.nextafter(rounded, 0.0))

    def encode(self, values: Reals, name: str = "values") -> Words:
        """Return ``values`` in the ring.

        Raises
        ------
        OverflowError
            Where an entry is too large for a sum over ``clients``; names entry, value and limit.
        ValueError
            Where an entry is NaN or infinite, or the array is not of real numbers.
        """
        values = np.asarray(values)
        if values.dtype != np.float64:
            raise ValueError(f"{name} is of dtype {values.dtype}; float64 is needed")
        flat, factor, largest = values.ravel(), math.ldexp(1.0, self.fraction_bits), self._largest()
        words = np.empty(flat.size, np.int64)
        # In pieces: fresh memory for whole vectors costs several times the arithmetic.
        buffer = np.empty(min(flat.size, _CHUNK))
        with np.errstate(over="ignore", invalid="ignore"):
            for start in range(0, flat.size, _CHUNK):
                part = flat[start : start + _CHUNK]
                scaled = np.multiply(part, factor, out=buffer[: part.size])
                np.rint(scaled, out=scaled)
                # A NaN fails the comparison as well.
                if not max(scaled.max(), -scaled.min()) <= largest:
                    self._refuse(values, name)
                np.copyto(words[start : start + _CHUNK], scaled, casting="unsafe")
        return words.view(np.uint64).reshape(values.shape)

    def clipped(self, values: Reals, name: str = "values") -> tuple[Words, int]:
        """Return ``values`` in the ring, clipped to the range, and how many were changed by that.

        Raises
        ------
        ValueError
            Where an entry is NaN or infinite, or the array is not of real numbers.
        """
        values = np.asarray(values)
        if values.dtype != np.float64:
            raise ValueError(f"{name} is of dtype {values.dtype}; float64 is needed")
        flat, factor, largest = values.ravel(), math.ldexp(1.0, self.fraction_bits), self._largest()
        words, clips = np.empty(flat.size, np.int64), 0
        buffer = np.empty(min(flat.size, _CHUNK))
        with np.errstate(over="ignore", invalid="ignore"):
            for start in range(0, flat.size, _CHUNK):
                part = flat[start : start + _CHUNK]
                scaled = np.multiply(part, factor, out=buffer[: part.size])
                np.rint(scaled, out=scaled)
                if not max(scaled.max(), -scaled.min()) <= largest:
                    if not np.all(np.isfinite(part)):
                        self._refuse(values, name)
                    clips += int(np.count_nonzero(np.abs(scaled) > largest))
                    np.clip(scaled, -largest, largest, out=scaled)
                np.copyto(words[start : start + _CHUNK], scaled, casting="unsafe")
        return words.view(np.uint64).reshape(values.shape), clips

    def _refuse(self, values: Reals, name: str) -> None:
        bad = ~np.isfinite(values)
        if not np.any(bad):
            bad = np.abs(np.rint(values * math.ldexp(1.0, self.fraction_bits))) > self._largest()
        where = tuple(int(i) for i in np.argwhere(bad)[0])
        value = float(values[where])
        entry = f"{name}[{', '.join(map(str, where))}] = {value!r}"
        if not math.isfinite(value):
            raise ValueError(f"{entry}: only finite numbers can be summed")
        raise OverflowError(
            f"{entry} is beyond +-{self.limit!r}, the limit for {self.clients} clients and "
            f"{self.fraction_bits} fraction bits; clip the values or lower fraction_bits"
        )

    def decode(self, words: Words) -> Reals:
        """Return the real numbers of a sum; exact up to 2^53 units, then rounded to nearest."""
        return words.view(np.int64).astype(np.float64) * math.ldexp(1.0, -self.fraction_bits)


Layout = tuple[tuple[str, tuple[int, ...]], ...]


def layout_of(arrays: Mapping[str, Reals]) -> Layout:
    """Return names and shapes, by name: what clients must agree on for a sum to mean anything."""
    return tuple((name, tuple(arrays[name].shape)) for name in sorted(arrays))


def layout_size(layout: Layout) -> int:
    """Return the number of entries of all arrays together."""
    return sum(math.prod(shape) for _, shape in layout)


def flatten(arrays: Mapping[str, Reals], ring: Ring) -> tuple[Words, int]:
    """Return named arrays as one vector in the order of `layout_of`, and how many were clipped."""
    found = [ring.clipped(arrays[name], name) for name in sorted(arrays)]
    parts = [words.ravel() for words, _ in found]
    vector = parts[0] if len(parts) == 1 else np.concatenate([np.empty(0, np.uint64), *parts])
    return vector, sum(clips for _, clips in found)


def unflatten(words: Words, layout: Layout, ring: Ring) -> dict[str, Reals]:
    """Return the named real arrays of a summed vector."""
    arrays, start = {}, 0
    for name, shape in layout:
        end = start + math.prod(shape)
        arrays[name] = ring.decode(words[start:end]).reshape(shape)
        start = end
    return arrays
