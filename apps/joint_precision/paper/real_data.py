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
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console

from trellis.apps.common.results import RunResult
from trellis.apps.common.seeds import generator
from trellis.apps.experiments.datasets import dataset
from trellis.apps.experiments.finding import Finding
from trellis.apps.experiments.making import Making
from trellis.apps.experiments.sweep import run_on
from trellis.apps.pages.brains.connectome import connectomes

from ..config import JointPrecisionConfig
from .listening import quiet

STUDY = JointPrecisionConfig.study
LAGS = 20
EBIC_GAMMA = 0.5
WARNING = (
    "Rows are autocorrelated in time: {rows:,} rows count as about {effective:,.0f} independent "
    "samples ({share:.0%}), and persons differ besides. The edges describe these groups of scans; "
    "they are not a diagnosis."
)


@dataclass(frozen=True)
class Scans:
    """Standardised series (n_i, p) of every client, the regions' names and the dropped ones'.

    ``share`` is effective samples over rows, of every client; ``people`` has the series one by one;
    ``source`` is what `read_scans` was asked for.
    """

    tables: dict[str, NDArray[np.float64]]
    regions: list[str]
    kept: NDArray[np.bool_]
    dropped: list[str]
    share: dict[str, float]
    people: list[NDArray[np.float64]]
    source: tuple[str, str, int]


def read_scans(name: str, key: str, most: int = 0) -> Scans:
    """Return the series of one ABIDE file, a client for every value of ``key`` (dx or site).

    Of ``most`` rows a person where that is not 0, for a quick look.
    """
    with np.load(dataset("ABIDE") / name) as file:
        series, offsets, labels = file["ts"].astype(np.float64), file["offsets"], file[key]
        width = series.shape[1]
        names = [str(r) for r in file["roi"]] if "roi" in file else region_numbers(width)
    people = [series[a:b][: most or None] for a, b in itertools.pairwise(offsets)]
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
        (name, key, most),
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


@dataclass(frozen=True)
class Chosen:
    """The point of a path that the criterion chooses."""

    result: RunResult
    point: int
    lambda1: float
    lambda2: float


def chosen_path(
    scans: Scans, settings: Mapping[str, Any], making: Making
) -> tuple[Chosen, list[dict[str, Any]]]:
    """Run a path; return the point with the least effective eBIC, and the points as rows."""
    item = (scans.source, tuple(sorted(settings.items())))
    (path,) = making.on_all_cores(_path, [item], "path of lambda")
    share = [scans.share[str(client["name"])] for client in path.clients]
    criterion = effective_ebic(path, share)
    chosen = int(np.nanargmin(criterion))
    if chosen == len(criterion) - 1:
        making.console.print("[yellow]The criterion is smallest at the end of the path.[/]")
    rows = [
        {
            "lambda1": float(path.arrays["path_lambda1"][k]),
            "edges": float(np.mean(path.arrays["path_edges"][k])),
            "ebic": float(path.arrays["path_ebic"][k]),
            "effective-ebic": float(value),
        }
        for k, value in enumerate(criterion)
    ]
    lambdas = [float(path.arrays[f"path_{name}"][chosen]) for name in ("lambda1", "lambda2")]
    return Chosen(path, chosen, *lambdas), rows


def _path(item: tuple[tuple[str, str, int], tuple[tuple[str, Any], ...]]) -> RunResult:
    """Return what the criterion and the figures need of a run along a path."""
    source, settings = item
    scans = read_scans(*source)
    with quiet():
        found = run_on(STUDY, scans.tables, dict(settings), columns=scans.regions)
    needed = ("path_lambda1", "path_lambda2", "path_edges", "path_ebic", "path_support")
    slim = RunResult(found.study, found.seed, found.engine, dict(found.config))
    slim.arrays = {name: found.arrays[name] for name in needed}
    slim.clients, slim.variables = list(found.clients), list(found.variables)
    return slim


def say(scans: Scans, console: Console) -> None:
    """Say what the scans are worth, and which regions are left out."""
    rows = sum(len(table) for table in scans.tables.values())
    effective = sum(len(table) * scans.share[name] for name, table in scans.tables.items())
    share = effective / rows
    console.print(WARNING.format(rows=rows, effective=effective, share=share), soft_wrap=True)
    if scans.dropped:
        dropped = ", ".join(scans.dropped)
        console.print(
            f"dropped, without variance in at least one person: {dropped}", soft_wrap=True
        )


def places_and_lobes(kept: NDArray[np.bool_]) -> tuple[NDArray[np.float64], list[str]]:
    """Return where the kept AAL regions are (p, 3), in millimetres, and their lobes."""
    with np.load(dataset("ABIDE") / "abide_aal116.npz") as file:
        return file["mni"][kept].astype(np.float64), [str(lobe) for lobe in file["lobe"][kept]]


def abide(making: Making) -> list[Finding]:
    """Make fig9 under the name of its data; its claims are entered there."""
    figure_9(making)
    return []


def figure_9(making: Making) -> list[Finding]:
    """Write the brain graphs of people with autism and of controls, and where they differ."""
    scans = read_scans("abide_aal116.npz", "dx", making["most-rows"])
    places, lobes = places_and_lobes(scans.kept)
    say(scans, making.console)
    shared = {"tolerance": making["tolerance"], "gamma": EBIC_GAMMA}
    shared |= {"lambda1": making["lambda1"], "lambda2": making["lambda1"]}
    chosen, points = chosen_path(scans, {**shared, "path": making["points"]}, making)
    settings = {**shared, "lambda1": chosen.lambda1, "lambda2": chosen.lambda2}
    with making.console.status("at the chosen lambda"), quiet():
        result = run_on(
            STUDY, scans.tables, settings, columns=scans.regions, out=making.out / making.name
        )
    clients = [str(client["name"]) for client in result.clients]
    partial = result.arrays["partial"]
    graphs = result.arrays["sparse"] != 0.0
    common = np.all(graphs, axis=0)
    legend = ("common to both", "of one group only")
    figure = connectomes(
        list(partial), clients, places, scans.regions, lobes, common=common, legend=legend
    )
    making.plot(figure)
    alone = np.where(common, 0.0, partial)
    figure = connectomes(list(alone), [f"{c} only" for c in clients], places, scans.regions, lobes)
    making.plot(figure, "differences")
    rows = edge_rows(partial, graphs, clients, scans.regions, lobes)
    making.table(rows, "edges")
    making.table(points, "path")
    held = [
        {"edges": name, "number": len(mine)}
        | {"strongest": "; ".join(f"{row['region-a']} - {row['region-b']}" for row in mine[:3])}
        for name in ("common", *(f"{client} only" for client in clients))
        for mine in [[row for row in rows if row["held-by"] == name]]
    ]
    title = f"ABIDE, AAL, {len(scans.regions)} regions; lambda1 = {settings['lambda1']:.3g}"
    making.table(held, "held", show=title)
    rng = generator(1, "dealt")
    orders = [rng.permutation(len(scans.people)) for _ in range(making["deals"])]
    items = [(scans.source, order, tuple(sorted(settings.items()))) for order in orders]
    dealt = making.on_all_cores(_dealt, items, "persons dealt at random")
    own = int(np.sum(graphs[:, *np.triu_indices(len(common), 1)].sum(axis=0) == 1))
    making.table(
        [{"groups": "autism and control", "edges-of-one": own}]
        + [{"groups": f"random {k + 1}", "edges-of-one": count} for k, count in enumerate(dealt)],
        "dealt",
    )
    return [_mirror(rows, scans.regions), _differences(own, dealt)]


def _mirror(rows: Sequence[Mapping[str, Any]], regions: Sequence[str]) -> Finding:
    """Count edges that join a region to its mirror image on the other side."""
    pairs = len(regions) * (len(regions) - 1) // 2
    mirrored = [_is_mirror(row["region-a"], row["region-b"]) for row in rows]
    possible = sum(f"{region[:-2]}_R" in regions for region in regions if region.endswith("_L"))
    strongest, count = sum(mirrored[:20]), sum(mirrored)
    chance = possible * len(rows) / pairs
    found = (
        f"{count} of {possible} regions with a mirror image are joined to it, {strongest} of the "
        f"20 strongest edges are such (as many edges at random would join {chance:.0f}); ABIDE in "
        "place of the Parkinson data"
    )
    if count > 2.0 * chance:
        return Finding("fig9-mirror", found, "reproduced")
    return Finding("fig9-mirror", found, "refuted", "that is what edges at random would give")


def _is_mirror(a: str, b: str) -> bool:
    """Return whether two regions of AAL are the left and the right one of a pair."""
    return a[:-2] == b[:-2] and {a[-2:], b[-2:]} == {"_L", "_R"}


def _differences(own: int, dealt: Sequence[int]) -> Finding:
    """See whether groups by diagnosis differ in more edges than groups at random."""
    reached = sum(count >= own for count in dealt)
    p = (reached + 1) / (len(dealt) + 1)
    found = (
        f"{own} edges belong to one group only; the same persons dealt into two groups at random, "
        f"{len(dealt)} times, give {min(dealt)} to {max(dealt)} (p = {p:.2f}); ABIDE, autism, in "
        "place of the Parkinson data"
    )
    if p <= 0.05:
        return Finding("fig9-differences", found, "reproduced")
    why = "there are such edges, and as many between groups made at random"
    return Finding("fig9-differences", found, "partly", why)


def _dealt(
    item: tuple[tuple[str, str, int], NDArray[np.intp], tuple[tuple[str, Any], ...]],
) -> int:
    """Return the edges of one group only, where persons are dealt into two at random."""
    source, order, settings = item
    scans = read_scans(*source)
    half = len(order) // 2
    tables = {
        name: np.vstack([scans.people[k] for k in part])
        for name, part in (("first", order[:half]), ("second", order[half:]))
    }
    with quiet():
        graphs = run_on(STUDY, tables, dict(settings)).arrays["sparse"] != 0.0
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
