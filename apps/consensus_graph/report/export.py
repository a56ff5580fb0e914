"""The graphs of a run as files: GraphML and pictures, and the table of all clients."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from trellis.apps.common.metrics import LOOSE_EDGE_THRESHOLD, edges
from trellis.apps.common.results import RunResult
from trellis.apps.pages import plots
from trellis.apps.pages.clients.chosen import MOST_ROWS, write_table
from trellis.apps.pages.figure import save_svg
from trellis.apps.pages.graphs import file_stems, write_graphml

from .graphs import Graphs, graphs_of

COMMON = "consensus"


def export_graphs(result: RunResult, folder: Path) -> list[Path]:
    """Write the graphs under ``folder/graphs`` as GraphML, and the page's drawings as SVG.

    ``consensus.graphml`` and a file for every client that the report draws, with ``weight`` and
    ``shared`` on every edge above 1e-4 of the largest weight; the others on request
    (`write_graphs`). ``clients.csv`` where the report's table of clients has not all of them.

    Returns
    -------
    list of Path
        What was written.
    """
    if "consensus" not in result.arrays:
        return []
    graphs = graphs_of(result)
    written = []
    for path, client in _write(graphs, folder / "graphs", graphs.has_common, graphs.drawn):
        written += [path, save_svg(graphs.picture(client), path.with_suffix(".svg"))]
    if len(graphs.names) > MOST_ROWS and not graphs.kept:
        written.append(write_table(folder / "clients.csv", graphs.columns))
    return written


def kept_at_home(result: RunResult) -> bool:
    """Return whether clients kept their graphs, so that the run has none of them."""
    return "consensus" in result.arrays and "weights" not in result.arrays


def write_graphs(result: RunResult, folder: Path, clients: Sequence[int]) -> list[Path]:
    """Write graphs of some clients, or the common one, as GraphML and PNG; return the files."""
    graphs = graphs_of(result)
    written = []
    for path, client in _write(graphs, folder, graphs.has_common and not clients, clients):
        figure = graphs.draw_common() if client is None else graphs.draw_client(client)
        written += [path, plots.save(figure, path.with_suffix(".png"))]
    return written


def _write(
    graphs: Graphs, place: Path, common: bool, clients: Sequence[int]
) -> Iterator[tuple[Path, int | None]]:
    """Write GraphML; yield every file and the client whose graph it has."""
    if common:
        path = place / f"{COMMON}.graphml"
        write_graphml(path, graphs.common, graphs.variables)
        yield path, None
    loose = edges(graphs.common, LOOSE_EDGE_THRESHOLD)
    stems = file_stems(graphs.names, reserved=(COMMON,)) if clients else []
    for index in clients:
        path = place / f"{stems[index]}.graphml"
        write_graphml(path, graphs.weights[index], graphs.variables, {"shared": loose})
        yield path, index
