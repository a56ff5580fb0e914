"""What a run of gromov-wasserstein left behind, checked: for its report and its files.

Of N graphs, in the order of the run's arrays:

    owner, sizes, labels  (N,)     the client, the number of nodes, the class (-1 unknown)
    distances             (N, N)   None where the run ended before they were there, or not all
                                   pairs were needed
    partial               (N, N)   then those that were, and not-a-number elsewhere; else None
    anomaly, outliers     (N,)     None where it was not asked for
    clusters              (N,)     by the name of the method

A graph is called by its owner and its number among the owner's graphs, from 1 as in their file.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trellis.apps.common.results import RunResult

from ..downstream.classify import checked_distances

Array = NDArray[np.float64]
Integers = NDArray[np.int64]

_CLUSTERS = "-clusters"


@dataclass(frozen=True, eq=False)
class Outcome:
    """The arrays of a run; symbols and shapes as the module has them."""

    owner: Integers
    sizes: Integers
    labels: Integers
    distances: Array | None
    partial: Array | None
    anomaly: Array | None
    outliers: Array | None
    clusters: Mapping[str, Integers]
    client_names: Sequence[str]

    @property
    def solved(self) -> Array | None:
        """(N, N), the distances that there are; not-a-number where a pair was not needed."""
        return self.partial if self.distances is None else self.distances

    @classmethod
    def of(cls, result: RunResult) -> Outcome | None:
        """Return what the run learned; None where nothing was released, or it does not fit."""
        arrays = result.arrays
        sizes, owner = _whole(arrays.get("sizes"), 1), _whole(arrays.get("owner"), 0)
        if sizes is None or owner is None or sizes.size != owner.size:
            return None
        count = sizes.size
        labels = _whole(arrays.get("labels"), -1)
        if labels is None or labels.size != count:
            labels = np.full(count, -1, dtype=np.int64)
        found = {
            name.removesuffix(_CLUSTERS): _whole(array, 0)
            for name, array in arrays.items()
            if name.endswith(_CLUSTERS)
        }
        return cls(
            owner,
            sizes,
            labels,
            _distances(arrays.get("distances"), count),
            _partial(arrays, count),
            _reals(arrays.get("anomaly"), count),
            _reals(arrays.get("outliers"), count),
            {name: kept for name, kept in found.items() if kept is not None and kept.size == count},
            _client_names(result, int(owner.max()) + 1),
        )

    @property
    def count(self) -> int:
        """N."""
        return int(self.sizes.size)

    @property
    def known(self) -> NDArray[np.bool_]:
        """(N,), which graphs have a label."""
        return self.labels >= 0

    @property
    def classes(self) -> list[int]:
        """The classes that graphs have."""
        return np.unique(self.labels[self.known]).tolist()

    @cached_property
    def numbers(self) -> Integers:
        """(N,), the graph's number among its owner's, from 1."""
        found = np.zeros(self.count, dtype=np.int64)
        for client in np.unique(self.owner):
            mine = self.owner == client
            found[mine] = np.arange(1, np.count_nonzero(mine) + 1)
        return found

    @property
    def owners(self) -> list[str]:
        """The name of every graph's owner."""
        return [self.client_names[client] for client in self.owner]

    @property
    def names(self) -> list[str]:
        """``owner-number`` of every graph."""
        return [f"{who}-{number}" for who, number in zip(self.owners, self.numbers, strict=True)]


def numbers_of(array: Any) -> Array:
    """Return a vector's finite numbers; empty where it is none."""
    found = np.asarray([] if array is None else array)
    if found.ndim != 1 or found.dtype.kind not in "fiu" or not np.all(np.isfinite(found)):
        return np.zeros(0)
    return found.astype(np.float64)


def _reals(array: Any, count: int) -> Array | None:
    found = numbers_of(array)
    return found if found.size == count else None


def _whole(array: Any, least: int) -> Integers | None:
    """Return whole numbers (N,), N >= 1 and none below ``least``, or None."""
    found = np.asarray([] if array is None else array)
    if found.ndim != 1 or not found.size or found.dtype.kind not in "iu" or found.min() < least:
        return None
    return found.astype(np.int64)


def _distances(array: Any, count: int) -> Array | None:
    found = np.asarray([] if array is None else array)
    if found.shape != (count, count) or found.dtype.kind not in "fiu":
        return None
    try:
        return checked_distances(found)
    except ValueError:
        return None


def _partial(arrays: Mapping[str, Any], count: int) -> Array | None:
    found, bounds = (np.asarray(arrays.get(name, ())) for name in ("distances", "bounds"))
    if found.shape != (count, count) or bounds.shape != (count, count) or not count:
        return None
    if found.dtype.kind != "f" or not np.isnan(found).any():
        return None
    return found.astype(np.float64)


def _client_names(result: RunResult, least: int) -> list[str]:
    """Return the clients' names, or numbers where there are too few names or one is there twice."""
    names = [str(client.get("name", "")) for client in result.clients]
    if len(names) < least or len(set(names)) < len(names):
        return [f"client-{k}" for k in range(max(least, len(names)))]
    return names
