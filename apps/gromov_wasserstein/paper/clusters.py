"""Clusters of subgraphs of citation graphs: Figs 2, 6 and 7 of the paper.

GW knows distances inside a graph only. Two subgraphs whose nodes all belong to one class look alike
to it *whichever* class that is, so there is no reason to expect clusters of GW to be the classes of
the centres. Plain Wasserstein compares rows across graphs and does know which class.

The paper judges by pictures. Here, of clusters by k-means with GW barycentres:

    agreement with the centres' labels         adjusted Rand index, 0 by chance
    how tight they are under GW                silhouette, beside that of the labels themselves
    agreement with the clusters without LDP    adjusted Rand index; of H*, and of a constant

A seed draws centres, weights and bits.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from trellis.apps.experiments.finding import Finding, spread
from trellis.apps.experiments.making import Making
from trellis.apps.pages.figure import PALETTE, plain, style
from trellis.strategies.gromov_wasserstein.barycentre import kmeans

from ..distances import costs, distances
from ..downstream.classify import sklearn_part
from ..downstream.tasks import cluster_scores, embedding_2d, spectral_clusters
from ..graphs import Integers
from .model import Neighbourhoods, neighbourhoods_job
from .scores import (
    NONE,
    Array,
    Budget,
    Embedded,
    clearly,
    drawn_distances,
    named_budget,
    released,
    standard_error,
)

OWN_ROW = "largest entry of the centre's row"


def clusters(making: Making) -> list[Finding]:
    """Cluster subgraphs by k-means with GW barycentres, and draw them by t-SNE."""
    budgets = [named_budget(told) for told in making["budgets"]]
    rows, found = [], []
    for hops in making["hops"]:
        cases = [
            Neighbourhoods(making["data"], making["subgraphs"], hops, making["rounds"], seed)
            for seed in making.seeds
        ]
        parts = making.on_all_cores(neighbourhoods_job, cases, f"{making.name}, training")
        count = len(np.unique(np.concatenate([part.labels for part in parts])))
        measured = _Measured(making, parts, budgets, count, hops)
        rows += measured.rows()
        found.append(measured)
        making.plot(measured.picture(), f"{hops}hop")
    title = f"{making['subgraphs']} subgraphs of {making['data']}, {making['seeds']} seeds"
    making.table(rows, show=title)
    return _verdicts(making, found)


def cluster_job(job: tuple[Budget, Sequence[Array], int, int, int]) -> Integers:
    """Return clusters (N,) by k-means with barycentres after one draw of the encoder."""
    budget, rows, draw, count, seed = job
    config = budget.config()
    first, second = released(config, rows, draw, seed)
    return kmeans(costs(config, first, second), None, count, seed=seed).labels


class _Measured:
    """Everything that is told of the subgraphs of one number of hops.

    ``agreement`` and ``control`` (budgets, seeds): with the clusters of H without LDP, of H* and of
    a constant embedding under the same encoder, mean over draws.
    """

    def __init__(
        self,
        making: Making,
        parts: Sequence[Embedded],
        budgets: Sequence[Budget],
        count: int,
        hops: int,
    ) -> None:
        self.parts, self.budgets, self.count, self.hops = parts, budgets, count, hops
        seeds, draws = list(making.seeds), making["draws"]
        jobs: list[tuple[Budget, Sequence[Array], int, int, int]] = [
            (NONE, part.rows, 0, count, seed) for part, seed in zip(parts, seeds, strict=True)
        ]
        jobs += [
            (budget, given.rows, draw, count, seed)
            for budget in budgets
            for part, seed in zip(parts, seeds, strict=True)
            for given in (part, part.constant())
            for draw in range(draws)
        ]
        found = making.on_all_cores(cluster_job, jobs, f"{making.name}, {hops} hops")
        self.plain, drawn = found[: len(seeds)], found[len(seeds) :]
        shape = (len(budgets), len(seeds), 2, draws)
        places = np.arange(len(drawn)).reshape(shape)
        with_labels, with_plain = np.zeros(shape), np.zeros(shape)
        for place, where in zip(np.ndindex(shape), places.ravel(), strict=True):
            part, before = parts[place[1]], self.plain[place[1]]
            with_labels[place] = cluster_scores(drawn[where], part.labels).ari
            with_plain[place] = cluster_scores(drawn[where], before).ari
        self.first = [drawn[places[place, 0, 0, 0]] for place in range(len(budgets))]
        self.ari, self.ari_control = with_labels.mean(axis=3).transpose(2, 0, 1)
        self.agreement, self.control = with_plain.mean(axis=3).transpose(2, 0, 1)
        self.ari_plain = np.array(
            [cluster_scores(c, p.labels).ari for c, p in zip(self.plain, parts, strict=True)]
        )
        matrices = [
            (NONE.config(), part.rows, 0, seed) for part, seed in zip(parts, seeds, strict=True)
        ]
        self.truth = making.on_all_cores(drawn_distances, matrices, f"{making.name}, GW")
        self.tight = np.array(
            [_silhouette(d, c) for d, c in zip(self.truth, self.plain, strict=True)]
        )
        self.tight_labels = np.array(
            [_silhouette(d, p.labels) for d, p in zip(self.truth, parts, strict=True)]
        )
        self.seeds = seeds
        self.others = self._others()

    def _others(self) -> dict[str, Array]:
        """Return the agreement with labels of what needs no barycentres, of every seed."""
        found: dict[str, list[float]] = {}
        for part, d, seed in zip(self.parts, self.truth, self.seeds, strict=True):
            gaps = np.abs(part.sizes[:, None] - part.sizes[None, :]).astype(np.float64)
            plain_w = distances(NONE.config(metric="wasserstein"), part.rows, workers=1)
            given = {
                "H, spectral on GW": d,
                "H, spectral on plain Wasserstein": plain_w,
                "numbers of nodes, spectral": gaps,
            }
            for name, matrix in given.items():
                guess = spectral_clusters(matrix, self.count, seed=seed)
                found.setdefault(name, []).append(cluster_scores(guess, part.labels).ari)
            # Without GW, without structure: the class that the centre's own row gives it.
            own = np.array([rows[0].argmax() for rows in part.rows])
            found.setdefault(OWN_ROW, []).append(cluster_scores(own, part.labels).ari)
        return {name: np.array(values) for name, values in found.items()}

    def rows(self) -> list[dict[str, Any]]:
        """Return the lines of the table."""
        lines = [self._row("H, no LDP, k-means", self.ari_plain)]
        lines[0] |= {"silhouette": float(self.tight.mean())}
        lines[0] |= {"silhouette of labels": float(self.tight_labels.mean())}
        for place, budget in enumerate(self.budgets):
            line = self._row(f"H*, {budget.name}, k-means", self.ari[place])
            line |= {"labels, constant": float(self.ari_control[place].mean())}
            line |= {"agreement with no LDP": float(self.agreement[place].mean())}
            line |= {"agreement, constant": float(self.control[place].mean())}
            lines.append(line)
        lines += [self._row(name, values) for name, values in self.others.items()]
        return lines

    def _row(self, name: str, ari: Array) -> dict[str, Any]:
        empty = dict.fromkeys(
            ("labels, constant", "agreement with no LDP", "agreement, constant", "silhouette")
        )
        row: dict[str, Any] = {"hops": self.hops, "clusters of": name}
        row |= {"agreement with labels": float(ari.mean())}
        row |= {"error": float(standard_error(ari))}
        return row | dict.fromkeys(empty, "") | {"silhouette of labels": ""}

    def picture(self) -> Any:
        """Draw the first seed's subgraphs by t-SNE of their distances."""
        part, seed = self.parts[0], self.seeds[0]
        drawn = [drawn_distances((budget.config(), part.rows, 0, seed)) for budget in self.budgets]
        points = [embedding_2d(d, "tsne", seed=seed) for d in (self.truth[0], *drawn)]
        groups = [self.plain[0], *self.first]
        titles = ["labels of centres", "k-means, no LDP"]
        titles += [f"k-means, {budget.name}" for budget in self.budgets]
        return scatters([points[0], *points], [part.labels, *groups], titles)


def _silhouette(d: Array, groups: Integers) -> float:
    """Return the mean silhouette under D; 0 where there is one group only."""
    if len(np.unique(groups)) < 2:
        return 0.0
    return float(sklearn_part("metrics").silhouette_score(d, groups, metric="precomputed"))


def _verdicts(making: Making, found: Sequence[_Measured]) -> list[Finding]:
    name, seeds = making.name, making["seeds"]
    return [
        _better(f"{name}-better", found, seeds),
        _small(f"{name}-small", found, seeds),
        _large(f"{name}-large", found, seeds),
    ]


def _better(claim: str, found: Sequence[_Measured], seeds: int) -> Finding:
    tighter = all(m.tight.mean() > m.tight_labels.mean() for m in found)
    known = all(m.ari_plain.mean() > 0.1 for m in found)
    text = "; ".join(
        f"{m.hops} hop: silhouette {spread(m.tight, 2)} of the clusters, "
        f"{spread(m.tight_labels, 2)} of the labels; agreement with the labels "
        f"{spread(m.ari_plain, 2)}, of the centre's own row "
        f"{m.others[OWN_ROW].mean():.2f}"
        for m in found
    )
    if tighter and known:
        return Finding(claim, text, "reproduced", "", seeds)
    if tighter:
        why = (
            "clusters are tight under the distance they were made with, as any are; they know "
            "next to nothing of the labels, which the centre's own row does know"
        )
        return Finding(claim, text, "partly", why, seeds)
    return Finding(claim, text, "refuted", "the clusters are no tighter than the labels", seeds)


def _small(claim: str, found: Sequence[_Measured], seeds: int) -> Finding:
    """Judge the budgets below 1 a row by whether clusters stay, more than a constant's do."""
    kept, told = [], []
    for m in found:
        for place, budget in enumerate(m.budgets):
            if budget.per != "graph" and budget.epsilon >= 1.0:
                continue
            ours, control = m.agreement[place], m.control[place]
            gap = ours - control
            kept.append(
                clearly(float(gap.mean()), float(standard_error(gap))) and ours.mean() > 0.5
            )
            told.append(
                f"{m.hops} hop, {budget.name}: {spread(ours, 2)}, constant {control.mean():.2f}"
            )
    text = f"agreement with the clusters without LDP, {'; '.join(told)}"
    if all(kept):
        return Finding(claim, text, "reproduced", "", seeds)
    why = (
        f"in {len(kept) - sum(kept)} of {len(kept)} cases the clusters are no longer those "
        "without LDP: they agree with them no better than those of a constant embedding, or by "
        "less than half"
    )
    return Finding(claim, text, "partly" if any(kept) else "refuted", why, seeds)


def _large(claim: str, found: Sequence[_Measured], seeds: int) -> Finding:
    """Judge whether more epsilon moves clusters further from those without LDP.

    A constant embedding's clusters agree with those without LDP too, by the numbers of nodes, and
    do so less with more bits: what counts is what H* has beyond that, and a fall by 0.2 or more.
    """
    falls, told = [], []
    for m in found:
        beyond = m.agreement - m.control
        change = beyond[0] - beyond[-1]
        clear = clearly(float(change.mean()), float(standard_error(change)))
        falls.append(clear and bool(change.mean() > 0.2))
        told.append(
            f"{m.hops} hop: {m.agreement[0].mean():.2f} at {m.budgets[0].name} (constant "
            f"{m.control[0].mean():.2f}), {m.agreement[-1].mean():.2f} at {m.budgets[-1].name} "
            f"(constant {m.control[-1].mean():.2f})"
        )
    text = f"agreement with the clusters without LDP, {'; '.join(told)}"
    if all(falls):
        return Finding(claim, text, "reproduced", "", seeds)
    why = (
        "beyond what a constant embedding has, agreement does not fall by 0.2 with epsilon: a "
        "small epsilon is the most noise"
    )
    return Finding(claim, text, "partly" if any(falls) else "refuted", why, seeds)


@style()
def scatters(points: Sequence[Array], groups: Sequence[Integers], titles: Sequence[str]) -> Any:
    """Draw points (N, 2), coloured by group, one panel each."""
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
