"""The graph of a server-graph run by name, ``servers``, and the servers' models."""

from __future__ import annotations

from functools import partial

import numpy as np

from trellis.apps.common.results import RunResult
from trellis.apps.pages.named import NamedGraph, NamedGraphs, NamedTable

from .page import centroid_of, names_of_parameters, topology_of


def named_graphs(result: RunResult) -> NamedGraphs:
    """Return ``servers``: weights are what servers give each other's models."""
    if "combination" not in result.arrays:
        return {}
    graph = topology_of(result)
    return {"servers": partial(NamedGraph.of_matrix, graph.weights, graph.names)}


def main_table(result: RunResult) -> NamedTable | None:
    """Return the servers' models, a row a server and their mean below, a column a feature."""
    if "models" not in result.arrays:
        return None
    rows, models = list(topology_of(result).names), result.arrays["models"]
    middle = centroid_of(result)
    if middle is not None:
        rows, models = [*rows, "centroid"], np.vstack([models, middle])
    return NamedTable("server", rows, names_of_parameters(result), models)
