"""A run of gromov-wasserstein as files that other tools open.

``graphs.csv``     a row a graph: name, owner, number among the owner's, nodes, label (-1 unknown),
                   and what was asked for: its anomaly and outlier score, its cluster by each method
``distances.csv``  the N x N distances, rows and columns named as the graphs are; empty where a pair
                   was not needed; of more than `MOST_GRAPHS` on request only (``trellis graphs``)
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from trellis.apps.common.files.spreadsheet import csv_text
from trellis.apps.common.results import RunResult, write_atomically

from .outcome import Outcome

MOST_GRAPHS = 1000


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
    if outcome.outliers is not None:
        columns["outlier"] = outcome.outliers.tolist()
    for name, clusters in outcome.clusters.items():
        columns[f"{name}_cluster"] = clusters.tolist()
    graphs, distances = folder / "graphs.csv", folder / "distances.csv"
    _write_table(graphs, list(columns), zip(*columns.values(), strict=True))
    if outcome.solved is None or outcome.count > MOST_GRAPHS:
        return [graphs]
    return [write_distances(outcome, distances), graphs]


def write_on_request(result: RunResult, folder: Path) -> list[Path]:
    """Write the distances between all graphs, however many there are."""
    outcome = Outcome.of(result)
    if outcome is None or outcome.solved is None:
        return []
    return [write_distances(outcome, folder / "distances.csv")]


def write_distances(outcome: Outcome, path: Path) -> Path:
    """Write the distances; D is symmetric, so every number is put into words once."""
    assert outcome.solved is not None
    words: list[list[str]] = []
    lines = [_line(["graph", *outcome.names])]
    for k, (name, row) in enumerate(zip(outcome.names, outcome.solved, strict=True)):
        own = list(map(repr, row[k:].tolist()))
        words.append([above[k] for above in words] + own)
        # Numbers need no quotes, so they are joined as they are: a third of the csv module's time.
        lines.append(_line([name]) + "," + ",".join(words[k]).replace("nan", ""))
    write_atomically(path, ("\n".join(lines) + "\n").encode())
    return path


def _line(cells: Sequence[object]) -> str:
    return csv_text([cells], end="")


def _write_table(path: Path, header: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    write_atomically(path, csv_text([header, *rows]).encode())
