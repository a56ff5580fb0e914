"""Which of a device's own records are kept out of learning, to score what comes of it.

The number of records that are held out is public (the studies say how many, by their count and the
setting ``held-out``); which ones they are goes by their places alone, never by what is in them, so
a record replaced stays on its side. In a simulation places are drawn from the run's seed, and so
they are on a device with ``privacy = "none"``: the same records score the result on every runtime.
Otherwise a device draws them from its secret: the same at every message and in every run over as
many records, and no server knows them or chooses them by the seed.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from trellis.apps.common.node import Node
from trellis.apps.common.seeds import generator
from trellis.apps.common.tables import DataError, Table
from trellis.privacy.mechanisms.noise import device_secret, release_noise

Rows = NDArray[np.bool_]


def held_out_rows(count: int, number: int, node: Node, seed: int, privacy: str = "dp") -> Rows:
    """Return which of ``count`` rows (n,) are held out, ``number`` of them.

    Raises
    ------
    DataError
        On a device without a folder for its secret; of ``number = 0`` none is needed.
    """
    if number <= 0:
        return np.zeros(count, dtype=np.bool_)
    if is_public(node, privacy):
        return drawn_rows(count, number, generator(seed, "held out"))
    return drawn_rows(count, number, own_places(node, count))


def is_public(node: Node, privacy: str) -> bool:
    """Return whether the run's seed says which records are held out."""
    return node.simulated or privacy == "none"


def split(
    table: Table, number: int, node: Node, seed: int, privacy: str = "dp"
) -> tuple[Table, NDArray[np.float64]]:
    """Return the records of a table to learn from, and the values (number, d) of those held out."""
    out = held_out_rows(len(table.values), number, node, seed, privacy)
    if not out.any():
        return table, table.values[:0]
    return replace(table, values=table.values[~out]), table.values[out]


def own_places(node: Node, count: int) -> np.random.Generator:
    """Return a device's generator of places among ``count`` records, the same at every message."""
    if node.state_path is None:
        raise DataError(f"{node.name}: no folder for its secret; set state-path in --node-config")
    secret = device_secret(node.state_path)
    drawn = release_noise(secret, "held out", str(count)).bytes(32)
    return np.random.default_rng(int.from_bytes(drawn, "big"))


def drawn_rows(count: int, number: int, rng: np.random.Generator) -> Rows:
    """Return ``number`` of ``count`` rows (n,), drawn by ``rng``."""
    rows = np.zeros(count, dtype=np.bool_)
    rows[rng.permutation(count)[:number]] = True
    return rows
