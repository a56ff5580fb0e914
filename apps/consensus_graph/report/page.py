"""What the consensus-graph study shows of a run: the consensus, a few clients, numbers of all.

Reads ``weights`` : (I, p), ``consensus`` : (p,), ``gamma`` : (I,) and, where the data is synthetic,
``truth`` : (I, p) and ``truth_consensus`` : (p,). What counts as an edge is in `graphs`.
"""

from __future__ import annotations

import numpy as np

from trellis.apps.common.metrics import LOOSE_EDGE_THRESHOLD, edges, matthews, relative_error
from trellis.apps.common.results import RunResult
from trellis.apps.consensus_graph.problem import edge_ends
from trellis.apps.pages.report import Block, FigureBlock, Notice, Paragraph, Section, Table, number
from trellis.apps.pages.wording import DASH

from .clients import client_sections, matrices
from .export import export_graphs
from .graphs import LOOSE, Graphs, graphs_of
from .privacy import TIGHT, privacy_notice

__all__ = ["export_graphs", "sections"]

_METHODS = {
    "fedgl": (
        "Each client learned a graph of its own, pulled towards a sparse consensus graph that all "
        "of them share (method fedgl)."
    ),
    "igl": (
        "Each client learned its graph alone (method igl): there is no consensus, gamma is not "
        "used, and every edge is private."
    ),
    "one-shot": (
        "Every client sent its statistic once, and the server computed all graphs: (8) in one "
        "exchange. gamma is how much a client counts in the consensus."
    ),
    "fedavg": (
        "One graph was learned for all clients (method fedavg): no client has a graph of its own, "
        "there are no private edges, and gamma is not used."
    ),
}


def sections(result: RunResult) -> list[Section]:
    """Return the study's part of the report; see `trellis.apps.pages.report.write_report`."""
    if "consensus" not in result.arrays:
        return [
            Section("What was learned", [Paragraph("The run ended before a graph was learned.")])
        ]
    graphs = graphs_of(result)
    blocks: list[Block] = [Paragraph(_METHODS.get(graphs.method, f"Method {graphs.method}."))]
    privacy = result.ledger.get("mode") or result.config.get("privacy")
    if privacy in ("dp", "paper"):
        blocks.append(Notice(privacy_notice(result, str(privacy), graphs.signals, graphs.d)))
    blocks.append(Paragraph(_summary(graphs)))
    if graphs.has_common:
        blocks += [_common_figure(graphs), _strongest(graphs)]
    found = [Section("What was learned", blocks), *client_sections(graphs)]
    if graphs.has_common or not graphs.single:
        found.append(matrices(graphs))
    return found


def _summary(graphs: Graphs) -> str:
    """Return the findings in numbers."""
    count, pairs = len(graphs.names), graphs.common.size
    text = f"{count:,} clients, {graphs.d:,} nodes, {pairs:,} possible edges. "
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
        own = graphs.counts.strict
        text += f"A client has {number(float(own.mean()))} edges on average"
        if graphs.has_common:
            share = int(graphs.counts.shared.sum()) / max(int(own.sum()), 1)
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


def _common_figure(graphs: Graphs) -> FigureBlock:
    title = "The consensus graph" if graphs.method == "fedgl" else "The graph of all clients"
    caption = f"Edges above {TIGHT} of the largest weight; wider and stronger means heavier."
    return FigureBlock(title, graphs.picture(), caption)


def _strongest(graphs: Graphs) -> Block:
    """Return the table of the heaviest edges of the common graph, by the names of their ends."""
    a, b = edge_ends(graphs.d)
    order = graphs.strongest
    if not order.size:
        return Paragraph("The common graph has no edge.")
    held = graphs.counts.holders
    rows = [
        [
            f"{graphs.variables[a[k]]} {DASH} {graphs.variables[b[k]]}",
            float(graphs.common[k]),
            f"{int(held[column]):,} of {len(graphs.names):,}",
        ]
        for column, k in enumerate(order)
    ]
    headers = ["edge", "weight", f"clients with it (threshold {TIGHT})"]
    if graphs.single:
        headers, rows = headers[:2], [row[:2] for row in rows]
    name = "consensus " if graphs.method == "fedgl" else ""
    return Table(headers, rows, f"The {len(rows)} strongest {name}edges.")
