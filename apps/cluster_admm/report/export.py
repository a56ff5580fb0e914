"""A run of cluster-admm as files that other tools open.

``graphs/servers.graphml``  the servers' graph; a server has its number of ``clients``, and for
                            every cluster q ``clients_q`` and ``norm_q``, the length of its model
``models.csv``              a row a server and cluster: names, number of clients, the model; of
                            servers whose models are known
``clients.csv``             client, server, cluster, and for synthetic data its true cluster
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from trellis.apps.common.files.spreadsheet import csv_text
from trellis.apps.common.results import RunResult, write_atomically
from trellis.apps.pages.graphs import node_names, write_graph

from .outcome import Outcome


def export_graphs(result: RunResult, folder: Path) -> list[Path]:
    """Write the files of the module and return them; none where nothing was learned."""
    outcome = Outcome.of(result)
    if outcome is None:
        return []
    models, clients = folder / "models.csv", folder / "clients.csv"
    _write_table(models, ["server", "cluster", "clients", *outcome.variables], _models(outcome))
    more = [] if outcome.true_groups is None else ["true_cluster"]
    _write_table(clients, ["client", "server", "cluster", *more], _clients(outcome))
    if outcome.adjacency is None:
        return [models, clients]
    graph = folder / "graphs" / "servers.graphml"
    _write_graph(graph, outcome, outcome.adjacency)
    return [graph, models, clients]


def _models(outcome: Outcome) -> Iterable[Sequence[object]]:
    for s in np.flatnonzero(outcome.known).tolist():
        name = outcome.server_names[s]
        for q, model in enumerate(outcome.models[s].tolist()):
            yield [name, q, int(outcome.counts[s, q]), *model]


def _clients(outcome: Outcome) -> Iterable[Sequence[object]]:
    known = [] if outcome.true_groups is None else [outcome.true_groups.tolist()]
    homes = [outcome.server_names[s] for s in outcome.homes]
    return zip(outcome.client_names, homes, outcome.groups.tolist(), *known, strict=True)


def _write_table(path: Path, header: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    write_atomically(path, csv_text([header, *rows]).encode())


def _write_graph(path: Path, outcome: Outcome, adjacency: NDArray[np.bool_]) -> None:
    """Write the graph; `trellis.apps.pages.graphs.write_graphml` has attributes of edges only."""
    names = node_names(outcome.server_names)
    if len(set(names)) < len(names):
        names = [f"server-{s}" for s in range(len(names))]
    norms = np.linalg.norm(outcome.models, axis=2)
    columns = {"clients": outcome.counts.sum(axis=1).tolist()}
    columns |= {f"clients_{q}": held.tolist() for q, held in enumerate(outcome.counts.T)}
    columns |= {f"norm_{q}": norm.tolist() for q, norm in enumerate(norms.T)}
    known = {
        name: [value if here else None for value, here in zip(values, outcome.known, strict=True)]
        for name, values in columns.items()
    }
    write_graph(path, names, np.argwhere(np.triu(adjacency)), node_data=known)
