"""The graph of a cluster-admm run by name, ``servers``, and the clients' models."""

from __future__ import annotations

from functools import partial

from trellis.apps.common.results import RunResult
from trellis.apps.pages.named import NamedGraph, NamedGraphs, NamedTable

from .outcome import Outcome


def named_graphs(result: RunResult) -> NamedGraphs:
    """Return ``servers``: an edge of weight 1 between neighbours."""
    outcome = Outcome.of(result)
    if outcome is None or outcome.adjacency is None:
        return {}
    return {"servers": partial(NamedGraph.of_matrix, outcome.adjacency, outcome.server_names)}


def main_table(result: RunResult) -> NamedTable | None:
    """Return the clients' models: a row a client, a column a feature."""
    outcome = Outcome.of(result)
    if outcome is None:
        return None
    return NamedTable("client", outcome.client_names, outcome.variables, outcome.clients)
