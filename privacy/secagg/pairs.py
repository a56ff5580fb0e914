"""What two clients share: a root for the run, and from it the secrets of every round.

    root_0   = HKDF-SHA256(X25519(u, v); salt = hash of the directory, info = u, v)
    root_t   = H(root_{t-1})
    s, p, q  = PRF(root_t; context of the round)       seed of the pair's mask, two pads

The directory's hash covers the session and every member's name, key and signature: clients that
were told different directories have different roots. The context covers the round's number, its
group, who takes part, the arithmetic and the payload that all must share (`protocol`): clients that
were told different things have different masks, which do not cancel.

s is given to the server where the other client has dropped out, for this round only; root_t is
never given. A pad hides one share of a self seed on its way, one pad for each direction, used once.
It does not authenticate: whoever changes a sealed share on its way is told another wrong share and
learns what the right one would have told, under the same conditions (`protocol.Member.unmask`).

H is SHA-256; the PRF and words (`mac`) are SHA-512 of a purpose, the root and inputs of one length.
Roots are hashed forward and earlier ones forgotten, so that a root taken from a device opens none
of the pair's rounds before.

Adversary: whoever carries the messages, the server included; see `protocol`.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterable

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey

from .errors import BadMessage
from .keys import joined

ROOT_BYTES = 32
SEED_BYTES = 32
PAD_BYTES = 16
MAC_BYTES = 16
# Of the pair's secrets: the seed, the pad from the lower index to the higher, and the way back.
PAIR_BYTES = SEED_BYTES + 2 * PAD_BYTES
COMMITMENT_BYTES = 16


def directory_hash(session: bytes, rows: Iterable[tuple[int, str, bytes, bytes]]) -> bytes:
    """Return what binds all members (index, name, public key, signature) of a session."""
    content = b"".join(joined(*row) for row in rows)
    return hashlib.sha256(joined("trellis secagg 2", "directory", session) + content).digest()


def first_root(
    private: X25519PrivateKey, public: bytes, directory: bytes, pair: tuple[int, int]
) -> bytes:
    """Return root_0 of a pair of members; both get the same."""
    try:
        shared = private.exchange(X25519PublicKey.from_public_bytes(public))
    except ValueError as error:  # a wrong length, or a point of small order
        raise BadMessage(f"a key of pair {pair} is no valid key") from error
    extracted = hmac.digest(directory, shared, "sha256")
    return hmac.digest(extracted, joined("pair", *sorted(pair)) + b"\x01", "sha256")


def advance(root: bytes, rounds: int) -> bytes:
    """Return the root ``rounds`` later; there is no way back."""
    for _ in range(rounds):
        root = hashlib.sha256(b"next" + root).digest()
    return root


def pair_secrets(root: bytes, context: bytes) -> bytes:
    """Return seed and pads (`PAIR_BYTES`) of a pair in the round of ``context``."""
    return hashlib.sha512(b"pair" + root + context).digest()


def mac(root: bytes, sender: int, content: bytes) -> bytes:
    """Return the sender's word to the other of the pair, under the round's root.

    In place of a signature: each verifier checks the word of each of its own neighbours, and nobody
    else needs to. It costs 1 us where an Ed25519 signature costs 100, and where public keys are
    signed the server can forge neither.
    """
    data = b"word" + root + sender.to_bytes(4, "little") + content
    return hashlib.sha512(data).digest()[:MAC_BYTES]


def commitment(secret: bytes) -> bytes:
    """Return what tells the server right from wrong; secrets here have 124 random bits or more."""
    return hashlib.sha256(b"trellis secagg 2 commitment" + secret).digest()[:COMMITMENT_BYTES]
