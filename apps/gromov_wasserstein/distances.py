"""From what clients released to the distances between all graphs [JC] (3), (1).

    C_i(u, v) = d(row u, row v) of graph i,  (n_i, n_i)           `costs`
    D(i, j)   = GW(C_i, C_j), or another metric,  (N, N)          `distances`, `partial_distances`

Rows that were encoded are taken as they are (``raw``, as the paper does), made unbiased
(``rectified``), or only their distances are (``double``, ``simplex``): these can be negative when
squared, and are 0 then. ``wasserstein`` and the features of ``fgw`` need points in a common space:
encoded rows, rectified unless ``raw``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray
from scipy.spatial.distance import cdist

from trellis.privacy.mechanisms.multibit import (
    double_squared_distances,
    rectify,
    simplex_squared_distances,
)
from trellis.strategies.gromov_wasserstein.losses import Loss
from trellis.strategies.gromov_wasserstein.many import Solver
from trellis.strategies.gromov_wasserstein.pairwise import pairwise
from trellis.strategies.gromov_wasserstein.pool import Metric
from trellis.strategies.gromov_wasserstein.pruning.partial import PartialDistances

from .as_printed import rectify_graph
from .config import GromovWassersteinConfig
from .release import code_of, half_of

Array = NDArray[np.float64]


def split(stacked: NDArray[Any], sizes: NDArray[np.int64]) -> list[Array]:
    """Return the rows (n_i, h) of every graph from all rows one below the other."""
    return np.split(np.asarray(stacked, dtype=np.float64), np.cumsum(sizes)[:-1])


def points(
    config: GromovWassersteinConfig, rows: Sequence[Array], second: Sequence[Array] | None = None
) -> list[Array]:
    """Return the rows of every graph as points of the common space."""
    if config.estimator == "raw":
        return list(rows)
    if config.estimator == "double" and second is not None:
        pairs = zip(rows, second, strict=True)
        return [(_rectified(config, a, True) + _rectified(config, b, True)) / 2.0 for a, b in pairs]
    return [_rectified(config, graph) for graph in rows]


def costs(
    config: GromovWassersteinConfig, rows: Sequence[Array], second: Sequence[Array] | None = None
) -> list[Array]:
    """Return the distances C_i (n_i, n_i) between the nodes of every graph.

    Parameters
    ----------
    rows : (n_i, h) of every graph, encoded or not
    second : the second encoding of ``estimator = "double"``
    """
    if config.estimator == "double":
        if second is None:
            raise ValueError("estimator='double' needs two encodings of every graph")
        return [
            _root(
                double_squared_distances(a, b, half_of(config, code_of(config, a.shape[1], len(a))))
            )
            for a, b in zip(rows, second, strict=True)
        ]
    if config.estimator == "simplex":
        return [
            _root(simplex_squared_distances(graph, code_of(config, graph.shape[1], len(graph))))
            for graph in rows
        ]
    return [between(graph, config.distance) for graph in points(config, rows)]


def between(rows: Array, how: str) -> Array:
    """Return the distances (n, n) between rows: Euclidean, or one minus cosine or correlation.

    A row without a direction (of zeros; for the correlation, of equal entries) is at 1 from every
    other row, where scipy has not-a-number.
    """
    if how in ("cosine", "correlation"):
        if how == "correlation":
            scale = np.abs(rows).max(axis=1, keepdims=True, initial=0.0)
            rows = rows - rows.mean(axis=1, keepdims=True)
            rows = np.where(np.abs(rows) > 1e-14 * scale, rows, 0.0)  # what rounding left
        length = np.linalg.norm(rows, axis=1, keepdims=True)
        unit = np.divide(rows, length, out=np.zeros_like(rows), where=length > 0.0)
        found = np.clip(1.0 - unit @ unit.T, 0.0, 2.0)
    else:
        found = np.asarray(cdist(rows, rows))
    found = (found + found.T) / 2.0
    np.fill_diagonal(found, 0.0)
    return found


def distances(
    config: GromovWassersteinConfig,
    rows: Sequence[Array],
    second: Sequence[Array] | None = None,
    *,
    seed: int = 0,
    workers: int | None = None,
    checkpoint: Path | None = None,
    on_progress: Callable[[int, int], None] | None = None,
    on_solver: Callable[[Solver], None] | None = None,
) -> Array:
    """Return the distances (N, N) between all graphs, by the metric of the settings."""
    return pairwise(
        **_compared(config, rows, second),
        loss=_loss(config),
        seed=seed,
        workers=workers,
        checkpoint=checkpoint,
        on_progress=on_progress,
        on_solver=on_solver,
    )


def partial_distances(
    config: GromovWassersteinConfig,
    rows: Sequence[Array],
    second: Sequence[Array] | None = None,
    *,
    seed: int = 0,
    workers: int | None = None,
    checkpoint: Path | None = None,
    on_progress: Callable[[int, int], None] | None = None,
    on_solver: Callable[[Solver], None] | None = None,
) -> PartialDistances:
    """Return the same distances, none of them solved before it is asked for; square loss only."""
    if _loss(config) != "square":
        raise ValueError(f"gw-loss={config.gw_loss!r}: lower bounds are of the square loss")
    return PartialDistances.of(
        **_compared(config, rows, second),
        seed=seed,
        workers=workers,
        checkpoint=checkpoint,
        on_progress=on_progress,
        on_solver=on_solver,
    )


def _compared(
    config: GromovWassersteinConfig, rows: Sequence[Array], second: Sequence[Array] | None
) -> dict[str, Any]:
    return {
        "matrices": None if config.metric == "wasserstein" else costs(config, rows, second),
        "metric": cast(Metric, config.metric),
        "features": None if config.metric == "gw" else points(config, rows, second),
        "alpha": config.alpha,
        "restarts": config.restarts,
    }


def _loss(config: GromovWassersteinConfig) -> Loss:
    return "kl" if config.gw_loss == "kl" else "square"


def _rectified(config: GromovWassersteinConfig, rows: Array, halved: bool = False) -> Array:
    code = code_of(config, rows.shape[1], len(rows))
    if config.encoder == "printed":
        return rectify_graph(rows, code)
    return rectify(rows, half_of(config, code) if halved else code)


def _root(squares: Array) -> Array:
    return np.sqrt(np.maximum((squares + squares.T) / 2.0, 0.0))
