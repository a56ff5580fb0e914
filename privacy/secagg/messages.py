"""The messages, as flat records that any transport can carry.

Once a session:

    keys         Hello      ->  Advert    a public key

    meet         Directory  ->  Met       everyone's keys; where sums are noisy

In every round, the first with the `Directory` beside the order where clients have not met:

    masked       Order      ->  Masked    the payload; back come the masked vector, sealed shares
    consistency  Roll       ->  Agreed    who is in the sum; back come words on it, for neighbours
    unmask       Question   ->  Opened    neighbours' words; back come shares and seeds

Every field is an int, a float, a str, bytes, or a list of one of them; sets of clients are packed
(`pack`), as are rows of equal length. `parse` trusts nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Any, TypeVar

import numpy as np

from .errors import BadMessage
from .graph import MOST_CLIENTS
from .ring import Layout

M = TypeVar("M")
Fields = dict[str, Any]

_KINDS: dict[str, type] = {"int": int, "float": float, "str": str, "bytes": bytes}
# A directory of as many members as there may be; a name or a signature is far shorter.
_MOST_BYTES = 32 * MOST_CLIENTS
_MOST_TEXT = 1 << 12


@dataclass(frozen=True)
class Hello:
    """Server to client: a new session; this is how you are called in it."""

    session: bytes
    index: int
    name: str


@dataclass(frozen=True)
class Advert:
    """Client to server: its public key, signed or with an empty signature."""

    key: bytes
    signature: bytes


@dataclass(frozen=True)
class Directory:
    """Server to client: all members of the session, the same to everyone."""

    session: bytes
    members: bytes
    names: list[str]
    keys: bytes
    signatures: list[bytes]


@dataclass(frozen=True)
class Met:
    """Client to server: the hash of the directory it has accepted."""

    directory: bytes


@dataclass(frozen=True)
class Order:
    """Server to client, beside the payload: a round, the same to all of its group.

    ``largest`` is the declared range of values, 0 the widest that fits; ``stay`` is how many
    clients must be in the sum, or it is not opened.
    """

    session: bytes
    number: int
    group: str
    participants: bytes
    neighbours: int
    threshold: int
    fraction_bits: int
    largest: float
    stay: int = 0


@dataclass(frozen=True)
class Masked:
    """Client to server, beside the masked vector.

    Names and shapes of the vector's parts; a share of the self seed for every neighbour, under a
    pad; a commitment to every holder's share and to every neighbour's pair seed. In the order of
    the neighbours' indices; the client itself is among the holders.
    """

    names: list[str]
    ranks: list[int]
    sizes: list[int]
    sealed: bytes
    share_commitments: bytes
    seed_commitments: bytes


@dataclass(frozen=True)
class Roll:
    """Server to client: whose masked vectors came, the same to all of its group."""

    session: bytes
    number: int
    survivors: bytes


@dataclass(frozen=True)
class Agreed:
    """Client to server: its word on the roll to each surviving neighbour."""

    macs: bytes


@dataclass(frozen=True)
class Question:
    """Server to client: its neighbours' words on the roll, and the shares they sealed for it."""

    session: bytes
    number: int
    signers: bytes
    macs: bytes
    sealed: bytes


@dataclass(frozen=True)
class Opened:
    """Client to server: shares of survivors' self seeds, this round's pair seeds of the dropped."""

    shares: bytes
    seeds: bytes


@dataclass(frozen=True)
class NoSession:
    """Client to server: it knows no such session; it was restarted, or never in it."""

    lost_session: int = 1


def to_fields(message: object) -> Fields:
    """Return a message as a flat dict, without what is empty: Flower's records dislike that."""
    return {
        item.name.replace("_", "-"): value
        for item in fields(message)  # type: ignore[arg-type]
        if (value := getattr(message, item.name)) not in ([], b"")
    }


def parse(kind: type[M], record: Mapping[str, Any]) -> M:
    """Return the message in ``record``; `BadMessage` names what is missing or of another type."""
    values: Fields = {}
    expected = {item.name.replace("_", "-"): item for item in fields(kind)}  # type: ignore[arg-type]
    if strangers := sorted(set(record) - set(expected)):
        raise BadMessage(f"{kind.__name__}: unexpected {', '.join(strangers)}")
    for key, item in expected.items():
        name, of_list = str(item.type), str(item.type).startswith("list[")
        element = _KINDS[name[5:-1] if of_list else name]
        value = record.get(key, [] if of_list else b"" if element is bytes else None)
        parts = value if of_list else [value]
        if not isinstance(parts, list) or not all(_is(part, element) for part in parts):
            raise BadMessage(f"{kind.__name__}: {key} must be {name}, not {_shown(value)}")
        values[item.name] = list(parts) if of_list else value
    return kind(**values)


def _is(value: object, kind: type) -> bool:
    # bool is an int to isinstance; sizes are bounded so that a lie costs no memory.
    if isinstance(value, bool) or not isinstance(value, kind):
        return False
    if isinstance(value, str):
        return len(value) <= _MOST_TEXT
    return not isinstance(value, bytes) or len(value) <= _MOST_BYTES


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) < 40 else f"{text[:40]}..."


def pack(indices: Iterable[int]) -> bytes:
    """Return a set of clients as bytes, in order."""
    return np.array(sorted(indices), dtype="<u4").tobytes()


def unpack(data: bytes, what: str) -> list[int]:
    """Return the clients that `pack` packed: in order, none twice."""
    if len(data) % 4:
        raise BadMessage(f"the {what} are no list of clients")
    indices = np.frombuffer(data, "<u4").astype(np.int64)
    if np.any(np.diff(indices) <= 0) or (indices.size and indices[-1] >= MOST_CLIENTS):
        raise BadMessage(f"the {what} are not in order, named twice, or beyond {MOST_CLIENTS}")
    found: list[int] = indices.tolist()
    return found


def rows(data: bytes, count: int, size: int, what: str) -> list[bytes]:
    """Return ``count`` rows of ``size`` bytes."""
    if len(data) != count * size:
        raise BadMessage(f"{len(data)} bytes of {what}; {count} of {size} bytes are needed")
    return [data[start : start + size] for start in range(0, len(data), size)]


def layout_lists(layout: Layout) -> tuple[list[str], list[int], list[int]]:
    """Return a layout as the lists of `Masked`: names, ranks, sizes."""
    return (
        [name for name, _ in layout],
        [len(shape) for _, shape in layout],
        [size for _, shape in layout for size in shape],
    )


def layout_from(message: Masked) -> Layout:
    """Return the layout of a message, checked."""
    names, ranks, sizes = message.names, message.ranks, message.sizes
    if len(names) != len(ranks) or min(ranks, default=0) < 0 or sum(ranks) != len(sizes):
        raise BadMessage("the layout of the masked vector contradicts itself")
    if not names or names != sorted(set(names)) or min(sizes, default=0) < 0:
        raise BadMessage("the layout needs names in order, once each, and sizes of at least 0")
    layout, start = [], 0
    for name, rank in zip(names, ranks, strict=True):
        layout.append((name, tuple(sizes[start : start + rank])))
        start += rank
    return tuple(layout)
