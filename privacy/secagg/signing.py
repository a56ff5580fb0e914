"""Advertised keys signed by the device, so that the server cannot put its own in their place.

A device signs with a key it keeps (Ed25519 or ECDSA; PEM or OpenSSH file, the key a SuperNode
authenticates with will do) and checks its peers against a table it was given out of band: one
``name public-key`` line a client, the key as in an OpenSSH ``.pub`` file. The signature covers
session, the client's name and index and its public key, once a session.

Adversary: an active server. With a table it cannot impersonate a client or run the protocol with
clients it invented. Not covered: a device whose signing key is stolen, and a table that lists
clients who collude.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric.ec import (
    ECDSA,
    EllipticCurvePrivateKey,
    EllipticCurvePublicKey,
)
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from .errors import BadMessage
from .keys import Scope

PrivateKey = Ed25519PrivateKey | EllipticCurvePrivateKey
PublicKey = Ed25519PublicKey | EllipticCurvePublicKey
TrustedKeys = Mapping[str, PublicKey]


def load_signing_key(path: str | Path) -> PrivateKey:
    """Return the private key in a PEM or OpenSSH file without a passphrase."""
    data = Path(path).read_bytes()
    try:
        if b"OPENSSH PRIVATE KEY" in data:
            key: object = serialization.load_ssh_private_key(data, password=None)
        else:
            key = serialization.load_pem_private_key(data, password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise ValueError(f"signing-key={str(path)!r}: no usable private key: {error}") from error
    if not isinstance(key, Ed25519PrivateKey | EllipticCurvePrivateKey):
        raise ValueError(f"signing-key={str(path)!r}: use an Ed25519 or ECDSA key")
    return key


def load_trusted_keys(path: str | Path) -> TrustedKeys:
    """Return the table of ``name public-key`` lines; empty lines and # comments are skipped."""
    return _read_table(str(path), Path(path).read_text(encoding="utf-8"))


@lru_cache(maxsize=8)
def _read_table(path: str, text: str) -> TrustedKeys:
    table: dict[str, PublicKey] = {}
    owners: dict[bytes, str] = {}
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        name, _, rest = line.strip().partition(" ")
        where = f"trusted-keys={path!r}, line {number}"
        try:
            key = serialization.load_ssh_public_key(rest.strip().encode())
        except (ValueError, TypeError, UnsupportedAlgorithm) as error:
            raise ValueError(f"{where}: 'name public-key' is expected: {error}") from error
        if not isinstance(key, Ed25519PublicKey | EllipticCurvePublicKey):
            raise ValueError(f"{where}: use an Ed25519 or ECDSA key")
        raw = key.public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
        # One key under two names would let one client stand for two.
        if name in table or raw in owners:
            raise ValueError(f"{where}: {name!r} or its key is there twice")
        table[name], owners[raw] = key, name
    return table


def statement(session: bytes, index: int, name: str, public: bytes) -> bytes:
    """Return what a client signs."""
    return Scope(session, 0).info("signature", index, name, public)


def sign(key: PrivateKey, content: bytes) -> bytes:
    """Return the signature of ``content``."""
    if isinstance(key, Ed25519PrivateKey):
        return key.sign(content)
    return key.sign(content, ECDSA(hashes.SHA256()))


def verify(trusted: TrustedKeys, name: str, content: bytes, signature: bytes) -> None:
    """Refuse a key that is not signed by the client it is said to be of."""
    key = trusted.get(name)
    if key is None:
        raise BadMessage(f"client {name} is not in this device's table of trusted keys")
    if not signature:
        raise BadMessage(f"the key of client {name} is not signed; it needs a signing-key")
    try:
        if isinstance(key, Ed25519PublicKey):
            key.verify(signature, content)
        else:
            key.verify(signature, content, ECDSA(hashes.SHA256()))
    except InvalidSignature as error:
        raise BadMessage(f"the key of client {name} carries a wrong signature") from error
