"""The graphs of a consensus-graph run by name: ``consensus``, and every client's."""

from __future__ import annotations

from functools import partial

import numpy as np

from trellis.apps.common.metrics import LOOSE_EDGE_THRESHOLD
from trellis.apps.common.results import RunResult
from trellis.apps.pages.named import (
    NamedGraph,
    NamedGraphs,
    NamedTable,
    beside,
    client_names,
    variable_names,
)

from ..problem import node_count


def named_graphs(result: RunResult) -> NamedGraphs:
    """Return the graphs by name; an edge is what exceeds 1e-4 of the graph's largest weight."""
    arrays, found = result.arrays, NamedGraphs()
    weights, consensus = arrays.get("weights"), arrays.get("consensus")
    known = consensus if weights is None else weights
    if known is None:
        return found
    variables = variable_names(result, node_count(known.shape[-1]))
    method = str(result.config.get("method", "fedgl"))
    if method == "fedavg" and weights is not None and (consensus is None or not consensus.any()):
        consensus = weights[0]  # one graph serves all
    if consensus is not None and method != "igl":
        found["consensus"] = partial(
            NamedGraph.of_pairs, consensus, variables, LOOSE_EDGE_THRESHOLD
        )
    if weights is not None:
        names = beside(found, client_names(result, len(weights)))
        for name, own in zip(names, weights, strict=True):
            found[name] = partial(NamedGraph.of_pairs, own, variables, LOOSE_EDGE_THRESHOLD)
    return found


def main_table(result: RunResult) -> NamedTable | None:
    """Return the weights of the consensus, or of the first graph there is, as a matrix."""
    graphs = named_graphs(result)
    if not graphs:
        return None
    graph = next(iter(graphs.values()))()
    matrix = np.zeros((len(graph.nodes),) * 2)
    matrix[np.triu_indices(len(graph.nodes), 1)] = graph.triangle()
    return NamedTable("variable", graph.nodes, graph.nodes, matrix + matrix.T)
