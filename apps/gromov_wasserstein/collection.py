"""A collection of graphs in one place, from its files to the matrix of their distances.

No federation, no privacy: for whoever has the graphs. A folder keeps what was asked for:

    distances.npz   ``distances`` (N, N), ``sizes`` and ``labels`` (N,); where only the k nearest
                    were asked for also ``bounds`` (N, N), ``near``, ``near-distance`` (N, k), and
                    ``distances`` is not-a-number where a pair was not needed
    distances.json  of which graphs and how; pairs, how many of them were solved, seconds
    pairs.npz       values so far: the same question again goes on from there
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from io import BytesIO
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from trellis.apps.common.results import FolderLock, versions, write_atomically
from trellis.apps.common.settings import ConfigError
from trellis.apps.common.tables import DataError, graph_folder
from trellis.strategies.gromov_wasserstein.pairwise import pairwise
from trellis.strategies.gromov_wasserstein.pool import Metric
from trellis.strategies.gromov_wasserstein.pruning.neighbours import nearest
from trellis.strategies.gromov_wasserstein.pruning.partial import PartialDistances

from .config import METRICS
from .distances import between
from .files.npz import read_graphs
from .files.tudataset import read_tudataset
from .graphs import Graph, labels_of, shortest_paths

Progress = Callable[[int, int], None]
Arrays = dict[str, NDArray[Any]]

NODES = ("paths", "features")
FILE, TOLD, CHECKPOINT = "distances.npz", "distances.json", "pairs.npz"


@dataclass(frozen=True, kw_only=True)
class Question:
    """What is asked of a collection.

    Attributes
    ----------
    metric : ``gw``, ``fgw`` or ``wasserstein``, as in the study
    nodes : distances between a graph's nodes: ``paths`` (lengths of shortest paths) or ``features``
        (Euclidean, between their features)
    alpha : of ``fgw``, the weight of structure
    restarts, seed : more starts of every pair
    neighbours : 0 asks for all pairs; k for what the k nearest of each graph need
    """

    metric: str = "gw"
    nodes: str = "paths"
    alpha: float = 0.5
    restarts: int = 0
    seed: int = 0
    neighbours: int = 0

    def __post_init__(self) -> None:
        for name, allowed in (("metric", METRICS), ("nodes", NODES)):
            if getattr(self, name) not in allowed:
                raise ConfigError(
                    f"{name}={getattr(self, name)!r}: is not one of {', '.join(allowed)}"
                )
        if self.neighbours < 0:
            raise ConfigError(f"neighbours={self.neighbours}: must be >= 0")


@dataclass(frozen=True)
class Answer:
    """The arrays of `FILE`, and how much work they were."""

    arrays: Arrays
    pairs: int
    share: float
    seconds: float


def read_collection(path: Path) -> list[Graph]:
    """Return all graphs of an npz file, or of a folder in TUDataset's format.

    Raises
    ------
    DataError
        Where there are none.
    """
    if path.is_dir():
        place = graph_folder(path)
        if place is None or not any(place.glob("*_A.txt")):
            raise DataError(
                f"{path}: no graphs; a folder in the format of TUDataset (NAME_A.txt, or raw/) or "
                "an npz file of graphs is needed"
            )
        return read_tudataset(path)
    if path.suffix.lower() != ".npz":
        raise DataError(f"{path}: no folder and no npz file of graphs")
    return read_graphs(path)


def answer(
    graphs: Sequence[Graph],
    question: Question,
    *,
    workers: int | None = None,
    checkpoint: Path | None = None,
    on_progress: Progress | None = None,
) -> Answer:
    """Return the distances between graphs, all of them or what their nearest need."""
    begin = time.monotonic()
    features = None
    if question.metric != "gw" or question.nodes == "features":
        features = _features(graphs)
    matrices = None
    if question.metric != "wasserstein":
        matrices = (
            [shortest_paths(graph) for graph in graphs]
            if question.nodes == "paths" or features is None
            else [between(rows, "euclidean") for rows in features]
        )
    options: dict[str, Any] = {
        "metric": cast(Metric, question.metric),
        "features": features if question.metric != "gw" else None,
        "alpha": question.alpha,
        "restarts": question.restarts,
        "seed": question.seed,
        "workers": workers,
        "checkpoint": checkpoint,
        "on_progress": on_progress,
    }
    arrays: Arrays = {"sizes": np.array([g.nodes for g in graphs]), "labels": labels_of(graphs)}
    share = 1.0
    if question.neighbours:
        known = PartialDistances.of(matrices, **options)
        found = nearest(known, question.neighbours)
        arrays |= {"distances": known.values, "bounds": known.bounds}
        arrays |= {"near": found.places, "near-distance": found.distances}
        share = known.share
    else:
        arrays["distances"] = pairwise(matrices, **options)
    count = len(graphs)
    return Answer(arrays, count * (count - 1) // 2, share, time.monotonic() - begin)


def keep(
    path: Path,
    question: Question,
    out: Path,
    *,
    workers: int | None = None,
    on_progress: Progress | None = None,
    graphs: Sequence[Graph] | None = None,
) -> Answer:
    """Answer for the graphs in ``path``, into the folder ``out``; go on with what it has.

    Raises
    ------
    CheckpointError
        Where ``out`` has pairs of other graphs, or of another question.
    """
    lock = FolderLock(out)
    try:
        graphs = read_collection(path) if graphs is None else graphs
        found = answer(
            graphs,
            question,
            workers=workers,
            checkpoint=out / CHECKPOINT,
            on_progress=on_progress,
        )
        buffer = BytesIO()
        np.savez(buffer, **cast(Any, found.arrays))
        write_atomically(out / FILE, buffer.getvalue())
        told = {
            "data": str(path),
            "graphs": len(graphs),
            **asdict(question),
            "pairs": found.pairs,
            "share-solved": found.share,
            "seconds": found.seconds,
            "versions": versions(),
        }
        write_atomically(out / TOLD, (json.dumps(told, indent=2) + "\n").encode())
    finally:
        lock.release()
    return found


def _features(graphs: Sequence[Graph]) -> list[NDArray[np.float64]]:
    for number, graph in enumerate(graphs):
        if not graph.features.shape[1]:
            raise DataError(
                f"graph {number + 1} ({graph.source}) has no features of its nodes; compare graphs "
                "by paths, with the metric gw"
            )
    return [graph.features.astype(np.float64) for graph in graphs]
