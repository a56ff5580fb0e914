"""What the joint-precision study shows of a run: graphs, comparison of clients, path, correlations.

Reads ``sparse`` (Psi), ``partial`` (its partial correlations) and ``precision`` (Omega), all
(K, p, p), and what else a run has: ``truth``, ``path_*``, ``smallest_eigenvalue``, ``blocks``,
``answered``, ``coordinates`` : (p, 3) and ``groups`` : (p,) labels of the variables. What counts as
an edge is in `graphs`.
"""

from __future__ import annotations

import numpy as np

from trellis.apps.common.results import RunResult
from trellis.apps.pages.clients.chosen import ALL_DRAWN, shown, table_of
from trellis.apps.pages.report import Block, FigureBlock, Notice, Paragraph, Section, Table, number
from trellis.apps.pages.wording import DASH

from ..config import ALONE_METHODS, JOINT_METHODS
from . import packed
from .clients import agreement, comparison
from .consensus import consensus
from .export import export_graphs
from .graphs import Graphs, graphs_of
from .path import path

__all__ = ["export_graphs", "sections"]

STRONGEST = 20
_KEPT = (
    "Every device learned a graph from its own samples and keeps it: none of them is in this "
    "report. Their owners find them in their state folder, under results."
)
_EDGE = "An edge is an entry of the sparse matrix Psi that is not zero; no threshold is applied."
_METHODS = {
    "group": (
        "Each client has a sparse precision matrix of its own; all were learned together, and the "
        "group penalty favours edges that all clients have, of whatever strength (method group)."
    ),
    "fused": (
        "Each client has a sparse precision matrix of its own; all were learned together, and the "
        "fused penalty favours entries that are equal in all clients (method fused)."
    ),
    "glasso": (
        "Each client learned its sparse precision matrix alone, by the graphical lasso (method "
        "glasso): lambda2 is not used."
    ),
    "clime": (
        "Each client learned its sparse precision matrix alone, by constrained l1 minimisation "
        "(method clime): lambda2 is not used."
    ),
    "one-shot": (
        "Every client sent its correlation matrix once, and the server learned all matrices "
        "together (method one-shot)."
    ),
    "pooled": (
        "All data lay in one place (method pooled): a reference that a real federation could not "
        "run. Each client still has a matrix of its own."
    ),
}

_SUMMED = {
    "group": (
        "Each client's own graph is a graphical lasso of its raw correlations, drawn towards the "
        "consensus and with smaller penalties on its edges, as far as each found that to help "
        "(method group)."
    ),
    "fused": (
        "Each client's own graph is a graphical lasso of its raw correlations, drawn towards the "
        "values of the consensus as far as each found that to help (method fused)."
    ),
    "pooled": "Everyone has the consensus of the one noisy sum (method pooled).",
}


def sections(result: RunResult) -> list[Section]:
    """Return the study's part of the report; see `trellis.apps.pages.report.write_report`."""
    if "packed_sparse" in result.arrays:
        return packed.sections(result)
    if "sparse" not in result.arrays:
        if "gathered" in result.arrays:
            return [Section("What was learned", [Paragraph(_KEPT)])]
        text = "The run ended before a precision matrix was learned."
        return [Section("What was learned", [Paragraph(text)])]
    graphs = graphs_of(result)
    found = [_learned(graphs), comparison(graphs)]
    if "consensus" in graphs.arrays:
        found.insert(0, consensus(graphs))
    if graphs.has_truth:
        found.append(agreement(graphs))
    if "path_lambda1" in graphs.arrays:
        found.append(path(graphs))
    if "smallest_eigenvalue" in graphs.arrays:
        found.append(_correlations(graphs))
    # Only the methods whose server screens have blocks.
    if "blocks" in graphs.arrays and graphs.method in (*JOINT_METHODS, "one-shot"):
        found.append(_blocks(graphs))
    return found


def _learned(graphs: Graphs) -> Section:
    """Return what was learned: the method, the numbers, the edges all clients have."""
    known = _SUMMED if "consensus" in graphs.arrays else _METHODS
    blocks: list[Block] = [Paragraph(known.get(graphs.method, f"Method {graphs.method}."))]
    blocks += [*_lost(graphs), Paragraph(_summary(graphs))]
    if np.any(graphs.common):
        title = "The edges common to all clients"
        caption = "Wider means a stronger partial correlation, by its mean magnitude over clients."
        if graphs.groups is not None:
            caption += " Nodes have the colour and shape of their group."
            caption += " Grey nodes are in none." if "" in graphs.groups else ""
        blocks += [FigureBlock(title, graphs.picture(), caption), _strongest(graphs)]
    return Section("What was learned", blocks)


def _lost(graphs: Graphs) -> list[Block]:
    """Return who was not heard of at the end, if any."""
    answered = graphs.arrays.get("answered", np.zeros(0, dtype=int))
    last = int(np.max(answered, initial=0))
    # Where a round asks a few clients only, or all are asked once, the last one means nothing.
    sampled = 0 < int(graphs.result.config.get("sample") or 0) < len(graphs.names)
    sampled |= graphs.method in (*ALONE_METHODS, "pooled", "one-shot")
    lost = [
        f"{name} never answered" if not turn else f"{name} last answered in round {int(turn)}"
        for name, turn in zip(graphs.names, answered, strict=False)
        if turn < (1 if sampled else last)
    ]
    if not lost:
        return []
    many = f"; and {len(lost) - STRONGEST:,} more" if len(lost) > STRONGEST else ""
    text = f"Lost before the last round ({last:,}): {'; '.join(lost[:STRONGEST])}{many}. "
    if not np.all(graphs.present):
        text += "Who never answered has no graph and is left out of what all clients have. "
    if "last answered" in text:
        text += "The matrices of the others rest on what they had sent until then."
    return [Notice(text.strip())]


def _summary(graphs: Graphs) -> str:
    """Return the findings in numbers."""
    headline, config = graphs.result.headline, graphs.result.config
    count, possible = len(graphs.names), graphs.a.size
    own = graphs.edges[graphs.present]
    text = (
        f"{count:,} clients, {graphs.p:,} variables, {possible:,} possible edges. {_EDGE} A client "
        f"has {number(float(own.mean()))} edges on average; {int(graphs.common.sum()):,} are "
        "common to all clients"
    )
    if np.any(graphs.mixed):
        text += f", {int(graphs.mixed.sum()):,} of them with signs that differ between clients"
    text += ". "
    if not np.any(own):
        text += "No client has an edge: a smaller lambda1 lets edges through. "
    elif possible and own.min() == possible:
        text += "Every pair is an edge: a larger lambda1 leaves the strong ones. "
    alone = graphs.method in ALONE_METHODS or "consensus" in graphs.arrays
    names = ("lambda1",) if alone else ("lambda1", "lambda2")
    values = [(name, headline.get(name, config.get(name))) for name in names]
    text += ", ".join(f"{name} = {number(value)}" for name, value in values) + ". "
    gap = headline.get("gap")
    if gap is not None and np.isfinite(gap):
        text += f"Duality gap {number(float(gap))}: the objective is at most that above its minimum"
        above = gap > float(config.get("tolerance") or np.inf)
        text += f", more than the tolerance of {number(config['tolerance'])}." if above else "."
    return text.strip()


def _strongest(graphs: Graphs) -> Table:
    """Return the table of the strongest common edges, by mean magnitude, with their signs."""
    order = np.argsort(-np.abs(graphs.middle), kind="stable")[:STRONGEST]
    order = order[graphs.common[order]]
    each = len(graphs.names) <= ALL_DRAWN
    own = [graphs.partial_of(k)[order].tolist() for k in range(len(graphs.names))] if each else []
    rows = [
        [
            f"{graphs.variables[graphs.a[k]]} {DASH} {graphs.variables[graphs.b[k]]}",
            float(abs(graphs.middle[k])),
            "mixed" if graphs.mixed[k] else "+" if graphs.middle[k] > 0.0 else "\N{MINUS SIGN}",
            *(values[row] for values in own),
        ]
        for row, k in enumerate(order.tolist())
    ]
    headers = ["edge", "mean |partial correlation|", "sign", *(graphs.names if each else [])]
    return Table(headers, rows, f"The {len(rows)} strongest edges common to all clients.")


def _correlations(graphs: Graphs) -> Section:
    """Return the smallest eigenvalues, and which matrices had to be projected."""
    smallest = graphs.arrays["smallest_eigenvalue"].tolist()
    kind = str(graphs.result.config.get("correlation", "kendall"))
    known = list(zip(graphs.names, smallest, strict=True))
    bad = [f"{name} ({number(value)})" for name, value in known if value < 0.0]
    blocks: list[Block] = []
    if bad:
        blocks.append(
            Notice(
                f"{len(bad)} of {len(known)} correlation matrices were not positive semidefinite "
                f"and were projected; smallest eigenvalues: {', '.join(bad[:STRONGEST])}"
                f"{', ...' if len(bad) > STRONGEST else ''}."
            )
        )
    used = [
        "projected" if value < 0.0 else "as it is" if value >= 0.0 else "" for value in smallest
    ]
    columns = {"client": graphs.names, "smallest eigenvalue": smallest, "used": used}
    rows = shown([-value for value in smallest])
    caption = (
        f"Smallest eigenvalue of every client's correlation matrix ({kind}), before projection."
    )
    ends = ("with the smallest one", "with the largest")
    table = table_of(columns, rows, caption, ends, "result.npz (smallest_eigenvalue)")
    return Section("The correlations", [*blocks, table])


def _blocks(graphs: Graphs) -> Section:
    """Return how the variables fell into blocks that no edge can join."""
    _, sizes = np.unique(graphs.arrays["blocks"], return_counts=True)
    if sizes.size == 1:
        text = "Screening found one block: nothing could be split."
        if graphs.result.config.get("subsamples"):
            text = "Screening was not used: every subsample would have blocks of its own."
        elif graphs.result.config.get("screening") is False:
            text = "Screening was off."
        return Section("Blocks of variables", [Paragraph(text)])
    single = int(np.sum(sizes == 1))
    cost = float(np.sum((sizes / graphs.p) ** 3))
    text = (
        f"Screening split {graphs.p:,} variables into {sizes.size:,} blocks that no edge can join; "
        f"the largest has {int(sizes.max()):,}, and {single:,} variables stand alone. An "
        f"eigendecomposition by blocks takes about {cost:.2%} of the operations of a whole one."
    )
    size, count = np.unique(sizes, return_counts=True)
    rows = [[int(s), int(n)] for s, n in zip(size[::-1], count[::-1], strict=True)]
    return Section("Blocks of variables", [Paragraph(text), Table(["size", "blocks"], rows)])
