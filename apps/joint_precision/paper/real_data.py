"""Brain graphs of ABIDE, in place of the paper's Parkinson data (Fig. 9), which is not public.

Rows are scans of one person after another, each region standardised within each person. They are
autocorrelated in time, so n rows tell less than n independent samples would. Bartlett's formula for
a correlation of two series with equal autocorrelations r_k gives an effective n / (1 + 2 sum_k
r_k^2); lambda is chosen by an extended BIC in which that stands for n.

The data sets are not part of the project. What comes out describes small groups; it is no diagnosis
of anybody.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from apps.common.results import RunResult
from apps.common.seeds import generator
from apps.experiments.datasets import dataset
from apps.experiments.sweep import run_on, save_plot, write_rows
from apps.pages.brains.connectome import connectomes
from apps.pages.plots import curves

from ..config import JointPrecisionConfig
from .timing import quiet

STUDY = JointPrecisionConfig.study
LAGS = 20
EBIC_GAMMA = 0.5
SETTINGS: dict[str, Any] = {
    "tolerance": 1e-3,
    "gamma": EBIC_GAMMA,
    "lambda1": 0.015,
    "lambda2": 0.015,
}
POINTS = 20
DEALS = 19
# Ten clients of 200 regions: fewer points, and a gap of 2e-5 of the loss.
SITE_SETTINGS: dict[str, Any] = {"path": 8, "lambda1": 0.02, "lambda2": 0.045, "tolerance": 0.01}
WARNING = (
    "Rows are autocorrelated in time: {rows:,} rows count as about {effective:,.0f} independent "
    "samples ({share:.0%}), and persons differ besides. The edges describe these groups of scans; "
    "they are not a diagnosis."
)


@dataclass(frozen=True)
class Scans:
    """Standardised series (n_i, p) of every client, the regions' names and the dropped ones'.

    ``share`` is effective samples over rows, of every client; ``people`` has the series one by one.
    """

    tables: dict[str, NDArray[np.float64]]
    regions: list[str]
    kept: NDArray[np.bool_]
    dropped: list[str]
    share: dict[str, float]
    people: list[NDArray[np.float64]]


def read_scans(name: str, key: str) -> Scans:
    """Return the series of one ABIDE file, a client for every value of ``key`` (dx or site)."""
    with np.load(dataset("ABIDE") / name) as file:
        series, offsets, labels = file["ts"].astype(np.float64), file["offsets"], file[key]
        width = series.shape[1]
        names = [str(r) for r in file["roi"]] if "roi" in file else region_numbers(width)
    people = [series[a:b] for a, b in itertools.pairwise(offsets)]
    kept = np.all([np.ptp(person, axis=0) > 0.0 for person in people], axis=0)
    clients: dict[str, list[NDArray[np.float64]]] = {}
    for person, label in zip(people, labels, strict=True):
        own = person[:, kept]
        standard = (own - own.mean(axis=0)) / own.std(axis=0)
        client = {"1": "autism", "0": "control"}.get(str(label), str(label))
        clients.setdefault(client, []).append(standard)
    share = {
        client: float(np.average([effective_share(x) for x in own], weights=[len(x) for x in own]))
        for client, own in clients.items()
    }
    return Scans(
        {client: np.vstack(own) for client, own in clients.items()},
        [n for n, keep in zip(names, kept, strict=True) if keep],
        kept,
        [n for n, keep in zip(names, kept, strict=True) if not keep],
        share,
        [person for own in clients.values() for person in own],
    )


def region_numbers(count: int) -> list[str]:
    """Return names of regions that have none."""
    return [f"region {k + 1:03d}" for k in range(count)]


def effective_share(series: NDArray[np.float64]) -> float:
    """Return 1 / (1 + 2 sum r_k^2) of standardised ``series`` (n, p), mean over its columns."""
    n = len(series)
    lags = range(1, min(LAGS, n - 1) + 1)
    # White noise has r_k^2 = 1/n on average, which is not autocorrelation.
    squares = [np.mean(series[k:] * series[:-k], axis=0) ** 2 - 1.0 / n for k in lags]
    return float(np.mean(1.0 / (1.0 + 2.0 * np.maximum(np.sum(squares, axis=0), 0.0))))


def effective_ebic(result: RunResult, share: Sequence[float]) -> NDArray[np.float64]:
    """Return the extended BIC (L,) of a path with n_i replaced by share_i n_i.

    The run's criterion is sum_i n_i loss_i + E_i (log n_i + 4 gamma log p); the losses are not
    kept, so all clients' are weighed by one share, the mean by rows.
    """
    counts = np.array([client["count"] for client in result.clients], dtype=np.float64)
    edges = result.arrays["path_edges"].astype(np.float64)
    loss = result.arrays["path_ebic"] - edges @ (np.log(counts) + _per_edge(result))
    fewer = counts * np.asarray(share)
    penalty: NDArray[np.float64] = edges @ (np.log(fewer) + _per_edge(result))
    return loss * fewer.sum() / counts.sum() + penalty


def _per_edge(result: RunResult) -> float:
    return 4.0 * float(result.config["gamma"]) * float(np.log(len(result.variables)))


def chosen_path(
    scans: Scans, settings: Mapping[str, Any], console: Console
) -> tuple[RunResult, int, list[dict[str, Any]]]:
    """Run a path; return it, the point with the least effective eBIC, and the points as rows."""
    with console.status(f"path of lambda, {len(scans.tables)} clients"), quiet():
        path = run_on(STUDY, scans.tables, settings, columns=scans.regions)
    share = [scans.share[str(client["name"])] for client in path.clients]
    criterion = effective_ebic(path, share)
    chosen = int(np.nanargmin(criterion))
    if chosen == len(criterion) - 1:
        console.print("[yellow]The criterion is smallest at the end of the path.[/]")
    rows = [
        {
            "lambda1": float(path.arrays["path_lambda1"][k]),
            "edges": float(np.mean(path.arrays["path_edges"][k])),
            "ebic": float(path.arrays["path_ebic"][k]),
            "effective-ebic": float(value),
        }
        for k, value in enumerate(criterion)
    ]
    return path, chosen, rows


def _say(scans: Scans, console: Console) -> None:
    rows = sum(len(table) for table in scans.tables.values())
    effective = sum(len(table) * scans.share[name] for name, table in scans.tables.items())
    share = effective / rows
    console.print(WARNING.format(rows=rows, effective=effective, share=share), soft_wrap=True)
    if scans.dropped:
        dropped = ", ".join(scans.dropped)
        console.print(
            f"dropped, without variance in at least one person: {dropped}", soft_wrap=True
        )


def figure_9(out: Path, console: Console) -> None:
    """Write the brain graphs of people with autism and of controls, and where they differ."""
    scans = read_scans("abide_aal116.npz", "dx")
    with np.load(dataset("ABIDE") / "abide_aal116.npz") as file:
        places = file["mni"][scans.kept].astype(np.float64)
        lobes = [str(lobe) for lobe in file["lobe"][scans.kept]]
    _say(scans, console)
    path, chosen, points = chosen_path(scans, {**SETTINGS, "path": POINTS}, console)
    settings = {**SETTINGS, **_lambdas(path, chosen)}
    with console.status("at the chosen lambda"), quiet():
        result = run_on(STUDY, scans.tables, settings, columns=scans.regions, out=out / "fig9")
    clients = [str(client["name"]) for client in result.clients]
    partial = result.arrays["partial"]
    graphs = result.arrays["sparse"] != 0.0
    common = np.all(graphs, axis=0)
    legend = ("common to both", "of one group only")
    figure = connectomes(
        list(partial), clients, places, scans.regions, lobes, common=common, legend=legend
    )
    save_plot(figure, out / "fig9")
    alone = np.where(common, 0.0, partial)
    figure = connectomes(list(alone), [f"{c} only" for c in clients], places, scans.regions, lobes)
    save_plot(figure, out / "fig9-differences")
    rows = edge_rows(partial, graphs, clients, scans.regions, lobes)
    write_rows(out / "fig9-edges.csv", rows, console)
    write_rows(out / "fig9-path.csv", points, console)
    table = Table(
        title=f"ABIDE, AAL, {len(scans.regions)} regions; lambda1 = {settings['lambda1']:.3g}"
    )
    for column in ("edges", "number", "strongest"):
        table.add_column(column)
    for name in ("common", *(f"{client} only" for client in clients)):
        mine = [row for row in rows if row["held-by"] == name]
        best = [f"{row['region-a']} - {row['region-b']}" for row in mine[:3]]
        table.add_row(name, str(len(mine)), "; ".join(best))
    console.print(table)
    rng = generator(1, "dealt")
    with console.status("persons dealt at random"), quiet():
        dealt = [_dealt(scans, rng.permutation(len(scans.people)), settings) for _ in range(DEALS)]
    own = int(np.sum(graphs[:, *np.triu_indices(len(common), 1)].sum(axis=0) == 1))
    reached = sum(count >= own for count in dealt)
    console.print(
        f"{own} edges belong to one group only. With the same persons dealt into two groups at "
        f"random, {DEALS} times, it is {min(dealt)} to {max(dealt)}, and not fewer in {reached} "
        f"(p = {(reached + 1) / (DEALS + 1):.2f} for diagnosis making no difference)."
    )
    write_rows(
        out / "fig9-dealt.csv",
        [{"groups": "autism and control", "edges-of-one": own}]
        + [{"groups": f"random {k + 1}", "edges-of-one": count} for k, count in enumerate(dealt)],
        console,
    )
    homologous = sum(row["region-a"][:-1] == row["region-b"][:-1] for row in rows[:20])
    console.print(f"{homologous} of the 20 strongest edges join a region to its mirror image")


def _lambdas(path: RunResult, point: int) -> dict[str, float]:
    return {name: float(path.arrays[f"path_{name}"][point]) for name in ("lambda1", "lambda2")}


def _dealt(scans: Scans, order: NDArray[np.intp], settings: Mapping[str, Any]) -> int:
    """Return the edges of one group only, where persons are dealt into two at random."""
    half = len(order) // 2
    tables = {
        name: np.vstack([scans.people[k] for k in part])
        for name, part in (("first", order[:half]), ("second", order[half:]))
    }
    graphs = run_on(STUDY, tables, settings).arrays["sparse"] != 0.0
    return int(np.sum(np.triu(graphs[0] ^ graphs[1], 1)))


def edge_rows(
    partial: NDArray[np.float64],
    graphs: NDArray[np.bool_],
    clients: Sequence[str],
    regions: Sequence[str],
    lobes: Sequence[str],
) -> list[dict[str, Any]]:
    """Return every edge of two clients with who holds it, the strongest first."""
    a, b = np.triu_indices(len(regions), 1)
    rows = []
    for i, j in zip(a.tolist(), b.tolist(), strict=True):
        held = [client for client, graph in zip(clients, graphs, strict=True) if graph[i, j]]
        if not held:
            continue
        row: dict[str, Any] = {"region-a": regions[i], "region-b": regions[j]}
        row |= {"lobe-a": lobes[i], "lobe-b": lobes[j]}
        row["held-by"] = "common" if len(held) == len(clients) else f"{' and '.join(held)} only"
        row |= {c: float(matrix[i, j]) for c, matrix in zip(clients, partial, strict=True)}
        rows.append(row)
    return sorted(rows, key=lambda row: -max(abs(row[client]) for client in clients))


def abide_sites(out: Path, console: Console) -> None:
    """Write the joint graphs of ten sites as clients, and how many sites share each edge."""
    scans = read_scans("abide_cc200.npz", "site")
    _say(scans, console)
    path, chosen, points = chosen_path(scans, {**SETTINGS, **SITE_SETTINGS}, console)
    clients = [str(client["name"]) for client in path.clients]
    pairs = len(scans.regions) * (len(scans.regions) - 1) // 2
    bits = np.unpackbits(path.arrays["path_support"][chosen], axis=-1, count=pairs)
    edges = bits.astype(bool)  # (K, pairs)
    counts = np.bincount(edges.sum(axis=0), minlength=len(clients) + 1)[1:]
    where = f"lambda1 = {points[chosen]['lambda1']:.3g}"
    table = Table(title=f"Edges by how many of {len(clients)} sites hold them; {where}")
    table.add_column("sites")
    table.add_column("edges")
    for k, count in enumerate(counts):
        table.add_row(str(k + 1), str(count))
    console.print(table)
    rows = [{"sites": k + 1, "edges": int(count)} for k, count in enumerate(counts)]
    write_rows(out / "abide-sites-edges.csv", rows, console)
    write_rows(out / "abide-sites-path.csv", points, console)
    overlap = edges.astype(np.int64) @ edges.T.astype(np.int64)
    shared = [
        {"site": client, **dict(zip(clients, row, strict=True))}
        for client, row in zip(clients, overlap.tolist(), strict=True)
    ]
    write_rows(out / "abide-sites-overlap.csv", shared, console)
    lines = {"edges": counts}
    sizes = range(1, len(clients) + 1)
    plot = curves(sizes, lines, x_label="sites that hold an edge", y_label="edges")
    save_plot(plot, out / "abide-sites-edges")
