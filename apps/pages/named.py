"""A run's graphs and its main table under names that people use, for Python and comparisons.

A study's report module may have ``named_graphs(result)``, which returns graphs by name, the main
one first, each made when it is asked for; and ``main_table(result)``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trellis.apps.common.metrics import edges
from trellis.install import pip_install

WEIGHT, DISTANCE = "weight", "distance"


@dataclass(frozen=True)
class NamedGraph:
    """An undirected graph with weights.

    Attributes
    ----------
    nodes : d names, all different
    pairs : (E, 2) places of the edges' ends, u < v
    weights : (E,)
    kind : what a weight is: ``weight`` (more is nearer) or ``distance`` (less is nearer)
    edge_data : name -> (E,) what else is known of every edge
    node_data : name -> d values
    """

    nodes: Sequence[str]
    pairs: NDArray[np.intp]
    weights: NDArray[np.float64]
    kind: str = WEIGHT
    edge_data: Mapping[str, NDArray[Any]] = field(default_factory=dict)
    node_data: Mapping[str, Sequence[Any]] = field(default_factory=dict)

    @classmethod
    def of_pairs(
        cls,
        weights: NDArray[np.float64],
        nodes: Sequence[str],
        threshold: float = 0.0,
        edge_data: Mapping[str, NDArray[Any]] | None = None,
    ) -> NamedGraph:
        """Return the graph of weights (p,) in ``numpy.triu_indices(d, 1)`` order.

        A pair is an edge where its weight exceeds ``threshold``, a share of the largest.
        """
        chosen = np.flatnonzero(edges(weights, threshold))
        first, second = np.triu_indices(len(nodes), 1)
        return cls(
            distinct(nodes),
            np.column_stack([first[chosen], second[chosen]]),
            np.asarray(weights[chosen], dtype=np.float64),
            edge_data={name: column[chosen] for name, column in (edge_data or {}).items()},
        )

    @classmethod
    def of_matrix(
        cls, matrix: NDArray[Any], nodes: Sequence[str], threshold: float = 0.0
    ) -> NamedGraph:
        """Return the graph of a symmetric (d, d) matrix; its diagonal is not read."""
        upper = np.triu_indices(len(nodes), 1)
        return cls.of_pairs(np.asarray(matrix[upper], dtype=np.float64), nodes, threshold)

    def triangle(self) -> NDArray[np.float64]:
        """Return the weights of all pairs (p,), 0 where there is no edge."""
        d = len(self.nodes)
        matrix = np.zeros((d, d))
        matrix[self.pairs[:, 0], self.pairs[:, 1]] = self.weights
        return matrix[np.triu_indices(d, 1)]


@dataclass(frozen=True)
class NamedTable:
    """Numbers with names: ``values`` (rows, columns); ``index`` says what a row is."""

    index: str
    rows: Sequence[str]
    columns: Sequence[str]
    values: NDArray[Any]


NamedGraphs = dict[str, Callable[[], NamedGraph]]


def distinct(names: Sequence[str]) -> list[str]:
    """Return the names, numbered where one is there twice."""
    if len(set(names)) == len(names):
        return list(names)
    return [f"{name} ({place + 1})" for place, name in enumerate(names)]


def client_names(result: Any, count: int) -> list[str]:
    """Return the names of a run's clients, or numbers where there are not as many."""
    known = result.clients if len(result.clients) == count else [{}] * count
    return distinct([str(c.get("name", f"client {k + 1}")) for k, c in enumerate(known)])


def variable_names(result: Any, count: int) -> list[str]:
    """Return the names of a run's variables, or numbers where there are not as many."""
    named = len(result.variables) == count
    return list(result.variables) if named else [f"x{k + 1}" for k in range(count)]


def beside(graphs: NamedGraphs, clients: Sequence[str]) -> list[str]:
    """Return clients' names as keys beside those that ``graphs`` has."""
    return [f"client {name}" if name in graphs else name for name in clients]


def pandas_for(what: str) -> Any:
    """Return pandas, or say what needs it. Late: it is slow to import, and a device has none."""
    try:
        import pandas
    except ImportError as error:
        raise ImportError(f"{what} need pandas: {pip_install('laptop')}") from error
    return pandas
