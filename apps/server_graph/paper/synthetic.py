"""The paper's experiments, by one command each: ``trellis paper server-graph [FIGURE ...]``.

The paper's setting (Sec. V): 10 servers of 50 clients with 100 samples of 2 features, mu = 0.1,
rho = 0.01, sigma_g = 0.2, Metropolis weights on random graphs with p = 0.3, 10 clients a server and
round, batches of 10. Figures but ``speed`` are by `simulate`, which has the numbers of
``trellis run`` without its messages. Decibels of several seeds are of the mean power. Every figure
writes a csv, and a png and svg where it has a plot.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from apps.common.servers import build_topology
from apps.common.threads import one_blas_thread
from apps.experiments.sweep import on_all_cores, save_plot, write_rows
from apps.pages.plots import curves, mark
from strategies.topology.graph import Topology
from strategies.topology.named import components

from ..config import ServerGraphConfig
from ..release import NEIGHBOUR_LEARNS
from ..simulate import Simulation, cost, simulate

Vector = NDArray[np.float64]
Settings = Mapping[str, Any]

SEEDS = range(1, 7)
PAPER: dict[str, Any] = {
    "servers": 10, "clients": 500, "samples": "100", "features": 2, "step": 0.1, "ridge": 0.01,
    "topology": "erdos-renyi:0.3", "weights": "metropolis", "sample": 10, "batch": 10,
}  # fmt: skip
SIGMAS = (0.2, 0.5, 1.0)
METHODS = ("none", "hybrid", "iid", "masked")
# Batch, sigma_g: what a right implementation shows, dB, without noise, hybrid, iid.
EXPECTED = {
    (10, 0.2): (-38.9, -36.0, -10.4),
    (10, 0.5): (-38.9, -19.4, -1.9),
    (10, 1.0): (-38.9, -7.5, 5.4),
    (1, 0.2): (-30.5, -29.6, -9.8),
}
WITHIN = 2.0
# Over which rounds the expected numbers were taken is not known. The early window has the end of
# the way from zero in it, the later one has not.
WINDOWS = {"500-1000": slice(500, 1000), "1000-2000": slice(1000, 2000)}
ROUNDS = 2000
# Every server has two neighbours at least: nothing but masks crosses an edge.
LEAFLESS = "small-world:4,0.3"
LOST, LOST_FROM = 3, 500


def simulated(
    jobs: Sequence[Settings], seeds: Sequence[int], console: Console, title: str
) -> list[list[Simulation]]:
    """Return the simulations of every job, one a seed; a process has the jobs of one seed."""
    found = on_all_cores(partial(of_seed, list(jobs)), seeds, console, title)
    return [list(runs) for runs in zip(*found, strict=True)]


def of_seed(jobs: Sequence[Settings], seed: int) -> list[Simulation]:
    """Return the simulations of all jobs with one seed; they share their draws."""
    with one_blas_thread():
        return [
            simulate(ServerGraphConfig.from_settings({**PAPER, **settings}), seed)
            for settings in jobs
        ]


def power(runs: Sequence[Vector], window: slice = slice(None)) -> float:
    """Return the mean power over runs and rounds."""
    return float(np.mean([10.0 ** (run[window] / 10.0) for run in runs]))


def decibel(value: float) -> float:
    """Return a power in dB; of none, -inf."""
    return float(10.0 * np.log10(value)) if value > 0.0 else -np.inf


def table_db(out: Path, console: Console) -> None:
    """Write the steady MSD of the centroid by method and sigma_g, beside what is expected."""
    cells = [(batch, sigma, m, PAPER["topology"]) for batch, sigma in EXPECTED for m in METHODS]
    cells += [(10, sigma, m, LEAFLESS) for sigma in SIGMAS for m in ("none", "masked")]
    jobs = [
        {"batch": batch, "sigma": sigma, "method": method, "topology": graph, "rounds": ROUNDS}
        for batch, sigma, method, graph in cells
    ]
    found = dict(zip(cells, simulated(jobs, SEEDS, console, "table-db"), strict=True))
    rows: list[dict[str, Any]] = []
    for (batch, sigma, method, graph), runs in found.items():
        known = graph == PAPER["topology"] and method != "masked"
        expected = EXPECTED[batch, sigma][METHODS.index(method)] if known else np.nan
        quiet = found[batch, sigma, "none", graph]
        row = {"graph": graph, "batch": batch, "sigma": sigma, "method": method}
        row["leaves"] = sum(int(run.topology.degree.min() == 1) for run in runs)
        for name, window in WINDOWS.items():
            level = power([run.msd for run in runs], window)
            base = power([run.msd for run in quiet], window)
            row |= {name: decibel(level), f"{name} over none": decibel(level) - decibel(base)}
            row[f"{name} excess"] = decibel(level - base)
            row[f"{name} servers"] = decibel(power([run.msd_servers for run in runs], window))
        rows.append({**row, "expected": expected})
    last = list(WINDOWS)[-1]
    table = Table(
        title=f"Centroid MSD, dB, {len(SEEDS)} seeds, mean over rounds {', '.join(WINDOWS)}"
    )
    for column in (
        "leaves",
        "batch",
        "sigma",
        "method",
        *WINDOWS,
        "expected",
        "over none",
        "single",
    ):
        table.add_column(column, no_wrap=True)
    for row in rows:
        told = "" if np.isnan(row["expected"]) else f"{row['expected']:.1f}"
        numbers = [f"{row[name]:.1f}" for name in WINDOWS]
        more = [f"{row[f'{last} {name}']:.1f}" for name in ("over none", "servers")]
        leaves = f"{row['leaves']} of {len(SEEDS)}"
        texts = [str(row[name]) for name in ("batch", "sigma", "method")]
        table.add_row(leaves, *texts, *numbers, told, *more)
    console.print(table)
    console.print(
        f"leaves: seeds whose graph has a server with one neighbour; over none, and the MSD of "
        f"single servers: rounds {last}"
    )
    for name in WINDOWS:
        off = {
            f"{r['method']} at {r['sigma']}, batch {r['batch']}": r[name] - r["expected"]
            for r in rows
            if not np.isnan(r["expected"])
        }
        beyond = [f"{where} ({by:+.1f})" for where, by in off.items() if abs(by) > WITHIN]
        console.print(
            f"rounds {name}: {len(off) - len(beyond)} of {len(off)} within {WITHIN:g} dB of the "
            f"expected{'; beyond: ' + ', '.join(beyond) if beyond else ''}"
        )
        excess = {r["sigma"]: r[f"{name} excess"] for r in rows if _is_hybrid(r)}
        steps = [(excess[b] - excess[a]) / np.log2(b / a) for a, b in itertools.pairwise(SIGMAS)]
        told = ", ".join(f"{step:.1f}" for step in steps)
        console.print(f"rounds {name}: hybrid's excess grows {told} dB per doubling of sigma")
    write_rows(out / "table-db.csv", rows, console)


def _is_hybrid(row: Mapping[str, Any]) -> bool:
    return bool(row["method"] == "hybrid" and row["batch"] == 10)


def figure_2(out: Path, console: Console) -> None:
    """Draw the MSD of the centroid over the rounds: no noise, hybrid, iid."""
    methods, rounds = ("none", "hybrid", "iid"), ROUNDS // 2
    cells = list(itertools.product((0.2, 1.0), methods))
    jobs = [{"sigma": sigma, "method": method, "rounds": rounds} for sigma, method in cells]
    found = dict(zip(cells, simulated(jobs, SEEDS, console, "fig2"), strict=True))
    rows: list[dict[str, Any]] = [{"round": i + 1} for i in range(rounds)]
    for sigma in dict.fromkeys(sigma for sigma, _ in cells):
        lines = {method: _curve([run.msd for run in found[sigma, method]]) for method in methods}
        for method, line in lines.items():
            for row, value in zip(rows, line.tolist(), strict=True):
                row[f"{method} {sigma:g}"] = value
        title = f"sigma_g = {sigma:g}"
        plot = curves(np.arange(1, rounds + 1), lines, y_label="MSD, dB", title=title)
        save_plot(plot, out / f"fig2-{sigma:g}")
        ends = ", ".join(f"{name} {np.mean(line[-100:]):.1f}" for name, line in lines.items())
        console.print(f"{title}: last 100 of {rounds} rounds, dB: {ends}")
    write_rows(out / "fig2.csv", rows, console)


def _curve(runs: Sequence[Vector]) -> Vector:
    """Return the mean power over runs in every round, dB."""
    mean: Vector = 10.0 * np.log10(np.mean([10.0 ** (run / 10.0) for run in runs], axis=0))
    return mean


def methods(out: Path, console: Console) -> None:
    """Write the methods side by side: utility, what a neighbour learns, cost between servers."""
    names, sigmas = (*METHODS, "fedavg"), (0.2, 1.0)
    cells = list(itertools.product(names, sigmas))
    jobs = [{"method": m, "sigma": sigma, "rounds": ROUNDS} for m, sigma in cells]
    found = dict(zip(cells, simulated(jobs, SEEDS, console, "methods"), strict=True))
    table = Table(title=f"rounds 1000-2000, {len(SEEDS)} seeds")
    rows: list[dict[str, Any]] = []
    for name in names:
        row: dict[str, Any] = {"method": name}
        for sigma in sigmas:
            runs, window = found[name, sigma], WINDOWS["1000-2000"]
            row[f"centroid {sigma:g}"] = decibel(power([run.msd for run in runs], window))
            row[f"servers {sigma:g}"] = decibel(power([run.msd_servers for run in runs], window))
        config = ServerGraphConfig.from_settings({**PAPER, "method": name})
        spent = [cost(config, run.topology, 200) for run in found[name, sigmas[0]]]
        for part in ("messages", "bytes", "key_bytes"):
            row[part.replace("_", "-")] = float(np.mean([getattr(c, part) for c in spent]))
        row["ms"] = 1e3 * float(np.mean([c.seconds for c in spent]))
        rows.append({**row, "neighbour-learns": NEIGHBOUR_LEARNS[name]})
    for column in list(rows[0])[:-1]:
        table.add_column(column)
    for row in rows:
        texts = [v if isinstance(v, str) else f"{v:.3g}" for v in row.values()]
        table.add_row(*texts[:-1])
    console.print(table)
    console.print("dB at sigma_g as named; messages, bytes, ms: between servers, a round")
    for row in rows:
        console.print(f"{row['method']}: a neighbour of server m learns {row['neighbour-learns']}")
    write_rows(out / "methods.csv", rows, console)


def failures(out: Path, console: Console) -> None:
    """Draw the MSD when 3 of 10 servers stop, beside a run that never had them."""
    kinds = [f"{how} {kind}" for how in ("drop", "rehome") for kind in ("lost", "never")]
    cases = list(itertools.product(("none", "hybrid", "masked"), kinds))
    found: dict[tuple[str, str], list[Simulation]] = {case: [] for case in cases}
    for seed in SEEDS:
        lost = removable(build_topology(ServerGraphConfig.from_settings(PAPER), seed), LOST)
        jobs = []
        for method, case in cases:
            how, kind = case.split()
            first = LOST_FROM if kind == "lost" else 1
            stops = ",".join(f"{server}:{first}" for server in lost)
            jobs.append({"method": method, "failures": stops, "on-server-loss": how})
        runs = of_seed([{**job, "rounds": ROUNDS} for job in jobs], seed)
        for key, run in zip(cases, runs, strict=True):
            found[key].append(run)
    rows: list[dict[str, Any]] = []
    table = Table(title=f"{LOST} of 10 servers stop at round {LOST_FROM}; rounds 1000-2000, dB")
    for column in ("method", "clients", "lost", "never there", "difference"):
        table.add_column(column)
    for method, how in itertools.product(("none", "hybrid", "masked"), ("drop", "rehome")):
        level = {
            kind: decibel(power([r.msd for r in found[method, f"{how} {kind}"]], slice(1000, None)))
            for kind in ("lost", "never")
        }
        apart = level["lost"] - level["never"]
        rows.append({"method": method, "on-server-loss": how, **level, "difference": apart})
        numbers = [f"{value:.2f}" for value in (*level.values(), apart)]
        table.add_row(method, how, *numbers)
    console.print(table)
    write_rows(out / "failures.csv", rows, console)
    lines = {
        f"{how}, {'lost at ' + str(LOST_FROM) if kind == 'lost' else 'never there'}": _curve(
            [run.msd for run in found["hybrid", f"{how} {kind}"]]
        )
        for how, kind in itertools.product(("drop", "rehome"), ("lost", "never"))
    }
    plot = curves(np.arange(1, ROUNDS + 1), lines, y_label="MSD, dB", title="hybrid")
    save_plot(mark(plot, LOST_FROM, text="3 servers lost"), out / "failures")


def removable(graph: Topology, count: int) -> tuple[int, ...]:
    """Return the first ``count`` servers whose loss leaves the others connected."""
    for lost in itertools.combinations(range(graph.servers), count):
        kept = np.delete(np.arange(graph.servers), lost)
        if len(components(graph.adjacency[np.ix_(kept, kept)])) == 1:
            return lost
    raise ValueError(f"no {count} servers of {graph.graph} can go without parting the others")
