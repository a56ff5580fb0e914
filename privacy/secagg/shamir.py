"""Shamir's t-of-n sharing of a 32-byte secret, and a check that what comes back is that secret.

    p(x) = secret + c_1 x + ... + c_(t-1) x^(t-1)  over the field of P = 2^256 + 297,

share of holder x: p(x), x = 1, 2, ...; any t shares give p(0). Fewer than t say nothing about the
secret, whatever the computing power. Shamir's scheme itself does not notice a wrong share, so a
hash of the secret goes with it (`commitment`): the secrets here are 256 random bits, of which a
hash tells nothing that can be used.

Adversary: up to t - 1 holders together, curious. A holder who sends a wrong share is detected, not
corrected: other holders' shares are tried while there are more than t.
"""

from __future__ import annotations

import hashlib
import itertools
import operator
import secrets
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache

from .errors import BadMessage, TooFewClients

Entropy = Callable[[int], bytes]
Check = Callable[[bytes], bool]

PRIME = 2**256 + 297
SECRET_BYTES = 32
SHARE_BYTES = 33
# How many sets of t shares are tried before giving up on a secret.
_ATTEMPTS = 64


def commitment(secret: bytes) -> bytes:
    """Return what the secret is checked against after reconstruction."""
    return hashlib.sha256(b"trellis secagg secret" + secret).digest()


def split(
    secret: bytes, holders: Iterable[int], threshold: int, entropy: Entropy = secrets.token_bytes
) -> dict[int, bytes]:
    """Return a share for every holder; any ``threshold`` of them give the secret back.

    Parameters
    ----------
    secret : 32 bytes
    holders : positive, distinct numbers
    threshold : t, at least 1 and at most the number of holders
    entropy : source of random bytes; a test may pass its own
    """
    holders = list(holders)
    if len(secret) != SECRET_BYTES:
        raise ValueError(f"a secret of {len(secret)} bytes; {SECRET_BYTES} are needed")
    if not 1 <= threshold <= len(holders):
        raise ValueError(f"threshold={threshold} with {len(holders)} holders")
    if min(holders) < 1 or len(set(holders)) != len(holders):
        raise ValueError("holders must be distinct positive numbers: the share of 0 is the secret")
    # 48 bytes a coefficient: reduced modulo P they are uniform to within 2^-127.
    raw = entropy(48 * (threshold - 1))
    coefficients = [int.from_bytes(secret, "big")]
    coefficients += [int.from_bytes(raw[i : i + 48], "big") % PRIME for i in range(0, len(raw), 48)]
    return {
        x: (sum(map(operator.mul, coefficients, _powers(x, threshold))) % PRIME).to_bytes(
            SHARE_BYTES, "big"
        )
        for x in holders
    }


def combine(shares: Mapping[int, bytes], threshold: int, check: Check) -> bytes:
    """Return the secret that ``shares`` (by holder) give and ``check`` accepts.

    Raises
    ------
    TooFewClients
        With fewer than ``threshold`` shares.
    BadMessage
        Where no set of ``threshold`` shares gives an accepted secret: at least one is wrong.
    """
    if len(shares) < threshold:
        raise TooFewClients(f"{len(shares)} shares, threshold {threshold}")
    values = {x: int.from_bytes(share, "big") for x, share in sorted(shares.items())}
    for chosen in itertools.islice(_subsets(tuple(values), threshold), _ATTEMPTS):
        weights = _weights(chosen)
        number = sum(map(operator.mul, weights, (values[x] for x in chosen))) % PRIME
        if number < 1 << 8 * SECRET_BYTES:
            secret = number.to_bytes(SECRET_BYTES, "big")
            if check(secret):
                return secret
    raise BadMessage(f"the shares of holders {sorted(values)} do not fit together: some are wrong")


def _subsets(holders: tuple[int, ...], threshold: int) -> Iterable[tuple[int, ...]]:
    # Windows first: they leave out every holder in turn, which is enough against one liar.
    count = len(holders) if len(holders) > threshold else 1
    for start in range(count):
        turned = holders[start:] + holders[:start]
        yield tuple(sorted(turned[:threshold]))
    yield from itertools.combinations(holders, threshold)


@lru_cache(maxsize=4096)
def _powers(x: int, count: int) -> tuple[int, ...]:
    return tuple(itertools.accumulate(range(count - 1), lambda p, _: p * x % PRIME, initial=1))


@lru_cache(maxsize=1024)
def _weights(holders: tuple[int, ...]) -> tuple[int, ...]:
    """Return Lagrange's weights at 0; in a complete graph the same for every secret."""
    numerators, denominators = [], []
    for x in holders:
        top = bottom = 1
        for other in holders:
            if other != x:
                top = top * other % PRIME
                bottom = bottom * (other - x) % PRIME
        numerators.append(top)
        denominators.append(bottom)
    return tuple(
        n * pow(d, -1, PRIME) % PRIME for n, d in zip(numerators, denominators, strict=True)
    )
