"""The graphs of a run as files: GraphML, csv and pictures."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from trellis.apps.common.files.spreadsheet import csv_text
from trellis.apps.common.results import RunResult, write_atomically
from trellis.apps.common.settings import ConfigError
from trellis.apps.pages import plots
from trellis.apps.pages.clients.chosen import MOST_ROWS, write_table
from trellis.apps.pages.figure import save_svg
from trellis.apps.pages.graphs import file_stems, write_graphml

from . import packed
from .graphs import Graphs, graphs_of

COMMON = "common"
# Files of larger graphs than this in all would take longer than a report may: on request only.
EXPORTED_EDGES = 60_000


def export_graphs(result: RunResult, folder: Path) -> list[Path]:
    """Write the graphs under ``folder/graphs`` as GraphML and csv, and the page's drawings as SVG.

    A GraphML file for every client that the report draws has exactly the edges of Psi: ``weight``
    is the partial correlation, ``precision`` the entry of Omega, ``common`` whether all clients
    have the edge. In ``common.graphml`` weight is the mean magnitude with the sign most of it has,
    ``mixed`` tells where clients differ in sign. ``partial-correlations.csv`` has these clients'
    edges, one a row. Clients beyond `EXPORTED_EDGES` edges in all, and those that are not drawn,
    are left to `write_graphs`. ``clients.csv`` has all clients where the report's table has not.

    Returns
    -------
    list of Path
        What was written.
    """
    if "packed_sparse" in result.arrays:
        return packed.export_graphs(result, folder)
    if "sparse" not in result.arrays:
        return []
    graphs = graphs_of(result)
    chosen, budget = [], EXPORTED_EDGES - int(graphs.common.sum())
    for index in graphs.drawn:
        if graphs.present[index] and budget > 0:
            chosen.append(index)
            budget -= int(graphs.edges[index])
    place = folder / "graphs"
    written = []
    for path, client in _write(graphs, place, True, chosen):
        written += [path, save_svg(graphs.picture(client), path.with_suffix(".svg"))]
    written.append(_write_edges(graphs, place / "partial-correlations.csv", chosen))
    if len(graphs.names) > MOST_ROWS:
        more = dict(graphs.agreement) if graphs.has_truth else {}
        written.append(write_table(folder / "clients.csv", {**graphs.compared, **more}))
    return written


def kept_at_home(result: RunResult) -> bool:
    """Return whether clients kept their graphs; what the run has for each is the consensus."""
    gathered = result.arrays.get("gathered", np.zeros(0, dtype=bool))
    return "gathered" in result.arrays and not np.any(gathered)


def write_graphs(result: RunResult, folder: Path, clients: Sequence[int]) -> list[Path]:
    """Write graphs of some clients, or the common one, as GraphML and PNG; return the files."""
    graphs = graphs_of(result)
    for index in clients:
        if not graphs.present[index]:
            raise ConfigError(f"client {graphs.names[index]} never answered and has no graph")
    written = []
    for path, client in _write(graphs, folder, not clients, clients):
        figure = graphs.draw_common() if client is None else graphs.draw_client(client)
        written += [path, plots.save(figure, path.with_suffix(".png"))]
    return written


def _write(
    graphs: Graphs, place: Path, common: bool, clients: Sequence[int]
) -> Iterator[tuple[Path, int | None]]:
    """Write GraphML; yield every file and the client whose graph it has."""
    # Threshold 0 of the largest weight: whatever is not zero, which is the support and no less.
    if common:
        known = {"precision": graphs.mean_precision, "mixed": graphs.mixed}
        path = place / f"{COMMON}.graphml"
        write_graphml(path, graphs.middle, graphs.variables, known, 0.0)
        yield path, None
    stems = file_stems(graphs.names, reserved=(COMMON,))
    for index in clients:
        path = place / f"{stems[index]}.graphml"
        known = {"precision": graphs.precision_of(index), "common": graphs.common}
        write_graphml(path, graphs.partial_of(index), graphs.variables, known, 0.0)
        yield path, index


def _write_edges(graphs: Graphs, path: Path, clients: Sequence[int]) -> Path:
    """Write the edges of some clients, one a row."""
    header: list[object] = ["client", "variable a", "variable b"]
    header += ["partial correlation", "precision", "common"]
    rows = [header]
    names = graphs.variables
    for index in clients:
        partial = graphs.partial_of(index)
        held = np.flatnonzero(partial)
        columns = (partial, graphs.precision_of(index), graphs.common)
        values = [column[held].tolist() for column in columns]
        ends = zip(graphs.a[held].tolist(), graphs.b[held].tolist(), *values, strict=True)
        rows += (
            [graphs.names[index], names[a], names[b], value, entry, "true" if common else "false"]
            for a, b, value, entry, common in ends
        )
    write_atomically(path, csv_text(rows).encode())
    return path
