"""By what servers know each other: a key each, and greetings that are signed with it.

Every server has an Ed25519 key of its own (``identity.key``) and a table of all servers' public
halves (``servers.txt``, one ``name public-key`` line per server, in the order of their numbers).
At each start it draws keys that live as long as its process: one to be sealed to, one for masks.
A *greeting* tells them to the others with what else they must agree on, and is signed:

    server, its epoch (which start this is), the key to seal to, the key for masks,
    the digest of the settings, facts such as its number of clients

Greetings are passed on by whoever has them. That needs no trust: who passes one on can neither
change it nor make one. Of a server's greetings the one with the latest epoch counts.

Adversary: whoever carries greetings, servers of the graph included. Not covered: a server whose
identity key is stolen; who holds greetings back, which looks like a server that is down.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives import serialization

from trellis.privacy.secagg.errors import BadMessage
from trellis.privacy.secagg.keys import KEY_BYTES, Scope
from trellis.privacy.secagg.signing import (
    PrivateKey,
    PublicKey,
    TrustedKeys,
    load_signing_key,
    load_trusted_keys,
    sign,
    verify,
)

IDENTITY = "identity.key"
TABLE = "servers.txt"
_LONGEST = 1_000_000


@dataclass(frozen=True)
class Identity:
    """One server's key and the table of all.

    Attributes
    ----------
    server : its number
    key : its own, private
    table : all servers' public keys by name, in the order of their numbers
    """

    server: int
    key: PrivateKey
    table: TrustedKeys

    @classmethod
    def load(cls, folder: Path, server: int, servers: int) -> Identity:
        """Read a server's folder.

        Raises
        ------
        ValueError
            Names the file and what is wrong with it.
        """
        for name in (IDENTITY, TABLE):
            if not (folder / name).is_file():
                raise ValueError(f"server-folder={str(folder)!r}: {name} is missing there")
        table = load_trusted_keys(folder / TABLE)
        if len(table) != servers:
            raise ValueError(
                f"{folder / TABLE}: {len(table)} servers, the run has {servers}; one line each"
            )
        key = load_signing_key(folder / IDENTITY)
        if _written(key.public_key()) != _written(list(table.values())[server]):
            raise ValueError(
                f"{folder / IDENTITY}: not the key of server {server} ({list(table)[server]}) in "
                f"{TABLE}; is server={server} right?"
            )
        return cls(server, key, table)

    def greet(self, session: bytes, greeting: Greeting) -> bytes:
        """Return a greeting, signed, as it is passed on."""
        content = greeting.encode()
        signature = sign(self.key, _signed(session, content))
        return len(signature).to_bytes(2, "big") + signature + content

    def read(self, session: bytes, data: bytes) -> Greeting:
        """Return a greeting that some server of the table has signed for this run.

        Raises
        ------
        BadMessage
            For any other.
        """
        size = int.from_bytes(data[:2], "big")
        signature, content = data[2 : 2 + size], data[2 + size :]
        greeting = Greeting.decode(content)
        if not 0 <= greeting.server < len(self.table):
            raise BadMessage(f"a greeting of server {greeting.server}, which is not in {TABLE}")
        name = list(self.table)[greeting.server]
        try:
            verify(self.table, name, _signed(session, content), signature)
        except BadMessage:
            raise BadMessage(
                f"a greeting that {name} has not signed for this run, or that was changed"
            ) from None
        return greeting


@dataclass(frozen=True)
class Greeting:
    """What a server tells the others at its start.

    Attributes
    ----------
    server : its number
    epoch : larger at every start
    box : the public key to seal letters with
    mask : the public key for masks; empty where there are none
    terms : digest of the settings that all must share
    facts : what else others need, such as numbers of clients
    """

    server: int
    epoch: int
    box: bytes
    mask: bytes
    terms: str
    facts: Mapping[str, Any] = field(default_factory=dict)

    def encode(self) -> bytes:
        """Return it as bytes."""
        told = {
            "server": self.server,
            "epoch": self.epoch,
            "box": self.box.hex(),
            "mask": self.mask.hex(),
            "terms": self.terms,
            "facts": dict(self.facts),
        }
        return json.dumps(told, sort_keys=True).encode()

    @classmethod
    def decode(cls, data: bytes) -> Greeting:
        """Return what `encode` made of one; refuse anything else."""
        try:
            if len(data) > _LONGEST:
                raise ValueError("too long")
            told = json.loads(data)
            box, mask = bytes.fromhex(told["box"]), bytes.fromhex(told["mask"])
            server, epoch, terms, facts = (told[k] for k in ("server", "epoch", "terms", "facts"))
            if type(server) is not int or type(epoch) is not int or type(terms) is not str:
                raise ValueError("a number or a text is something else")
            if len(box) != KEY_BYTES or len(mask) not in (0, KEY_BYTES) or type(facts) is not dict:
                raise ValueError("a key has the wrong length")
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise BadMessage(f"no greeting of a server: {error}") from None
        return cls(server, epoch, box, mask, terms, facts)


def _written(key: PublicKey) -> bytes:
    """Return a public key as it stands in the table, of whichever kind it is."""
    form = serialization.PublicFormat.OpenSSH
    return key.public_bytes(serialization.Encoding.OpenSSH, form)


def _signed(session: bytes, content: bytes) -> bytes:
    return Scope(session, 0).info("greeting of a server", content)
