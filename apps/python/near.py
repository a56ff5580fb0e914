"""Which graphs are alike, stand apart or stand for others, without all Gromov-Wasserstein pairs.

Lower bounds say which pairs cannot matter; the rest is solved. Answers are those that the whole
matrix of `gw_distances` gives, ties included.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .functions import node_distances

if TYPE_CHECKING:
    from trellis.strategies.gromov_wasserstein.pruning.medoids import Medoids
    from trellis.strategies.gromov_wasserstein.pruning.neighbours import Neighbours
    from trellis.strategies.gromov_wasserstein.pruning.partial import PartialDistances


def gw_neighbours(
    graphs: Sequence[Any],
    k: int = 5,
    *,
    restarts: int = 0,
    seed: int = 0,
    workers: int | None = None,
    checkpoint: str | Path | None = None,
) -> Neighbours:
    """Return the k nearest graphs of every graph, by Gromov-Wasserstein.

    Parameters
    ----------
    graphs : sequence
        As for `gw_distances`.
    k : int
        How many; of equally near ones the first are taken.
    restarts, seed, workers :
        As for `gw_distances`.
    checkpoint : path, optional
        A file for what is solved, to go on with after an interruption.

    Returns
    -------
    Neighbours
        ``places`` and ``distances`` (N, k), nearest first, and ``share``: how many of all pairs of
        different graphs had to be solved, 0 to 1.

    Examples
    --------
    >>> import networkx, trellis
    >>> short, long = networkx.cycle_graph, networkx.path_graph
    >>> graphs = [short(6), long(30), short(7), long(31)]
    >>> trellis.gw_neighbours(graphs, 1).places.ravel().tolist()
    [2, 3, 0, 1]
    """
    from trellis.strategies.gromov_wasserstein.pruning.neighbours import nearest

    return nearest(_partial(graphs, restarts, seed, workers, checkpoint), k)


def gw_outliers(
    graphs: Sequence[Any],
    count: int = 10,
    *,
    k: int = 5,
    restarts: int = 0,
    seed: int = 0,
    workers: int | None = None,
    checkpoint: str | Path | None = None,
) -> Neighbours:
    """Return the graphs that are farthest from their k-th nearest graph, the farthest first.

    Parameters
    ----------
    graphs : sequence
        As for `gw_distances`.
    count : int
        How many; fewer take fewer pairs.
    k : int
        Which neighbour's distance is a graph's score; below the number of graphs.
    restarts, seed, workers, checkpoint :
        As for `gw_neighbours`.

    Returns
    -------
    Neighbours
        ``places`` and ``distances`` (count, 1): the graphs and their scores; and ``share``.

    Examples
    --------
    >>> import networkx, trellis
    >>> graphs = [networkx.cycle_graph(n) for n in (5, 6, 7, 30, 8)]
    >>> trellis.gw_outliers(graphs, 1, k=1).places.ravel().tolist()
    [3]
    """
    from trellis.strategies.gromov_wasserstein.pruning.neighbours import outliers

    return outliers(_partial(graphs, restarts, seed, workers, checkpoint), k, count)


def gw_medoids(
    graphs: Sequence[Any],
    count: int,
    *,
    restarts: int = 0,
    seed: int = 0,
    workers: int | None = None,
    checkpoint: str | Path | None = None,
) -> Medoids:
    """Return clusters of graphs around graphs that stand for them.

    Parameters
    ----------
    graphs : sequence
        As for `gw_distances`.
    count : int
        Clusters.
    restarts, workers, checkpoint :
        As for `gw_neighbours`.
    seed : int
        Of the medoids to start from, too.

    Returns
    -------
    Medoids
        ``labels`` (N,), ``medoids`` (count,), ``objective`` (sum of distances to them), ``share``.

    Examples
    --------
    >>> import networkx, trellis
    >>> kinds = (networkx.cycle_graph, networkx.star_graph)
    >>> found = trellis.gw_medoids([kind(n) for kind in kinds for n in (8, 9, 10)], 2)
    >>> found.labels.tolist()
    [0, 0, 0, 1, 1, 1]
    """
    from trellis.strategies.gromov_wasserstein.pruning.medoids import medoids

    return medoids(_partial(graphs, restarts, seed, workers, checkpoint), count, seed=seed)


def _partial(
    graphs: Sequence[Any],
    restarts: int,
    seed: int,
    workers: int | None,
    checkpoint: str | Path | None,
) -> PartialDistances:
    from trellis.strategies.gromov_wasserstein.pruning.partial import PartialDistances

    matrices = [node_distances(graph, number) for number, graph in enumerate(graphs)]
    file = None if checkpoint is None else Path(checkpoint)
    return PartialDistances.of(
        matrices, restarts=restarts, seed=seed, workers=workers, checkpoint=file
    )
