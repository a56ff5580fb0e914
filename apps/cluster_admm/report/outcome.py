"""What a run of cluster-admm left behind, checked: for its report and its files.

    models     w_{s,q}  (S, Q, d)     what server s has for cluster q
    homes      s_k      (K,)          the server of client k, 0 to S - 1
    groups     q_k      (K,)          its cluster in the run, 0 to Q - 1
    clients    (K, d)                 the model that client k uses
    adjacency  A        (S, S) bool   which servers are joined; None where the run does not tell
    truth, true_groups  (Q*, d), (K,) what synthetic data was made from; None for own data

Where servers are apart, models and clients of some may be unknown: rows of ``models`` are nan then.

A cluster's *copies* are the w_{s,q} of the servers s that have clients of it, or of all servers
where none has: what the others hold serves nobody. Its mean, and its disagreement, the root mean
square distance of copies to their mean, are over those. Copies that are unknown do not count.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.spatial.distance import cdist

from trellis.apps.common.own_data.scaling import parameter_names
from trellis.apps.common.results import RunResult
from trellis.apps.pages.network import known_servers

from ..problem import nmsd

Array = NDArray[np.float64]
Places = NDArray[np.intp]


@dataclass(frozen=True, eq=False)
class Outcome:
    """The arrays of a run; symbols and shapes as the module has them."""

    models: Array
    homes: Places
    groups: Places
    clients: Array
    adjacency: NDArray[np.bool_] | None
    truth: Array | None
    true_groups: Places | None
    server_names: Sequence[str]
    client_names: Sequence[str]
    variables: Sequence[str]

    @classmethod
    def of(cls, result: RunResult) -> Outcome | None:
        """Return what the run learned; None where models, homes or clusters are missing or bad."""
        arrays = result.arrays
        models = _models(arrays.get("models"))
        if models is None:
            return None
        servers, count, size = models.shape
        homes = _places(arrays.get("homes"), servers)
        groups = _places(arrays.get("clusters"), count)
        if homes is None or groups is None or homes.size != groups.size:
            return None
        clients = _reals(arrays.get("clients"), 2)
        if clients is None or clients.shape != (homes.size, size):
            clients = models[homes, groups]
        named = [str(name) for name in np.ravel(arrays.get("server_names", ()))]
        named = [str(name) for name in result.network.get("names", named)]
        return cls(
            models,
            homes,
            groups,
            clients,
            _adjacency(arrays.get("adjacency"), servers),
            *_truth(arrays, homes.size, size),
            _names(named, servers, "server-"),
            _names([str(c.get("name", "")) for c in result.clients], homes.size, "client-"),
            parameter_names(result.variables, size) or [f"w{i}" for i in range(size)],
        )

    @property
    def cluster_names(self) -> list[str]:
        """Q names; numbers are those of a node config and of ``assignment.csv``."""
        return [f"cluster {q}" for q in range(self.models.shape[1])]

    @cached_property
    def counts(self) -> Places:
        """(S, Q), how many clients of a cluster a server has."""
        found = np.zeros(self.models.shape[:2], dtype=np.intp)
        np.add.at(found, (self.homes, self.groups), 1)
        return found

    @cached_property
    def known(self) -> NDArray[np.bool_]:
        """(S,), of which servers the models are known."""
        return known_servers(self.models)

    @property
    def held(self) -> list[int | None]:
        """S numbers of clients; None where a server's are not known."""
        counts = self.counts.sum(axis=1).tolist()
        return [count if here else None for count, here in zip(counts, self.known, strict=True)]

    def copies(self, cluster: int) -> Places:
        """Return the servers whose copy of a cluster's model counts."""
        used = np.flatnonzero((self.counts[:, cluster] > 0) & self.known)
        return used if used.size else np.flatnonzero(self.known)

    @cached_property
    def means(self) -> Array:
        """(Q, d), the mean copy of every cluster."""
        return np.stack(
            [self.models[self.copies(q), q].mean(axis=0) for q in range(self.models.shape[1])]
        )

    @cached_property
    def disagreement(self) -> Array:
        """(Q,), of every cluster's copies; nan where one is known and others are not."""
        apart = [self.models[self.copies(q), q] - mean for q, mean in enumerate(self.means)]
        found = np.array([np.sqrt(np.mean(np.sum(gap**2, axis=1))) for gap in apart])
        told = np.array([len(gap) > 1 or bool(self.known.all()) for gap in apart])
        return np.where(told, found, np.nan)

    def nmsd_of(self, members: NDArray[np.bool_]) -> float | None:
        """Return the NMSD (50), in dB, over some clients; None where it cannot be known."""
        if self.truth is None or self.true_groups is None or not members.any():
            return None
        return nmsd(self.clients[members], self.truth[self.true_groups[members]])


def distances(points: Array) -> Array:
    """Return the Euclidean distances (n, n) between points (n, d)."""
    return np.asarray(cdist(points, points), dtype=np.float64)


def _models(array: Any) -> Array | None:
    """Return the models (S, Q, d) with rows of nan for servers that are unknown, or None."""
    found = np.asarray([] if array is None else array)
    if found.ndim != 3 or not found.size or found.dtype.kind not in "fiu":
        return None
    models = found.astype(np.float64)
    known = known_servers(models)
    bad = np.isinf(models).any() or not known.any() or not np.isnan(models[~known]).all()
    return None if bad else models


def _reals(array: Any, dimensions: int) -> Array | None:
    """Return a finite array with as many dimensions, none of them empty, or None."""
    found = np.asarray([] if array is None else array)
    if found.ndim != dimensions or not found.size or found.dtype.kind not in "fiu":
        return None
    return found.astype(np.float64) if np.all(np.isfinite(found)) else None


def _places(array: Any, count: int) -> Places | None:
    """Return whole numbers (K,) from 0 to ``count - 1``, or None."""
    found = np.asarray([] if array is None else array)
    if found.ndim != 1 or not found.size or found.dtype.kind not in "iu":
        return None
    return found.astype(np.intp) if found.min() >= 0 and found.max() < count else None


def _adjacency(array: Any, servers: int) -> NDArray[np.bool_] | None:
    found = np.asarray([] if array is None else array)
    if found.shape != (servers, servers) or found.dtype.kind not in "biuf":
        return None
    if not np.all(np.isfinite(found)):
        return None
    joined = found.astype(np.bool_)
    return (joined | joined.T) & ~np.eye(servers, dtype=np.bool_)


def _truth(arrays: Any, clients: int, size: int) -> tuple[Array | None, Places | None]:
    """Return the true models and clusters, both or neither."""
    truth = _reals(arrays.get("truth"), 2)
    if truth is None or truth.shape[1] != size or not np.all(np.any(truth, axis=1)):
        return None, None
    groups = _places(arrays.get("true_clusters"), len(truth))
    return (None, None) if groups is None or groups.size != clients else (truth, groups)


def _names(known: Sequence[str], count: int, otherwise: str) -> Sequence[str]:
    """Return ``count`` names: those that are known, where there is one each and no two alike."""
    if len(known) == count == len(set(known)):
        return list(known)
    return [f"{otherwise}{i}" for i in range(count)]
