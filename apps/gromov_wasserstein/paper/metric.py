"""What epsilon does to GW itself: Figs 5 and 8 to 10 of the paper.

Mean GW between subgraphs of a citation graph over epsilon, beside no LDP and beside a constant
embedding under the same encoder; and how much of the order of the distances without LDP is left.

[JC] reads a lower mean at some epsilon as an escape from saddle points. Values of different
matrices do not show that: a lower value of another problem is no better solution of this one. So
plans found on H* are used as a start on H, beside random starts (`starts`).

A seed draws centres, weights and bits.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from trellis.apps.experiments.finding import Finding, spread
from trellis.apps.experiments.making import Making
from trellis.apps.pages.plots import curves, heat_maps, level
from trellis.strategies.gromov_wasserstein.pair import gromov_wasserstein

from ..distances import between, costs
from .model import Neighbourhoods, neighbourhoods_job
from .scores import (
    DEFAULT,
    NONE,
    SEED,
    Array,
    Budget,
    Embedded,
    banded,
    clearly,
    drawn_distances,
    named_budget,
    node_budget,
    rank_correlation,
    released,
    standard_error,
)

START_BUDGETS = (DEFAULT, node_budget(10.0), node_budget(200.0))
STARTS = ("p q'", *(f"plan on H*, {b.name}" for b in START_BUDGETS), "random vertex")
_CHUNKS = 8


@dataclass(frozen=True, eq=False)
class Measured:
    """GW of subgraphs of so many hops.

    Attributes
    ----------
    plain : (seeds,) mean GW without LDP
    means, control : (budgets, seeds) mean GW of H* and of a constant embedding, mean over draws
    spreads : (budgets, seeds) standard deviation of H*'s mean GW over draws
    kept, kept_control : (budgets, seeds) rank correlation with the distances without LDP
    epsilons : (budgets,) of a row, for an axis
    """

    hops: int
    plain: Array
    means: Array
    control: Array
    spreads: Array
    kept: Array
    kept_control: Array
    epsilons: Array
    budgets: tuple[Budget, ...]

    def rows(self) -> list[dict[str, Any]]:
        """Return the lines of the table."""
        return [
            {"hops": self.hops, "epsilon": b.name, "epsilon of a row": float(self.epsilons[k])}
            | {"mean GW": float(self.means[k].mean())}
            | {"error": float(standard_error(self.means[k]))}
            | {"deviation over draws": float(self.spreads[k].mean())}
            | {"mean GW, constant": float(self.control[k].mean())}
            | {"mean GW, no LDP": float(self.plain.mean())}
            | {"rank correlation with no LDP": float(self.kept[k].mean())}
            | {"rank correlation, constant": float(self.kept_control[k].mean())}
            for k, b in enumerate(self.budgets)
        ]


def over_epsilon(making: Making, parts: Sequence[Embedded], hops: int) -> Measured:
    """Return what the encoder makes of GW between the subgraphs of every seed."""
    budgets = tuple(named_budget(told) for told in making["budgets"])
    seeds, draws = list(making.seeds), making["draws"]
    jobs = [(NONE.config(), part.rows, 0, seed) for part, seed in zip(parts, seeds, strict=True)]
    jobs += [
        (budget.config(), given.rows, draw, seed)
        for budget in budgets
        for part, seed in zip(parts, seeds, strict=True)
        for given in (part, part.constant())
        for draw in range(draws)
    ]
    found = making.on_all_cores(drawn_distances, jobs, f"{making.name}, {hops} hops")
    truth, drawn = found[: len(seeds)], found[len(seeds) :]
    uppers = [d[np.triu_indices(len(d), 1)] for d in truth]
    shape = (len(budgets), len(seeds), 2, draws)
    means, kept = np.zeros(shape), np.zeros(shape)
    for place, d in zip(np.ndindex(shape), drawn, strict=True):
        values = d[np.triu_indices(len(d), 1)]
        means[place] = values.mean()
        kept[place] = rank_correlation(values, uppers[place[1]])
    row = float(np.mean([np.mean(1.0 / part.sizes) for part in parts]))
    return Measured(
        hops,
        plain=np.array([upper.mean() for upper in uppers]),
        means=means[:, :, 0].mean(axis=2),
        control=means[:, :, 1].mean(axis=2),
        spreads=means[:, :, 0].std(axis=2),
        kept=kept[:, :, 0].mean(axis=2),
        kept_control=kept[:, :, 1].mean(axis=2),
        epsilons=np.array([b.epsilon * (row if b.per == "graph" else 1.0) for b in budgets]),
        budgets=budgets,
    )


def _embedded(making: Making, hops: int) -> list[Embedded]:
    counts = making["subgraphs"]
    count = counts[str(hops)] if isinstance(counts, dict) else counts
    cases = [
        Neighbourhoods(making["data"], count, hops, making["rounds"], seed) for seed in making.seeds
    ]
    found = making.on_all_cores(neighbourhoods_job, cases, f"{making.name}, training")
    most = making["most"]
    return [part.first(most) if most else part for part in found]


def _drawn(making: Making, found: Measured) -> Any:
    lines, bands = {}, {}
    for name, values in (("GW on H*", found.means), ("constant embedding", found.control)):
        lines[name], bands[name] = banded(values)
    plot = curves(
        found.epsilons, lines, bands=bands, log_x=True,
        x_label="epsilon of a node's row (small is private)", y_label="mean GW between subgraphs",
        title=f"{making['data']}, {found.hops} hop, {making['seeds']} seeds",
    )  # fmt: skip
    return level(plot, float(found.plain.mean()), "no LDP")


def figure_5(making: Making) -> list[Finding]:
    """Draw the mean GW over epsilon, and test whether noise finds better minima."""
    measured, starts = [], []
    for hops in making["hops"]:
        parts = _embedded(making, hops)
        found = over_epsilon(making, parts, hops)
        making.plot(_drawn(making, found), f"{hops}hop")
        measured.append(found)
        starts.append(_starts(making, parts, hops))
    title = f"Mean GW of subgraphs of {making['data']}, {making['seeds']} seeds"
    making.table([row for found in measured for row in found.rows()], show=title)
    rows = [
        {"hops": hops, "start": name, "mean GW on H": float(values[:, k].mean())}
        | {"lower than from p q'": float(np.mean(values[:, k] < values[:, 0] - 1e-9))}
        | {"higher": float(np.mean(values[:, k] > values[:, 0] + 1e-9))}
        for hops, values in zip(making["hops"], starts, strict=True)
        for k, name in enumerate(STARTS)
    ]
    making.table(rows, "starts", show="GW on H by where Frank-Wolfe starts")
    return [
        _lower(measured, making["seeds"]),
        _rises(measured, making["seeds"]),
        _saddles(making["hops"], starts, making["seeds"]),
    ]


def pictures(making: Making) -> list[Finding]:
    """Draw GW between the subgraphs of all training nodes at several epsilons."""
    measured = []
    for hops in making["hops"]:
        parts = _embedded(making, hops)
        found = over_epsilon(making, parts, hops)
        measured.append(found)
        order = np.argsort(parts[0].labels, kind="stable")
        shown = [(NONE.config(), parts[0].rows, 0, making.seeds[0])]
        shown += [(b.config(), parts[0].rows, 0, making.seeds[0]) for b in found.budgets]
        matrices = making.on_all_cores(drawn_distances, shown, f"{making.name}, pictures")
        relative = [d[np.ix_(order, order)] / (d.max() or 1.0) for d in matrices]
        titles = ["no LDP", *(f"{b.name}, one draw" for b in found.budgets)]
        making.plot(
            heat_maps(relative, titles, label="GW, share of the largest", columns=3), f"{hops}hop"
        )
        making.plot(_drawn(making, found), f"{hops}hop-mean")
    title = f"GW of subgraphs of {making['data']} around training nodes, {making['seeds']} seeds"
    making.table([row for found in measured for row in found.rows()], show=title)
    return [_pattern(making.name, measured, making["seeds"])]


def _pattern(name: str, measured: Sequence[Measured], seeds: int) -> Finding:
    """Judge whether the order of distances outlives budgets up to 1 a row."""
    kept, told = [], []
    for found in measured:
        for k, budget in enumerate(found.budgets):
            if budget.per == "node" and budget.epsilon > 1.0:
                continue
            gap = found.kept[k] - found.kept_control[k]
            ahead = clearly(float(gap.mean()), float(standard_error(gap)))
            kept.append(ahead and bool(found.kept[k].mean() > 0.5))
            beside = f"constant {found.kept_control[k].mean():.2f}"
            told.append(f"{found.hops} hop, {budget.name}: {spread(found.kept[k], 2)} ({beside})")
    text = f"rank correlation with GW without LDP, {'; '.join(told)}"
    if all(kept):
        return Finding(f"{name}-pattern", text, "reproduced", "", seeds)
    why = (
        f"in {len(kept) - sum(kept)} of {len(kept)} cases the order of the distances is not that "
        "without LDP: less than half of it is left, or no more than a constant embedding has"
    )
    return Finding(f"{name}-pattern", text, "partly" if any(kept) else "refuted", why, seeds)


def _lower(measured: Sequence[Measured], seeds: int) -> Finding:
    below, told = [], []
    for found in measured:
        gap = found.plain[None, :] - found.means  # how far LDP is below, (budgets, seeds)
        best = int(np.argmax(gap.mean(axis=1)))
        below.append(clearly(float(gap[best].mean()), float(standard_error(gap[best]))))
        told.append(
            f"{found.hops} hop: {spread(found.plain, 2)} without LDP, least under LDP "
            f"{spread(found.means[best], 2)} (at {found.budgets[best].name}), smallest epsilon "
            f"{spread(found.means[0], 2)}"
        )
    text = f"mean GW, {'; '.join(told)}"
    if all(below):
        return Finding("fig5-lower", text, "reproduced", "", seeds)
    why = "at a small epsilon rows are coin flips, whose distances are far above those of H"
    return Finding("fig5-lower", text, "partly" if any(below) else "refuted", why, seeds)


def _rises(measured: Sequence[Measured], seeds: int) -> Finding:
    up, told = [], []
    for found in measured:
        change = found.means[-1] - found.means[0]
        more = found.spreads[-1].mean() > found.spreads[0].mean()
        up.append(clearly(float(change.mean()), float(standard_error(change))) and bool(more))
        told.append(
            f"{found.hops} hop: from {found.means[0].mean():.3g} at {found.budgets[0].name} to "
            f"{found.means[-1].mean():.3g} at {found.budgets[-1].name} (constant embedding "
            f"{found.control[0].mean():.3g} and {found.control[-1].mean():.3g}), deviation from "
            f"{found.spreads[0].mean():.2g} to {found.spreads[-1].mean():.2g}"
        )
    text = f"mean GW, {'; '.join(told)}"
    if all(up):
        return Finding("fig5-rises", text, "reproduced", "", seeds)
    why = (
        "mean and deviation do not both rise with epsilon: what rises in between is the number of "
        "bits that are sent, and a constant embedding rises with it"
    )
    return Finding("fig5-rises", text, "partly" if any(up) else "refuted", why, seeds)


def _saddles(hops: Sequence[int], starts: Sequence[Array], seeds: int) -> Finding:
    better, told = [], []
    for number, values in zip(hops, starts, strict=True):
        means = values.mean(axis=0)
        best = 1 + int(np.argmin(means[1:-1]))
        gap = values[:, -1] - values[:, best]  # of a random start, over the best of noise
        ahead = clearly(float(gap.mean()), float(standard_error(gap)))
        better.append(ahead and bool(means[best] < means[0]))
        told.append(
            f"{number} hop: from p q' {means[0]:.4g}, from the best plan of H* {means[best]:.4g}, "
            f"from a random vertex {means[-1]:.4g}"
        )
    text = f"GW on H by where it starts, {'; '.join(told)}"
    if all(better):
        return Finding("fig5-saddle", text, "reproduced", "", seeds)
    why = "plans found on noisy embeddings are no better starts than the usual one and a random one"
    return Finding("fig5-saddle", text, "partly" if any(better) else "refuted", why, seeds)


def _starts(making: Making, parts: Sequence[Embedded], hops: int) -> Array:
    """Return GW on H (pairs of all seeds, starts)."""
    jobs = []
    for part in parts:
        pairs = np.column_stack(np.triu_indices(len(part.rows), 1))
        jobs += [(part.rows, pairs[k::_CHUNKS]) for k in range(_CHUNKS)]
    found = making.on_all_cores(start_values, jobs, f"{making.name}, {hops} hops, starts")
    return np.concatenate(found)


def start_values(job: tuple[Sequence[Array], Any]) -> Array:
    """Return GW on H (pairs, starts): from p q', from plans on H*, from a random vertex."""
    rows, pairs = job
    true = [between(one, "euclidean") for one in rows]
    noisy = []
    for budget in START_BUDGETS:
        first, second = released(budget.config(), rows, 0)
        noisy.append(costs(budget.config(), first, second))
    rng = np.random.default_rng(SEED)
    found = []
    for i, j in pairs.tolist():
        plans: list[Any] = ["product"]
        plans += [gromov_wasserstein(c[i], c[j]).plan for c in noisy]
        plans.append(random_vertex(len(true[i]), len(true[j]), rng))
        found.append([gromov_wasserstein(true[i], true[j], start=plan).value for plan in plans])
    return np.array(found).reshape(len(pairs), len(STARTS))


def random_vertex(n: int, m: int, rng: np.random.Generator) -> Array:
    """Return the staircase coupling of uniform weights in two random orders, (n, m)."""
    ends = np.unique(
        np.round(np.concatenate([np.arange(1, n + 1) / n, np.arange(1, m + 1) / m]), 12)
    )
    mass = np.diff(ends, prepend=0.0)
    middles = ends - mass / 2.0
    plan = np.zeros((n, m))
    at = (middles * n).astype(int), (middles * m).astype(int)
    np.add.at(plan, (rng.permutation(n)[at[0]], rng.permutation(m)[at[1]]), mass)
    return plan
