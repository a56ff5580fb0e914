"""Shamir's t-of-h sharing of a secret of four numbers modulo P = 2^31 - 1.

    p_j(x) = secret_j + c_1j x + ... + c_(t-1)j x^(t-1)   (mod P),   j = 1, ..., 4

share of holder x: the four p_j(x), 16 bytes; x = 1, ..., h is the holder's place among the holders,
so that one table of powers serves every client and round. Any t shares give p(0). Fewer than t say
nothing about the secret, whatever the computing power. The secret is drawn here, uniformly: 124
bits, which no hash of a share or a secret gives away.

The table times the coefficients is a product of matrices of floats, in halves of 16 bits: every
partial sum is an integer below 2^53 and exact. 130 shares with t = 87 take 0.1 ms.

Adversary: up to t - 1 holders together. A wrong share is told by its commitment (`pairs`), one by
one: a secret comes back wherever t right shares are there, however many others are wrong.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from .errors import TooFewClients

Entropy = Callable[[int], bytes]
Numbers = NDArray[np.uint64]

PRIME = 2**31 - 1
LIMBS = 4
SHARE_BYTES = 4 * LIMBS
# Beyond, the halves' partial sums could leave 53 bits.
MOST_HOLDERS = 1 << 16
_HALF = np.uint64(16)
_LOW = np.uint64(0xFFFF)


def draw(
    holders: int, threshold: int, entropy: Entropy = secrets.token_bytes
) -> tuple[bytes, NDArray[np.uint8]]:
    """Draw a secret and return it with the shares (h, 16) of all holders, by place.

    Parameters
    ----------
    holders : h
    threshold : t, at least 1 and at most h
    entropy : source of random bytes; a test may pass its own
    """
    if not 1 <= threshold <= holders <= MOST_HOLDERS:
        raise ValueError(f"threshold={threshold} with {holders} holders")
    coefficients = _uniform(threshold, entropy)
    shares = evaluate(coefficients, holders)
    return _as_bytes(coefficients[:1]).tobytes(), _as_bytes(shares)


def evaluate(coefficients: Numbers, holders: int) -> Numbers:
    """Return p_j(x) (h, limbs) for x = 1, ..., h from coefficients (t, limbs), below P."""
    high, low = _powers(holders, len(coefficients), PRIME)
    halves = np.concatenate([coefficients >> _HALF, coefficients & _LOW], axis=1)
    right = halves.astype(np.float64)
    limbs = coefficients.shape[1]
    upper, lower = ((left @ right).astype(np.uint64) % PRIME for left in (high, low))
    middle = upper[:, limbs:] + lower[:, :limbs]
    # In steps: 2^16 times a number below 2 P stays below 2^48.
    total = (upper[:, :limbs] << _HALF) + middle
    return ((total % PRIME << _HALF) + lower[:, limbs:]) % PRIME


def combine(shares: Mapping[int, bytes], threshold: int) -> bytes:
    """Return the secret of right shares by place x; wrong ones must have been left out.

    Raises
    ------
    TooFewClients
        With fewer than ``threshold`` shares.
    """
    if len(shares) < threshold:
        raise TooFewClients(f"{len(shares)} right shares, threshold {threshold}")
    places = tuple(sorted(shares)[:threshold])
    values = np.frombuffer(b"".join(shares[x] for x in places), "<u4").reshape(-1, LIMBS)
    weights = _weights(places, PRIME)[:, None]
    return _as_bytes((weights * (values % PRIME) % PRIME).sum(axis=0) % PRIME).tobytes()


def _uniform(count: int, entropy: Entropy) -> Numbers:
    """Return (count, limbs) uniform numbers below P: 31 bits each, drawn again where P itself."""
    while True:
        words = np.frombuffer(entropy(SHARE_BYTES * count), "<u4") & np.uint32(PRIME)
        if not np.any(words == PRIME):
            return words.astype(np.uint64).reshape(count, LIMBS)


def _as_bytes(numbers: Numbers) -> NDArray[np.uint8]:
    return numbers.astype("<u4").view(np.uint8)


@lru_cache(maxsize=16)
def _powers(
    holders: int, count: int, prime: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return x^i mod P (h, t), the upper bits and the lower 16."""
    table = np.ones((holders, count), np.uint64)
    places = np.arange(1, holders + 1, dtype=np.uint64)
    for column in range(1, count):
        table[:, column] = table[:, column - 1] * places % prime
    return (table >> _HALF).astype(np.float64), (table & _LOW).astype(np.float64)


@lru_cache(maxsize=4096)
def _weights(places: tuple[int, ...], prime: int) -> Numbers:
    """Return Lagrange's weights (t,) at 0: prod over y != x of y / (y - x)."""
    x = np.array(places, dtype=np.int64)
    tops = np.broadcast_to(x, (len(x), len(x))).copy()
    bottoms = (x[None, :] - x[:, None]) % prime
    np.fill_diagonal(tops, 1)
    np.fill_diagonal(bottoms, 1)
    top, bottom = (_product(part.astype(np.uint64), prime) for part in (tops, bottoms))
    return top * _power(bottom, prime - 2, prime) % prime  # Fermat: 1 / b = b^(P - 2)


def _product(rows: Numbers, prime: int) -> Numbers:
    """Return the product of every row, by halves."""
    while rows.shape[1] > 1:
        if rows.shape[1] % 2:
            rows = np.concatenate([rows, np.ones((len(rows), 1), np.uint64)], axis=1)
        rows = rows[:, ::2] * rows[:, 1::2] % prime
    return rows[:, 0]


def _power(base: Numbers, exponent: int, prime: int) -> Numbers:
    result = np.ones_like(base)
    while exponent:
        if exponent & 1:
            result = result * base % prime
        base = base * base % prime
        exponent >>= 1
    return result
