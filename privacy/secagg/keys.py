"""Agreement: what two parties know and whoever carries their public keys does not.

X25519, and HKDF-SHA256 that binds what is derived to the session, the round, both parties and the
purpose. What two clients derive from an agreement in every round stands in `pairs`.

Adversary: whoever carries the messages, the server included. Without signed keys (`signing`) an
active server can put its own keys in the middle.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from .errors import BadMessage

KEY_BYTES = 32


def joined(*parts: str | bytes | int) -> bytes:
    """Return parts as one byte string that no other parts give."""
    result = bytearray()
    for part in parts:
        data = str(part).encode() if isinstance(part, str | int) else part
        result += len(data).to_bytes(4, "big") + data
    return bytes(result)


@dataclass(frozen=True)
class Scope:
    """What a key is bound to: a session and one round of it."""

    session: bytes
    number: int

    def info(self, purpose: str, *parts: str | bytes | int) -> bytes:
        """Return the context of a derivation or a signature."""
        start = _scope(self.session, self.number, purpose)
        return start + joined(*parts) if parts else start


@lru_cache(maxsize=16)
def _scope(session: bytes, number: int, purpose: str) -> bytes:
    return joined("trellis secagg 2", session, number, purpose)


def public_key(private: bytes) -> bytes:
    """Return the public key of 32 private bytes."""
    return X25519PrivateKey.from_private_bytes(private).public_key().public_bytes_raw()


class Agreement:
    """One client's side of agreements with many peers.

    Parameters
    ----------
    private : 32 bytes
    me : this client's index and name
    scope : session and round
    """

    def __init__(self, private: bytes, me: tuple[int, str], scope: Scope) -> None:
        self._private = X25519PrivateKey.from_private_bytes(private)
        self._me, self._scope = me, scope
        self._mine = joined(*me)

    def seed(self, peer: tuple[int, str], public: bytes) -> bytes:
        """Return the seed of the mask shared with ``peer``; both get the same."""
        return self._derive(peer, public, "mask", 32)

    def _derive(self, peer: tuple[int, str], public: bytes, purpose: str, size: int) -> bytes:
        try:
            shared = self._private.exchange(X25519PublicKey.from_public_bytes(public))
        except ValueError as error:  # a wrong length, or a point of small order
            raise BadMessage(f"the {purpose} key of client {peer[1]} is no valid key") from error
        theirs = joined(*peer)
        both = self._mine + theirs if self._me < peer else theirs + self._mine
        info = self._scope.info(purpose) + both
        return HKDF(hashes.SHA256(), size, None, info).derive(shared)
