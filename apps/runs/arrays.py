"""Arrays of several servers as one: models by server, clients in order, links one beside the other.

    models         (P, M) or (S, Q, d)   every server's own row; nan where its folder is not given
    centroid       (M,)                  mean of the models that are known, of servers that run
    homes, ...     (K, ...)              clients of all servers, in order of their partitions
    links          (L, 2)                server p that used letters, server m that wrote them
    link_rounds    (R, L)                of which round the letter was that p used: 0 for none, -1
                                         where p has no such round
    link_weights, link_seconds  (R, L)   its weight, when it came by p's clock; nan where unknown

R are the rounds of the gathered metrics. All other arrays must be the same at all servers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trellis.apps.common.results import RunResult
from trellis.apps.common.settings import ConfigError

Arrays = dict[str, NDArray[Any]]

OF_CLIENTS = ("homes", "clusters", "clients", "true_clusters", "personal", "choices")
_LINKS = {"link_rounds": -1, "link_weights": np.nan, "link_seconds": np.nan}


@dataclass(frozen=True)
class Part:
    """What one server left: its number and name in the graph, its folder, its result."""

    server: int
    name: str
    folder: str
    result: RunResult

    @property
    def has_model(self) -> bool:
        """Return whether the run came as far as a model of this server's own."""
        models = self.result.arrays.get("models")
        if models is None or len(models) <= self.server:
            return False
        return not bool(np.any(np.isnan(models[self.server])))

    def rounds(self) -> list[float]:
        """Return the numbers of its rounds."""
        return [row.get("round", k + 1.0) for k, row in enumerate(self.result.metrics)]


def gathered_arrays(parts: Sequence[Part]) -> tuple[Arrays, list[str]]:
    """Return the arrays of servers that have a model, and the names of what was left out.

    Raises
    ------
    ConfigError
        Where arrays do not fit together, naming folder and array.
    """
    told = [part.result.arrays for part in parts]
    found: Arrays = {"models": _models(parts)}
    order = client_order(parts)
    left_out = []
    for name in dict.fromkeys(name for arrays in told for name in arrays):
        held = [arrays[name] for arrays in told if name in arrays]
        if name in ("models", "centroid", "alive", *_LINKS):
            continue
        if len(held) < len(parts):
            left_out.append(name)
        elif name in OF_CLIENTS:
            found[name] = _of_clients(name, parts, order)
        elif all(_same(array, held[0]) for array in held):
            found[name] = held[0]
        else:
            left_out.append(name)
    if all("alive" in arrays for arrays in told):
        found["alive"] = _alive(parts)
    if found["models"].ndim == 2:
        found["centroid"] = _centroid(found)
    return found, left_out


def client_order(parts: Sequence[Part]) -> list[tuple[int, int]]:
    """Return part and place of every client, in order of partitions."""
    places = [
        (int(client.get("partition", place)), number, place)
        for number, part in enumerate(parts)
        for place, client in enumerate(part.result.clients)
    ]
    return [(number, place) for _, number, place in sorted(places)]


def gathered_links(parts: Sequence[Part], rounds: Sequence[float]) -> Arrays:
    """Return which letters servers used in ``rounds``; empty where no server tells."""
    known = [part for part in parts if "link_rounds" in part.result.arrays]
    ends = [
        (part.server, int(neighbour))
        for part in known
        for neighbour in part.result.network["neighbours"]
    ]
    if not ends:
        return {}
    at = {number: row for row, number in enumerate(rounds)}
    found: Arrays = {"links": np.array(ends, dtype=np.int64)}
    for name, unknown in _LINKS.items():
        kind: type = np.int64 if name == "link_rounds" else np.float64
        whole: NDArray[Any] = np.full((len(rounds), len(ends)), unknown, dtype=kind)
        first = 0
        for part in known:
            count = len(part.result.network["neighbours"])
            array = part.result.arrays.get(name)
            if array is not None:
                own = [at[number] for number in part.rounds()]
                _fitting(part, name, array, (len(own), count))
                whole[own, first : first + count] = array
            first += count
        found[name] = whole
    return found


def disagreement(arrays: Mapping[str, NDArray[Any]]) -> float:
    """Return the mean squared distance of the known models (P, M) to their mean."""
    apart = _known(arrays) - arrays["centroid"]
    return float(np.mean(np.sum(apart**2, axis=1)))


def _models(parts: Sequence[Part]) -> NDArray[Any]:
    first = parts[0].result.arrays["models"]
    found = np.full_like(first, np.nan, dtype=np.float64)
    for part in parts:
        models = part.result.arrays["models"]
        _fitting(part, "models", models, first.shape)
        found[part.server] = models[part.server]
    return found


def _of_clients(name: str, parts: Sequence[Part], order: Sequence[tuple[int, int]]) -> NDArray[Any]:
    held = [part.result.arrays[name] for part in parts]
    for part, array in zip(parts, held, strict=True):
        _fitting(part, name, array, (len(part.result.clients), *held[0].shape[1:]))
    return np.array([held[number][place] for number, place in order], dtype=held[0].dtype)


def _alive(parts: Sequence[Part]) -> NDArray[np.bool_]:
    """Return which servers (P,) run: each by its own word, an absent one by its neighbours'."""
    found = np.ones(parts[0].result.arrays["alive"].shape, dtype=np.bool_)
    for part in parts:
        near = [int(neighbour) for neighbour in part.result.network["neighbours"]]
        found[near] &= part.result.arrays["alive"].astype(np.bool_)[near]
    for part in parts:
        found[part.server] = part.result.arrays["alive"][part.server]
    return found


def _known(arrays: Mapping[str, NDArray[Any]]) -> NDArray[Any]:
    """Return the models that are known, of servers that run; of all known ones if none does."""
    models = arrays["models"]
    known = ~np.isnan(models).any(axis=1)
    running = known & arrays.get("alive", known)
    return models[running if running.any() else known]


def _centroid(arrays: Mapping[str, NDArray[Any]]) -> NDArray[Any]:
    return np.asarray(np.mean(_known(arrays), axis=0))


def _same(one: NDArray[Any], other: NDArray[Any]) -> bool:
    numbers = one.dtype.kind == other.dtype.kind == "f"
    return bool(np.array_equal(one, other, equal_nan=numbers))


def _fitting(part: Part, name: str, array: NDArray[Any], shape: tuple[int, ...]) -> None:
    if array.shape != shape:
        raise ConfigError(
            f"{part.folder}: {name} in result.npz has shape {array.shape}, not {shape} as it must "
            "beside the other folders; is it a folder of this run, and whole?"
        )
