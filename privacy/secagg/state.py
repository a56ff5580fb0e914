"""What a client remembers between the messages of one round, as bytes.

It holds secrets of this round, and each only as long as it is needed: the cipher key until the
shares are sealed, the mask key and the self seed until the masked vector is made.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from .errors import Refused


class Stage(StrEnum):
    """What a client has done last."""

    ADVERTISED = "advertised"
    SHARED = "shared"
    DELIVERED = "delivered"
    MASKED = "masked"


class Secret(StrEnum):
    """Which of a peer's secrets a share was given of; never both."""

    SELF_SEED = "self-seed"
    MASK_KEY = "mask-key"


@dataclass
class Peer:
    """One neighbour: its name, its mask key, and the key that opens what it sealed."""

    name: str
    mask_key: bytes
    open_key: bytes


@dataclass
class ClientState:
    """One client's round.

    Attributes
    ----------
    own_share : the share of one's own self seed; of one's own mask key none is kept, as it is
        given for clients that dropped out only
    shares : by owner, the share of its self seed and that of its mask key
    revealed : by owner, which secret's share was given to the server
    """

    session: bytes
    number: int
    index: int
    name: str
    clients: int
    fraction_bits: int
    stage: Stage = Stage.ADVERTISED
    threshold: int = 0
    cipher_private: bytes = b""
    mask_private: bytes = b""
    self_seed: bytes = b""
    peers: dict[int, Peer] = field(default_factory=dict)
    own_share: bytes = b""
    shares: dict[int, tuple[bytes, bytes]] = field(default_factory=dict)
    revealed: dict[int, Secret] = field(default_factory=dict)

    def to_bytes(self) -> bytes:
        """Return the state as JSON, bytes in hexadecimal, lists of keys in one piece."""
        plain = {name: getattr(self, name) for name in _PLAIN}
        blobs = {name: getattr(self, name).hex() for name in _BLOBS}
        columns = {
            "peers": list(self.peers),
            "names": [peer.name for peer in self.peers.values()],
            "mask_keys": _joined(peer.mask_key for peer in self.peers.values()),
            "open_keys": _joined(peer.open_key for peer in self.peers.values()),
            "owners": list(self.shares),
            "self_shares": _joined(pair[0] for pair in self.shares.values()),
            "key_shares": _joined(pair[1] for pair in self.shares.values()),
            "revealed": list(self.revealed.items()),
        }
        return json.dumps(plain | blobs | columns, separators=(",", ":")).encode()

    @classmethod
    def from_bytes(cls, data: bytes) -> ClientState:
        """Return the state that `to_bytes` gave."""
        try:
            raw: dict[str, Any] = json.loads(data)
            values: dict[str, Any] = {name: raw[name] for name in _PLAIN}
            values |= {name: bytes.fromhex(raw[name]) for name in _BLOBS}
            state = cls(**values)
            state.stage = Stage(state.stage)
            count = len(raw["peers"])
            keys = _parts(raw["mask_keys"], count), _parts(raw["open_keys"], count)
            state.peers = dict(zip(raw["peers"], map(Peer, raw["names"], *keys), strict=True))
            count = len(raw["owners"])
            pairs = zip(
                *(_parts(raw["self_shares"], count), _parts(raw["key_shares"], count)), strict=True
            )
            state.shares = dict(zip(raw["owners"], pairs, strict=True))
            state.revealed = {index: Secret(kind) for index, kind in raw["revealed"]}
            return state
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise Refused("this client's state of secure aggregation is damaged") from error


_PLAIN = ("number", "index", "name", "clients", "fraction_bits", "stage", "threshold")
_BLOBS = ("session", "cipher_private", "mask_private", "self_seed", "own_share")


def _joined(parts: Iterable[bytes]) -> str:
    return b"".join(parts).hex()


def _parts(text: str, count: int) -> list[bytes]:
    """Cut what `_joined` made into ``count`` pieces of equal length."""
    data, size = bytes.fromhex(text), len(text) // 2 // max(count, 1)
    return [data[start * size : (start + 1) * size] for start in range(count)]
