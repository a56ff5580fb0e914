"""Masks: a 32-byte seed stretched to a vector of uniform words, added modulo 2^64.

The stream is AES-256 in counter mode, which processors have instructions for: 100,000 words take
0.10 ms against 0.16 ms with ChaCha20 (EPYC, OpenSSL 3). A seed is used for one mask only, so the
counter starts at zero. This is where nearly all of secure aggregation's time on long vectors goes;
adding the words costs a fifth of making them.

Adversary: anyone without the seed cannot tell a masked vector from uniform words, as long as
AES-256 is a pseudorandom permutation.
"""

from __future__ import annotations

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from .ring import Words

SEED_BYTES = 32
# 256 KiB: stays in a core's cache between making and adding, and bounds the memory.
_CHUNK = 1 << 15
_MODE = modes.CTR(bytes(16))  # holds no state


class Masker:
    """Adds and subtracts masks of ``size`` words in place; keeps its buffers between masks."""

    def __init__(self, size: int) -> None:
        self._size = size
        chunk = min(size, _CHUNK)
        self._zeros = memoryview(bytes(8 * chunk))
        self._stream = bytearray(8 * chunk)
        # Little-endian everywhere: two clients of one pair must read the same words.
        self._words = np.frombuffer(self._stream, dtype="<u8")

    def add(self, vector: Words, seed: bytes) -> None:
        """Add the mask of ``seed`` to ``vector``."""
        self._apply(np.add, vector, seed)

    def subtract(self, vector: Words, seed: bytes) -> None:
        """Subtract the mask of ``seed`` from ``vector``."""
        self._apply(np.subtract, vector, seed)

    def _apply(self, operation: np.ufunc, vector: Words, seed: bytes) -> None:
        if len(seed) != SEED_BYTES:
            raise ValueError(f"the seed has {len(seed)} bytes; {SEED_BYTES} are needed")
        if vector.shape != (self._size,) or vector.dtype != np.uint64:
            raise ValueError(f"a vector of {self._size} words is needed, not {vector.shape}")
        cipher = Cipher(algorithms.AES(seed), _MODE).encryptor()
        for start in range(0, self._size, _CHUNK):
            part = vector[start : start + _CHUNK]
            cipher.update_into(self._zeros[: 8 * part.size], self._stream)
            operation(part, self._words[: part.size], out=part)
