"""The part of a gromov-wasserstein report on distances: heat map, means by class, pictures."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy.stats import rankdata

from apps.common.results import RunResult
from apps.common.seeds import generator
from apps.pages import plots
from apps.pages.page import Block, FigureBlock, Gallery, Notice, Paragraph, Section, Table
from apps.pages.wording import counted, number

from ..downstream.tasks import embedding_2d
from .outcome import Array, Integers, Outcome
from .pictures import NAMED_CLASSES, clustered_heat_map, clustered_order, scatter

DISTANCES, PICTURE = "The distances between graphs", "The graphs in a picture"
MOST_POINTS = 1000  # graphs in a picture; t-SNE of more takes minutes
METRICS = {
    "gw": "Gromov-Wasserstein",
    "fgw": "fused Gromov-Wasserstein",
    "wasserstein": "Wasserstein, between rows in the common space",
}
ESTIMATORS = {
    "raw": "taken from the codes as they came, which is biased",
    "rectified": "taken from rectified rows; the rows are unbiased, their distances are not",
    "double": "estimated without bias from two encodings, squared; set to 0 where negative",
    "simplex": "estimated without bias from one encoding, squared; set to 0 where negative",
}
_SKETCH = {
    "mds": (
        "Multidimensional scaling (classical)",
        "Places follow the distances as well as two dimensions can",
    ),
    "tsne": ("t-SNE", "Only who is near whom means anything: not sizes of groups, nor gaps"),
}


def distances_section(result: RunResult, outcome: Outcome) -> Section:
    """Return what the distances are, a heat map, and their means by class and owner."""
    blocks: list[Block] = [Paragraph(_about(result, outcome))]
    D = outcome.distances
    if D is None:
        text = "The run ended before the distances between the graphs were there."
        if "distances" in result.arrays:
            text = "The run's distances do not fit its graphs, so they cannot be shown."
        return Section(DISTANCES, [*blocks, Notice(text)])
    if len(D) < 2:
        return Section(DISTANCES, [*blocks, Paragraph("One graph has no distance to others.")])
    blocks += [Paragraph(_with_sizes(result, outcome, D)), _heat_map(outcome, D)]
    return Section(DISTANCES, [*blocks, *_by_class(outcome, D), *_by_owner(outcome, D)])


def picture_section(result: RunResult, outcome: Outcome) -> list[Section]:
    """Return the graphs as points in the plane, by scaling and by t-SNE."""
    if outcome.distances is None or outcome.count < 2:
        return []
    at = sample(result, outcome.count)
    D, labels = outcome.distances[np.ix_(at, at)], outcome.labels[at]
    text = "Every point is a graph; the colour is its label."
    if not outcome.classes:
        text = "Every point is a graph. No graph has a label."
    if len(at) < outcome.count:
        text += f" A random sample of {len(at):,} of {outcome.count:,} graphs is drawn."
    figures: list[FigureBlock] = []
    missing: list[Block] = []
    hows: tuple[Literal["mds", "tsne"], ...] = ("mds", "tsne")
    for how in hows:
        title, caption = _SKETCH[how]
        try:
            points = embedding_2d(D, how, seed=result.seed % 2**32)
        except (ImportError, ValueError) as error:
            missing.append(Paragraph(f"{title} is left out: {error}."))
            continue
        off = np.triu_indices(len(D), 1)
        apart = np.linalg.norm(points[off[0]] - points[off[1]], axis=1)
        agrees = rank_correlation(apart, D[off])
        if agrees is not None:
            caption += f"; rank correlation of its distances with the real ones {agrees:.2f}"
        svg = plots.svg(scatter(points, labels), f"{title}: {len(at)} graphs. {caption}.")
        figures.append(FigureBlock(title, svg, f"{caption}."))
    return [Section(PICTURE, [Paragraph(text), Gallery(figures), *missing])]


def sample(result: RunResult, count: int) -> NDArray[np.intp]:
    """Return all graphs, or `MOST_POINTS` of them at random where there are more."""
    if count <= MOST_POINTS:
        return np.arange(count)
    chosen = generator(result.seed, "picture").choice(count, MOST_POINTS, replace=False)
    return np.sort(chosen)


def group_means(distances: Array, groups: Integers) -> tuple[Integers, Array]:
    """Return the groups (G,) and the mean distance (G, G) between two different graphs of each.

    ``nan`` where there are no two, as within a group of one graph.
    """
    names, place, counts = np.unique(groups, return_inverse=True, return_counts=True)
    member = np.eye(len(names))[place]
    # A graph's distance to itself is 0: it adds nothing to the sums, and is not counted.
    pairs = np.outer(counts, counts) - np.diag(counts)
    sums = member.T @ distances @ member
    return names, np.divide(sums, pairs, out=np.full(sums.shape, np.nan), where=pairs > 0)


def rank_correlation(a: Array, b: Array) -> float | None:
    """Return Spearman's correlation of two vectors; None where one of them is constant."""
    x, y = rankdata(a), rankdata(b)
    x, y = x - x.mean(), y - y.mean()
    length = float(np.sqrt((x @ x) * (y @ y)))
    return float(x @ y) / length if length > 0.0 else None


def _about(result: RunResult, outcome: Outcome) -> str:
    """Return whose graphs these are and what was measured between them."""
    config = result.config
    metric = str(config.get("metric", "gw"))
    owners = len(np.unique(outcome.owner))
    text = f"{counted(outcome.count, 'graph')} of {counted(owners, 'client')}, "
    text += f"{number(int(outcome.sizes.min()))} to {number(int(outcome.sizes.max()))} nodes. "
    text += f"Metric: {METRICS.get(metric, metric)}; distances between a graph's nodes are "
    text += f"{config.get('distance', 'euclidean')}"
    if config.get("privacy", "none") == "none":
        text += ", of embeddings as they are. "
    else:
        how = str(config.get("estimator", "raw"))
        text += f", {ESTIMATORS.get(how, how)}. "
    known = int(np.count_nonzero(outcome.known))
    if known == outcome.count:
        return f"{text}Every graph has a label."
    return f"{text}{known:,} of {outcome.count:,} graphs have a label."


def _with_sizes(result: RunResult, outcome: Outcome, D: Array) -> str:
    """Return how far the distances say no more than the public numbers of nodes do."""
    at = sample(result, outcome.count)
    off = np.triu_indices(len(at), 1)
    sizes = outcome.sizes[at]
    gaps = np.abs(sizes[off[0]] - sizes[off[1]]).astype(np.float64)
    found = rank_correlation(D[np.ix_(at, at)][off], gaps)
    if found is None:
        return "The graphs are all of one size, or all at one distance from each other."
    text = "Rank correlation of the distances with the differences of the graphs' numbers of nodes,"
    text = f"{text} which every release gives away: {found:.2f}"
    return f"{text} (on a sample of {len(at):,})." if len(at) < outcome.count else f"{text}."


def _heat_map(outcome: Outcome, D: Array) -> FigureBlock:
    off = D[np.triu_indices(len(D), 1)]
    text = f"From {number(float(off.min()))} to {number(float(off.max()))}, median "
    text += f"{number(float(np.median(off)))}. Graphs are in the order of hierarchical clustering "
    text += "(average linkage), which does not know their labels"
    text += "; the strip above has those." if outcome.classes else "."
    if len(D) > plots.HEAT_CELLS:
        cells = plots.HEAT_CELLS
        text += f" {len(D):,} graphs are drawn in {cells} x {cells} blocks, the mean of each."
    title = "Distances, clustered"
    figure = clustered_heat_map(D, outcome.labels, clustered_order(D), outcome.names)
    return FigureBlock(title, plots.svg(figure, f"{title}. {text}"), text)


def _by_class(outcome: Outcome, D: Array) -> list[Block]:
    """Return the mean distances within and between classes."""
    known = outcome.known
    if len(outcome.classes) < 2:
        return []
    labels, sizes = outcome.labels[known], outcome.sizes[known]
    inside = D[np.ix_(known, known)]
    names, means = group_means(inside, labels)
    same = (labels[:, None] == labels) & ~np.eye(len(labels), dtype=bool)
    text = f"Two graphs of different classes: {number(_mean(inside[labels[:, None] != labels]))} "
    text += f"apart on average. Two of the same class: {number(_mean(inside[same]))}."
    many = len(names) > NAMED_CLASSES
    rows: list[list[object]] = []
    for k, name in enumerate(names.tolist()):
        mine = labels == name
        row: list[object] = [f"class {name}", int(mine.sum()), float(sizes[mine].mean())]
        others = _mean(inside[np.ix_(mine, ~mine)])
        cells = [float(means[k, k]), others] if many else means[k].tolist()
        rows.append([*row, *_dashes(cells)])
    columns = ["within it", "to others"] if many else [f"class {name}" for name in names.tolist()]
    caption = "Mean distance of two different graphs, by their classes."
    table = Table(["", "graphs", "nodes, mean", *columns], rows, caption)
    return [Paragraph(text), table]


def _by_owner(outcome: Outcome, D: Array) -> list[Block]:
    """Return the mean distances within owners and to the graphs of others."""
    names, means = group_means(D, outcome.owner)
    if len(names) < 2:
        return []
    rows: list[list[object]] = []
    for k, client in enumerate(names.tolist()):
        mine = outcome.owner == client
        cells = _dashes([float(means[k, k]), _mean(D[np.ix_(mine, ~mine)])])
        size = float(outcome.sizes[mine].mean())
        rows.append([outcome.client_names[client], int(mine.sum()), size, *cells])
    headers = ["owner", "graphs", "nodes, mean", "to its own", "to others'"]
    return [Table(headers, rows, "Mean distance of an owner's graphs, to its own and to others'.")]


def _mean(values: Array) -> float:
    return float(values.mean()) if values.size else float("nan")


def _dashes(values: Sequence[float]) -> list[object]:
    return [None if np.isnan(value) else value for value in values]
