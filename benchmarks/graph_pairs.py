"""Pairs of graphs for the benchmarks of Gromov-Wasserstein: their data, and how peers solve them.

Embeddings come from two graph convolutions with random weights and a softmax, from the data set's
node labels: nothing is trained, as only the time and the values of distances matter here. Distances
between rows are Euclidean.

A loop returns the seconds on the clock and the values of some pairs, on one core:

- `pot`: what users of POT write, ``ot.gromov.gromov_wasserstein`` pair after pair;
- `cajal`: ``cajal.gw_cython.gw_cython_core``, the compiled function behind its ``gw_pairwise`` and
  ``gw_pairwise_parallel``, on cells that were prepared before. It tells half the root of the
  discrepancy; here it is the discrepancy.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from importlib import import_module, metadata
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.spatial.distance import cdist

from trellis.apps.experiments.datasets import dataset

from .peers import ask

Matrix = NDArray[np.float64]
Pairs = NDArray[np.int64]
Loop = Callable[[list[Matrix], Pairs], tuple[float, Matrix]]

HIDDEN = 16
_WARM_UP = """
import time
from trellis.strategies.gromov_wasserstein.many import ready, warm_up
begin = time.perf_counter()
ready()
warm_up()
print(time.perf_counter() - begin)
"""


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


def some_pairs(count: int, sample: int) -> tuple[Pairs, Pairs]:
    """Return all pairs and some of them."""
    pairs = np.column_stack(np.triu_indices(count, k=1)).astype(np.int64)
    some = np.random.default_rng(3).permutation(len(pairs))[:sample]
    return pairs, pairs[np.sort(some)]


def pot(matrices: list[Matrix], pairs: Pairs) -> tuple[float, Matrix]:
    """Solve pairs by POT."""
    solver: Any = import_module("ot").gromov.gromov_wasserstein
    weights = [np.full(len(c), 1.0 / len(c)) for c in matrices]
    begin = time.perf_counter()
    values = [
        solver(matrices[i], matrices[j], weights[i], weights[j], log=True)[1]["gw_dist"]
        for i, j in pairs
    ]
    return time.perf_counter() - begin, np.array(values)


def cajal(matrices: list[Matrix], pairs: Pairs) -> tuple[float, Matrix]:
    """Solve pairs by CAJAL, in its own environment; what it imports is not timed."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "pairs.npz"
        sizes = np.array([len(c) for c in matrices])
        np.savez(
            path, pairs=pairs, sizes=sizes, entries=np.concatenate([c.ravel() for c in matrices])
        )
        found = ask("cajal", {"path": str(path)})
    return found["seconds"], np.array(found["values"])


def version_of(loop: Loop) -> str:
    """Return a peer's name and version."""
    if loop is pot:
        return f"POT {metadata.version('pot')}"
    wanted = (Path(__file__).parent / "peers" / "cajal.txt").read_text().split()
    return f"CAJAL {next(line for line in wanted if line.startswith('cajal==')).split('==')[1]}"


def warm_up_seconds(**environment: str) -> float:
    """Return how long a new process takes to import numba and what it compiled before."""
    done = subprocess.run(
        [sys.executable, "-c", _WARM_UP],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        cwd=Path(__file__).parents[1],
        env={**os.environ, **environment},
    )
    return float(done.stdout)


def compile_seconds() -> float:
    """Return the same where nothing was compiled before."""
    with tempfile.TemporaryDirectory() as empty:
        return warm_up_seconds(NUMBA_CACHE_DIR=empty)
