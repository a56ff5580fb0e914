"""What is shown of a run with very many variables, whose matrices are kept as `Blocks` packs them.

Reads ``packed_sparse`` and ``packed_precision`` (K, m) and ``blocks`` (p,); nothing here makes a
matrix of p x p. What counts as an edge is as in `graphs`.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from trellis.apps.common.files.spreadsheet import csv_text
from trellis.apps.common.results import RunResult, write_atomically
from trellis.apps.pages.named import NamedGraph, NamedGraphs, beside
from trellis.apps.pages.report import Paragraph, Section, Table, number
from trellis.apps.pages.wording import DASH
from trellis.strategies.joint_precision.blocks import Blocks

STRONGEST = 20
EXPORTED_EDGES = 200_000


class PackedGraphs:
    """The clients' edges: pairs (q,) of variables within a block, partial correlations (K, q)."""

    def __init__(self, result: RunResult) -> None:
        self.result = result
        blocks = Blocks.of(result.arrays["blocks"])
        psi = result.arrays["packed_sparse"]
        count = len(psi)
        self.p = blocks.variables
        self.sizes = np.array([group.size for group in blocks.members], dtype=int)
        off = blocks.off_diagonal
        self.a, self.b = (ends[off] for ends in blocks.ends)
        diagonal = np.ones((count, self.p))
        diagonal[:, blocks.ends[0][blocks.diagonal]] = psi[:, blocks.diagonal]
        scale = np.sqrt(diagonal[:, self.a] * diagonal[:, self.b])
        self.partial = -psi[:, off] / scale + 0.0
        self.precision = result.arrays["packed_precision"][:, off]
        self.present: NDArray[np.bool_] = result.arrays["answered"] > 0
        self.support = (psi[:, off] != 0.0) & self.present[:, None]
        self.common = self.support[self.present].all(axis=0)
        self.variables = result.variables or [f"x{k + 1}" for k in range(self.p)]
        known = result.clients if len(result.clients) == count else [{}] * count
        self.names = [str(entry.get("name", f"client {k + 1}")) for k, entry in enumerate(known)]

    def graph(self, chosen: NDArray[np.bool_], weights: NDArray[np.float64]) -> NamedGraph:
        """Return the graph of some pairs."""
        pairs = np.column_stack([self.a[chosen], self.b[chosen]])
        return NamedGraph(self.variables, pairs, weights[chosen])


def sections(result: RunResult) -> list[Section]:
    """Return the study's part of the report."""
    graphs = PackedGraphs(result)
    own = graphs.support[graphs.present].sum(axis=1)
    alone = graphs.p - int(graphs.sizes.sum())
    text = (
        f"{len(graphs.names):,} clients, {graphs.p:,} variables. Correlations went by in tiles and "
        f"screening left {graphs.sizes.size:,} blocks of variables that hang together, the largest "
        f"of {int(graphs.sizes.max(initial=1)):,}; {alone:,} variables "
        f"stand alone. A client has {number(float(own.mean()))} edges on average; "
        f"{int(graphs.common.sum()):,} are common to all clients. lambda1 = "
        f"{number(result.headline['lambda1'])}. Duality gap {number(result.headline['gap'])}."
    )
    mean = graphs.partial[graphs.present].mean(axis=0)
    order = np.argsort(-np.abs(mean), kind="stable")[:STRONGEST]
    rows = [
        [
            f"{graphs.variables[graphs.a[k]]} {DASH} {graphs.variables[graphs.b[k]]}",
            float(mean[k]),
            int(graphs.support[:, k].sum()),
        ]
        for k in order
        if graphs.support[:, k].any()
    ]
    headers = ["edge", "mean partial correlation", "clients that have it"]
    shown = Table(headers, rows, f"The {len(rows)} strongest edges.")
    kept = (
        "result.npz holds the matrices as the upper triangles of the blocks (packed_sparse, "
        "packed_precision, blocks); graphs/partial-correlations.csv holds the edges by name."
    )
    return [Section("What was learned", [Paragraph(text), shown, Paragraph(kept)])]


def export_graphs(result: RunResult, folder: Path) -> list[Path]:
    """Write the clients' edges, one a row, up to `EXPORTED_EDGES` of them."""
    graphs = PackedGraphs(result)
    header: list[object] = ["client", "variable a", "variable b"]
    header += ["partial correlation", "precision", "common"]
    rows = [header]
    clients, pairs = np.nonzero(graphs.support)
    for client, k in zip(clients[:EXPORTED_EDGES], pairs[:EXPORTED_EDGES], strict=True):
        ends = (graphs.variables[graphs.a[k]], graphs.variables[graphs.b[k]])
        values = (float(graphs.partial[client, k]), float(graphs.precision[client, k]))
        common = str(bool(graphs.common[k])).lower()
        rows.append([graphs.names[client], *ends, *values, common])
    path = folder / "graphs" / "partial-correlations.csv"
    write_atomically(path, csv_text(rows).encode())
    return [path]


def named_graphs(result: RunResult) -> NamedGraphs:
    """Return the graphs by name: ``common`` and every client's."""
    found, graphs = NamedGraphs(), PackedGraphs(result)
    mean = graphs.partial[graphs.present].mean(axis=0)
    found["common"] = partial(graphs.graph, graphs.common, mean)
    for index, name in enumerate(beside(found, graphs.names)):
        if graphs.present[index]:
            found[name] = partial(graphs.graph, graphs.support[index], graphs.partial[index])
    return found
