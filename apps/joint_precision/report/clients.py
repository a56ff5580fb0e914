"""How the clients' graphs differ from each other, and from the true ones where those are known."""

from __future__ import annotations

import numpy as np

from apps.common.metrics import matthews
from apps.pages import plots
from apps.pages.brains.connectome import connectomes
from apps.pages.report import Block, FigureBlock, Gallery, Paragraph, Section, Table

from .graphs import DRAWN_CLIENTS, Graphs, Matrix

OVERLAP_COLUMNS = 12


def comparison(graphs: Graphs) -> Section:
    """Return how the clients' graphs differ: numbers, overlaps, drawings, heat maps."""
    count = len(graphs.names)
    private = graphs.support & (graphs.holders == 1) & (graphs.heard > 1)
    some = graphs.support & ~graphs.common & ~private
    columns: dict[str, list[object]] = {
        "client": list(graphs.names),
        "samples": list(graphs.counts),
        "edges": graphs.support.sum(axis=1).tolist(),
        "common to all": (graphs.support & graphs.common).sum(axis=1).tolist(),
        "shared with some": some.sum(axis=1).tolist(),
        "private to this client": private.sum(axis=1).tolist(),
        "negative": (graphs.partial < 0.0).sum(axis=1).tolist(),
    }
    caption = "Edges of every client; negative counts negative partial correlations."
    drawn = min(count, DRAWN_CLIENTS)
    text = "Blue: all clients have the edge. Orange: some do not. A node has one place throughout."
    if drawn < count:
        text += f" The first {drawn} of {count:,} clients are drawn."
    label = "common edges in blue, others in orange"
    if graphs.coordinates is None:
        figures = [
            FigureBlock("", plots.svg(graphs.draw_client(k), f"{graphs.names[k]}: {label}"))
            for k in range(drawn)
        ]
        drawings: Block = Gallery(figures)
    else:
        matrices = [graphs.square(values) for values in graphs.partial[:drawn]]
        known = (graphs.coordinates, graphs.variables, graphs.groups)
        common = graphs.square(graphs.common)
        figure = connectomes(matrices, graphs.names[:drawn], *known, common=common)
        drawings = FigureBlock("", plots.svg(figure, f"Connectomes: {label}"))
    rows = list(zip(*columns.values(), strict=True))
    blocks: list[Block] = [Table(list(columns), rows, caption)]
    if count > 1:
        blocks.append(_overlaps(graphs))
    return Section(
        "Comparison of clients", [*blocks, Paragraph(text), drawings, _heat_maps(graphs)]
    )


def _overlaps(graphs: Graphs) -> Block:
    """Return |A and B| / |A or B| of the edges of every two clients."""
    held = graphs.support.astype(np.float32)
    both = (held @ held.T).astype(np.float64)
    either = np.add.outer(np.diag(both), np.diag(both)) - both
    share = np.divide(both, either, out=np.full_like(both, np.nan), where=either > 0.0)
    caption = "Jaccard overlap of two clients' edges: shared edges / edges of either."
    if len(graphs.names) > OVERLAP_COLUMNS:
        figure = plots.heat_map(np.nan_to_num(share), graphs.names, label="overlap")
        return FigureBlock("Overlap of edges", plots.svg(figure, caption), caption)
    rows = [[name, *values] for name, values in zip(graphs.names, share.tolist(), strict=True)]
    return Table(["client", *graphs.names], rows, caption)


def _heat_maps(graphs: Graphs) -> FigureBlock:
    """Return the signed partial correlations of the first clients as matrices."""
    titles = graphs.names[:DRAWN_CLIENTS]
    matrices = [graphs.square(values) for values in graphs.partial[:DRAWN_CLIENTS]]
    columns = min(len(matrices), 3)
    maps = plots.heat_maps(
        matrices, titles, graphs.variables, label="partial correlation", columns=columns
    )
    caption = "Signed, on one scale, in the order of the variables; the diagonal is left out."
    if graphs.p > plots.HEAT_CELLS:
        caption += " Drawn in blocks of variables, by the entry of largest magnitude in each."
    text = f"Heat maps of the partial correlations: {', '.join(titles)}"
    return FigureBlock("Partial correlations", plots.svg(maps, text), caption)


def agreement(graphs: Graphs, truth: Matrix) -> Section:
    """Return how well the edges agree with the true ones."""
    rows = []
    for name, entries, partial, fact in zip(
        graphs.names, graphs.support, graphs.partial, truth != 0.0, strict=True
    ):
        hits, wrong = int(np.sum(entries & fact)), int(np.sum(entries & ~fact))
        true, false = int(fact.sum()), int(np.sum(~fact))
        rates = (_ratio(hits, true), _ratio(wrong, false), _ratio(hits, hits + wrong))
        rows.append([name, hits + wrong, true, *rates, matthews(partial, fact, 0.0)])
    headers = ["client", "edges", "true edges", "TPR", "FPR", "PPV", "MCC"]
    caption = (
        "TPR: true edges found / true edges. FPR: false edges / pairs without an edge. PPV: true "
        "edges found / edges found. MCC: 1 is perfect, 0 is chance."
    )
    drawn = min(len(graphs.names), DRAWN_CLIENTS)
    scale = np.sqrt(np.diagonal(graphs.arrays["truth"], axis1=1, axis2=2))
    facts = [
        graphs.square(-truth[k] / (scale[k][graphs.a] * scale[k][graphs.b])) for k in range(drawn)
    ]
    figure = connectomes(
        [graphs.square(values) for values in graphs.partial[:drawn]],
        graphs.names[:drawn],
        graphs.coordinates,
        graphs.variables,
        graphs.groups,
        truth=facts,
        common=np.stack(
            [graphs.square(graphs.support[k] & (truth[k] != 0.0)) for k in range(drawn)]
        ),
        legend=("true and learned", "only true, or only learned"),
    )
    text = "Orange is missed among the true edges and wrong among the learned ones."
    title = "True and learned graphs"
    picture = FigureBlock(title, plots.svg(figure, f"{title}. {text}"), text)
    return Section("Agreement with the truth", [Table(headers, rows, caption), picture])


def _ratio(part: int, whole: int) -> float:
    return part / whole if whole else float("nan")
