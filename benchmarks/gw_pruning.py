"""The five nearest graphs of every graph, with few pairs solved, next to all pairs.

Both sides are one process with one BLAS thread and end with the same answer, which is checked: the
places and the distances of the nearest, to the last bit. The peer is our own whole matrix, sorted,
as it is the faster of the two ways there are; what a loop over POT's solver would take is scaled
from a sample of pairs and stands beside it. ``share`` is the part of the pairs of different graphs
that was solved. Graphs are compared by embeddings (`gromov_wasserstein.embeddings`, nothing is
trained), by these after the multi-bit encoder with m = 1, or by the lengths of shortest paths.

Quick is MUTAG by embeddings. Full adds other collections, the ten graphs that are farthest from
their fifth nearest, ten medoids, and PROTEINS by a growing number of graphs.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np

from trellis.apps.common.tables import DataError
from trellis.apps.common.threads import one_blas_thread
from trellis.apps.experiments.datasets import dataset
from trellis.apps.gromov_wasserstein.collection import read_collection
from trellis.apps.gromov_wasserstein.graphs import shortest_paths
from trellis.privacy.mechanisms.multibit import MultiBit, encode
from trellis.strategies.gromov_wasserstein.many import warm_up
from trellis.strategies.gromov_wasserstein.pairwise import pairwise
from trellis.strategies.gromov_wasserstein.pruning.medoids import Medoids, medoids
from trellis.strategies.gromov_wasserstein.pruning.neighbours import Neighbours, nearest, outliers
from trellis.strategies.gromov_wasserstein.pruning.partial import PartialDistances

from .graph_pairs import Matrix, distances, embeddings, pot, some_pairs
from .timing import entry, in_turns

K, COUNT, RUNS = 5, 10, 3
COLLECTIONS = (
    ("MUTAG", "embeddings", 188),
    ("MUTAG", "paths", 188),
    ("IMDB-BINARY", "paths", 200),
    ("PROTEINS", "embeddings", 240),
    ("PROTEINS", "encoded", 240),
)
Asked = Callable[[PartialDistances], Neighbours | Medoids]
QUESTIONS: dict[str, Asked] = {
    "neighbours": lambda known: nearest(known, K),
    "outliers": lambda known: outliers(known, K, COUNT),
    "medoids": lambda known: medoids(known, COUNT),
}


def run(full: bool = False) -> list[dict[str, Any]]:
    """Return one entry per collection and question; those of PROTEINS are a series."""
    asked: list[tuple[str, str, int, str]] = [("MUTAG", "embeddings", 188, "neighbours")]
    if full:
        asked = [(*collection, name) for collection in COLLECTIONS for name in QUESTIONS]
        asked += [("PROTEINS", "embeddings", count, "neighbours") for count in (60, 120)]
    found = []
    for data, kind, graphs, question in asked:
        try:
            found.append(_entry(data, kind, graphs, question))
        except DataError as error:
            print(f"gw-{question} {data}: skipped, {error}")
    return found


def matrices_of(data: str, kind: str, graphs: int) -> list[Matrix]:
    """Return distances between the nodes of some graphs of a data set, drawn once for all."""
    folder = dataset(data)
    generator = np.random.default_rng(1)
    if kind == "paths":
        every = [shortest_paths(graph) for graph in read_collection(folder)]
    else:
        rows = embeddings(data)
        if kind == "encoded":
            code = MultiBit(h=rows[0].shape[1], eps_row=1.0, m=1)
            rows = [encode(x, code, generator).astype(float) for x in rows]
        every = distances(rows)
    chosen = np.sort(np.random.default_rng(1).permutation(len(every))[:graphs])
    return [every[i] for i in chosen]


def _entry(data: str, kind: str, graphs: int, question: str) -> dict[str, Any]:
    matrices, ask = matrices_of(data, kind, graphs), QUESTIONS[question]
    answers: dict[str, Neighbours | Medoids] = {}

    def few() -> float:
        begin = time.perf_counter()
        answers["few"] = ask(PartialDistances.of(matrices, workers=1))
        return time.perf_counter() - begin

    def every() -> float:
        begin = time.perf_counter()
        answers["all"] = ask(PartialDistances.solved(pairwise(matrices, workers=1)))
        return time.perf_counter() - begin

    with one_blas_thread():
        pairs, some = some_pairs(len(matrices), 300)
        spent, _ = pot(matrices, some)
        warm_up()  # numba, for both sides
        ours, peer = in_turns(RUNS, few, every)
        third = ask(PartialDistances.of(matrices, workers=1, third=True))
    share = answers["few"].share
    for answer in (answers["few"], third):
        _check_same(answer, answers["all"])
    series: dict[str, Any] = {}
    if (data, kind, question) == ("PROTEINS", "embeddings", "neighbours"):
        series = {"series": "graphs", "x": len(matrices), "line": "neighbours in PROTEINS"}
    return entry(
        f"gw-{question}-{data.lower()}" + ("" if kind == "embeddings" else f"-{kind}"),
        ours,
        peer,
        peer_version="Trellis, all pairs",
        peer_name="Trellis by all pairs",
        unit="s",
        setting=(
            f"{data} by {kind}, {len(matrices)} graphs, {len(pairs):,} pairs, of which "
            f"{100.0 * share:.1f} % are solved (with the third bound {100.0 * third.share:.1f} %); "
            f"same answers; POT's loop would take {spent * len(pairs) / len(some):.3g} s, scaled "
            f"from {len(some)} pairs"
        ),
        ours_cores=1,
        peer_cores=1,
        share=share,
        share_with_third=third.share,
        **series,
    )


def _check_same(few: Neighbours | Medoids, every: Neighbours | Medoids) -> None:
    for name, value in vars(few).items():
        if name != "share" and not np.array_equal(value, vars(every)[name]):
            raise RuntimeError(f"{name} differ between few pairs and all of them")
