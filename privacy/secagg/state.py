"""What a client remembers between messages, as bytes.

Of a session: the members' public keys and its own private key as long as roots are missing, then
the roots alone. Of a round: what it has been told, and its own share; the round's pair secrets are
derived from the roots anew, and gone once these are hashed forward.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field, fields
from enum import IntEnum
from typing import Any

from .errors import Refused
from .pairs import ROOT_BYTES

_VERSION = b"trellis-secagg-2"
_SIZE = struct.Struct("<I")


class Stage(IntEnum):
    """What a client waits for."""

    DIRECTORY = 0
    ORDER = 1
    ROLL = 2
    QUESTION = 3


@dataclass
class ClientState:
    """One client in one session.

    Attributes
    ----------
    private : X25519 key; empty once all roots are known
    directory : the hash that all members must share; empty before the directory came
    members, keys : all members, packed, and their public keys
    roots, epochs : the root with every member and the round it stands at, in the order of members;
        -1 where there is none yet
    number : the last round begun; no other of this number or below is ever begun
    context : what the round is bound to
    participants, peers, survivors : packed; who takes part, this client's neighbours, who is left
    threshold : t of the round
    own_share : of its self seed
    stay : how many must be left in the round
    """

    session: bytes
    index: int
    name: str
    private: bytes = b""
    directory: bytes = b""
    members: bytes = b""
    keys: bytes = b""
    roots: bytearray = field(default_factory=bytearray)
    epochs: list[int] = field(default_factory=list)
    stage: Stage = Stage.DIRECTORY
    number: int = 0
    context: bytes = b""
    participants: bytes = b""
    peers: bytes = b""
    survivors: bytes = b""
    threshold: int = 0
    own_share: bytes = b""
    stay: int = 0

    def forget_round(self) -> None:
        """Go back to waiting for an order; the number stays."""
        self.stage, self.threshold, self.stay = Stage.ORDER, 0, 0
        self.context = self.participants = self.peers = self.survivors = self.own_share = b""

    def to_bytes(self) -> bytes:
        """Return the state: every field's length and bytes."""
        parts = [_VERSION]
        for item in fields(self):
            data = _as_bytes(getattr(self, item.name))
            parts += [_SIZE.pack(len(data)), data]
        return b"".join(parts)

    @classmethod
    def from_bytes(cls, data: bytes) -> ClientState:
        """Return the state that `to_bytes` gave."""
        if not data.startswith(_VERSION):
            raise Refused("this client's state of secure aggregation is damaged")
        try:
            values: list[Any] = []
            start = len(_VERSION)
            for item in fields(cls):
                (size,) = _SIZE.unpack_from(data, start)
                start += _SIZE.size
                part = data[start : start + size]
                if len(part) != size:
                    raise ValueError("cut short")
                values.append(_READERS[str(item.type)](part))
                start += size
            state = cls(*values)
            if start != len(data) or len(state.roots) != ROOT_BYTES * len(state.epochs):
                raise ValueError("of another length")
            return state
        except (ValueError, struct.error) as error:
            raise Refused("this client's state of secure aggregation is damaged") from error


def _as_bytes(value: object) -> bytes:
    if isinstance(value, int):
        return struct.pack("<q", value)
    if isinstance(value, list):
        return struct.pack(f"<{len(value)}q", *value)
    return value.encode() if isinstance(value, str) else bytes(value)  # type: ignore[call-overload]


_READERS: dict[str, Any] = {
    "bytes": bytes,
    "bytearray": bytearray,
    "str": lambda part: part.decode(),
    "int": lambda part: struct.unpack("<q", part)[0],
    "Stage": lambda part: Stage(struct.unpack("<q", part)[0]),
    "list[int]": lambda part: list(struct.unpack(f"<{len(part) // 8}q", part)),
}
