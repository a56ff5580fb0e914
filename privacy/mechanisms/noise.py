"""Where noise comes from.

In simulation it comes from the run's seed, so that runs repeat; whoever knows the seed can remove
it, which is why nothing simulated is private. On a device it comes from a secret that never leaves
the device: 32 bytes of the operating system's entropy, kept in a file only its owner can read. A
release that must happen once (a statistic noised for a whole run) derives its noise from the secret
and a description of exactly what is released. After a crash the same release gives the same bits,
and so spends nothing again; other data, or another setting, gives independent noise.

Adversary: anyone without the secret, the server included. Not covered: someone who reads the
device's disk, and the gaps of floating-point noise.
"""

from __future__ import annotations

import builtins
import hashlib
import hmac
import secrets
from pathlib import Path
from typing import Protocol

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms
from numpy.typing import NDArray

from trellis.privacy.device.state import SECRET, begin
from trellis.privacy.device.state import SECRET_BYTES as _SECRET_BYTES


class NoiseSource(Protocol):
    """Anything that draws random numbers, as `SecretNoise` and numpy's generators do."""

    def standard_normal(self, size: int) -> NDArray[np.float64]:
        """Return ``size`` independent standard normal draws."""
        ...

    def random(self, size: int) -> NDArray[np.float64]:
        """Return ``size`` independent draws between 0 and 1."""
        ...

    def bytes(self, length: int, /) -> builtins.bytes:
        """Return ``length`` random bytes."""
        ...


class SecretNoise:
    """Normal draws from a ChaCha20 stream; reproducible by whoever holds the 32-byte key only."""

    def __init__(self, key: bytes) -> None:
        if len(key) != _SECRET_BYTES:
            raise ValueError(f"the key has {len(key)} bytes; {_SECRET_BYTES} are needed")
        # A key is used for one stream only, so the nonce carries nothing.
        self._stream = Cipher(algorithms.ChaCha20(key, b"\0" * 16), mode=None).encryptor()

    def bytes(self, length: int, /) -> builtins.bytes:
        """Return ``length`` random bytes."""
        return self._stream.update(b"\0" * length)

    def random(self, size: int) -> NDArray[np.float64]:
        """Return ``size`` numbers of 52 bits between 0 and 1, both excluded."""
        words = np.frombuffer(self.bytes(8 * size), dtype="<u8")
        # With 53 bits the largest would round to 1.
        return np.asarray(((words >> np.uint64(12)) + 0.5) * 2.0**-52, dtype=np.float64)

    def standard_normal(self, size: int) -> NDArray[np.float64]:
        """Return ``size`` draws by Box and Muller's transform of uniforms."""
        half = (size + 1) // 2
        uniform = self.random(2 * half)
        radius = np.sqrt(-2.0 * np.log(uniform[:half]))
        angle = 2.0 * np.pi * uniform[half:]
        return np.concatenate([radius * np.cos(angle), radius * np.sin(angle)])[:size]


def fresh_secret() -> bytes:
    """Return 32 bytes of the operating system's entropy."""
    return secrets.token_bytes(_SECRET_BYTES)


def fresh_noise() -> SecretNoise:
    """Return noise from the operating system's entropy, never the same twice."""
    return SecretNoise(fresh_secret())


def release_noise(secret: bytes, *description: str | bytes) -> SecretNoise:
    """Return the noise of the one release that ``description`` names, the same after a restart."""
    mac = hmac.new(secret, digestmod=hashlib.sha256)
    for part in description:
        data = part.encode() if isinstance(part, str) else part
        mac.update(len(data).to_bytes(8, "big") + data)  # no two descriptions read alike
    return SecretNoise(mac.digest())


def device_secret(folder: Path) -> bytes:
    """Return this device's secret, made on first use in ``folder``, readable by its owner only."""
    begin(folder)
    path = folder / SECRET
    secret = path.read_bytes()
    if len(secret) != _SECRET_BYTES:
        raise ValueError(
            f"{path} is damaged ({len(secret)} bytes). Delete it only if no release from this "
            "device was ever sent: a new secret means new noise, which spends budget again"
        )
    return secret
