"""What [JC] compares with on the raw graphs, in Table 1 and Fig. 11.

- SPK: the shortest-path kernel of [BK] with the SVM of `classify.kernel_svm_accuracy`. With
  S_G(a, b, l) the number of pairs u < v of G at distance l (finite) whose labels are {a, b},

      k(G, G') = sum_{a <= b, l} S_G(a, b, l) S_G'(a, b, l).

- GCN, GIN trained on all graphs in one place: `centralised_accuracy`, with a trainer of its own.
- GW_A: Gromov-Wasserstein on `topology_matrices`; FGW_AX: the fused one on `fused_inputs`.
- GED: `edit_distances`, exact where the search ends in time.

All need the raw graphs in one place and protect nothing.

.. [BK] K. M. Borgwardt, H.-P. Kriegel, Shortest-path kernels on graphs, ICDM 2005.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse import csgraph

from trellis.apps.common.tables import DataError
from trellis.install import pip_install

from ..graphs import Graph, labels_of, shortest_paths
from .classify import Accuracy, Labels, Matrix, outer_folds

Predictor = Callable[[Sequence[Graph]], Labels]  # classes of graphs it has not seen
Trainer = Callable[[Sequence[Graph], int], Predictor]  # of labelled graphs and a seed


def shortest_path_kernel(
    graphs: Sequence[Graph], *, node_labels: bool = True, normalise: bool = True
) -> Matrix:
    """Return the kernel (N, N) of [BK], positive semi-definite.

    Nodes with an unknown label (-1) form a class of their own.

    Parameters
    ----------
    graphs : N graphs
    node_labels : use the labels of nodes; else the distances only
    normalise : k(G, G') / sqrt(k(G, G) k(G', G')), as large graphs have more pairs; graphs
        without an edge are then like each other (1) and unlike all others (0)
    """
    counts = _path_counts(graphs, node_labels)
    kernel = np.asarray((counts @ counts.T).todense(), dtype=np.float64)
    if not normalise:
        return kernel
    empty = np.diag(kernel) == 0.0
    root = np.sqrt(np.where(empty, 1.0, np.diag(kernel)))
    kernel /= np.outer(root, root)
    kernel[np.ix_(empty, empty)] = 1.0
    np.fill_diagonal(kernel, 1.0)
    return kernel


def centralised_accuracy(
    graphs: Sequence[Graph], trainer: Trainer, *, seed: int, folds: int = 10
) -> Accuracy:
    """Return the accuracy of a model trained in one place, on the folds of the other accuracies.

    Parameters
    ----------
    graphs : N graphs; those with label -1 are left out
    trainer : gets a fold's training graphs and a seed, and returns the function that classifies;
        it must hold out its own validation graphs *of those*. The test graphs it classifies come
        without their labels.
    seed, folds : of the folds; the trainer's seed is ``seed``
    """
    y = labels_of(graphs)
    splits, notes = outer_folds(y, folds, seed)
    predicted = np.full(len(y), -1, dtype=np.int64)
    scores = []
    for train_at, test_at in splits:
        predict = trainer([graphs[i] for i in train_at], seed)
        guesses = np.asarray(predict([replace(graphs[i], label=-1) for i in test_at]))
        if guesses.shape != test_at.shape:
            raise ValueError(
                f"trainer: its predictor gave shape {guesses.shape} for {len(test_at)} graphs"
            )
        predicted[test_at] = guesses
        scores.append(np.mean(guesses == y[test_at]))
    return Accuracy(np.array(scores), predicted, notes)


def topology_matrices(graphs: Sequence[Graph]) -> list[Matrix]:
    """Return the shortest-path distances (n, n) of every graph for GW_A.

    Finite: two nodes without a path are one step further apart than the graph's longest shortest
    path; [JC] does not say what it does with them.
    """
    return [shortest_paths(graph) for graph in graphs]


@dataclass(frozen=True)
class FusedInputs:
    """What FGW_AX compares: distances inside the graphs, features between them.

    Attributes
    ----------
    structures : of each graph (n_i, n_i), `topology_matrices`
    features : of each graph (n_i, f), float64
    """

    structures: list[Matrix]
    features: list[Matrix]

    def cost(self, i: int, j: int) -> Matrix:
        """Return squared distances of features (n_i, n_j) between graphs i and j."""
        a, b = self.features[i], self.features[j]
        squares = (a**2).sum(axis=1)[:, None] + (b**2).sum(axis=1)[None, :]
        return np.maximum(squares - 2.0 * a @ b.T, 0.0)


def fused_inputs(graphs: Sequence[Graph]) -> FusedInputs:
    """Return structures and features of the graphs, whose features must have one length."""
    for graph in graphs:
        if graph.features.shape[1] == 0:
            raise DataError(f"{graph.source}: no features; compare topologies only (metric 'gw')")
        if graph.features.shape[1] != graphs[0].features.shape[1]:
            raise DataError(
                f"{graph.source}: {graph.features.shape[1]} features, "
                f"{graphs[0].source} has {graphs[0].features.shape[1]}; they must be the same ones"
            )
    return FusedInputs(
        topology_matrices(graphs), [graph.features.astype(np.float64) for graph in graphs]
    )


@dataclass(frozen=True)
class EditDistances:
    """Graph edit distances on topology.

    Attributes
    ----------
    values : (N, N) insertions and deletions of nodes and edges
    exact : (N, N) whether the value is proved least; else it is an upper bound, which depends on
        the speed of the machine
    """

    values: Matrix
    exact: NDArray[np.bool_]


def edit_distances(graphs: Sequence[Graph], *, seconds: float = 10.0) -> EditDistances:
    """Return all edit distances, each searched for at most ``seconds``, by networkx [JC, App. D].

    Labels and features are not compared, so substituting a node or an edge is free. Exponential:
    for graphs of about ten nodes.
    """
    if not seconds > 0.0:
        raise ValueError(f"seconds={seconds}: must be > 0")
    nx = _networkx()
    drawn = []
    for graph in graphs:
        copy = nx.Graph()
        copy.add_nodes_from(range(graph.nodes))
        copy.add_edges_from(graph.edges.tolist())
        drawn.append(copy)
    count = len(drawn)
    values, exact = np.zeros((count, count)), np.ones((count, count), dtype=np.bool_)
    for i in range(count):
        for j in range(i):
            values[i, j], exact[i, j] = _edit_distance(nx, drawn[i], drawn[j], seconds)
            values[j, i], exact[j, i] = values[i, j], exact[i, j]
    return EditDistances(values, exact)


def _edit_distance(nx: Any, first: Any, second: Any, seconds: float) -> tuple[float, bool]:
    """Return the edit distance, or the best bound found, and whether it is exact."""
    if nx.faster_could_be_isomorphic(first, second) and nx.is_isomorphic(first, second):
        return 0.0, True  # the search alone may take its whole time to prove it
    nodes = abs(len(first) - len(second))
    least = nodes + abs(first.size() - second.size())
    most = nodes + first.size() + second.size()  # all edges out, all edges in
    start = time.perf_counter()
    found = nx.graph_edit_distance(first, second, upper_bound=most, timeout=seconds)
    ended = time.perf_counter() - start < seconds
    value = float(most if found is None else min(found, most))
    return value, ended or value == least


def _path_counts(graphs: Sequence[Graph], node_labels: bool) -> Any:
    """Return S (N, distinct triples), sparse: how often each (a, b, l), a <= b, is in a graph."""
    if not graphs:
        raise ValueError("graphs: none to compare")
    owner, triples = [], []
    for number, graph in enumerate(graphs):
        u, v = np.triu_indices(graph.nodes, 1)
        length = csgraph.shortest_path(graph.adjacency, unweighted=True, directed=False)[u, v]
        joined = np.isfinite(length)
        labels = graph.node_labels if node_labels else np.zeros(graph.nodes, dtype=np.int64)
        ends = np.sort(np.stack([labels[u[joined]], labels[v[joined]]], axis=1), axis=1)
        triples.append(np.column_stack([ends, length[joined].astype(np.int64)]))
        owner.append(np.full(len(ends), number))
    rows, all_triples = np.concatenate(owner), np.concatenate(triples)
    low, high = all_triples.min(axis=0, initial=0), all_triples.max(axis=0, initial=0)
    # One whole number a triple, as `unique` of rows is far slower.
    key = np.ravel_multi_index(tuple((all_triples - low).T), tuple(high - low + 1))
    distinct, column = np.unique(key, return_inverse=True)
    shape = (len(graphs), max(1, len(distinct)))
    return sparse.coo_array((np.ones(len(rows)), (rows, column)), shape=shape).tocsr()


def _networkx() -> Any:
    try:
        import networkx
    except ImportError:
        raise ImportError(f"graph edit distances need networkx: {pip_install('laptop')}") from None
    return networkx
