"""Subgraphs of CiteSeer, and of Cora: Figs 2, 4, 7 and 11 of the paper.

GW knows distances inside a graph only. Two subgraphs whose nodes all belong to one class look alike
to it *whichever* class that is, so there is no reason to expect clusters of GW to be the classes of
the centres. Plain Wasserstein compares rows across graphs and does know which class.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console

from apps.experiments.sweep import on_all_cores, save_plot, show_rows, write_rows
from apps.pages.figure import PALETTE, plain, style
from apps.pages.plots import heat_maps
from strategies.gromov_wasserstein.barycentre import kmeans
from strategies.gromov_wasserstein.pair import gromov_wasserstein
from strategies.gromov_wasserstein.pairwise import pairwise

from ..config import GromovWassersteinConfig
from ..distances import costs, distances
from ..downstream.baselines import edit_distances, fused_inputs, topology_matrices
from ..downstream.tasks import cluster_scores, embedding_2d, spectral_clusters
from ..graphs import Graph, Integers, labels_of, shortest_paths
from .model import MODELS, embedded_neighbourhoods, neighbourhoods
from .scores import DEFAULT, NONE, SEED, Array, Budget, drawn_distances, node_budget, released

SUBGRAPHS = 150  # the paper has 500
CLUSTER_DRAWS = 5
CLUSTER_BUDGETS = (DEFAULT, node_budget(0.1), node_budget(1.0), node_budget(200.0))
FIVE_FROM = 400  # subgraphs among which five are looked for
FIGURE_4_BUDGETS = (DEFAULT, node_budget(0.1), node_budget(1.0))
FIGURE_4_DRAWS = 20
PAPER_FIGURE_4 = ("2.38 ± 2.22", "2.42 ± 2.33", "2.43 ± 2.35", "3.25 ± 3.09")
EDIT_SECONDS = 3.0

NODE_TASK = GromovWassersteinConfig.from_settings({**MODELS["GCN"], "task": "node"})


def figure_2(out: Path, console: Console, data: str = "CiteSeer", name: str = "fig2") -> None:
    """Cluster 1-hop subgraphs by k-means with GW barycentres and draw them by t-SNE.

    Of CiteSeer it is Fig. 2, of Cora the 1-hop part of Fig. 7.
    """
    training, others = neighbourhoods(data, SUBGRAPHS, 1)
    part = embedded_neighbourhoods(NODE_TASK, training, others, SEED)
    count = len(np.unique(part.labels))
    flat = part.constant()
    jobs = [(NONE, part.rows, 0, count)]
    jobs += [
        (budget, given.rows, draw, count)
        for budget in CLUSTER_BUDGETS
        for given in (part, flat)
        for draw in range(CLUSTER_DRAWS)
    ]
    found = on_all_cores(cluster_job, jobs, console, name)
    scores = np.array([(s.ari, s.purity) for s in (cluster_scores(c, part.labels) for c in found)])
    gaps = np.abs(part.sizes[:, None] - part.sizes[None, :]).astype(np.float64)
    by_distances = {
        "H, spectral on GW": distances(NONE.config(), part.rows, workers=1),
        "H, spectral on plain Wasserstein": distances(
            NONE.config(metric="wasserstein"), part.rows, workers=1
        ),
        "numbers of nodes, spectral": gaps,
    }
    # Without GW, without structure: the class that the centre's own row gives it.
    own = cluster_scores(np.array([rows[0].argmax() for rows in part.rows]), part.labels)
    rows = [_clusters("H, no LDP", scores[:1], None)]
    for place, budget in enumerate(CLUSTER_BUDGETS):
        first = 1 + 2 * CLUSTER_DRAWS * place
        ours, control = scores[first:][: 2 * CLUSTER_DRAWS].reshape(2, CLUSTER_DRAWS, 2)
        rows.append(_clusters(f"H*, {budget.name}", ours, control))
    for what, d in by_distances.items():
        score = cluster_scores(spectral_clusters(d, count, seed=SEED), part.labels)
        rows.append(_clusters(what, np.array([[score.ari, score.purity]])))
    rows.append(_clusters("argmax of the centre's row", np.array([[own.ari, own.purity]])))
    share = float(np.bincount(part.labels).max() / len(part.labels))
    rows.append(_clusters("one cluster", np.array([[0.0, share]])))
    title = f"{len(part.labels)} 1-hop subgraphs of {data}, {count} clusters"
    show_rows(rows, title, console)
    write_rows(out / f"{name}.csv", rows, console)
    shown = [NONE, *CLUSTER_BUDGETS]
    matrices = on_all_cores(
        drawn_distances, [(b.config(), part.rows, 0) for b in shown], console, f"{name}, pictures"
    )
    pictures = [embedding_2d(d, "tsne", seed=SEED) for d in matrices]
    groups = [found[0], *found[1 :: 2 * CLUSTER_DRAWS]]
    titles = ["labels of centres", *(f"k-means, {b.name}" for b in shown)]
    figure = scatters([pictures[0], *pictures], [part.labels, *groups], titles)
    save_plot(figure, out / name)


def cluster_job(job: tuple[Budget, Sequence[Array], int, int]) -> Integers:
    """Return clusters (N,) by k-means with barycentres after one draw of the encoder."""
    budget, rows, draw, count = job
    config = budget.config()
    first, second = released(config, rows, draw)
    return kmeans(costs(config, first, second), None, count, seed=SEED).labels


def _clusters(name: str, ours: Array, control: Array | None = None) -> dict[str, Any]:
    """Return a line: ARI and purity, mean of draws, beside the constant embedding."""
    beside = np.full(2, np.nan) if control is None else control.mean(axis=0)
    spread = float(ours[:, 0].std(ddof=1)) if len(ours) > 1 else float("nan")
    return {
        "embedding": name, "ARI": float(ours[:, 0].mean()), "deviation": spread,
        "ARI of constant": float(beside[0]), "purity": float(ours[:, 1].mean()),
        "purity of constant": float(beside[1]),
    }  # fmt: skip


@style()
def scatters(points: Sequence[Array], groups: Sequence[Integers], titles: Sequence[str]) -> Any:
    """Draw points (N, 2) side by side, coloured by group."""
    from matplotlib.figure import Figure

    columns = min(3, len(points))
    lines = -(-len(points) // columns)
    figure = Figure(figsize=(2.7 * columns, 2.7 * lines))
    axes = figure.subplots(lines, columns, squeeze=False).ravel()
    for place in axes[len(points) :]:
        place.set_axis_off()
    for place, xy, group, title in zip(axes, points, groups, titles, strict=False):
        colours = [PALETTE[int(g) % len(PALETTE)] for g in group]
        place.scatter(xy[:, 0], xy[:, 1], s=9, c=colours, linewidths=0)
        place.set_title(plain(title), fontsize=9)
        place.set_xticks([])
        place.set_yticks([])
    return figure


def five_graphs(graphs: Sequence[Graph]) -> list[int]:
    """Return five places as in Figs 4 and 11: 1 and 2 of one label, 1 and 5 isomorphic.

    All others are of different labels, sizes 4 to 8, the first that fit.
    """
    sizes = np.array([graph.nodes for graph in graphs])
    good = np.flatnonzero((sizes >= 4) & (sizes <= 8)).tolist()
    spaces = {i: shortest_paths(graphs[i]) for i in good}
    for first in good:
        same = [i for i in good if i != first and graphs[i].label == graphs[first].label]
        same = [i for i in same if sizes[i] != sizes[first]]
        twins = [
            i
            for i in good
            if graphs[i].label != graphs[first].label
            and sizes[i] == sizes[first]
            and len(graphs[i].edges) == len(graphs[first].edges)
            and gromov_wasserstein(spaces[first], spaces[i]).value < 1e-12
        ]
        used = {graphs[first].label} | ({graphs[twins[0]].label} if twins else set())
        rest: dict[int, int] = {}
        for i in good:
            if graphs[i].label not in used and sizes[i] not in (sizes[first],):
                rest.setdefault(graphs[i].label, i)
        if same and twins and len(rest) >= 2:
            return [first, same[0], *list(rest.values())[:2], twins[0]]
    raise ValueError(f"{len(graphs)} subgraphs: no five of them are as in the figure")


def _five() -> tuple[list[Graph], list[Array]]:
    training, others = neighbourhoods("CiteSeer", FIVE_FROM, 1)
    chosen = [others[place] for place in five_graphs(others)]
    return chosen, embedded_neighbourhoods(NODE_TASK, training, chosen, SEED).rows


def figure_4(out: Path, console: Console) -> None:
    """Draw the GW distances between five subgraphs without LDP and at three epsilons."""
    graphs, rows = _five()
    flat = [np.full_like(one, 1.0 / one.shape[1]) for one in rows]
    upper = np.triu_indices(len(rows), 1)
    truth = distances(NONE.config(), rows, workers=1)
    lines = [_spread("no LDP", truth[upper][None], truth[upper], PAPER_FIGURE_4[0])]
    shown = [truth]
    for budget, printed in zip(FIGURE_4_BUDGETS, PAPER_FIGURE_4[1:], strict=True):
        for name, given in ((budget.name, rows), (f"{budget.name}, constant embedding", flat)):
            drawn = [drawn_distances((budget.config(), given, d)) for d in range(FIGURE_4_DRAWS)]
            values = np.array([d[upper] for d in drawn])
            lines.append(_spread(name, values, truth[upper], printed if given is rows else ""))
            shown += drawn[:1] if given is rows else []
    labels = ", ".join(str(graph.label) for graph in graphs)
    title = f"GW between five subgraphs of CiteSeer (labels {labels}), {FIGURE_4_DRAWS} draws"
    show_rows(lines, title, console)
    write_rows(out / "fig4.csv", lines, console)
    titles = ["no LDP", *(f"{b.name}, one draw" for b in FIGURE_4_BUDGETS)]
    save_plot(heat_maps(shown, titles, label="GW", columns=4), out / "fig4")


def _spread(name: str, values: Array, truth: Array, printed: str) -> dict[str, Any]:
    """Return mean and deviation of a draw's ten distances, and its correlation with the truth."""
    with np.errstate(invalid="ignore", divide="ignore"):
        agreement = [float(np.corrcoef(one, truth)[0, 1]) for one in values]
    return {
        "epsilon": name, "mean GW": float(values.mean()),
        "deviation": float(values.std(axis=1, ddof=1).mean()),
        "correlation with no LDP": float(np.nanmean(agreement)), "paper": printed,
    }  # fmt: skip


def figure_11(out: Path, console: Console) -> None:
    """Draw the distances between five subgraphs under GED, GW_A, FGW_AX and GW_H."""
    graphs, rows = _five()
    edits = edit_distances(graphs, seconds=EDIT_SECONDS)
    fused = fused_inputs(graphs)
    found = {
        "GED": edits.values,
        "GW_A": pairwise(topology_matrices(graphs), workers=1),
        "FGW_AX": pairwise(fused.structures, metric="fgw", features=fused.features, workers=1),
        "GW_H": distances(NONE.config(), rows, workers=1),
    }
    labels = labels_of(graphs)
    upper = np.triu_indices(len(graphs), 1)
    lines = [
        {"pair": f"{i + 1}-{j + 1}", "labels": f"{labels[i]}-{labels[j]}"}
        | {name: float(d[i, j]) for name, d in found.items()}
        | {"rank of GW_H": 1 + int((found["GW_H"][upper] < found["GW_H"][i, j]).sum())}
        for i, j in zip(*upper, strict=True)
    ]
    sizes = ", ".join(f"{g.nodes} nodes {len(g.edges)} edges" for g in graphs)
    show_rows(lines, f"Five subgraphs of CiteSeer: {sizes}", console)
    if not edits.exact.all():
        console.print(f"[yellow]some GED are upper bounds after {EDIT_SECONDS:g} s[/]")
    write_rows(out / "fig11.csv", lines, console)
    relative = [d / (d.max() or 1.0) for d in found.values()]
    save_plot(
        heat_maps(relative, list(found), label="share of the largest", columns=4), out / "fig11"
    )


figure_7 = partial(figure_2, data="Cora", name="fig7")
