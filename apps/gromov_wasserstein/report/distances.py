"""The part of a gromov-wasserstein report on distances: heat map, means by class, pictures."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array
from scipy.stats import rankdata

from trellis.apps.common.results import RunResult
from trellis.apps.common.seeds import generator
from trellis.apps.pages import plots
from trellis.apps.pages.clients.chosen import shown, table_of
from trellis.apps.pages.page import Block, FigureBlock, Gallery, Notice, Paragraph, Section, Table
from trellis.apps.pages.wording import counted, number

from ..downstream.tasks import embedding_2d
from .outcome import Array, Integers, Outcome
from .pictures import NAMED_CLASSES, clustered_heat_map, clustered_order, scatter

DISTANCES, PICTURE = "The distances between graphs", "The graphs in a picture"
MOST_POINTS = 1000  # graphs in a picture
MOST_NEIGHBOURS = 120  # graphs of which t-SNE finds the neighbours: it takes longest of all
MOST_COMPARED = 300  # graphs whose distances, all pairs, are put in order
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
    if outcome.partial is not None:
        return Section(DISTANCES, [*blocks, Paragraph(_needed(outcome.partial))])
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
    text = "Every point is a graph; the colour is its label."
    if not outcome.classes:
        text = "Every point is a graph. No graph has a label."
    figures: list[FigureBlock] = []
    missing: list[Block] = []
    most: dict[Literal["mds", "tsne"], int] = {"mds": MOST_POINTS, "tsne": MOST_NEIGHBOURS}
    for how, room in most.items():
        title, caption = _SKETCH[how]
        at = sample(result, outcome.count, room)
        D, labels = outcome.distances[np.ix_(at, at)], outcome.labels[at]
        try:
            points = embedding_2d(D, how, seed=result.seed % 2**32)
        except (ImportError, ValueError) as error:
            missing.append(Paragraph(f"{title} is left out: {error}."))
            continue
        some = sample(result, len(at), MOST_COMPARED)
        off = np.triu_indices(len(some), 1)
        apart = np.linalg.norm(points[some][off[0]] - points[some][off[1]], axis=1)
        agrees = rank_correlation(apart, D[np.ix_(some, some)][off])
        if agrees is not None:
            caption += f"; rank correlation of its distances with the real ones {agrees:.2f}"
        if len(at) < outcome.count:
            caption += f"; a random sample of {len(at):,} of {outcome.count:,} graphs is drawn"
        svg = plots.svg(scatter(points, labels), f"{title}: {len(at)} graphs. {caption}.")
        figures.append(FigureBlock(title, svg, f"{caption}."))
    return [Section(PICTURE, [Paragraph(text), Gallery(figures), *missing])]


def sample(result: RunResult, count: int, most: int = MOST_POINTS) -> NDArray[np.intp]:
    """Return all graphs, or ``most`` of them at random where there are more."""
    if count <= most:
        return np.arange(count)
    chosen = generator(result.seed, "picture").choice(count, most, replace=False)
    return np.sort(chosen)


def group_means(distances: Array, groups: Integers) -> tuple[Integers, Array]:
    """Return the groups (G,) and the mean distance (G, G) between two different graphs of each.

    ``nan`` where there are no two, as within a group of one graph.
    """
    names, place, counts = np.unique(groups, return_inverse=True, return_counts=True)
    at = np.arange(len(place))
    member = csr_array((np.ones(len(place)), (place, at)), shape=(len(names), len(place)))
    # A graph's distance to itself is 0: it adds nothing to the sums, and is not counted.
    pairs = np.outer(counts, counts) - np.diag(counts)
    sums = member @ (member @ distances).T
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


def _needed(partial: Array) -> str:
    """Return how few of the pairs were needed."""
    off = np.triu_indices(len(partial), 1)
    solved, pairs = int(np.count_nonzero(~np.isnan(partial[off]))), len(off[0])
    text = f"Of {counted(pairs, 'pair')} of graphs, {solved:,} were solved "
    text += f"({100.0 * solved / pairs:.1f} %; pairs=needed): those that what is learned below, "
    text += "and every client's nearest graphs, depend on. Of the others it is known that they "
    text += "are too far apart to matter (the array bounds says how far at least). Answers are "
    text += "the same as from all pairs. The heat map, pictures and means by class need all "
    return f"{text}pairs: set pairs=all."


def _with_sizes(result: RunResult, outcome: Outcome, D: Array) -> str:
    """Return how far the distances say no more than the public numbers of nodes do."""
    at = sample(result, outcome.count, MOST_COMPARED)
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
    _, place, graphs = np.unique(outcome.owner, return_inverse=True, return_counts=True)
    nodes = np.bincount(place, weights=outcome.sizes) / graphs
    # Of two owners all pairs are counted in the means, of one no graph with itself.
    within = np.nan_to_num(np.diagonal(means)) * graphs * (graphs - 1)
    others = (np.bincount(place, weights=D.sum(axis=1)) - within) / (graphs * (len(D) - graphs))
    columns: dict[str, Sequence[object]] = {
        "owner": [outcome.client_names[client] for client in names.tolist()],
        "graphs": graphs.tolist(),
        "nodes, mean": nodes.tolist(),
        "to its own": _dashes(np.diagonal(means).tolist()),
        "to others'": others.tolist(),
    }
    caption = "Mean distance of an owner's graphs, to its own and to others'."
    ends = ("furthest from others'", "nearest to them")
    return [table_of(columns, shown(others), caption, ends, "graphs.csv, by graph", "owners")]


def _mean(values: Array) -> float:
    return float(values.mean()) if values.size else float("nan")


def _dashes(values: Sequence[float]) -> list[object]:
    return [None if np.isnan(value) else value for value in values]
