"""Graphs of the study: what one is, parts of it, who gets which, and its synthetic ones.

A graph G = (V, E) of n nodes is undirected, without weights and loops; every node has f features
and may have a label, and so may the graph [JC, Sec. 3]. One node, no edges, isolated nodes and
several components are all allowed.

Shapes: ``edges`` (E, 2), ``features`` (n, f), ``node_labels`` (n,); a label of -1 is unknown.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from trellis.apps.common.tables import DataError

log = logging.getLogger("trellis.graphs")

Integers = NDArray[np.int64]
UNKNOWN = -1


@dataclass(frozen=True, eq=False)
class Graph:
    """One undirected graph.

    Attributes
    ----------
    edges : (E, 2) nodes u < v, every edge once, sorted
    features : (n, f) finite; f may be 0
    label : class of the graph, from 0; -1 where unknown
    node_labels : (n,) classes of the nodes, from 0; -1 where unknown; None is all unknown
    source : file and place in it, for error messages
    """

    edges: Integers
    features: NDArray[np.float32]
    label: int = UNKNOWN
    node_labels: Integers = None  # type: ignore[assignment]  # an array once it is made
    source: str = "graph"

    def __post_init__(self) -> None:
        features = np.asarray(self.features, dtype=np.float32)
        if features.ndim != 2:
            raise DataError(f"{self.source}: features have shape {features.shape}; (n, f) needed")
        n = len(features)
        if n == 0:
            raise DataError(f"{self.source}: no nodes; leave empty graphs out")
        bad = np.argwhere(~np.isfinite(features))
        if bad.size:
            node, column = bad[0]
            raise DataError(
                f"{self.source}: feature {column + 1} of node {node} is {features[node, column]} "
                f"({len(bad)} such values); fill in missing values first"
            )
        unlabelled = np.full(n, UNKNOWN) if self.node_labels is None else self.node_labels
        labels = np.asarray(unlabelled, dtype=np.int64)
        if labels.shape != (n,):
            raise DataError(f"{self.source}: {labels.shape} labels of nodes, {n} nodes")
        if min(labels.min(), self.label) < UNKNOWN:
            raise DataError(f"{self.source}: labels count from 0, and -1 is an unknown one")
        for name, value in (
            ("edges", self._checked_edges(n)),
            ("features", features),
            ("node_labels", labels),
            ("label", int(self.label)),
        ):
            object.__setattr__(self, name, value)

    def _checked_edges(self, n: int) -> Integers:
        edges = np.asarray(self.edges)
        edges = edges.astype(np.int64).reshape(-1, 2) if edges.size == 0 else edges
        if edges.ndim != 2 or edges.shape[1] != 2 or edges.dtype.kind not in "iu":
            raise DataError(
                f"{self.source}: edges are {edges.dtype} {edges.shape}; whole numbers (E, 2) needed"
            )
        edges = edges.astype(np.int64)
        keys = edges[:, 0] * n + edges[:, 1]
        if edges.size and (edges.min() < 0 or edges.max() >= n):
            raise DataError(f"{self.source}: an edge names a node outside 0 to {n - 1}")
        if np.any(edges[:, 0] >= edges[:, 1]) or np.any(np.diff(keys) <= 0):
            raise DataError(
                f"{self.source}: edges must be u < v, sorted, each once and without loops; "
                "`undirected` makes them so"
            )
        return edges

    @property
    def nodes(self) -> int:
        """n, the number of nodes."""
        return len(self.features)

    @cached_property
    def adjacency(self) -> Any:
        """The symmetric (n, n) sparse matrix with 1 for an edge."""
        from scipy import sparse  # here: to read graphs, a device needs none of it

        u, v = self.edges.T
        ones = np.ones(2 * len(u))
        pairs = (np.concatenate([u, v]), np.concatenate([v, u]))
        return sparse.csr_array((ones, pairs), shape=(self.nodes, self.nodes))

    def degrees(self) -> Integers:
        """Return (n,) numbers of neighbours."""
        return np.bincount(self.edges.ravel(), minlength=self.nodes)


def undirected(
    pairs: ArrayLike,
    nodes: int,
    where: Callable[[int], str] = "pair {}".format,
    *,
    first: int = 0,
    once: bool = False,
    symmetrise: bool = False,
) -> Integers:
    """Return the edges u < v, from 0 and sorted, of pairs that list each in both directions.

    Repeated pairs count once; loops are dropped with a warning.

    Parameters
    ----------
    pairs : (E, 2) whole numbers
    nodes : n
    where : names the place of a pair, by its row, in error messages
    first : number of the first node, 0 or 1
    once : pairs that all have u < v are taken as edges listed once
    symmetrise : take a directed edge as an undirected one instead of refusing it

    Raises
    ------
    DataError
        For a node that is not there, and for a directed graph.
    """
    found = np.asarray(pairs, dtype=np.int64).reshape(-1, 2) - first
    outside = np.flatnonzero(np.any((found < 0) | (found >= nodes), axis=1))
    if outside.size:
        u, v = found[outside[0]] + first
        raise DataError(
            f"{where(int(outside[0]))}: edge ({u}, {v}) names a node outside {first} to "
            f"{nodes - 1 + first}"
        )
    loops = found[:, 0] == found[:, 1]
    if loops.any():
        place = where(int(np.flatnonzero(loops)[0]))
        log.warning("%s: %d self-loops dropped, this is the first", place, int(loops.sum()))
    u, v = found.T
    if not (symmetrise or (once and np.all(u <= v))):
        alone = np.flatnonzero(~np.isin(u * nodes + v, v * nodes + u))
        if alone.size:
            a, b = found[alone[0]] + first
            raise DataError(
                f"{where(int(alone[0]))}: edge ({a}, {b}) is there and ({b}, {a}) is not "
                f"({alone.size} such edges): a directed graph. Only undirected graphs have the "
                "distances of this study; list every edge in both directions, or read the file "
                "with symmetrise=True and save it with `write_graphs`"
            )
    low, high = np.minimum(u, v)[~loops], np.maximum(u, v)[~loops]
    keys = np.unique(low * nodes + high)
    return np.column_stack([keys // nodes, keys % nodes])


def degree_features(graph: Graph, most: int) -> Graph:
    """Return the graph with its degrees, capped at ``most``, as one-hot (n, most + 1) features."""
    capped = np.minimum(graph.degrees(), most)
    return replace(graph, features=np.eye(most + 1, dtype=np.float32)[capped])


def shortest_paths(graph: Graph) -> NDArray[np.float64]:
    """Return (n, n) lengths of shortest paths; where there is none, one more than the longest."""
    from scipy.sparse import csgraph

    lengths = csgraph.shortest_path(graph.adjacency, unweighted=True, directed=False)
    reachable = np.isfinite(lengths)
    return np.where(reachable, lengths, lengths[reachable].max() + 1.0)


def induced(graph: Graph, nodes: ArrayLike, label: int, source: str = "") -> Graph:
    """Return the subgraph on ``nodes``, in their order."""
    kept = np.asarray(nodes, dtype=np.int64)
    place = np.full(graph.nodes, -1)
    place[kept] = np.arange(len(kept))
    ends = place[graph.edges]
    inside = ends[(ends >= 0).all(axis=1)]
    return Graph(
        undirected(inside, len(kept), symmetrise=True),
        graph.features[kept],
        label,
        graph.node_labels[kept],
        source or graph.source,
    )


def k_hop(graph: Graph, centre: int, hops: int) -> Graph:
    """Return the subgraph on all nodes within ``hops`` steps of ``centre``, which is its node 0.

    Its label is that of the centre [JC, Sec. 5, graph clustering].
    """
    adjacency = graph.adjacency
    near = frontier = np.array([centre])
    for _ in range(hops):
        frontier = np.setdiff1d(adjacency[frontier].indices, near)
        near = np.concatenate([near, frontier])
    nodes = np.concatenate([[centre], np.sort(near[1:])])
    source = f"{graph.source}, {hops}-hop neighbourhood of node {centre}"
    return induced(graph, nodes, int(graph.node_labels[centre]), source)


def largest_component(graph: Graph) -> Integers:
    """Return the nodes of the largest connected component, in order; the first of equal ones."""
    from scipy.sparse import csgraph

    _, component = csgraph.connected_components(graph.adjacency, directed=False)
    return np.flatnonzero(component == np.bincount(component).argmax())


def dirichlet_split(
    labels: ArrayLike, clients: int, alpha: float, rng: np.random.Generator
) -> list[Integers]:
    """Deal N graphs to clients, each class by shares ~ Dirichlet(alpha, ..., alpha) [JC, Sec. 5].

    Parameters
    ----------
    labels : (N,)
    clients : K
    alpha : concentration; small gives a client few classes and clients unequal numbers
    rng : the only source of randomness

    Returns
    -------
    K sorted arrays of places in ``labels``, none empty, every place in one of them. A client left
    without a graph takes one at random of the client with the most.
    """
    classes = np.asarray(labels)
    if len(classes) < clients:
        raise DataError(f"{len(classes)} graphs for clients={clients}: lower clients")
    dealt: list[list[int]] = [[] for _ in range(clients)]
    for label in np.unique(classes):
        members = rng.permutation(np.flatnonzero(classes == label))
        shares = np.cumsum(rng.dirichlet(np.full(clients, alpha)))[:-1]
        cuts = np.rint(np.clip(shares, 0.0, 1.0) * len(members)).astype(int)
        for own, part in zip(dealt, np.split(members, cuts), strict=True):
            own.extend(part.tolist())
    for own in dealt:
        if not own:
            richest = max(dealt, key=len)
            own.append(richest.pop(int(rng.integers(len(richest)))))
    return [np.sort(np.array(own, dtype=np.int64)) for own in dealt]


def labels_of(graphs: Sequence[Graph]) -> Integers:
    """Return the (N,) labels of graphs."""
    return np.array([graph.label for graph in graphs], dtype=np.int64)
