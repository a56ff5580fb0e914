"""One seed, one result: every random draw comes from (seed, purpose, partition, round).

Draws for different purposes, clients or rounds are independent, and do not depend on which runtime
asks for them, in which order, or how many other draws were made before.
"""

from __future__ import annotations

import hashlib
from functools import lru_cache

import numpy as np


def generator(
    seed: int, purpose: str, partition: int = 0, server_round: int = 0
) -> np.random.Generator:
    """Return the generator of one purpose, client and round of the run with ``seed``.

    Simulation only: whoever knows the seed knows every draw. Noise on a real device comes from
    ``trellis.privacy.mechanisms.noise`` instead.
    """
    words = [seed, _tag(purpose), partition, server_round]
    return np.random.default_rng(np.random.SeedSequence(words))


@lru_cache(maxsize=256)
def _tag(purpose: str) -> int:
    return int.from_bytes(hashlib.sha256(purpose.encode()).digest()[:8], "big")
