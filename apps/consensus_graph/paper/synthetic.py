"""The paper's experiments, by one command each: ``trellis paper consensus-graph [FIGURE ...]``.

Every figure writes a csv with its numbers and a png and svg with its plots. Results are means over
seeds 1 to 20; beta, rho and lambda were tuned for each method and setting by grid search on other
seeds (``tuned.toml`` beside this file, made by ``trellis paper consensus-graph tune``), as in the
paper. MCC counts an edge where its weight exceeds 0.2 of the graph's largest.
"""

from __future__ import annotations

import itertools
import tomllib
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from apps.common.metrics import matthews, relative_error
from apps.common.results import write_atomically
from apps.experiments.sweep import Job, means, save_plot, sweep, write_rows
from apps.pages.plots import curves

from ..config import ConsensusGraphConfig

STUDY = ConsensusGraphConfig.study

SEEDS = range(1, 21)
TUNING_SEEDS = range(1001, 1007)
METHODS = ("igl", "fedavg", "fedgl")
SIZES = (10, 20, 35, 50, 75, 100)
OVERLAPS = (0.2, 0.35, 0.5, 0.65, 0.8)
UNEQUAL = "20,40,60,80,100"

# The numbers a right implementation shows at q = 0.5: MCC of IGL, FedAvg, local graphs, consensus.
EXPECTED_MCC = {
    10: (0.27, 0.32, 0.34, 0.43),
    50: (0.52, 0.48, 0.56, 0.68),
    100: (0.65, 0.54, 0.70, 0.81),
}


@lru_cache(maxsize=1)
def _tuned() -> dict[str, dict[str, float]]:
    path = Path(__file__).with_name("tuned.toml")
    return tomllib.loads(path.read_text())


def settings(method: str, overlap: float, signals: int | str) -> dict[str, Any]:
    """Return a method's settings at one point of the experiments, tuned parameters included."""
    # Clients of different sizes use what was tuned for their mean size.
    size = signals if isinstance(signals, int) else 50
    tuned = _tuned()[f"{method}-{overlap:g}-{size}"]
    return {"method": method, "overlap": overlap, "signals": str(signals), **tuned}


def _jobs(points: Sequence[tuple[float, int | str]], keep: tuple[str, ...] = ()) -> list[Job]:
    return [
        Job(STUDY, settings(method, overlap, signals), seed, (method, overlap, signals), keep)
        for method, (overlap, signals) in itertools.product(METHODS, points)
        for seed in SEEDS
    ]


def table_mcc(out: Path, console: Console) -> None:
    """Write MCC and RE at N = 10, 50, 100 and q = 0.5, beside the expected MCC."""
    found = means(sweep(_jobs([(0.5, size) for size in EXPECTED_MCC]), console, "table-mcc"))
    rows = []
    table = Table(title="MCC at q = 0.5, threshold 0.2, mean of 20 seeds (expected)")
    for column in ("N", "IGL", "FedAvg", "FedGL local", "consensus", "RE local", "RE IGL"):
        table.add_column(column)
    for size, expected in EXPECTED_MCC.items():
        igl, fedavg, fedgl = (found[(method, 0.5, size)] for method in METHODS)
        measured = (igl["mcc"], fedavg["mcc"], fedgl["mcc"], fedgl["consensus-mcc"])
        names = ("igl", "fedavg", "local", "consensus")
        row = {"signals": float(size)}
        row |= {f"mcc-{name}": value for name, value in zip(names, measured, strict=True)}
        row |= {f"expected-{name}": value for name, value in zip(names, expected, strict=True)}
        row |= {"re-local": fedgl["re"], "re-igl": igl["re"]}
        rows.append(row)
        cells = [f"{m:.2f} ({e:.2f})" for m, e in zip(measured, expected, strict=True)]
        table.add_row(str(size), *cells, f"{fedgl['re']:.2f}", f"{igl['re']:.2f}")
    write_rows(out / "table-mcc.csv", rows, console)
    console.print(table)


def figure_2(out: Path, console: Console) -> None:
    """Write MCC and RE over the number of signals, and by client where sizes differ."""
    outcomes = sweep(_jobs([(0.5, size) for size in SIZES]), console, "fig2 (a, b)")
    _curves_over(out, "fig2ab", means(outcomes), list(SIZES), "signals", console)

    outcomes = sweep(_jobs([(0.5, UNEQUAL)], ("weights", "truth")), console, "fig2 (c, d)")
    counts = [int(count) for count in UNEQUAL.split(",")]
    mcc, error = (
        {
            method: np.mean(
                [
                    [
                        score(w, t)
                        for w, t in zip(o.arrays["weights"], o.arrays["truth"], strict=True)
                    ]
                    for o in outcomes
                    if o.job.row[0] == method
                ],
                axis=0,
            )
            for method in METHODS
        }
        for score in (matthews, relative_error)
    )
    rows = [
        {"client": i + 1.0, "signals": float(count)}
        | {f"mcc-{m}": float(mcc[m][i]) for m in METHODS}
        | {f"re-{m}": float(error[m][i]) for m in METHODS}
        for i, count in enumerate(counts)
    ]
    write_rows(out / "fig2cd.csv", rows, console)
    for name, values in (("MCC", mcc), ("RE", error)):
        labelled = {_LABELS[m]: v for m, v in values.items()}
        plot = curves(counts, labelled, x_label="signals of the client", y_label=name)
        save_plot(plot, out / f"fig2cd-{name.lower()}")


def figure_3(out: Path, console: Console) -> None:
    """Write MCC and RE over the share of common edges, N = 50."""
    outcomes = sweep(_jobs([(overlap, 50) for overlap in OVERLAPS]), console, "fig3")
    _curves_over(out, "fig3", means(outcomes), list(OVERLAPS), "overlap", console)


def table_1(out: Path, console: Console) -> None:
    """Write the learned gamma of clients with different numbers of signals."""
    jobs = [Job(STUDY, settings("fedgl", 0.5, UNEQUAL), seed, keep=("gamma",)) for seed in SEEDS]
    gamma = np.mean([o.arrays["gamma"] for o in sweep(jobs, console, "table1")], axis=0)
    rows = [
        {"client": i + 1.0, "signals": float(count), "gamma": float(gamma[i])}
        for i, count in enumerate(UNEQUAL.split(","))
    ]
    write_rows(out / "table1.csv", rows, console)
    console.print("gamma by client: " + ", ".join(f"{g:.3f}" for g in gamma))


def figure_5(out: Path, console: Console) -> None:
    """Write MCC and RE over lambda and over rho, N = 100, q = 0.5."""
    base = settings("fedgl", 0.5, 100)
    for name, values in (
        ("lambda", (0.01, 0.03, 0.1, 0.2, 0.3, 0.6, 1.0)),
        ("rho", (0.1, 0.3, 1.0, 3.0, 10.0, 50.0)),
    ):
        jobs = [
            Job(STUDY, {**base, name: value}, seed, (value,))
            for value in values
            for seed in SEEDS[:10]
        ]
        found = means(sweep(jobs, console, f"fig5 ({name})"))
        shown = ("mcc", "re", "consensus-mcc", "consensus-re")
        rows = [
            {name: value} | {k: found[(value,)].get(k, np.nan) for k in shown} for value in values
        ]
        write_rows(out / f"fig5-{name}.csv", rows, console)
        lines = {k: [row[k] for row in rows] for k in shown}
        save_plot(curves(values, lines, x_label=name, log_x=True), out / f"fig5-{name}")


def figure_6(out: Path, console: Console) -> None:
    """Write RE over the number of signals with noise: once (sound) and as printed (paper)."""
    sizes = (50, 100, 200, 500, 1000)
    tuned = {k: v for k, v in settings("fedgl", 0.5, 100).items() if k != "signals"}
    printed = {"privacy": "paper", "local-steps": 25, "step": 0.01, "rounds": 8, "tolerance": 0.0}
    methods: dict[str, dict[str, Any]] = {
        "IGL": {"method": "igl"},
        "FedGL": {},
        **{f"FedGL, sound, epsilon {e:g}": {"privacy": "sound", "epsilon": e} for e in (1, 5, 20)},
        **{f"as printed (not private), epsilon {e:g}": {**printed, "epsilon": e} for e in (1, 5)},
    }
    jobs = [
        Job(STUDY, {**tuned, "signals": str(size), **changes}, seed, (name, size))
        for name, changes in methods.items()
        for size in sizes
        for seed in SEEDS[:10]
    ]
    found = means(sweep(jobs, console, "fig6"))
    rows = [
        {"signals": float(size)} | {name: found[(name, size)]["re"] for name in methods}
        for size in sizes
    ]
    write_rows(out / "fig6.csv", rows, console)
    lines = {name: [row[name] for row in rows] for name in methods}
    plot = curves(sizes, lines, x_label="signals", y_label="RE", log_x=True, log_y=True)
    save_plot(plot, out / "fig6")


def tune(out: Path, console: Console) -> None:
    """Search the grid on other seeds; write the best parameters of every method and setting."""
    points = [(0.5, size) for size in SIZES] + [(q, 50) for q in OVERLAPS if q != 0.5]
    betas = (0.01, 0.02, 0.03, 0.05, 0.07, 0.1, 0.15, 0.2, 0.4)
    rhos, lambdas = (0.3, 1.0, 2.0, 3.0, 4.5), (0.03, 0.1, 0.3, 0.6, 1.0)
    pulls = itertools.product((0.02, 0.05, 0.1), rhos, lambdas)
    grid: list[dict[str, Any]] = [{"method": m, "beta": b} for m in METHODS[:2] for b in betas]
    grid += [
        {"method": "fedgl", "beta": b, "rho": rho, "lambda": sparsity} for b, rho, sparsity in pulls
    ]
    jobs = [
        Job(
            STUDY,
            {"overlap": q, "signals": str(size), "tolerance": 1e-3, "rounds": 40, **parameters}
            | {"acceleration": "off"},
            seed,
            (q, size, *parameters.items()),
        )
        for (q, size), parameters in itertools.product(points, grid)
        for seed in TUNING_SEEDS
    ]
    found = means(sweep(jobs, console, "tune"))
    lines = ["# Best on seeds 1001 to 1006: MCC, for fedgl the sum of local and consensus MCC."]
    for (q, size), method in itertools.product(points, METHODS):
        mine = {row: v for row, v in found.items() if row[:3] == (q, size, ("method", method))}
        best = max(mine, key=lambda row: mine[row]["mcc"] + _consensus_mcc(method, mine[row]))
        lines += ["", f'["{method}-{q:g}-{size}"]']
        lines += [f"{name} = {value}" for name, value in best[3:]]
    path = out / "tuned.toml"
    write_atomically(path, ("\n".join(lines) + "\n").encode())
    console.print(f"wrote {path}; the figures read {Path(__file__).with_name('tuned.toml')}")


def _consensus_mcc(method: str, headline: dict[str, float]) -> float:
    return headline.get("consensus-mcc", 0.0) if method == "fedgl" else 0.0


_LABELS = {"igl": "IGL", "fedavg": "FedAvg", "fedgl": "FedGL local"}


def _curves_over(
    out: Path,
    name: str,
    found: dict[tuple[Any, ...], dict[str, float]],
    points: list[Any],
    axis: str,
    console: Console,
) -> None:
    """Write the csv and the two plots of a quantity that varies from point to point."""

    def row_of(method: str, point: Any) -> dict[str, float]:
        return found[(method, 0.5, point) if axis == "signals" else (method, point, 50)]

    rows = []
    for point in points:
        row = {axis: float(point)}
        for method in METHODS:
            row[f"mcc-{method}"] = row_of(method, point)["mcc"]
            row[f"re-{method}"] = row_of(method, point)["re"]
        row["mcc-consensus"] = row_of("fedgl", point)["consensus-mcc"]
        row["re-consensus"] = row_of("fedgl", point)["consensus-re"]
        rows.append(row)
    write_rows(out / f"{name}.csv", rows, console)
    for metric in ("mcc", "re"):
        lines = {_LABELS[m]: [row[f"{metric}-{m}"] for row in rows] for m in METHODS}
        lines["FedGL consensus"] = [row[f"{metric}-consensus"] for row in rows]
        plot = curves(points, lines, x_label=axis, y_label=metric.upper())
        save_plot(plot, out / f"{name}-{metric}")
