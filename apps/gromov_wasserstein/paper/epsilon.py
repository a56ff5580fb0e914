"""What epsilon does: Figs 3 and 5 of the paper, and how much of GW survives the encoder.

Budgets are of a row (see `scores`), except where a graph's is said. Small epsilon is
private, so curves that rise to the right are what one expects.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from scipy.stats import spearmanr

from apps.experiments.sweep import on_all_cores, save_plot, show_rows, write_rows
from apps.pages.plots import curves, level
from strategies.gromov_wasserstein.pair import gromov_wasserstein

from ..config import ESTIMATORS, GromovWassersteinConfig
from ..distances import between, costs
from ..release import code_of
from .model import MODELS, collection, embedded, embedded_neighbourhoods, neighbourhoods
from .scores import (
    DEFAULT,
    NONE,
    SEED,
    Array,
    Budget,
    Embedded,
    ScoreJob,
    against,
    drawn_distances,
    node_budget,
    released,
    score_job,
)

DRAWS = 5
NEIGHBOURS = (5, 20)
ROW_BUDGETS = (DEFAULT, *(node_budget(e) for e in (0.1, 1.0, 10.0, 200.0)))
UTILITY_GRAPHS = 60
UTILITY_DRAWS = 3
UTILITY_BUDGETS = {
    "graph": tuple(Budget(f"{e:g} a graph", e, "graph") for e in (1.0, 10.0, 50.0, 200.0, 1000.0)),
    "node": tuple(node_budget(e) for e in (1.0, 5.0, 20.0, 50.0, 200.0)),
}
FIGURE_5_GRAPHS = {1: 40, 2: 20}  # of so many hops
FIGURE_5_DRAWS = 5


def figure_3(out: Path, console: Console) -> None:
    """Draw the accuracy of nearest neighbours over epsilon on MUTAG."""
    config = GromovWassersteinConfig.from_settings({**MODELS["GCN"], "task": "node"})
    parts = embedded(config, collection("MUTAG"), SEED)
    flat = tuple(part.constant() for part in parts)
    ways = tuple(f"knn{k}" for k in NEIGHBOURS)
    jobs = [ScoreJob(NONE.config(), parts, 0, ways)] + [
        ScoreJob(budget.config(), given, draw, ways)
        for budget in ROW_BUDGETS
        for given in (parts, flat)
        for draw in range(DRAWS)
    ]
    found = on_all_cores(score_job, jobs, console, "fig3")
    means = np.array([[each.mean for each in one] for one in found])
    drawn = means[1:].reshape(len(ROW_BUDGETS), 2, DRAWS, len(ways))
    rows = []
    for column, k in enumerate(NEIGHBOURS):
        for place, budget in enumerate(ROW_BUDGETS):
            ours, control = drawn[place, :, :, column]
            gain, error = against(ours, control)
            rows.append(
                {"k": k, "epsilon": budget.name, "accuracy": float(ours.mean())}
                | {"deviation": float(ours.std(ddof=1)), "constant": float(control.mean())}
                | {"gain": gain, "error": error, "no LDP": float(means[0, column])}
            )
        lines = {
            "GW on H*": drawn[:, 0, :, column].mean(axis=1),
            "constant embedding": drawn[:, 1, :, column].mean(axis=1),
        }
        plot = curves(
            _row_epsilons(parts[0]), lines, x_label="epsilon of a row", y_label="accuracy",
            title=f"MUTAG, k = {k}", log_x=True,
        )  # fmt: skip
        save_plot(level(plot, float(means[0, column]), "no LDP"), out / f"fig3-k{k}")
    show_rows(rows, f"KNN on MUTAG, {DRAWS} draws; gain is H* minus constant, paired", console)
    write_rows(out / "fig3.csv", rows, console)


def _row_epsilons(part: Embedded) -> list[float]:
    """Return the budgets of a row for an axis; 1/|V| at the mean of graphs."""
    mean = float(np.mean(1.0 / part.sizes))
    return [b.epsilon * mean if b.per == "graph" else b.epsilon for b in ROW_BUDGETS]


def privacy_utility(out: Path, console: Console) -> None:
    """Draw the rank correlation of estimated and true GW matrices over epsilon, by estimator."""
    config = GromovWassersteinConfig.from_settings({**MODELS["GCN"], "task": "node"})
    part = embedded(config, collection("MUTAG", UTILITY_GRAPHS), SEED)[0]
    flat = part.constant()
    jobs, keys = [(NONE.config(), part.rows, 0)], []
    for per, budgets in UTILITY_BUDGETS.items():
        for budget in budgets:
            for estimator in (*ESTIMATORS, "constant"):
                chosen = "raw" if estimator == "constant" else estimator
                settings = estimator_settings(budget, chosen, part)
                given = flat if estimator == "constant" else part
                keys += [(per, budget.epsilon, estimator)] * UTILITY_DRAWS
                jobs += [(settings, given.rows, draw) for draw in range(UTILITY_DRAWS)]
    truth, *found = on_all_cores(drawn_distances, jobs, console, "privacy-utility")
    upper = np.triu_indices(len(truth), 1)
    sizes = np.abs(part.sizes[:, None] - part.sizes[None, :])
    by_sizes = rank_correlation(sizes[upper], truth[upper])
    kept: dict[tuple[str, float, str], list[tuple[float, float]]] = {}
    for key, d in zip(keys, found, strict=True):
        scale = float(d[upper].mean() / truth[upper].mean())
        kept.setdefault(key, []).append((rank_correlation(d[upper], truth[upper]), scale))
    rows: list[dict[str, Any]] = []
    for (per, epsilon, estimator), values in kept.items():
        mean, scale = np.mean(values, axis=0)
        error = float(np.std([v[0] for v in values], ddof=1)) / np.sqrt(len(values))
        rows.append(
            {"per": per, "epsilon": epsilon, "estimator": estimator, "spearman": float(mean)}
            | {"error": error, "mean over true mean": float(scale)}
        )
    for per, budgets in UTILITY_BUDGETS.items():
        lines = {
            estimator: [
                r["spearman"] for r in rows if (r["per"], r["estimator"]) == (per, estimator)
            ]
            for estimator in (*ESTIMATORS, "constant")
        }
        plot = curves(
            [b.epsilon for b in budgets], lines, x_label=f"epsilon of a {per}",
            y_label="Spearman with the true GW", title=f"MUTAG, GCN, budget per {per}", log_x=True,
        )  # fmt: skip
        save_plot(level(plot, by_sizes, "sizes alone"), out / f"privacy-utility-{per}")
    rows.append({"per": "", "epsilon": 0.0, "estimator": "sizes alone", "spearman": by_sizes}
                | {"error": float("nan"), "mean over true mean": float("nan")})  # fmt: skip
    title = f"{len(truth)} graphs of MUTAG, GCN, {UTILITY_DRAWS} draws"
    show_rows(rows, title, console)
    write_rows(out / "privacy-utility.csv", rows, console)


def estimator_settings(budget: Budget, estimator: str, part: Embedded) -> GromovWassersteinConfig:
    """Return the settings of an estimator; ``simplex`` has two bits where one would be best."""
    config = budget.config(estimator=estimator)
    if estimator == "simplex":
        raw, h = budget.config(), part.rows[0].shape[1]
        if min(code_of(raw, h, int(n)).m for n in part.sizes) < 2:
            config = budget.config(estimator=estimator, bits=2)
    return config


def rank_correlation(a: Array, b: Array) -> float:
    """Return Spearman's rho; 0 where one of the two is constant, as it orders nothing."""
    if np.ptp(a) == 0.0 or np.ptp(b) == 0.0:
        return 0.0
    return float(spearmanr(a, b).statistic)


def figure_5(out: Path, console: Console) -> None:
    """Draw the mean GW of CiteSeer's subgraphs over epsilon, and test whether noise helps.

    [JC] reads a lower mean at some epsilon as an escape from saddle points. Values of different
    matrices do not show that; so plans found on H* are used as a start on H, beside random starts.
    """
    rows, starts = [], []
    for hops, count in FIGURE_5_GRAPHS.items():
        config = GromovWassersteinConfig.from_settings({**MODELS["GCN"], "task": "node"})
        part = embedded_neighbourhoods(config, *neighbourhoods("CiteSeer", count, hops), SEED)
        flat = part.constant()
        jobs = [(NONE.config(), part.rows, 0)] + [
            (budget.config(), given.rows, draw)
            for budget in ROW_BUDGETS
            for given in (part, flat)
            for draw in range(FIGURE_5_DRAWS)
        ]
        found = on_all_cores(drawn_distances, jobs, console, f"fig5, {hops} hops")
        upper = np.triu_indices(len(part.rows), 1)
        means = np.array([d[upper].mean() for d in found])
        drawn = means[1:].reshape(len(ROW_BUDGETS), 2, FIGURE_5_DRAWS)
        for budget, (ours, control) in zip(ROW_BUDGETS, drawn, strict=True):
            rows.append(
                {"hops": hops, "epsilon": budget.name, "mean GW": float(ours.mean())}
                | {"deviation": float(ours.std(ddof=1)), "constant": float(control.mean())}
                | {"no LDP": float(means[0])}
            )
        lines = {
            "GW on H*": drawn[:, 0].mean(axis=1),
            "constant embedding": drawn[:, 1].mean(axis=1),
        }
        plot = curves(
            _row_epsilons(part), lines, x_label="epsilon of a row", y_label="mean GW",
            title=f"CiteSeer, {hops} hops", log_x=True,
        )  # fmt: skip
        save_plot(level(plot, float(means[0]), "no LDP"), out / f"fig5-{hops}hop")
        starts += _starts(part, hops, console)
    show_rows(rows, f"Mean GW of CiteSeer's subgraphs, {FIGURE_5_DRAWS} draws", console)
    show_rows(starts, "GW on H by where Frank-Wolfe starts", console)
    write_rows(out / "fig5.csv", rows, console)
    write_rows(out / "fig5-starts.csv", starts, console)


def _starts(part: Embedded, hops: int, console: Console) -> list[dict[str, Any]]:
    pairs = np.column_stack(np.triu_indices(len(part.rows), 1))
    jobs = [(part.rows, pairs[k::8]) for k in range(8)]
    values = np.concatenate(on_all_cores(start_values, jobs, console, f"fig5, {hops} hops, starts"))
    usual = values[:, 0]
    return [
        {"hops": hops, "start": name, "mean GW on H": float(column.mean())}
        | {"lower than p q'": float(np.mean(column < usual - 1e-9))}
        | {"higher": float(np.mean(column > usual + 1e-9))}
        for name, column in zip(("p q'", *_START_NAMES), values.T, strict=True)
    ]


_START_BUDGETS = (DEFAULT, node_budget(10.0), node_budget(200.0))
_START_NAMES = (*(f"plan on H*, {b.name}" for b in _START_BUDGETS), "random vertex")


def start_values(job: tuple[Sequence[Array], Any]) -> Array:
    """Return GW on H (pairs, starts): from p q', from plans on H*, from a random vertex."""
    rows, pairs = job
    true = [between(one, "euclidean") for one in rows]
    noisy = []
    for budget in _START_BUDGETS:
        first, second = released(budget.config(), rows, 0)
        noisy.append(costs(budget.config(), first, second))
    rng = np.random.default_rng(SEED)
    found = []
    for i, j in pairs.tolist():
        plans: list[Any] = ["product"]
        plans += [gromov_wasserstein(c[i], c[j]).plan for c in noisy]
        plans.append(_random_vertex(len(true[i]), len(true[j]), rng))
        found.append([gromov_wasserstein(true[i], true[j], start=plan).value for plan in plans])
    return np.array(found)


def _random_vertex(n: int, m: int, rng: np.random.Generator) -> Array:
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
