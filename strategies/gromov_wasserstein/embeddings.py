"""Embeddings that clients release: what one must look like, and all of them together.

Of N graphs with n_1, ..., n_N nodes and rows of length h, one below the other:

    codes (n_1 + ... + n_N, h)   int8 in {-1, 0, 1}; float64 in [0, 1] where nothing is encoded
    second (same, or 0 rows)     another, independent encoding, where one is sent
    sizes, owner, labels, moment (N,)   the n_k; the node; -1 unknown; the round of the release

A release costs budget, so what came is kept: a client that fails later keeps its rows from an
earlier release, which other weights made. ``moment`` says which.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from flwr.app import RecordDict
from numpy.typing import NDArray

from trellis.strategies.core import wire
from trellis.strategies.core.wire import BadReply

Integers = NDArray[np.int64]
Bits = Callable[[int], int]


@dataclass(frozen=True)
class ReleaseTerms:
    """What server and clients agree on; public, and free of data.

    Attributes
    ----------
    width : h
    bits : m for a graph with so many nodes; None where rows are sent as they are
    of_graph : m is of a whole graph, not of each of its rows
    encodings : how many encodings of a graph are sent, 1 or 2
    """

    width: int
    bits: Bits | None = None
    of_graph: bool = False
    encodings: int = 1

    @property
    def names(self) -> tuple[str, ...]:
        """The arrays of rows in a reply."""
        return ("rows",) if self.bits is None else ("codes", "second")[: self.encodings]


@dataclass(frozen=True)
class Embeddings:
    """One client's release, checked: ``rows``, one array an encoding, and its graphs."""

    rows: tuple[NDArray[Any], ...]
    sizes: Integers
    labels: Integers


class Released:
    """The embeddings of all clients; the arrays are those of the module."""

    def __init__(self, terms: ReleaseTerms) -> None:
        self.terms = terms
        kind = np.float64 if terms.bits is None else np.int8
        self.codes: NDArray[Any] = np.zeros((0, terms.width), kind)
        self.second: NDArray[Any] = np.zeros((0, terms.width), kind)
        self.sizes, self.labels, self.moment = np.zeros((3, 0), np.int64)
        self.owner = np.zeros(0, np.uint64)  # as node ids are

    def moment_of(self, client: int) -> int:
        """Return the round that a client's embeddings are from; 0 is none."""
        return int(np.max(self.moment[self.owner == client], initial=0))

    def keep(self, server_round: int, good: Mapping[int, Embeddings]) -> None:
        """Put embeddings in the place of the same clients' old ones; clients stay in order."""
        old = ~np.isin(self.owner, np.array(list(good), np.uint64))
        stay = np.repeat(old, self.sizes)
        new = list(good.values())
        owners = np.repeat(np.array(list(good), np.uint64), [len(e.sizes) for e in new])
        owner = np.concatenate([self.owner[old], owners])
        sizes = np.concatenate([self.sizes[old], *(e.sizes for e in new)])
        labels = np.concatenate([self.labels[old], *(e.labels for e in new)])
        moment = np.concatenate([self.moment[old], np.full(len(owners), server_round)])
        rows = np.argsort(np.repeat(owner, sizes), kind="stable")
        self.codes = np.concatenate([self.codes[stay], *(e.rows[0] for e in new)])[rows]
        if len(self.terms.names) == 2:
            self.second = np.concatenate([self.second[stay], *(e.rows[1] for e in new)])[rows]
        order = np.argsort(owner, kind="stable")
        self.owner, self.sizes = owner[order], sizes[order]
        self.labels, self.moment = labels[order], moment[order]

    def state(self) -> dict[str, NDArray[Any]]:
        """Return the arrays."""
        return {name: array for name, array in vars(self).items() if name != "terms"}

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Take back `state`; other entries are let be."""
        for name in self.state():
            setattr(self, name, state[name].copy())


def read_embeddings(content: RecordDict, terms: ReleaseTerms) -> Embeddings:
    """Check a release: sizes and labels of the graphs, rows that fit them and the encoder."""
    arrays = wire.arrays(content["arrays"])
    if set(arrays) != {*terms.names, "sizes", "labels"}:
        raise BadReply(f"holds {sorted(arrays)}, not {sorted([*terms.names, 'sizes', 'labels'])}")
    sizes, labels = arrays["sizes"], arrays["labels"]
    for name, array, least in (("sizes", sizes, 1), ("labels", labels, -1)):
        if array.dtype != np.int64 or array.shape != (sizes.size,) or not sizes.size:
            raise BadReply(f"{name} is {array.dtype} of shape {array.shape}, not int64, a graph")
        if np.min(array) < least:
            raise BadReply(f"{name} has {np.min(array)}, the least is {least}")
    # Against the rows that came, one by one: the sum of sizes that lie can overflow.
    shape = (len(arrays[terms.names[0]]), terms.width)
    if np.max(sizes) > shape[0] or int(np.sum(sizes)) != shape[0]:
        raise BadReply(f"sizes tell of {int(np.sum(sizes))} nodes, there are {shape[0]} rows")
    for name in terms.names:
        if terms.bits is None:
            wire.check_reals(arrays[name], name, shape)
            if shape[0] and not (np.min(arrays[name]) >= 0.0 and np.max(arrays[name]) <= 1.0):
                raise BadReply(f"{name} has an entry outside [0, 1]")
        else:
            _check_codes(arrays[name], name, shape, sizes, terms.bits, terms.of_graph)
    return Embeddings(tuple(arrays[name] for name in terms.names), sizes, labels)


def _check_codes(
    codes: NDArray[Any],
    name: str,
    shape: tuple[int, int],
    sizes: Integers,
    bits: Bits,
    of_graph: bool,
) -> None:
    if codes.dtype != np.int8 or codes.shape != shape:
        raise BadReply(f"{name} is {codes.dtype} of shape {codes.shape}, not int8 of shape {shape}")
    if np.min(codes) < -1 or np.max(codes) > 1:
        raise BadReply(f"{name} has an entry that is not -1, 0 or 1")
    by_size = {int(n): bits(int(n)) for n in np.unique(sizes)}
    wanted = np.array([by_size[int(n)] for n in sizes])
    sent = np.count_nonzero(codes, axis=1)
    if of_graph:
        sent = np.add.reduceat(sent, np.cumsum(sizes) - sizes)
    else:
        wanted = np.repeat(wanted, sizes)
    wrong = np.flatnonzero(sent != wanted)
    if wrong.size:
        what = "graph" if of_graph else "row"
        raise BadReply(
            f"{name}: {what} {wrong[0]} has {sent[wrong[0]]} bits, not m={wanted[wrong[0]]}"
        )
