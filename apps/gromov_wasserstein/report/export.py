"""A run of gromov-wasserstein as files that other tools open.

``graphs.csv``     a row a graph: name, owner, number among the owner's, nodes, label (-1 unknown),
                   and what was asked for: its anomaly score, its cluster by each method
``distances.csv``  the N x N distances, rows and columns named as the graphs are
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence
from pathlib import Path

from apps.common.results import RunResult, write_atomically

from .outcome import Outcome


def export_graphs(result: RunResult, folder: Path) -> list[Path]:
    """Write the files of the module and return them; none where nothing was released."""
    outcome = Outcome.of(result)
    if outcome is None:
        return []
    columns: dict[str, Sequence[object]] = {
        "graph": outcome.names,
        "owner": outcome.owners,
        "number": outcome.numbers.tolist(),
        "nodes": outcome.sizes.tolist(),
        "label": outcome.labels.tolist(),
    }
    if outcome.anomaly is not None:
        columns["anomaly"] = outcome.anomaly.tolist()
    for name, clusters in outcome.clusters.items():
        columns[f"{name}_cluster"] = clusters.tolist()
    graphs, distances = folder / "graphs.csv", folder / "distances.csv"
    _write_table(graphs, list(columns), zip(*columns.values(), strict=True))
    if outcome.distances is None:
        return [graphs]
    names = outcome.names
    rows = ([name, *row.tolist()] for name, row in zip(names, outcome.distances, strict=True))
    _write_table(distances, ["graph", *names], rows)
    return [distances, graphs]


def _write_table(path: Path, header: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(header)
    writer.writerows(rows)
    write_atomically(path, text.getvalue().encode())
