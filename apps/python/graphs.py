"""Graphs that a person has in hand, as the study of graphs knows them.

Taken are graphs of networkx and of torch_geometric (``Data``), neither imported here, and this
project's own. Of a networkx graph the label is its attribute ``y`` or ``label``, nodes' labels are
their attributes of these names, nodes' features their attribute ``x`` or ``features``. Of a
``Data`` features are ``x``; ``y`` is the graph's label where it is one number, the nodes' where it
is one a node.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trellis.apps.common.tables import DataError
from trellis.apps.gromov_wasserstein.graphs import UNKNOWN, Graph, Integers, undirected

LABELS, FEATURES = ("y", "label"), ("x", "features")


def client_graphs(client: str, given: Any) -> list[Graph]:
    """Return a client's graphs from what was given for it: one graph or many.

    Raises
    ------
    DataError
        Names the client and the graph, and says what to do.
    """
    where = f"client {client!r}"
    if is_graph(given):
        given = [given]
    if not isinstance(given, Iterable) or isinstance(given, str | bytes | np.ndarray):
        raise DataError(
            f"{where}: {type(given).__name__} is no list of graphs; this study takes graphs of "
            "networkx or torch_geometric Data"
        )
    graphs = [graph_of(one, f"{where}, graph {place + 1}") for place, one in enumerate(given)]
    if not graphs:
        raise DataError(f"{where}: no graphs; give one at least, or leave the client out")
    return graphs


def agree(graphs: dict[str, list[Graph]]) -> None:
    """Refuse graphs that do not all have as many features."""
    first = next(iter(graphs))
    wanted = graphs[first][0].features.shape[1]
    for client, own in graphs.items():
        for place, graph in enumerate(own):
            found = graph.features.shape[1]
            if found != wanted:
                raise DataError(
                    f"client {client!r}, graph {place + 1}: {found} features a node, the first "
                    f"graph of client {first!r} has {wanted}; all graphs need as many, or none"
                )


def is_graph(given: Any) -> bool:
    """Return whether something is a graph that `graph_of` takes."""
    return isinstance(given, Graph) or _is_networkx(given) or _is_pyg(given)


def graph_of(given: Any, where: str = "graph") -> Graph:
    """Return one graph as the study knows it; ``where`` is named in errors."""
    if isinstance(given, Graph):
        return given
    if _is_networkx(given):
        return _from_networkx(given, where)
    if _is_pyg(given):
        return _from_pyg(given, where)
    raise DataError(
        f"{where}: {type(given).__name__} is no graph; give networkx graphs or torch_geometric Data"
    )


def _is_networkx(given: Any) -> bool:
    return all(hasattr(given, name) for name in ("nodes", "edges", "is_directed", "adj"))


def _is_pyg(given: Any) -> bool:
    return hasattr(given, "edge_index") and hasattr(given, "num_nodes")


def _from_networkx(given: Any, where: str) -> Graph:
    if given.is_directed():
        raise DataError(f"{where}: edges have directions; give G.to_undirected()")
    places = {node: place for place, node in enumerate(given.nodes)}
    if not places:
        raise DataError(f"{where}: no nodes; leave empty graphs out")
    pairs = np.array([[places[u], places[v]] for u, v in given.edges()], dtype=np.int64)
    attributes = [dict(given.nodes[node]) for node in places]
    label = next((given.graph[name] for name in LABELS if name in given.graph), UNKNOWN)
    labels = _attribute(attributes, LABELS, where)
    features = _attribute(attributes, FEATURES, where)
    return _graph(
        where,
        pairs.reshape(-1, 2),
        len(places),
        features,
        label,
        None if labels is None else _whole(labels, where),
    )


def _from_pyg(given: Any, where: str) -> Graph:
    count = int(given.num_nodes)
    pairs = np.asarray(given.edge_index, dtype=np.int64).T.reshape(-1, 2)
    target = getattr(given, "y", None)
    label, labels = UNKNOWN, None
    if target is not None:
        found = np.asarray(target).ravel()
        if found.size == 1:
            label = found[0]
        elif found.size == count:
            labels = _whole(found.tolist(), where)
        else:
            raise DataError(
                f"{where}: y has {found.size} numbers for {count} nodes; one is the graph's label, "
                "one a node the nodes'"
            )
    features = getattr(given, "x", None)
    return _graph(where, pairs, count, features, label, labels)


def _graph(
    where: str, pairs: Integers, count: int, features: Any, label: Any, labels: Integers | None
) -> Graph:
    rows: NDArray[Any]
    if features is None:
        rows = np.zeros((count, 0), dtype=np.float32)
    else:
        try:
            rows = np.asarray(features, dtype=np.float32)
        except (TypeError, ValueError):
            raise DataError(
                f"{where}: nodes' features are not numbers, or not as many for every node"
            ) from None
        rows = rows.reshape(count, -1) if rows.ndim == 1 else rows
    number = _whole([label], where)[0]
    edges = undirected(pairs, count, lambda row: f"{where}, edge {row}", symmetrise=True)
    return Graph(edges, rows, int(number), labels, where)  # type: ignore[arg-type]


def _attribute(
    attributes: Sequence[dict[str, Any]], names: Sequence[str], where: str
) -> list[Any] | None:
    """Return an attribute that all nodes have, by the first of its names; None if none has it."""
    for name in names:
        having = [name in own for own in attributes]
        if all(having):
            return [own[name] for own in attributes]
        if any(having):
            raise DataError(
                f"{where}: node {having.index(False) + 1} has no attribute {name!r}, others have; "
                "give it to all nodes or to none"
            )
    return None


def _whole(values: Sequence[Any], where: str) -> Integers:
    try:
        numbers = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError):
        numbers = np.array([np.nan])
    if not np.all(np.isfinite(numbers)) or np.any(numbers != np.rint(numbers)):
        raise DataError(
            f"{where}: a label is {values[0]!r}; labels are whole numbers from 0, -1 is unknown "
            "(sklearn.preprocessing.LabelEncoder makes them of words)"
        )
    return numbers.astype(np.int64)
