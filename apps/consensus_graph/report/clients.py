"""The part of a consensus-graph report on the clients: a few drawn, some tabled, all counted."""

from __future__ import annotations

import shlex

from trellis.apps.consensus_graph.problem import adjacency
from trellis.apps.pages import plots
from trellis.apps.pages.clients.chosen import shown, table_of
from trellis.apps.pages.clients.spread import spread_block
from trellis.apps.pages.page import Block, Code, FigureBlock, Gallery, Paragraph, Section, Table

from .graphs import LOOSE, Graphs
from .privacy import KEPT, TIGHT

_GAMMA = (
    "gamma is the weight of a client in the consensus, 1 / (distance to the consensus): larger "
    "means closer to the consensus."
)
_PANELS = 6  # heat maps side by side


def client_sections(graphs: Graphs) -> list[Section]:
    """Return the sections on clients: the table alone where one graph serves all."""
    if graphs.single:
        return [Section("Each client", [_table(graphs)])]
    blocks: list[Block] = [_guide(graphs), _gallery(graphs)]
    if len(graphs.drawn) < len(graphs.names):
        if (spread := spread_block(_numbers(graphs))) is not None:
            blocks.append(spread)
        blocks.append(Paragraph("The graph of any client, as a picture and as GraphML:"))
        name = graphs.names[graphs.drawn[0]]
        blocks.append(Code(f"trellis graphs DIR --client {shlex.quote(name)}"))
    return [Section("Each client's graph", [*blocks, _table(graphs)])]


def matrices(graphs: Graphs) -> Section:
    """Return the adjacency matrices of the common graph and of the clients that are drawn."""
    cells, titles = [], []
    if graphs.has_common:
        cells.append(adjacency(graphs.common))
        titles.append("consensus" if graphs.method == "fedgl" else "all clients")
    for index in graphs.drawn[: _PANELS - graphs.has_common]:
        cells.append(adjacency(graphs.weights[index]))
        titles.append(graphs.names[index])
    figure = (
        plots.heat_map(cells[0], graphs.variables, title=titles[0])
        if len(cells) == 1
        else plots.heat_maps(cells, titles)
    )
    caption = "Edge weights on one common colour scale, nodes in the order of the variables."
    if graphs.d > plots.HEAT_CELLS:
        caption += " The matrices are drawn in blocks of nodes, by the largest weight in each."
    text = f"Heat maps of the weights: {', '.join(titles)}"
    block = FigureBlock("Adjacency matrices", plots.svg(figure, text), caption)
    return Section("The graphs as matrices", [block])


def _guide(graphs: Graphs) -> Paragraph:
    """Return how to read the drawings, and whose they are."""
    text = f"Edges above {TIGHT} of the client's largest weight. "
    if graphs.has_common:
        text += "Blue: the consensus has the edge as well. Orange: only the client has it. "
    text += "A node stands at the same place in every drawing."
    count = len(graphs.names)
    if len(graphs.drawn) < count:
        first, last = graphs.ranking[1]
        text += (
            f" Of {count:,} clients {len(graphs.drawn)} are drawn, at even steps from the one "
            f"{first} to the one {last}."
        )
    return Paragraph(text)


def _gallery(graphs: Graphs) -> Gallery:
    return Gallery([FigureBlock("", graphs.picture(index)) for index in graphs.drawn])


def _numbers(graphs: Graphs) -> dict[str, list[object]]:
    """Return the columns whose spread over all clients is drawn."""
    left_out = ("client", "signals", "shared", f"edges (threshold {LOOSE})")
    found = {name: list(values) for name, values in graphs.columns.items() if name not in left_out}
    return {**found, "signals": list(graphs.signals)}


def _table(graphs: Graphs) -> Table:
    values, ends = graphs.ranking
    rows = shown(values, also=graphs.drawn)
    if graphs.kept:
        return table_of(graphs.columns, rows, KEPT, ends, "run.json")
    caption = ""
    if graphs.method == "fedgl":
        caption += f"Shared and private edges are counted at threshold {TIGHT}. "
    if graphs.gamma is not None:
        caption += f"{_GAMMA} "
    if graphs.pulls is not None:
        caption += "pull is how hard the client let the consensus pull; 0 is learning alone. "
    if graphs.truth is not None:
        caption += "MCC (1 is perfect, 0 is chance) and relative error are against the true graphs."
    return table_of(graphs.columns, rows, caption, ends, "clients.csv")
