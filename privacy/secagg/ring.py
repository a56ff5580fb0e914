"""Real numbers as integers modulo 2^64, so that masks cancel exactly.

A number x becomes round(x * 2^f) with f = ``fraction_bits``, ties to even: deterministic, and off
by at most 2^-(f+1). A sum of n clients is therefore off by at most n * 2^-(f+1), and it does not
depend on the order of the clients. Nothing ever wraps: with a bound on the number of clients every
single value is checked so that no sum of that many can leave [-2^63, 2^63).

Adversary: none; this is arithmetic. The rounding is no privacy mechanism.
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
    """

    fraction_bits: int = 32
    clients: int = 1

    def __post_init__(self) -> None:
        if not 0 <= self.fraction_bits <= MOST_FRACTION_BITS:
            raise ValueError(f"fraction_bits={self.fraction_bits}: use 0 to {MOST_FRACTION_BITS}")
        if not 1 <= self.clients < 2**31:
            raise ValueError(f"clients={self.clients}: use 1 to 2^31 - 1")

    @property
    def limit(self) -> float:
        """The largest |x| that can be encoded."""
        return math.ldexp(self._largest(), -self.fraction_bits)

    def _largest(self) -> float:
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

    def _refuse(self, values: Reals, name: str) -> None:
        bad = ~(np.abs(np.rint(values * math.ldexp(1.0, self.fraction_bits))) <= self._largest())
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


def flatten(arrays: Mapping[str, Reals], ring: Ring) -> Words:
    """Return named arrays as one vector in the ring, in the order of `layout_of`."""
    parts = [ring.encode(arrays[name], name).ravel() for name in sorted(arrays)]
    return parts[0] if len(parts) == 1 else np.concatenate([np.empty(0, np.uint64), *parts])


def unflatten(words: Words, layout: Layout, ring: Ring) -> dict[str, Reals]:
    """Return the named real arrays of a summed vector."""
    arrays, start = {}, 0
    for name, shape in layout:
        end = start + math.prod(shape)
        arrays[name] = ring.decode(words[start:end]).reshape(shape)
        start = end
    return arrays
