"""What the consensus-graph study shows of a run: the graphs, drawn, tabulated and as files.

Reads ``weights`` : (I, p), ``consensus`` : (p,), ``gamma`` : (I,) and, where the data is synthetic,
``truth`` : (I, p) and ``truth_consensus`` : (p,). One rule everywhere: a pair is an edge where its
weight exceeds a share of the largest weight of its own graph, and the share is named beside every
number; a client's edge is *shared* where the consensus has it as well, else *private*.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from apps.common.metrics import (
    EDGE_THRESHOLD,
    LOOSE_EDGE_THRESHOLD,
    Vector,
    edges,
    matthews,
    relative_error,
)
from apps.common.results import RunResult
from apps.consensus_graph.problem import adjacency, edge_ends
from apps.pages import plots
from apps.pages.graphs import file_stems, write_graphml
from apps.pages.report import Block, FigureBlock, Gallery, Notice, Paragraph, Section, Table, number
from apps.pages.wording import DASH

from .privacy import KEPT, TIGHT, privacy_notice

if TYPE_CHECKING:
    from matplotlib.figure import Figure

DRAWN_CLIENTS = 6
STRONGEST = 20
# Files for all clients of a large run would take longer than the run: result.npz has every weight.
EXPORTED_EDGES = 150_000
_GALLERY_EDGES = 400
# The loose threshold as the text names it; the other is `TIGHT`.
LOOSE = np.format_float_scientific(LOOSE_EDGE_THRESHOLD, trim="-", exp_digits=1)

_METHODS = {
    "fedgl": (
        "Each client learned a graph of its own, pulled towards a sparse consensus graph that all "
        "of them share (method fedgl)."
    ),
    "igl": (
        "Each client learned its graph alone (method igl): there is no consensus, gamma is not "
        "used, and every edge is private."
    ),
    "fedavg": (
        "One graph was learned for all clients (method fedavg): no client has a graph of its own, "
        "there are no private edges, and gamma is not used."
    ),
}
_GAMMA = (
    "gamma is the weight of a client in the consensus, 1 / (distance to the consensus): larger "
    "means closer to the consensus."
)


def sections(result: RunResult) -> list[Section]:
    """Return the study's part of the report; see `apps.pages.report.write_report`."""
    if "consensus" not in result.arrays:
        return [
            Section("What was learned", [Paragraph("The run ended before a graph was learned.")])
        ]
    graphs = _Graphs(result)
    blocks: list[Block] = [Paragraph(_METHODS.get(graphs.method, f"Method {graphs.method}."))]
    privacy = result.ledger.get("mode") or result.config.get("privacy")
    if privacy in ("sound", "paper"):
        blocks.append(Notice(privacy_notice(result, str(privacy), graphs.counts, graphs.d)))
    blocks.append(Paragraph(_summary(graphs)))
    if graphs.has_common:
        blocks += [_common_figure(graphs), _strongest(graphs)]
    found = [Section("What was learned", blocks)]
    if not graphs.single:
        found.append(
            Section("Each client's graph", [_guide(graphs), _gallery(graphs), _clients(graphs)])
        )
    else:
        found.append(Section("Each client", [_clients(graphs)]))
    if graphs.has_common or not graphs.single:
        found.append(Section("The graphs as matrices", [_heat_maps(graphs)]))
    return found


def export_graphs(result: RunResult, folder: Path) -> list[Path]:
    """Write the graphs under ``folder/graphs`` as GraphML, and the drawings as PNG.

    ``consensus.graphml`` and one file a client, with ``weight`` and ``shared`` on every edge above
    1e-4 of the largest weight; drawings of the consensus and of the first clients. Clients beyond
    `EXPORTED_EDGES` edges in all are left to ``result.npz``.

    Returns
    -------
    list of Path
        What was written.
    """
    if "consensus" not in result.arrays:
        return []
    graphs = _Graphs(result)
    place = folder / "graphs"
    written: list[Path] = []
    budget = EXPORTED_EDGES
    if graphs.has_common:
        path = place / "consensus.graphml"
        budget -= write_graphml(path, graphs.common, graphs.variables)
        written.append(path)
        written.append(plots.save(graphs.draw_common(), place / "consensus.png"))
    if graphs.single:
        return written
    loose = edges(graphs.common, LOOSE_EDGE_THRESHOLD)
    for index, stem in enumerate(file_stems(graphs.names, reserved=("consensus",))):
        if budget <= 0:
            break
        path = place / f"{stem}.graphml"
        weights = graphs.weights[index]
        budget -= write_graphml(path, weights, graphs.variables, {"shared": loose})
        written.append(path)
        if index < DRAWN_CLIENTS:
            written.append(plots.save(graphs.draw_client(index), place / f"{stem}.png"))
    return written


class _Graphs:
    """A run's graphs, with the one common graph its method has, if any, and where nodes stand."""

    def __init__(self, result: RunResult) -> None:
        arrays = result.arrays
        self.method = str(result.config.get("method", "fedgl"))
        clients = max(len(result.clients), 1)
        # Graphs that devices keep are not there; all that is known of them is the consensus.
        self.kept = "weights" not in arrays
        tiled = np.tile(arrays["consensus"], (clients, 1)) if self.kept else arrays["weights"]
        self.weights: Vector = tiled
        self.single = self.method == "fedavg" or self.kept
        pairs = self.weights.shape[1]
        self.consensus: Vector = arrays.get("consensus", np.zeros(pairs))
        # Where one graph serves all, it is the common graph, however the run recorded it.
        alone = self.method == "fedavg" and not np.any(self.consensus)
        self.common = self.weights[0] if alone else self.consensus
        self.has_common = self.method != "igl"
        self.gamma: Vector | None = arrays.get("gamma") if self.method == "fedgl" else None
        self.truth: Vector | None = None if self.kept else arrays.get("truth")
        self.pulls: Vector | None = arrays.get("pulls")
        self.truth_consensus: Vector | None = arrays.get("truth_consensus")
        self.d = adjacency(self.weights[0]).shape[0]
        self.variables = result.variables or [f"x{k + 1}" for k in range(self.d)]
        count = self.weights.shape[0]
        known = result.clients if len(result.clients) == count else [{}] * count
        self.names = [str(entry.get("name", f"client {k + 1}")) for k, entry in enumerate(known)]
        self.counts = [entry.get("count") for entry in known]
        # One place a node for all drawings, so that the eye can compare them.
        whole = self.common if np.any(self.common) else self.weights.mean(axis=0)
        large = self.d > plots.LABELLED_NODES
        self.positions = plots.spring(whole, self.d) if large else None

    def shared(self, threshold: float = EDGE_THRESHOLD) -> NDArray[np.bool_]:
        """Return which edges (I, p) of the clients the common graph has as well."""
        return edges(self.weights, threshold) & edges(self.common, threshold)

    def draw_common(self) -> Figure:
        """Return the drawing of the common graph."""
        legend = "consensus edges" if self.method == "fedgl" else "edges of the one graph"
        return plots.two_colour_graph(
            self.common, self.variables, legend=(legend, ""), positions=self.positions
        )

    def draw_client(self, index: int) -> Figure:
        """Return the drawing of one client's graph."""
        both = ("shared with the consensus", "private")
        return plots.two_colour_graph(
            self.weights[index],
            self.variables,
            edges(self.common),
            title=self.names[index],
            legend=both if self.has_common else ("", "edges of this client"),
            positions=self.positions,
            max_edges=_GALLERY_EDGES,
        )


def _summary(graphs: _Graphs) -> str:
    """Return the findings in numbers."""
    count = graphs.weights.shape[0]
    text = f"{count:,} clients, {graphs.d:,} nodes, {graphs.weights.shape[1]:,} possible edges. "
    if graphs.has_common:
        name = "The consensus" if graphs.method == "fedgl" else "The graph"
        strict = int(np.count_nonzero(edges(graphs.common)))
        loose = int(np.count_nonzero(edges(graphs.common, LOOSE_EDGE_THRESHOLD)))
        text += (
            f"{name} has {strict:,} edges above {TIGHT} of its largest weight and "
            f"{loose:,} above {LOOSE} of it. "
        )
        if not loose:
            text += "It is empty: a smaller lambda lets edges through. "
    if not graphs.single:
        own = edges(graphs.weights)
        text += f"A client has {number(float(own.sum(axis=1).mean()))} edges on average"
        if graphs.has_common:
            share = np.count_nonzero(graphs.shared()) / max(int(own.sum()), 1)
            text += f", {share:.0%} of them shared with the consensus"
        text += f" (threshold {TIGHT}). "
    if graphs.method == "fedgl" and graphs.truth_consensus is not None:
        guess, fact = graphs.consensus, graphs.truth_consensus
        text += (
            f"Against the true consensus: MCC {number(matthews(guess, fact))} at threshold "
            f"{TIGHT} and {number(matthews(guess, fact, LOOSE_EDGE_THRESHOLD))} at "
            f"{LOOSE}, relative error {number(relative_error(guess, fact))}."
        )
    return text.strip()


def _common_figure(graphs: _Graphs) -> FigureBlock:
    title = "The consensus graph" if graphs.method == "fedgl" else "The graph of all clients"
    caption = f"Edges above {TIGHT} of the largest weight; wider and darker means heavier."
    figure = graphs.draw_common()
    return FigureBlock(title, plots.svg(figure, f"{title}. {caption}"), caption)


def _strongest(graphs: _Graphs) -> Block:
    """Return the table of the heaviest edges of the common graph, by the names of their ends."""
    a, b = edge_ends(graphs.d)
    order = np.argsort(-graphs.common, kind="stable")[:STRONGEST]
    order = order[graphs.common[order] > 0.0]
    if not order.size:
        return Paragraph("The common graph has no edge.")
    held = edges(graphs.weights)[:, order]
    rows = [
        [
            f"{graphs.variables[a[k]]} {DASH} {graphs.variables[b[k]]}",
            float(graphs.common[k]),
            f"{int(held[:, column].sum())} of {len(graphs.names)}",
        ]
        for column, k in enumerate(order)
    ]
    headers = ["edge", "weight", f"clients with it (threshold {TIGHT})"]
    if graphs.single:
        headers, rows = headers[:2], [row[:2] for row in rows]
    name = "consensus " if graphs.method == "fedgl" else ""
    return Table(headers, rows, f"The {len(rows)} strongest {name}edges.")


def _guide(graphs: _Graphs) -> Paragraph:
    """Return how to read the drawings."""
    text = f"Edges above {TIGHT} of the client's largest weight. "
    if graphs.has_common:
        text += "Blue: the consensus has the edge as well. Orange: only the client has it. "
    return Paragraph(text + "A node stands at the same place in every drawing.")


def _gallery(graphs: _Graphs) -> Gallery:
    """Return the drawings of the first clients."""
    count = len(graphs.names)
    figures = []
    for index in range(min(count, DRAWN_CLIENTS)):
        name = graphs.names[index]
        figure = graphs.draw_client(index)
        text = f"Graph of {name}: shared edges in blue, private edges in orange"
        figures.append(FigureBlock("", plots.svg(figure, text)))
    return Gallery(figures)


def _clients(graphs: _Graphs) -> Table:
    """Return the table of all clients: edges, closeness to the consensus, agreement with truth."""
    strict, loose = edges(graphs.weights), edges(graphs.weights, LOOSE_EDGE_THRESHOLD)
    shared = graphs.shared()
    columns: dict[str, list[object]] = {
        "client": list(graphs.names),
        "signals": list(graphs.counts),
    }
    if graphs.kept:
        return Table(list(columns), list(zip(*columns.values(), strict=True)), KEPT)
    columns[f"edges (threshold {TIGHT})"] = strict.sum(axis=1).tolist()
    caption = ""
    if graphs.method == "fedgl":
        columns["shared"] = shared.sum(axis=1).tolist()
        columns["private"] = (strict & ~shared).sum(axis=1).tolist()
        caption += f"Shared and private edges are counted at threshold {TIGHT}. "
    columns[f"edges (threshold {LOOSE})"] = loose.sum(axis=1).tolist()
    if graphs.gamma is not None:
        columns["gamma"] = [float(value) for value in graphs.gamma]
        caption += _GAMMA + " "
    if graphs.pulls is not None:
        columns["pull"] = [float(value) for value in graphs.pulls]
        caption += "pull is how hard the client let the consensus pull; 0 is learning alone. "
    if graphs.truth is not None:
        pairs = list(zip(graphs.weights, graphs.truth, strict=True))
        columns[f"MCC (threshold {TIGHT})"] = [matthews(w, truth) for w, truth in pairs]
        columns[f"MCC (threshold {LOOSE})"] = [
            matthews(w, truth, LOOSE_EDGE_THRESHOLD) for w, truth in pairs
        ]
        columns["relative error"] = [relative_error(w, truth) for w, truth in pairs]
        caption += "MCC (1 is perfect, 0 is chance) and relative error are against the true graphs."
    if len(graphs.names) > DRAWN_CLIENTS and not graphs.single:
        caption = f"The first {DRAWN_CLIENTS} of these clients are drawn above. {caption}"
    return Table(list(columns), list(zip(*columns.values(), strict=True)), caption.strip())


def _heat_maps(graphs: _Graphs) -> FigureBlock:
    """Return the adjacency matrices of the common graph and of the first clients."""
    matrices, titles = [], []
    if graphs.has_common:
        matrices.append(adjacency(graphs.common))
        titles.append("consensus" if graphs.method == "fedgl" else "all clients")
    if not graphs.single:
        drawn = DRAWN_CLIENTS - graphs.has_common
        matrices += [adjacency(weights) for weights in graphs.weights[:drawn]]
        titles += graphs.names[:drawn]
    figure = (
        plots.heat_map(matrices[0], graphs.variables, title=titles[0])
        if len(matrices) == 1
        else plots.heat_maps(matrices, titles)
    )
    caption = "Edge weights on one common colour scale, nodes in the order of the variables."
    if graphs.d > plots.HEAT_CELLS:
        caption += " The matrices are drawn in blocks of nodes, by the largest weight in each."
    text = f"Heat maps of the weights: {', '.join(titles)}"
    return FigureBlock("Adjacency matrices", plots.svg(figure, text), caption)
