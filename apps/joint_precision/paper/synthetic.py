"""The paper's experiments, by one command each: ``trellis paper joint-precision [FIGURE ...]``.

Every figure writes a csv with its numbers and a png and svg with its plots. Graphs are scored along
a path of lambda1 by the area under TPR = TP / (TP + FN) over FPR (see `curves`), lambda2 in
proportion: equal to lambda1 for the group penalty, 0.3 of it for the fused one. FEDJEM is
``method = group`` or ``fused`` with Kendall's tau; JGL is the same problem with Pearson's
correlation and all data in one place (``pooled``).
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from apps.experiments.sweep import Job, Outcome, by_row, save_plot, sweep, write_rows
from apps.pages.brains.connectome import connectomes
from apps.pages.plots import curves

from ..config import JointPrecisionConfig
from ..problem import partial_correlations
from ..release import forecast

STUDY = JointPrecisionConfig.study
SEEDS = range(1, 7)
SIZES = (54, 108)
# Seed 1 at p = 54: 100 points and a tolerance of 1e-6 move no area of the three methods by more
# than 0.001.
PATH: dict[str, Any] = {"path": 40, "lambda1": 0.005, "tolerance": 1e-4, "blocks": 6}
WITHIN = 0.03

# What a right implementation shows at p = 54, n = 150: group, fused, each client alone.
EXPECTED_AUC = {
    ("danaher", "kendall", "nonparanormal"): (0.84, 0.85, 0.82),
    ("danaher", "pearson", "nonparanormal"): (0.73, 0.74, 0.70),
    ("danaher", "pearson", "gaussian"): (0.85, 0.86, 0.83),
    ("shrunk", "kendall", "nonparanormal"): (0.74, 0.76, 0.72),
    ("shrunk", "pearson", "nonparanormal"): (0.65, 0.66, 0.62),
    ("shrunk", "pearson", "gaussian"): (0.76, 0.77, 0.74),
    ("paper", "kendall", "nonparanormal"): (0.57, 0.59, 0.56),
    ("paper", "pearson", "nonparanormal"): (0.52, 0.53, 0.52),
    ("paper", "pearson", "gaussian"): (0.58, 0.60, 0.56),
}
# n, epsilon: the area without noise and with it.
EXPECTED_PRIVATE = {
    (150, 10.0): (0.84, 0.57),
    (1000, 5.0): (0.92, 0.75),
    (10000, 1.0): (0.965, 0.86),
}


def method_settings(method: str, **changes: Any) -> dict[str, Any]:
    """Return the settings of one method along the path; ``jgl-fused`` is pooled and Pearson's."""
    if method.startswith("jgl-"):
        penalty = method.removeprefix("jgl-")
        pooled = {"method": "pooled", "penalty": penalty, "correlation": "pearson"}
        return method_settings(penalty) | pooled | changes
    ratio = 0.3 if method == "fused" else 1.0
    return {**PATH, "method": method, "lambda2": ratio * PATH["lambda1"], **changes}


def table_auc(out: Path, console: Console) -> None:
    """Write the areas of three generators, three methods and three kinds of data."""
    methods = ("group", "fused", "glasso")
    jobs = [
        Job(
            STUDY,
            method_settings(method, generator=kind, correlation=measure, margins=margins),
            seed,
            (kind, measure, margins, method),
            ("path_fpr", "path_tpr"),
        )
        for (kind, measure, margins), method in itertools.product(EXPECTED_AUC, methods)
        for seed in SEEDS
    ]
    outcomes = by_row(sweep(jobs, console, "table-auc"))
    table = Table(title=f"Area under TPR/FPR, mean of {len(SEEDS)} seeds (expected)")
    for column in ("generator", "correlation", "data", "group", "fused", "alone"):
        table.add_column(column)
    rows: list[dict[str, Any]] = []
    for setting, expected in EXPECTED_AUC.items():
        cells = []
        for method, wanted in zip(methods, expected, strict=True):
            mean, spread = _area(outcomes[(*setting, method)])
            rows.append(
                dict(zip(("generator", "correlation", "margins"), setting, strict=True))
                | {"method": method, "auc": mean, "spread": spread, "expected": wanted}
            )
            cells.append(f"{mean:.3f} ({wanted:.2f})")
        table.add_row(*setting, *cells)
    console.print(table)
    worst = max(abs(row["auc"] - row["expected"]) for row in rows)
    beyond = sum(abs(row["auc"] - row["expected"]) > WITHIN for row in rows)
    console.print(
        f"largest difference from the expected {worst:.3f}; {len(rows) - beyond} of {len(rows)} "
        f"within {WITHIN}"
    )
    write_rows(out / "table-auc.csv", rows, console)
    grid = np.linspace(0.0, 1.0, 101)
    for kind in dict.fromkeys(setting[0] for setting in EXPECTED_AUC):
        lines = {
            f"{measure}, {margins}": mean_roc(outcomes[(k, measure, margins, "group")], grid)
            for k, measure, margins in EXPECTED_AUC
            if k == kind
        }
        plot = curves(grid, lines, x_label="FPR", y_label="TPR", title=f"{kind}, group")
        save_plot(plot, out / f"table-auc-{kind}")


def figure_6(out: Path, console: Console) -> None:
    """Draw the true and the learned graphs of the three clients, 54 variables, n = 150."""
    # A denser graph than eBIC's choice, as the paper's: the point with as many edges as the truth.
    path = method_settings("group", margins="nonparanormal")
    names = ("path_lambda1", "path_edges", "truth")
    first = sweep([Job(STUDY, path, 1, keep=names)], console, "fig6, path")[0].arrays
    wanted = np.count_nonzero(np.triu(first["truth"][0], 1))
    point = int(np.argmin(np.abs(first["path_edges"].mean(axis=1) - wanted)))
    chosen = {"path": 0, "lambda1": float(first["path_lambda1"][point])}
    chosen["lambda2"] = chosen["lambda1"]
    keep = ("partial", "sparse", "truth")
    found = sweep([Job(STUDY, path | chosen, 1, keep=keep)], console, "fig6")[0]
    truth = partial_correlations(found.arrays["truth"])
    learned = found.arrays["partial"]
    fact, graph = truth != 0.0, learned != 0.0
    titles = [f"client {k + 1}" for k in range(len(truth))]
    block = np.arange(truth.shape[-1]) * PATH["blocks"] // truth.shape[-1]
    groups = [f"subnetwork {k + 1}" for k in block]
    hits = fact & graph
    figure = connectomes(
        list(learned), titles, groups=groups, truth=list(truth), common=hits,
        legend=("true and found", "missed (above) or false (below)"),
    )  # fmt: skip
    save_plot(figure, out / "fig6")
    a, b = np.triu_indices(truth.shape[-1], 1)
    rows: list[dict[str, Any]] = []
    table = Table(title=f"Edges found at lambda1 = lambda2 = {chosen['lambda1']:.3f}")
    for column in ("client", "true edges", "learned", "of them true", "of the strongest tenth"):
        table.add_column(column)
    for k, title in enumerate(titles):
        size = np.abs(truth[k, a, b])
        strong = size >= np.quantile(size[size > 0.0], 0.9)
        counts = [int(m[k, a, b].sum()) for m in (fact, graph, hits)]
        share = float(graph[k, a, b][strong].mean())
        rows.append({"client": k + 1, "true": counts[0], "learned": counts[1], "hits": counts[2]})
        rows[-1] |= {"strongest-tenth-found": share, "lambda1": chosen["lambda1"]}
        table.add_row(title, *map(str, counts), f"{share:.0%}")
    console.print(table)
    write_rows(out / "fig6.csv", rows, console)


FIGURE_7_METHODS = {
    "FEDJEM group": ("group", {}),
    "FEDJEM fused": ("fused", {}),
    "JGL group": ("jgl-group", {}),
    "JGL fused": ("jgl-fused", {}),
    "GLasso": ("glasso", {"correlation": "pearson"}),
    "CLIME": ("clime", {"correlation": "pearson"}),
}


def figure_7(out: Path, console: Console) -> None:
    """Write the ROC curves of all methods on Gaussian and nonparanormal data."""
    jobs = [
        Job(
            STUDY,
            method_settings(method, margins=margins, variables=size, **changes),
            seed,
            (margins, size, name),
            ("path_fpr", "path_tpr"),
        )
        for margins, size in itertools.product(("gaussian", "nonparanormal"), SIZES)
        for name, (method, changes) in FIGURE_7_METHODS.items()
        for seed in SEEDS
    ]
    outcomes = by_row(sweep(jobs, console, "fig7"))
    grid = np.linspace(0.0, 1.0, 101)
    table = Table(title=f"Area under the ROC curve, n = 150, mean of {len(SEEDS)} seeds")
    for column in ("data", "p", *FIGURE_7_METHODS):
        table.add_column(column)
    areas: list[dict[str, Any]] = []
    points: list[dict[str, Any]] = []
    for margins, size in itertools.product(("gaussian", "nonparanormal"), SIZES):
        lines: dict[str, NDArray[np.float64]] = {}
        row: dict[str, Any] = {"margins": margins, "variables": size}
        for name in FIGURE_7_METHODS:
            found = outcomes[(margins, size, name)]
            lines[name] = mean_roc(found, grid)
            row[name], row[f"{name} spread"] = _area(found)
        areas.append(row)
        points += [
            {"margins": margins, "variables": size, "fpr": float(x)}
            | {name: float(line[k]) for name, line in lines.items()}
            for k, x in enumerate(grid)
        ]
        table.add_row(margins, str(size), *(f"{row[name]:.3f}" for name in FIGURE_7_METHODS))
        title = f"{margins}, p = {size}"
        plot = curves(grid, lines, x_label="FPR", y_label="TPR", title=title)
        save_plot(plot, out / f"fig7-{margins}-{size}")
    console.print(table)
    for row in areas:
        gain = {m: row[f"FEDJEM {m}"] - row[f"JGL {m}"] for m in ("group", "fused")}
        row |= {f"FEDJEM minus JGL, {m}": value for m, value in gain.items()}
        verdict = "beats" if min(gain.values()) > 0.0 else "does not beat"
        console.print(
            f"{row['margins']}, p = {row['variables']}: FEDJEM {verdict} JGL (group "
            f"{gain['group']:+.3f}, fused {gain['fused']:+.3f}); only the correlation differs"
        )
    write_rows(out / "fig7-areas.csv", areas, console)
    write_rows(out / "fig7-curves.csv", points, console)


def mean_roc(outcomes: Sequence[Outcome], grid: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the mean TPR over runs at every FPR of ``grid``, between points by straight lines."""
    lines = []
    for outcome in outcomes:
        x = np.concatenate([[0.0], outcome.arrays["path_fpr"], [1.0]])
        y = np.concatenate([[0.0], outcome.arrays["path_tpr"], [1.0]])
        order = np.lexsort((y, x))
        lines.append(np.interp(grid, x[order], y[order]))
    return np.mean(lines, axis=0)


def table_privacy(out: Path, console: Console) -> None:
    """Write the areas with and without sound noise, and what the forecast said before."""
    jobs = [
        Job(STUDY, private_settings(n, epsilon if noisy else None), seed, (n, epsilon, noisy))
        for n, epsilon in EXPECTED_PRIVATE
        for noisy in (False, True)
        for seed in SEEDS
    ]
    outcomes = by_row(sweep(jobs, console, "table-privacy"))
    table = Table(title="AUC with sound privacy, p = 54, group, Kendall (expected)")
    for column in ("n", "epsilon", "without noise", "with noise"):
        table.add_column(column)
    rows: list[dict[str, Any]] = []
    for (n, epsilon), expected in EXPECTED_PRIVATE.items():
        row: dict[str, Any] = {"samples": n, "epsilon": epsilon}
        for noisy, name in enumerate(("plain", "sound")):
            row[name], row[f"{name}-spread"] = _area(outcomes[(n, epsilon, bool(noisy))])
            row[f"{name}-expected"] = expected[noisy]
        config = JointPrecisionConfig.from_settings(private_settings(n, epsilon))
        row["forecast"] = forecast(config, 54, [n])
        rows.append(row)
        cells = [f"{row[m]:.3f} ({row[f'{m}-expected']})" for m in ("plain", "sound")]
        table.add_row(str(n), f"{epsilon:g}", *cells)
    console.print(table)
    for row in rows:
        console.print(row["forecast"])
    write_rows(out / "table-privacy.csv", rows, console)
    lines = {name: [row[name] for row in rows] for name in ("plain", "sound")}
    sizes = [row["samples"] for row in rows]
    plot = curves(sizes, lines, x_label="samples (epsilon 10, 5, 1)", y_label="AUC", log_x=True)
    save_plot(plot, out / "table-privacy")


def private_settings(samples: int, epsilon: float | None) -> dict[str, Any]:
    """Return the settings of one cell of the table, each tau noised; none where epsilon is None."""
    private = {} if epsilon is None else {"privacy": "sound", "release": "each", "epsilon": epsilon}
    return method_settings("group", samples=str(samples)) | private


def _area(outcomes: Sequence[Outcome]) -> tuple[float, float]:
    """Return the mean area and its standard deviation over seeds."""
    areas = [outcome.headline["auc"] for outcome in outcomes]
    return float(np.mean(areas)), float(np.std(areas, ddof=1)) if len(areas) > 1 else 0.0
