"""The graph of a gromov-wasserstein run by name, ``neighbours``, and its distances.

Nodes of ``neighbours`` are the clients' graphs; each is joined to the few that are nearest to it,
and an edge's weight is their distance.
"""

from __future__ import annotations

from functools import partial

import numpy as np
from numpy.typing import NDArray

from trellis.apps.common.results import RunResult
from trellis.apps.pages.named import DISTANCE, NamedGraph, NamedGraphs, NamedTable

from .outcome import Outcome

NEIGHBOURS = 3


def named_graphs(result: RunResult) -> NamedGraphs:
    """Return ``neighbours``, where distances are known."""
    outcome = Outcome.of(result)
    if outcome is None:
        return {}
    # The nearest graphs are solved also where not all pairs are.
    found = outcome.solved
    return {} if found is None else {"neighbours": partial(_neighbours, outcome, found)}


def main_table(result: RunResult) -> NamedTable | None:
    """Return the distances between all graphs."""
    outcome = Outcome.of(result)
    if outcome is None or outcome.distances is None:
        return None
    return NamedTable("graph", outcome.names, outcome.names, outcome.distances)


def _neighbours(outcome: Outcome, distances: NDArray[np.float64]) -> NamedGraph:
    count = min(NEIGHBOURS, outcome.count - 1)
    far = distances + np.diag(np.full(outcome.count, np.inf))
    # Stable: of graphs at one distance the first are taken, on every machine.
    nearest = np.argsort(far, axis=1, kind="stable")[:, :count]
    ends = np.column_stack([np.repeat(np.arange(outcome.count), count), nearest.ravel()])
    pairs = np.unique(np.sort(ends, axis=1), axis=0)
    return NamedGraph(
        outcome.names,
        pairs,
        distances[pairs[:, 0], pairs[:, 1]],
        DISTANCE,
        node_data={"owner": outcome.owners, "label": outcome.labels.tolist()},
    )
