"""What the joint-precision study shows of a run: graphs, comparison of clients, path, correlations.

Reads ``sparse`` (Psi), ``partial`` (its partial correlations) and ``precision`` (Omega), all
(K, p, p), and what else a run has: ``truth``, ``path_*``, ``smallest_eigenvalue``, ``blocks``,
``answered``, ``coordinates`` : (p, 3) and ``groups`` : (p,) labels of the variables. One rule
everywhere: a pair is an edge where Psi is not zero, with no threshold; an edge is *common* where
all clients have it and *private* where one client alone has it. A client that never answered has no
graph and is not counted among them.
"""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from sim import plots
from sim.connectome import connectome, connectomes, mark
from sim.graphs import file_stems, write_graphml
from sim.metrics import matthews
from sim.page import DASH
from sim.record import RunResult, write_atomically
from sim.report import Badge, Block, FigureBlock, Gallery, Notice, Paragraph, Section, Table, number
from sim.report_privacy import mode

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    Matrix = NDArray[np.float64]

DRAWN_CLIENTS = 6
STRONGEST = 20
# Files for all clients of a large run would take longer than the run: result.npz has every entry.
EXPORTED_EDGES = 150_000
OVERLAP_COLUMNS = 12
_GALLERY_EDGES = 400
_ALONE = ("glasso", "clime")
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
    "pooled": (
        "All data lay in one place (method pooled): a reference that a real federation could not "
        "run. Each client still has a matrix of its own."
    ),
}
_RECOVERED = (
    "Nothing was noised, and the messages are as good as the correlations: the server can recover "
    "every client's correlation matrix S exactly from one message: "
    "S = Omega^-1 - (rho/w)(Omega - Psi + U)."
)
_NOT_NOISED = (
    "Nothing was noised: the server sees every client's matrix exactly as the client computed it."
)
_POOLED = "Nothing was noised, and the raw data of all clients was read in one place."
_SOUND = (
    "The matrix of Kendall's tau was noised once, at the client; everything after is computed from "
    "the noised matrix, so rounds cost no further privacy."
)


def sections(result: RunResult) -> list[Section]:
    """Return the study's part of the report; see `sim.report.write_report`."""
    if "sparse" not in result.arrays:
        text = "The run ended before a precision matrix was learned."
        return [Section("What was learned", [Paragraph(text)])]
    graphs = _Graphs(result)
    found = [_learned(graphs), _comparison(graphs)]
    if graphs.truth is not None:
        found.append(_agreement(graphs, graphs.truth))
    if "path_lambda1" in graphs.arrays:
        found.append(_path(graphs))
    if "smallest_eigenvalue" in graphs.arrays:
        found.append(_correlations(graphs))
    if "blocks" in graphs.arrays:
        found.append(_blocks(graphs))
    return found


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
    graphs = _Graphs(result)
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


class _Graphs:
    """A run's graphs by their q = p (p - 1) / 2 pairs, in ``numpy.triu_indices(p, 1)`` order."""

    def __init__(self, result: RunResult) -> None:
        self.result = result
        self.arrays: dict[str, NDArray[Any]] = result.arrays
        self.method = str(result.config.get("method", "group"))
        count, self.p = result.arrays["sparse"].shape[:2]
        self.a, self.b = np.triu_indices(self.p, 1)
        entries = np.nan_to_num(self._pairs("sparse"))
        answered = self.arrays.get("answered", np.ones(count, dtype=int))
        self.present: NDArray[np.bool_] = (answered > 0) | (not np.any(answered > 0))
        self.support: NDArray[np.bool_] = (entries != 0.0) & self.present[:, None]
        partial = np.where(self.support, np.nan_to_num(self._pairs("partial")), 0.0)
        # An entry too small for its partial correlation to be written is an edge all the same.
        least = -np.copysign(np.finfo(np.float64).tiny, entries)
        self.partial = np.where(self.support & (partial == 0.0), least, partial)
        self.precision = self._pairs("precision" if "precision" in self.arrays else "sparse")
        self.truth = self._pairs("truth") if "truth" in self.arrays else None
        self.holders = self.support.sum(axis=0)
        self.heard = int(self.present.sum())
        self.common = self.holders == self.heard
        # One sign an edge even where the clients' cancel; `mixed` tells.
        sign = np.where(self.partial.sum(axis=0) < 0.0, -1.0, 1.0)
        self.middle = np.where(
            self.common, sign * np.abs(self.partial).sum(axis=0) / self.heard, 0.0
        )
        above = (self.partial > 0.0).sum(axis=0)
        self.mixed = self.common & (above > 0) & (above < self.heard)
        self.variables = result.variables or [f"x{k + 1}" for k in range(self.p)]
        known = result.clients if len(result.clients) == count else [{}] * count
        self.names = [str(entry.get("name", f"client {k + 1}")) for k, entry in enumerate(known)]
        if len(set(self.names)) < count:
            self.names = [f"{name} ({k + 1})" for k, name in enumerate(self.names)]
        self.counts = [entry.get("count") for entry in known]
        self.coordinates = self.arrays.get("coordinates")
        self.groups = self._groups()

    def _pairs(self, name: str) -> Matrix:
        """Return the upper triangles (K, q) of one of the run's arrays."""
        return self.arrays[name][:, self.a, self.b]

    def _groups(self) -> list[str] | None:
        """Return a label a variable: as the run gives them, or the block it was screened into."""
        if "groups" in self.arrays:
            return [str(label) for label in self.arrays["groups"]]
        labels = self.arrays.get("blocks", np.zeros(self.p, dtype=int))
        _, block, sizes = np.unique(labels, return_inverse=True, return_counts=True)
        if np.count_nonzero(sizes > 1) < 2:
            return None
        rank = np.argsort(np.argsort(-sizes, kind="stable"), kind="stable")
        return [f"block {rank[k] + 1}" if sizes[k] > 1 else "" for k in block.ravel()]

    def square(self, values: NDArray[Any]) -> NDArray[Any]:
        """Return pairs (q,) as a symmetric matrix (p, p) with a zero diagonal."""
        matrix = np.zeros((self.p, self.p), dtype=values.dtype)
        matrix[self.a, self.b] = matrix[self.b, self.a] = values
        return matrix

    def draw_common(self) -> Figure:
        """Return the drawing of the edges all clients have, by sign."""
        matrix = self.square(self.middle)
        return connectome(matrix, self.coordinates, self.variables, groups=self.groups)

    def draw_client(self, index: int) -> Figure:
        """Return the drawing of one client's graph in two colours."""
        return connectome(
            self.square(self.partial[index]),
            self.coordinates,
            self.variables,
            self.names[index],
            self.groups,
            common=self.square(self.common),
            max_edges=_GALLERY_EDGES,
        )


def _learned(graphs: _Graphs) -> Section:
    """Return what was learned: the method, what the server knows, the edges all clients have."""
    blocks: list[Block] = [Paragraph(_METHODS.get(graphs.method, f"Method {graphs.method}."))]
    if mode(graphs.result) == "sound":
        blocks.append(Notice(_SOUND))
    elif graphs.method == "pooled":
        blocks.append(Notice(_POOLED))
    else:
        blocks.append(Notice(_NOT_NOISED if graphs.method in _ALONE else _RECOVERED))
    blocks += [*_lost(graphs), Paragraph(_summary(graphs))]
    if np.any(graphs.common):
        title = "The edges common to all clients"
        caption = "Wider means a stronger partial correlation, by its mean magnitude over clients."
        if graphs.groups is not None:
            caption += " Nodes have the colour and shape of their group."
            caption += " Grey nodes are in none." if "" in graphs.groups else ""
        svg = plots.svg(graphs.draw_common(), f"{title}. {caption}")
        blocks += [FigureBlock(title, svg, caption), _strongest(graphs)]
    return Section("What was learned", blocks)


def _lost(graphs: _Graphs) -> list[Block]:
    """Return who was not heard of at the end, if any."""
    answered = graphs.arrays.get("answered", np.zeros(0, dtype=int))
    last = int(np.max(answered, initial=0))
    # Where a round asks a few clients only, or all are asked once, the last one means nothing.
    sampled = 0 < int(graphs.result.config.get("sample") or 0) < len(graphs.names)
    sampled |= graphs.method in (*_ALONE, "pooled")
    lost = [
        f"{name} never answered" if not turn else f"{name} last answered in round {int(turn)}"
        for name, turn in zip(graphs.names, answered, strict=False)
        if turn < (1 if sampled else last)
    ]
    if not lost:
        return []
    text = f"Lost before the last round ({last:,}): {'; '.join(lost)}. "
    if not np.all(graphs.present):
        text += "Who never answered has no graph and is left out of what all clients have. "
    if "last answered" in text:
        text += "The matrices of the others rest on what they had sent until then."
    return [Notice(text.strip())]


def _summary(graphs: _Graphs) -> str:
    """Return the findings in numbers."""
    headline, config = graphs.result.headline, graphs.result.config
    count, possible = graphs.support.shape
    own = graphs.support[graphs.present].sum(axis=1)
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
    names = ("lambda1",) if graphs.method in _ALONE else ("lambda1", "lambda2")
    values = [(name, headline.get(name, config.get(name))) for name in names]
    text += ", ".join(f"{name} = {number(value)}" for name, value in values) + ". "
    gap = headline.get("gap")
    if gap is not None and np.isfinite(gap):
        text += f"Duality gap {number(float(gap))}: the objective is at most that above its minimum"
        above = gap > float(config.get("tolerance") or np.inf)
        text += f", more than the tolerance of {number(config['tolerance'])}." if above else "."
    return text.strip()


def _strongest(graphs: _Graphs) -> Table:
    """Return the table of the strongest common edges, by mean magnitude, with their signs."""
    order = np.argsort(-np.abs(graphs.middle), kind="stable")[:STRONGEST]
    order = order[graphs.common[order]]
    each = len(graphs.names) <= DRAWN_CLIENTS
    rows = [
        [
            f"{graphs.variables[graphs.a[k]]} {DASH} {graphs.variables[graphs.b[k]]}",
            float(abs(graphs.middle[k])),
            "mixed" if graphs.mixed[k] else "+" if graphs.middle[k] > 0.0 else "\N{MINUS SIGN}",
            *(graphs.partial[:, k].tolist() if each else []),
        ]
        for k in order
    ]
    headers = ["edge", "mean |partial correlation|", "sign", *(graphs.names if each else [])]
    return Table(headers, rows, f"The {len(rows)} strongest edges common to all clients.")


def _comparison(graphs: _Graphs) -> Section:
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


def _overlaps(graphs: _Graphs) -> Block:
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


def _heat_maps(graphs: _Graphs) -> FigureBlock:
    """Return the signed partial correlations of the first clients as matrices."""
    titles = graphs.names[:DRAWN_CLIENTS]
    matrices = [graphs.square(values) for values in graphs.partial[:DRAWN_CLIENTS]]
    columns = min(len(matrices), 3)
    maps = plots.heat_maps(
        matrices, titles, graphs.variables, label="partial correlation", columns=columns
    )
    # matplotlib names a picture by its content; two equal matrices must not share one id.
    for index, axes in enumerate(maps.axes):
        for picture in axes.images:
            picture.set_gid(f"matrix-{index}")
    caption = "Signed, on one scale, in the order of the variables; the diagonal is left out."
    if graphs.p > plots.HEAT_CELLS:
        caption += " Drawn in blocks of variables, by the entry of largest magnitude in each."
    text = f"Heat maps of the partial correlations: {', '.join(titles)}"
    return FigureBlock("Partial correlations", plots.svg(maps, text), caption)


def _agreement(graphs: _Graphs, truth: Matrix) -> Section:
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


def _path(graphs: _Graphs) -> Section:
    """Return the curves over the path, the chosen point marked."""
    arrays, config = graphs.arrays, graphs.result.config
    lambda1: Matrix = arrays["path_lambda1"]
    chosen = int(arrays["path_chosen"])
    edges = np.asarray(arrays["path_edges"], dtype=np.float64)
    each = edges.shape[1] <= DRAWN_CLIENTS
    summary = {"most": edges.max(axis=1), "mean": edges.mean(axis=1), "fewest": edges.min(axis=1)}
    over: dict[str, tuple[str, dict[str, Any]]] = {
        "path_ebic": ("Extended BIC", {"eBIC": arrays.get("path_ebic")}),
        "path_instability": ("Instability", {"instability": arrays.get("path_instability")}),
        "path_edges": ("Edges", dict(zip(graphs.names, edges.T, strict=True)) if each else summary),
    }
    figures = []
    for name, (title, lines) in over.items():
        if name in arrays:
            figure = plots.curves(lambda1, lines, x_label="lambda1", y_label=title, log_x=True)
            figures.append(_marked(title, figure, float(lambda1[chosen])))
    if "path_tpr" in arrays:
        tpr, fpr, ppv = (arrays[f"path_{name}"] for name in ("tpr", "fpr", "ppv"))
        pairs = (
            ("ROC curve", fpr, "false positive rate", tpr, "true positive rate", "auc"),
            ("Precision and recall", tpr, "recall (TPR)", ppv, "precision (PPV)", "aupr"),
        )
        for title, x, x_label, y, y_label, area in pairs:
            figure = plots.curves(x, {y_label: y}, x_label=x_label, y_label=y_label)
            known = graphs.result.headline.get(area)
            text = "" if known is None else f"Area under the curve: {number(float(known))}."
            figures.append(_marked(title, figure, float(x[chosen]), float(y[chosen]), text))
    count = lambda1.size
    halves = config.get("choose") == "stability"
    rule = "stability over random halves of the data" if halves else "extended BIC"
    text = (
        f"{count:,} points, each started from the one before; the kept one was chosen by "
        f"{rule}: lambda1 = {number(float(lambda1[chosen]))}, lambda2 = "
        f"{number(float(arrays['path_lambda2'][chosen]))}."
    )
    blocks: list[Block] = [Paragraph(text)]
    tolerance = float(config.get("tolerance") or np.inf)
    open_ends = int(np.sum(arrays["path_gap"] > tolerance))
    if open_ends:
        blocks.append(
            Notice(
                f"{open_ends} of {count} points stopped with a duality gap above the tolerance of "
                f"{number(tolerance)}, at most {number(float(np.nanmax(arrays['path_gap'])))}: "
                "raise rounds."
            )
        )
    if count > 1 and lambda1[chosen] == lambda1.min():
        blocks.append(
            Notice(
                "The chosen point is the last of the path: a smaller lambda1 may be chosen where "
                "the path goes on to it."
            )
        )
    return Section("The path", [*blocks, Gallery(figures), _points(graphs, chosen)])


def _marked(
    title: str, figure: Figure, x: float, y: float | None = None, text: str = ""
) -> FigureBlock:
    place = number(x) if y is None else f"({number(x)}, {number(y)})"
    label = f"{title}; the chosen point is at {place}. {text}".strip()
    return FigureBlock(title, plots.svg(mark(figure, x, y), label), text)


def _points(graphs: _Graphs, chosen: int) -> Table:
    """Return the table of the path's points."""
    arrays = graphs.arrays
    columns: dict[str, list[object]] = {
        "": [
            Badge("chosen", "good") if k == chosen else k + 1
            for k in range(len(arrays["path_gap"]))
        ],
        "lambda1": arrays["path_lambda1"].tolist(),
        "lambda2": arrays["path_lambda2"].tolist(),
        "edges a client": np.asarray(arrays["path_edges"], dtype=float).mean(axis=1).tolist(),
    }
    more = {"eBIC": "ebic", "instability": "instability", "TPR": "tpr", "FPR": "fpr", "PPV": "ppv"}
    for name, key in {**more, "duality gap": "gap"}.items():
        if f"path_{key}" in arrays:
            columns[name] = arrays[f"path_{key}"].tolist()
    return Table(list(columns), list(zip(*columns.values(), strict=True)), "Points of the path.")


def _correlations(graphs: _Graphs) -> Section:
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
    rows = [[*pair, text] for pair, text in zip(known, used, strict=True)]
    headers = ["client", "smallest eigenvalue", "used"]
    caption = (
        f"Smallest eigenvalue of every client's correlation matrix ({kind}), before projection."
    )
    return Section("The correlations", [*blocks, Table(headers, rows, caption)])


def _blocks(graphs: _Graphs) -> Section:
    """Return how the variables fell into blocks that no edge can join."""
    _, sizes = np.unique(graphs.arrays["blocks"], return_counts=True)
    if sizes.size == 1:
        off = graphs.result.config.get("screening") is False
        text = "Screening was off." if off else "Screening found one block: nothing could be split."
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
