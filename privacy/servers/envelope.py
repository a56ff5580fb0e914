"""Letters between servers, sealed end to end: nobody on the way can read, change or make one.

Two servers agree on a key by X25519 from the keys in their greetings (`identity`), which live as
long as their processes. HKDF-SHA256 makes one key for each direction of it, bound to the run, both
servers and both epochs; ChaCha20-Poly1305 seals a letter under a nonce that is never used twice.
The header, in the clear, tells run, sender, receiver, epochs and round, and is authenticated with
the content:

- a letter of another run, between other servers, or of an earlier life of either does not open;
- whoever carries letters (a bridge, a SuperLink) can deliver an old one in place of a new one. The
  round is in the header, which `Seals.open` returns: the receiver asks for a round, or for a later
  one than it had, and refuses any other.

Adversary: whoever carries letters, and any third server of the graph. Not covered: that letters are
held back; their length and time; what the receiver itself learns, for which see the method.
"""

from __future__ import annotations

import json
import secrets
from dataclasses import dataclass

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from trellis.privacy.secagg.errors import BadMessage
from trellis.privacy.secagg.keys import KEY_BYTES, Scope, public_key

from .identity import Greeting

_NONCE = 12
_LONGEST_HEADER = 1000


@dataclass(frozen=True)
class Header:
    """What is written on an envelope.

    Attributes
    ----------
    sender, receiver : their numbers
    sender_epoch, receiver_epoch : for which lives of them it is
    number : the round
    """

    sender: int
    receiver: int
    sender_epoch: int
    receiver_epoch: int
    number: int

    def encode(self) -> bytes:
        """Return it as bytes."""
        return json.dumps(list(vars(self).values())).encode()

    @classmethod
    def decode(cls, data: bytes) -> Header:
        """Return what `encode` made of one; refuse anything else."""
        try:
            parts = json.loads(data)
            if len(parts) != 5 or any(type(part) is not int for part in parts):
                raise ValueError("five whole numbers are expected")
        except (ValueError, TypeError, RecursionError) as error:
            raise BadMessage(f"an envelope without a header: {error}") from None
        return cls(*parts)


class OtherLife(BadMessage):
    """A letter to or from an earlier start of a server: refused, and nothing to wonder about."""


class Seals:
    """One server's side of sealed letters, for one life of its process.

    Parameters
    ----------
    server : its number
    epoch : which start this is
    session : what all servers know the run by
    """

    def __init__(self, server: int, epoch: int, session: bytes) -> None:
        self.server, self.epoch, self._session = server, epoch, session
        private = secrets.token_bytes(KEY_BYTES)
        self.public = public_key(private)
        self._private = X25519PrivateKey.from_private_bytes(private)
        self._keys: dict[tuple[bytes, bytes], ChaCha20Poly1305] = {}

    def check(self, peer: Greeting) -> None:
        """Refuse a greeting with a key that nothing can be sealed with."""
        self._key(peer, Header(self.server, peer.server, self.epoch, peer.epoch, 0))

    def seal(self, receiver: Greeting, number: int, content: bytes) -> bytes:
        """Return an envelope that only ``receiver`` can open."""
        header = Header(self.server, receiver.server, self.epoch, receiver.epoch, number)
        written, nonce = header.encode(), secrets.token_bytes(_NONCE)
        sealed = self._key(receiver, header).encrypt(nonce, content, written)
        return len(written).to_bytes(2, "big") + written + nonce + sealed

    def open(self, sender: Greeting, data: bytes) -> tuple[int, bytes]:
        """Return round and content of a letter from ``sender`` to this server.

        Raises
        ------
        BadMessage
            Where it is none: from somebody else, to somebody else, or changed.
        OtherLife
            Where it is from or to an earlier start of one of the two.
        """
        size = int.from_bytes(data[:2], "big")
        if size > _LONGEST_HEADER or len(data) < 2 + size + _NONCE:
            raise BadMessage("no letter: too short")
        written = data[2 : 2 + size]
        nonce, sealed = data[2 + size : 2 + size + _NONCE], data[2 + size + _NONCE :]
        header = Header.decode(written)
        if (header.sender, header.receiver) != (sender.server, self.server):
            raise BadMessage(
                f"a letter from server {header.sender} to {header.receiver} where one from "
                f"{sender.server} to {self.server} was expected"
            )
        if (header.sender_epoch, header.receiver_epoch) != (sender.epoch, self.epoch):
            raise OtherLife(f"a letter from server {sender.server} of another start of a server")
        try:
            return header.number, self._key(sender, header).decrypt(nonce, sealed, written)
        except InvalidTag:
            raise BadMessage(
                f"a letter that server {sender.server} has not sealed, or that was changed"
            ) from None

    def _key(self, peer: Greeting, header: Header) -> ChaCha20Poly1305:
        direction = Scope(self._session, 0).info(
            *("letter between servers", header.sender, header.receiver),
            *(header.sender_epoch, header.receiver_epoch),
        )
        if (peer.box, direction) not in self._keys:
            try:
                shared = self._private.exchange(X25519PublicKey.from_public_bytes(peer.box))
            except ValueError as error:
                raise BadMessage(f"the key of server {peer.server} is no valid key") from error
            key = HKDF(hashes.SHA256(), KEY_BYTES, None, direction).derive(shared)
            self._keys[peer.box, direction] = ChaCha20Poly1305(key)
        return self._keys[peer.box, direction]
