"""The consensus of the private methods: what it is, what noise left of it, who uses it.

Reads ``consensus`` (p, p), ``consensus_partial``, ``trust`` (K, 3: a, c, gain) where clients' own
graphs were gathered, and the headline's ``consensus-*``, ``noise-of-tau`` and ``held-out-*``.
"""

from __future__ import annotations

import numpy as np

from trellis.apps.common.metrics import matthews
from trellis.apps.pages import plots
from trellis.apps.pages.brains.connectome import connectome
from trellis.apps.pages.clients.chosen import shown, table_of
from trellis.apps.pages.report import Block, FigureBlock, Notice, Paragraph, Section, Table, number

from .graphs import Graphs

GATHERED = (
    "This is a simulation: the clients' own graphs below were gathered for evaluation. On devices "
    "they stay where they were made, and a server has nothing but the consensus."
)
KEPT = (
    "Every device made its own graph from its raw samples and the consensus, and kept it. The "
    "server knows the consensus alone; what is shown for every client below is that."
)
SAME = "Everyone was given the consensus: no graphs of the clients' own were made."


def consensus(graphs: Graphs) -> Section:
    """Return what the server made of the one noisy sum, and what the clients made of that."""
    arrays, headline = graphs.arrays, graphs.result.headline
    gathered = arrays.get("gathered", np.zeros(0, dtype=bool))
    blocks: list[Block] = [Paragraph(_numbers(graphs))]
    if np.any(gathered):
        blocks.append(Notice(GATHERED))
    else:
        blocks.append(Notice(SAME if graphs.method == "pooled" else KEPT))
    matrix = arrays["consensus_partial"] * (1.0 - np.eye(graphs.p))
    if np.any(matrix):
        caption = "Wider means a stronger partial correlation."
        figure = connectome(matrix, graphs.coordinates, graphs.variables, groups=graphs.groups)
        blocks.append(
            FigureBlock("The consensus", plots.svg(figure, f"Consensus. {caption}"), caption)
        )
    if "held-out-accuracy" in headline:
        blocks.append(Paragraph(_score(graphs)))
    if "trust" in arrays:
        blocks.append(_trust(graphs))
    if graphs.has_truth:
        blocks.append(_cost(graphs))
    return Section("The consensus, from one noisy sum", blocks)


def _numbers(graphs: Graphs) -> str:
    headline = graphs.result.headline
    return (
        f"The server learned one sum over all clients, with noise in it: on every tau a standard "
        f"deviation of {number(headline.get('noise-of-tau'))}. From it comes a graph that all "
        f"share, {int(headline.get('consensus-edges', 0)):,} edges at lambda = "
        f"{number(headline.get('consensus-lambda'))}, which follows from the noise. Each client's "
        "own graph rests on its raw samples, and on the consensus as far as that predicts samples "
        "which the client had set aside."
    )


def _score(graphs: Graphs) -> str:
    headline = graphs.result.headline
    text = (
        f"Held-out score, itself a noisy sum: the consensus predicts "
        f"{number(headline['held-out-accuracy'])} of the signs in samples that were held out "
        f"(noise {number(headline['held-out-noise'])}; 0.5 is guessing)"
    )
    if "helped" in headline:
        text += (
            f", and a share of {number(headline['helped'])} of the clients use it (noise "
            f"{number(headline['helped-noise'])})"
        )
    return f"{text}."


def _trust(graphs: Graphs) -> Table:
    trust = graphs.arrays["trust"]
    blends, scales, gains = trust.T.tolist()
    columns: dict[str, list[object]] = {
        "client": list(graphs.names),
        "uses it": [
            "yes" if blend > 0.0 or np.isfinite(scale) else "no"
            for blend, scale in zip(blends, scales, strict=True)
        ],
        "its values count": [f"{blend:.0%}" for blend in blends],
        "its edges are favoured": [
            f"yes, c = {number(scale)}" if np.isfinite(scale) else "no" for scale in scales
        ],
        "gain": gains,
    }
    caption = (
        "How far clients trust the consensus, by samples of their own that were set aside; gain in "
        "log likelihood per sample over learning alone."
    )
    ends = ("that gain most", "that gain least")
    return table_of(columns, shown(gains), caption, ends, "result.npz (trust)")


def _cost(graphs: Graphs) -> Table:
    """Return the agreement with the true graphs, of the consensus and of the clients' own."""
    headline = graphs.result.headline
    shared = graphs.common_truth()
    found = np.abs(graphs.arrays["consensus"][graphs.a, graphs.b])
    rows: list[list[object]] = [
        ["consensus, edges that all clients have", matthews(found, shared.astype(np.float64), 0.0)],
        ["clients' graphs, each its own edges", headline.get("mcc", float("nan"))],
    ]
    if "alone-mcc" in headline:
        rows.append(["each client alone, without the federation", headline["alone-mcc"]])
    if "consensus-auc" in headline:
        rows[0].append(headline["consensus-auc"])
        rows[1].append(headline.get("auc", float("nan")))
        rows = [row + [""] * (3 - len(row)) for row in rows]
    headers = ["compared with the truth", "MCC", "AUC of the path"][: len(rows[0])]
    return Table(headers, rows, "What privacy left, in this study's own measure.")
