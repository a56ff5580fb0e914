"""How the clients' graphs differ from each other, and from the true ones where those are known."""

from __future__ import annotations

import shlex

import numpy as np

from trellis.apps.pages import plots
from trellis.apps.pages.brains.connectome import connectomes
from trellis.apps.pages.clients.chosen import shown, table_of
from trellis.apps.pages.clients.spread import spread_block
from trellis.apps.pages.report import Block, Code, FigureBlock, Gallery, Paragraph, Section, Table

from .graphs import ENDS, Graphs

OVERLAP_COLUMNS = 12
_HELD_AGAINST_TRUTH = 3  # of the clients that are drawn


def comparison(graphs: Graphs) -> Section:
    """Return how the clients' graphs differ: numbers, overlaps, drawings, heat maps."""
    count = len(graphs.names)
    caption = "Edges of every client; negative counts negative partial correlations."
    text = "Blue: all clients have the edge. Orange: some do not. A node has one place throughout."
    rows = shown(graphs.edges, also=graphs.drawn)
    blocks: list[Block] = [table_of(graphs.compared, rows, caption, ENDS, "clients.csv")]
    if count > 1:
        blocks.append(_overlaps(graphs))
    if len(graphs.drawn) < count:
        named = ("edges", "shared with some", "private to this client", "samples")
        if (spread := spread_block({name: graphs.compared[name] for name in named})) is not None:
            blocks.append(spread)
        text += (
            f" Of {count:,} clients {len(graphs.drawn)} are drawn, at even steps from the one "
            f"{ENDS[0]} to the one {ENDS[1]}. The graph of any client:"
        )
        name = graphs.names[graphs.drawn[0]]
        asked = f"trellis graphs DIR --client {shlex.quote(name)}"
        blocks += [Paragraph(text), Code(asked)]
    else:
        blocks.append(Paragraph(text))
    return Section("Comparison of clients", [*blocks, _drawings(graphs), _heat_maps(graphs)])


def _drawings(graphs: Graphs) -> Block:
    """Return the graphs of the clients that are drawn."""
    label = "common edges in blue, others in orange"
    if graphs.coordinates is None:
        return Gallery([FigureBlock("", graphs.picture(k)) for k in graphs.drawn])
    matrices = [graphs.square(graphs.partial_of(k)) for k in graphs.drawn]
    titles = [graphs.names[k] for k in graphs.drawn]
    known = (graphs.coordinates, graphs.variables, graphs.groups)
    figure = connectomes(matrices, titles, *known, common=graphs.square(graphs.common))
    return FigureBlock("", plots.svg(figure, f"Connectomes: {label}"))


def _overlaps(graphs: Graphs) -> Block:
    """Return |A and B| / |A or B| of the edges of every two clients; of many, of some."""
    chosen = shown(graphs.edges, most=plots.HEAT_CELLS).tolist()
    names = [graphs.names[k] for k in chosen]
    held = np.stack([graphs.partial_of(k) != 0.0 for k in chosen]).astype(np.float32)
    both = (held @ held.T).astype(np.float64)
    either = np.add.outer(np.diag(both), np.diag(both)) - both
    share = np.divide(both, either, out=np.full_like(both, np.nan), where=either > 0.0)
    caption = "Jaccard overlap of two clients' edges: shared edges / edges of either."
    if len(names) > OVERLAP_COLUMNS:
        if len(names) < len(graphs.names):
            caption += f" {len(names)} of {len(graphs.names):,} clients, from most edges to fewest."
        figure = plots.heat_map(np.nan_to_num(share), names, label="overlap")
        return FigureBlock("Overlap of edges", plots.svg(figure, caption), caption)
    rows = [[name, *values] for name, values in zip(names, share.tolist(), strict=True)]
    return Table(["client", *names], rows, caption)


def _heat_maps(graphs: Graphs) -> FigureBlock:
    """Return the signed partial correlations of the clients that are drawn as matrices."""
    titles = [graphs.names[k] for k in graphs.drawn]
    matrices = [graphs.square(graphs.partial_of(k)) for k in graphs.drawn]
    columns = 2 if len(matrices) == 4 else min(len(matrices), 3)
    maps = plots.heat_maps(
        matrices, titles, graphs.variables, label="partial correlation", columns=columns
    )
    caption = "Signed, on one scale, in the order of the variables; the diagonal is left out."
    if graphs.p > plots.HEAT_CELLS:
        caption += " Drawn in blocks of variables, by the entry of largest magnitude in each."
    text = f"Heat maps of the partial correlations: {', '.join(titles)}"
    return FigureBlock("Partial correlations", plots.svg(maps, text), caption)


def agreement(graphs: Graphs) -> Section:
    """Return how well the edges agree with the true ones."""
    caption = (
        "TPR: true edges found / true edges. FPR: false edges / pairs without an edge. PPV: true "
        "edges found / edges found. MCC: 1 is perfect, 0 is chance."
    )
    blocks: list[Block] = []
    rows = shown(graphs.agreement["MCC"], also=graphs.drawn)
    ends = ("with the largest MCC", "with the smallest")
    blocks.append(table_of(graphs.agreement, rows, caption, ends, "clients.csv"))
    if len(rows) < len(graphs.names):
        rates = {name: graphs.agreement[name] for name in ("TPR", "FPR", "MCC")}
        if (spread := spread_block(rates)) is not None:
            blocks.append(spread)
    return Section("Agreement with the truth", [*blocks, _beside_truth(graphs)])


def _beside_truth(graphs: Graphs) -> FigureBlock:
    """Return true and learned graphs, of few clients: both take room."""
    chosen = graphs.drawn[:_HELD_AGAINST_TRUTH]
    learned = [graphs.partial_of(k) for k in chosen]
    facts, found = [], []
    for k, partial in zip(chosen, learned, strict=True):
        truth = graphs.truth_of(k)
        scale = np.sqrt(np.diagonal(graphs.arrays["truth"][k]))
        facts.append(graphs.square(-truth / (scale[graphs.a] * scale[graphs.b])))
        found.append(graphs.square((partial != 0.0) & (truth != 0.0)))
    figure = connectomes(
        [graphs.square(partial) for partial in learned],
        [graphs.names[k] for k in chosen],
        graphs.coordinates,
        graphs.variables,
        graphs.groups,
        truth=facts,
        common=np.stack(found),
        legend=("true and learned", "only true, or only learned"),
    )
    text = "Orange is missed among the true edges and wrong among the learned ones."
    if len(chosen) < len(graphs.names):
        text += f" Of {len(graphs.names):,} clients {len(chosen)}, that are drawn above as well."
    title = "True and learned graphs"
    return FigureBlock(title, plots.svg(figure, f"{title}. {text}"), text)
