"""The paper's synthetic graphs and signals (Sec. V-A), and a client's own file.

A random geometric graph G_0: d points in the unit square, edge weights exp(-dist^2 / (2 * 0.5^2)),
those below 0.75 dropped. A share q of its edges, drawn at random, is the consensus graph. Every
client adds (1 - q) |E_0| edges of its own among the other pairs; the paper does not say with which
weights, here they are resampled from those of G_0. Signals are Gaussian with covariance
(L + 0.1^2 I)^-1 (33), L the Laplacian of the client's graph.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from trellis.apps.common.node import Node
from trellis.apps.common.own_data.scaling import public_scaling
from trellis.apps.common.seeds import generator
from trellis.apps.common.tables import (
    DataError,
    Table,
    numbered,
    read_table,
    read_tolerantly,
    require_variation,
)

from .config import ConsensusGraphConfig
from .problem import Matrix, Vector, adjacency, edge_vector, statistic

_KERNEL_WIDTH = 0.5
_SMALLEST_WEIGHT = 0.75
_SIGNAL_NOISE = 0.1  # sigma_w in (33)
# Of squared differences between nodes, in the paper's synthetic data with 20 nodes.
MEAN_DIFFERENCE = 0.5


@dataclass(frozen=True)
class Truth:
    """The graphs behind synthetic data: ``consensus`` (p,) and the clients' ``weights`` (I, p)."""

    consensus: Vector
    weights: NDArray[np.float64]


def synthetic_truth(config: ConsensusGraphConfig, seed: int) -> Truth:
    """Return the consensus graph and the clients' graphs of one seed."""
    base, consensus = _shared_graphs(config, seed)
    clients = [_client_graph(base, consensus, seed, i) for i in range(config.clients)]
    return Truth(consensus, np.array(clients))


def synthetic_table(config: ConsensusGraphConfig, seed: int, partition: int) -> Table:
    """Return the signals of one client of the synthetic federation."""
    base, consensus = _shared_graphs(config, seed)
    w = _client_graph(base, consensus, seed, partition)
    counts = config.signal_counts()
    count = counts[partition % len(counts)]
    signals = smooth_signals(adjacency(w), count, generator(seed, "signals", partition))
    return Table(signals, numbered("v", config.nodes), f"synthetic client {partition + 1}")


def client_table(config: ConsensusGraphConfig, seed: int, node: Node) -> Table:
    """Return one node's signals: its own file, or in simulation the synthetic ones.

    With ``privacy = "dp"`` no single signal can make this raise.
    """
    if node.data_path is None:
        return synthetic_table(config, seed, node.partition)
    if config.privacy == "dp":
        return read_tolerantly(node.data_path)
    table = read_table(node.data_path)
    require_variation(table)
    if len(table.columns) < 2:
        raise DataError(
            f"{table.source}: {table.columns[0]!r} is the only column; a graph needs at least 2 "
            "variables"
        )
    return table


def own_units(signals: Matrix) -> tuple[Vector, Vector]:
    """Return offsets and scales (d,) for which a client's signals (N, d) have no units.

    Columns have mean 0 and deviation 1, times one factor for all that gives the squared differences
    between nodes a mean of 1/2. A column that is constant here keeps a scale of its own.
    """
    offset = signals.mean(axis=0)
    deviation = signals.std(axis=0)
    known = deviation > 1e-12 * np.maximum(np.abs(offset), np.finfo(np.float64).tiny)
    deviation = np.where(known, deviation, np.maximum(np.abs(offset), 1.0))
    mean = float(np.mean(statistic((signals - offset) / deviation)))
    return offset, deviation * np.sqrt(mean / MEAN_DIFFERENCE if mean > 0.0 else 1.0)


def in_units(
    config: ConsensusGraphConfig, table: Table, held: Matrix
) -> tuple[Table, Matrix, tuple[Vector, Vector] | None]:
    """Return the signals to learn from and those held out as the settings want them, and how.

    By public scales every signal is mapped by itself. By a client's own, those that are learned
    from decide; with privacy that is never done: one signal replaced would move all others.
    """
    if config.units == "none":
        return table, held, None
    if config.units == "public":
        found = public_scaling(config.scales, table.columns, numbers=False)
        offset, scale = found.offset, found.scale
    else:
        offset, scale = own_units(table.values)
    with np.errstate(over="ignore"):
        values, other = ((x - offset) / scale for x in (table.values, held))
    largest = np.finfo(np.float64).max
    mapped = replace(table, values=np.clip(values, -largest, largest))
    return mapped, np.clip(other, -largest, largest), (offset, scale)


def smooth_signals(weights: Matrix, count: int, rng: np.random.Generator) -> Matrix:
    """Return ``count`` signals (count, d), smooth over the graph ``weights`` (d, d), (33)."""
    laplacian = np.diag(weights.sum(axis=1)) - weights
    eigenvalues, vectors = np.linalg.eigh(laplacian)
    scale = 1.0 / np.sqrt(np.maximum(eigenvalues, 0.0) + _SIGNAL_NOISE**2)
    return (rng.standard_normal((count, weights.shape[0])) * scale) @ vectors.T


@lru_cache(maxsize=4)
def _shared_graphs(config: ConsensusGraphConfig, seed: int) -> tuple[Vector, Vector]:
    """Return G_0 and the consensus graph, both (p,), the same for every client that asks."""
    rng = generator(seed, "shared graph")
    points = rng.random((config.nodes, 2))
    squared = np.sum((points[:, None, :] - points[None, :, :]) ** 2, axis=-1)
    base = edge_vector(np.exp(-squared / (2.0 * _KERNEL_WIDTH**2)))
    base[base < _SMALLEST_WEIGHT] = 0.0
    present = np.flatnonzero(base)
    kept = rng.permutation(present)[: round(config.overlap * present.size)]
    consensus = np.zeros_like(base)
    consensus[kept] = base[kept]
    for shared in (base, consensus):
        shared.setflags(write=False)
    return base, consensus


def _client_graph(base: Vector, consensus: Vector, seed: int, partition: int) -> Vector:
    """Return one client's graph: the consensus and as many own edges as were taken away."""
    rng = generator(seed, "client graph", partition)
    own = int(np.count_nonzero(base)) - int(np.count_nonzero(consensus))
    free = np.flatnonzero(consensus == 0.0)
    added = rng.choice(free, min(own, free.size), replace=False)
    w = consensus.copy()
    w[added] = rng.choice(base[base > 0.0], added.size)
    return w
