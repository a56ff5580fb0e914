"""The messages of the four stages, as flat records that any transport can carry.

    1  Hello      ->  Advert      keys of this round
    2  Directory  ->  Sealed      shares of both secrets, sealed to each neighbour
    3  Delivery   ->  Masked      the neighbours' shares; back comes the masked vector
    4  Question   ->  Shares      one share for every neighbour, of one secret or of the other

Every field is an int, a str, bytes, or a list of one of them. `parse` trusts nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, TypeVar

from .errors import BadMessage
from .ring import Layout

M = TypeVar("M")
Fields = dict[str, Any]

_KINDS = {"int": int, "str": str, "bytes": bytes}
_MOST_BYTES = 1 << 12


@dataclass(frozen=True)
class Hello:
    """Server to client: a new round; this is how you are called in it."""

    session: bytes
    number: int
    index: int
    name: str
    clients: int
    fraction_bits: int


@dataclass(frozen=True)
class Advert:
    """Client to server: its two public keys, signed or with an empty signature."""

    cipher_key: bytes
    mask_key: bytes
    signature: bytes


@dataclass(frozen=True)
class Directory:
    """Server to client: its neighbours and their adverts."""

    session: bytes
    number: int
    threshold: int
    peers: list[int]
    names: list[str]
    cipher_keys: list[bytes]
    mask_keys: list[bytes]
    signatures: list[bytes]


@dataclass(frozen=True)
class Sealed:
    """Client to server: a sealed pair of shares for each peer, and the self seed's commitment."""

    commitment: bytes
    peers: list[int]
    sealed: list[bytes]


@dataclass(frozen=True)
class Delivery:
    """Server to client: what its neighbours sealed for it."""

    session: bytes
    number: int
    peers: list[int]
    sealed: list[bytes]


@dataclass(frozen=True)
class Masked:
    """Client to server, beside the masked vector: names and shapes of its parts."""

    names: list[str]
    ranks: list[int]
    sizes: list[int]


@dataclass(frozen=True)
class Question:
    """Server to client: whose masked vector came, and whose did not."""

    session: bytes
    number: int
    survivors: list[int]
    dropped: list[int]


@dataclass(frozen=True)
class Shares:
    """Client to server: shares of survivors' self seeds and of dropped clients' mask keys."""

    survivors: list[int]
    self_shares: list[bytes]
    dropped: list[int] = field(default_factory=list)
    key_shares: list[bytes] = field(default_factory=list)


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
    return not isinstance(value, bytes | str) or len(value) <= _MOST_BYTES


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) < 40 else f"{text[:40]}..."


def layout_fields(layout: Layout) -> Masked:
    """Return a layout as a message."""
    return Masked(
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
