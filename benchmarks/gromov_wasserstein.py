"""Gromov-Wasserstein between all graphs of a data set, next to a loop over POT's solver.

Embeddings come from two graph convolutions with random weights and a softmax, from the data set's
node labels: nothing is trained, as only the time and the values of distances matter here.
``encoded`` is the multi-bit encoding of them with m = 1. Distances between rows are Euclidean.

Ours is `pairwise` as a user calls it, its processes' start included. The peer is what a user of POT
writes, ``ot.gromov.gromov_wasserstein`` pair after pair on one core; it solves a random sample of
the pairs, before and after ours. Both use one BLAS thread a process. Values are compared on the
sample, within 1e-4: on embeddings they must agree on 99 % of it and not be above in the mean.
Encoded rows have three distances only, so that POT's value changes if nodes are renumbered, on the
share of pairs that is reported; there POT, started at our plan, must stay at our value.
"""

from __future__ import annotations

import os
import time
from importlib import import_module, metadata
from typing import Any

import numpy as np
import scipy.sparse as sp
from joblib.externals.loky import get_reusable_executor
from numpy.typing import NDArray
from scipy.spatial.distance import cdist

from apps.common.tables import DataError
from apps.common.threads import one_blas_thread
from apps.experiments.datasets import dataset
from privacy.mechanisms.multibit import MultiBit, encode
from strategies.gromov_wasserstein.pair import gromov_wasserstein
from strategies.gromov_wasserstein.pairwise import pairwise

Matrix = NDArray[np.float64]

SAME, REPEATS, HIDDEN = 1e-4, 3, 16
WORKERS = 2


def mutag() -> list[dict[str, Any]]:
    """Return one entry: all pairs of MUTAG's embeddings."""
    return _entry("gw-mutag", "MUTAG", "embeddings", graphs=188, sample=2000)


def proteins() -> list[dict[str, Any]]:
    """Return one entry: a sample of the graphs of PROTEINS."""
    return _entry("gw-proteins", "PROTEINS", "embeddings", graphs=120, sample=1000)


def encoded() -> list[dict[str, Any]]:
    """Return one entry: embeddings of PROTEINS after the encoder, one bit a row."""
    return _entry("gw-encoded", "PROTEINS", "encoded embeddings, m = 1,", graphs=300, sample=2000)


def mutag_all() -> list[dict[str, Any]]:
    """Return one entry: MUTAG from its files to the matrix of distances."""
    name = "gw-mutag-all"
    try:
        dataset("MUTAG")
    except DataError as error:
        return _skipped(name, error)
    with one_blas_thread():
        seconds, found = [], np.zeros(0)
        for _ in range(REPEATS):
            _end_processes()
            begin = time.perf_counter()
            found = pairwise(distances(embeddings("MUTAG")), workers=WORKERS)
            seconds.append(time.perf_counter() - begin)
        begin = time.perf_counter()
        matrices = distances(embeddings("MUTAG"))
        reading = time.perf_counter() - begin
        pairs, sample = _pairs(len(matrices), 4000)
        spent, theirs = _pot(matrices, sample)
    _check_equal(found[sample[:, 0], sample[:, 1]], theirs)
    ours, peer = float(np.median(seconds)), reading + spent * len(pairs) / len(sample)
    setting = (
        f"{len(matrices)} graphs, {len(pairs):,} pairs, from the files to the matrix, {WORKERS} "
        f"processes; POT's loop scaled from {len(sample):,} pairs"
    )
    return [_result(name, ours, peer, "s", setting)]


def embeddings(name: str, seed: int = 0) -> list[Matrix]:
    """Return rows (n, number of node labels) in [0, 1] for each graph of a TU data set."""
    raw = dataset(name) / "raw"

    def read(kind: str) -> NDArray[np.int64]:
        text = (raw / f"{name}_{kind}.txt").read_text().replace(",", " ")
        return np.array(text.split(), dtype=np.int64)

    ends, owner, labels = read("A").reshape(-1, 2) - 1, read("graph_indicator"), read("node_labels")
    n = owner.size
    links = sp.csr_array((np.ones(len(ends)), (ends[:, 0], ends[:, 1])), shape=(n, n))
    links = links + sp.eye_array(n)
    scale = sp.diags_array(1.0 / np.sqrt(links.sum(axis=1)))
    spread = scale @ links @ scale  # of a graph convolution
    features = np.eye(labels.max() + 1)[labels]
    h = features.shape[1]
    generator = np.random.default_rng(seed)
    first = generator.normal(size=(h, HIDDEN)) * np.sqrt(2.0 / (h + HIDDEN))
    second = generator.normal(size=(HIDDEN, h)) * np.sqrt(2.0 / (h + HIDDEN))
    logits = 3.0 * (spread @ np.maximum(spread @ features @ first, 0.0) @ second)
    rows = np.exp(logits - logits.max(axis=1, keepdims=True))
    rows /= rows.sum(axis=1, keepdims=True)
    return np.split(rows, np.flatnonzero(np.diff(owner)) + 1)


def distances(rows: list[Matrix]) -> list[Matrix]:
    """Return Euclidean distances within each graph."""
    return [cdist(x, x) for x in rows]


def _entry(name: str, data: str, kind: str, graphs: int, sample: int) -> list[dict[str, Any]]:
    try:
        rows = embeddings(data)
    except DataError as error:
        return _skipped(name, error)
    generator = np.random.default_rng(1)
    chosen = np.sort(generator.permutation(len(rows))[:graphs])
    rows = [rows[i] for i in chosen]
    if kind.startswith("encoded"):
        code = MultiBit(h=rows[0].shape[1], eps_row=1.0, m=1)
        rows = [encode(x, code, generator).astype(float) for x in rows]
    matrices = distances(rows)
    pairs, some = _pairs(len(matrices), sample)
    with one_blas_thread():
        before, theirs = _pot(matrices, some)
        measured = [_ours(matrices, WORKERS) for _ in range(REPEATS)]
        alone = 1e3 * _ours(matrices, 1)[0] / len(pairs)
        after, _ = _pot(matrices, some)
        values = measured[0][1][some[:, 0], some[:, 1]]
        if kind.startswith("encoded"):
            more = _check_stays(matrices, some, values, theirs)
        else:
            more = _check_equal(values, theirs)
    ours = 1e3 * float(np.median([spent for spent, _ in measured])) / len(pairs)
    peer = 1e3 * (before + after) / 2.0 / len(some)
    setting = (
        f"{data} {kind} {len(matrices)} graphs, {len(pairs):,} pairs, {WORKERS} processes; one "
        f"process {alone:.3g} ms ({peer / alone:.3g} times); POT on {len(some):,} pairs"
    )
    sizes = {"nodes": float(np.mean([len(c) for c in matrices])), "one_process": alone}
    return [{**_result(name, ours, peer, "ms a pair", setting), **sizes, **more}]


def _ours(matrices: list[Matrix], workers: int) -> tuple[float, Matrix]:
    _end_processes()
    begin = time.perf_counter()
    found = pairwise(matrices, workers=workers)
    return time.perf_counter() - begin, found


def _end_processes() -> None:
    """End the processes that joblib keeps for the next call, so that it has to start its own."""
    get_reusable_executor().shutdown(wait=True)


def _pot(matrices: list[Matrix], pairs: NDArray[np.int64]) -> tuple[float, Matrix]:
    solver: Any = import_module("ot").gromov.gromov_wasserstein
    weights = [np.full(len(c), 1.0 / len(c)) for c in matrices]
    begin = time.perf_counter()
    values = [
        solver(matrices[i], matrices[j], weights[i], weights[j], log=True)[1]["gw_dist"]
        for i, j in pairs
    ]
    return time.perf_counter() - begin, np.array(values)


def _check_equal(ours: Matrix, theirs: Matrix) -> dict[str, float]:
    differ = float(np.mean(np.abs(ours - theirs) > SAME * theirs + 1e-9))
    mean = float(ours.mean() / theirs.mean() - 1.0)
    if differ > 0.01 or mean > SAME:
        raise RuntimeError(f"values differ on {differ:.2%} of the pairs, in the mean by {mean:.2e}")
    return {"share_that_differs": differ, "mean_relative_difference": mean}


def _check_stays(
    matrices: list[Matrix], pairs: NDArray[np.int64], ours: Matrix, theirs: Matrix
) -> dict[str, float]:
    solver: Any = import_module("ot").gromov.gromov_wasserstein
    generator = np.random.default_rng(2)
    moved = other = 0
    for (i, j), value, peer in zip(pairs, ours, theirs, strict=True):
        a, b = matrices[i], matrices[j]
        plan = gromov_wasserstein(a, b).plan
        stayed = solver(a, b, G0=plan, log=True)[1]["gw_dist"]
        moved += abs(stayed - value) > SAME * value + 1e-9
        order = generator.permutation(len(a))
        renumbered = solver(a[np.ix_(order, order)], b, log=True)[1]["gw_dist"]
        other += abs(renumbered - peer) > SAME * peer + 1e-9
    if moved > 0.01 * len(pairs):
        raise RuntimeError(f"POT leaves our plan on {moved} of {len(pairs)} pairs")
    return {
        "share_where_pot_leaves_our_plan": moved / len(pairs),
        "share_where_pot_differs_from_pot_renumbered": other / len(pairs),
        "share_that_differs": float(np.mean(np.abs(ours - theirs) > SAME * theirs + 1e-9)),
        "mean_relative_difference": float(ours.mean() / theirs.mean() - 1.0),
    }


def _pairs(count: int, sample: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return all pairs and some of them."""
    pairs = np.column_stack(np.triu_indices(count, k=1)).astype(np.int64)
    some = np.random.default_rng(3).permutation(len(pairs))[:sample]
    return pairs, pairs[np.sort(some)]


def _result(name: str, ours: float, peer: float, unit: str, setting: str) -> dict[str, Any]:
    return {
        "name": name,
        "ours": ours,
        "peer": peer,
        "peer_version": f"POT {metadata.version('pot')}, one core",
        "ratio": peer / ours,
        "unit": unit,
        "setting": f"{setting}; {os.cpu_count()} cores",
    }


def _skipped(name: str, error: DataError) -> list[dict[str, Any]]:
    print(f"{name}: skipped, {error}")
    return []
