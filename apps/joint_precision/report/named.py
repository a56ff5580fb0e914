"""The graphs of a joint-precision run by name: ``consensus``, ``common``, and every client's.

An edge is where Psi is not zero, its weight the partial correlation. ``common`` has the edges that
all clients share; ``consensus`` is there where the run made one from a noisy sum.
"""

from __future__ import annotations

from functools import partial

import numpy as np
from numpy.typing import NDArray

from trellis.apps.common.results import RunResult
from trellis.apps.pages.named import NamedGraph, NamedGraphs, NamedTable, beside

from . import packed
from .graphs import Graphs


def named_graphs(result: RunResult) -> NamedGraphs:
    """Return the graphs by name."""
    if "packed_sparse" in result.arrays:
        return packed.named_graphs(result)
    found = NamedGraphs()
    if "sparse" not in result.arrays:
        return found
    graphs = Graphs(result)
    if "consensus_partial" in result.arrays:
        matrix = result.arrays["consensus_partial"]
        found["consensus"] = partial(NamedGraph.of_matrix, matrix, graphs.variables)
    found["common"] = partial(_common, graphs)
    for index, name in enumerate(beside(found, graphs.names)):
        if graphs.present[index]:
            found[name] = partial(_client, graphs, index)
    return found


def main_table(result: RunResult) -> NamedTable | None:
    """Return all clients' precision matrices, one below the other."""
    if "sparse" not in result.arrays:
        return None
    graphs = Graphs(result)
    rows = [f"{name}: {v}" for name in graphs.names for v in graphs.variables]
    sparse: NDArray[np.float64] = result.arrays["sparse"]
    return NamedTable("client: variable", rows, graphs.variables, np.concatenate(list(sparse)))


def _common(graphs: Graphs) -> NamedGraph:
    known = {"mixed": graphs.mixed}
    return NamedGraph.of_pairs(graphs.middle, graphs.variables, edge_data=known)


def _client(graphs: Graphs, index: int) -> NamedGraph:
    known = {"precision": graphs.precision_of(index), "common": graphs.common}
    return NamedGraph.of_pairs(graphs.partial_of(index), graphs.variables, edge_data=known)
