"""The graphs of a run as files: GraphML, csv and PNG."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import numpy as np

from apps.common.results import RunResult, write_atomically
from apps.pages import plots
from apps.pages.graphs import file_stems, write_graphml

from .graphs import DRAWN_CLIENTS, Graphs

# Files for all clients of a large run would take longer than the run: result.npz has every entry.
EXPORTED_EDGES = 150_000


def export_graphs(result: RunResult, folder: Path) -> list[Path]:
    """Write the graphs under ``folder/graphs`` as GraphML and csv, and the drawings as PNG.

    One GraphML file a client has exactly the edges of Psi: ``weight`` is the partial correlation,
    ``precision`` the entry of Omega, ``common`` whether all clients have the edge. In
    ``common.graphml`` weight is the mean magnitude with the sign most of it has, ``mixed`` tells
    where clients differ in sign. ``partial-correlations.csv`` has the clients' edges, one a row.
    Clients beyond `EXPORTED_EDGES` edges in all are left to ``result.npz``.

    Returns
    -------
    list of Path
        What was written.
    """
    if "sparse" not in result.arrays:
        return []
    graphs = Graphs(result)
    place = folder / "graphs"
    # Threshold 0 of the largest weight: whatever is not zero, which is the support and no less.
    mean = graphs.precision[graphs.present].mean(axis=0)
    known = {"precision": mean, "mixed": graphs.mixed}
    common = place / "common.graphml"
    budget = EXPORTED_EDGES - write_graphml(common, graphs.middle, graphs.variables, known, 0.0)
    written = [common, plots.save(graphs.draw_common(), place / "common.png")]
    table = io.StringIO()
    rows = csv.writer(table, lineterminator="\n")
    header = ["client", "variable a", "variable b", "partial correlation", "precision", "common"]
    rows.writerow(header)
    for index, stem in enumerate(file_stems(graphs.names, reserved=("common",))):
        if budget <= 0:
            break
        if not graphs.present[index]:
            continue
        path = place / f"{stem}.graphml"
        partial, precision = graphs.partial[index], graphs.precision[index]
        known = {"precision": precision, "common": graphs.common}
        budget -= write_graphml(path, partial, graphs.variables, known, 0.0)
        written.append(path)
        for k in np.flatnonzero(graphs.support[index]).tolist():
            ends = (graphs.variables[graphs.a[k]], graphs.variables[graphs.b[k]])
            values = (float(partial[k]), float(precision[k]), str(bool(graphs.common[k])).lower())
            rows.writerow([graphs.names[index], *ends, *values])
        if index < DRAWN_CLIENTS:
            written.append(plots.save(graphs.draw_client(index), place / f"{stem}.png"))
    write_atomically(place / "partial-correlations.csv", table.getvalue().encode())
    return [*written, place / "partial-correlations.csv"]
