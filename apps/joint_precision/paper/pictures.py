"""True graphs beside learned ones, as connectomes (Fig. 6): synthetic networks, and brains'.

A graph has as many edges as the truth (the mean over clients): denser than what an information
criterion would choose, as the paper's are. In ``fig6-abide`` the truth is what was learned of two
groups of scans, from which samples are then drawn: networks as brains have them, and still known.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from trellis.apps.common.seeds import generator
from trellis.apps.experiments.finding import Finding, Verdict, spread
from trellis.apps.experiments.making import Making
from trellis.apps.pages.brains.connectome import connectomes

from ..config import JointPrecisionConfig
from ..correlation import correlation, to_positive_semidefinite
from ..data import bent, synthetic_table, synthetic_truth
from ..problem import partial_correlations
from ..solver import solve_path
from .real_data import places_and_lobes, read_scans

Matrix = NDArray[np.float64]


class Drawn(NamedTuple):
    """Partial correlations (K, p, p), true and learned, and the lambda1 of the learned ones."""

    truth: Matrix
    learned: Matrix
    lambda1: float


def figure_6(making: Making) -> list[Finding]:
    """Draw the true and the learned graphs of three clients, by generator."""
    size = making["variables"]
    items = [(kind, seed) for kind in making["generators"] for seed in making.seeds]
    work = partial(_synthetic, variables=size, points=making["path"])
    found = dict(zip(items, making.on_all_cores(work, items), strict=True))
    first = making.seeds[0]
    groups = [f"subnetwork {k * 6 // size + 1}" for k in range(size)]
    for kind in making["generators"]:
        _draw(making, found[kind, first], "" if kind == "danaher" else kind, groups=groups)
    rows = [
        {"generator": kind, "seed": seed, **row}
        for (kind, seed), drawn in found.items()
        for row in _rows(drawn, ["client 1", "client 2", "client 3"])
    ]
    making.table(rows)
    return _findings(making, rows, "generator", making["generators"], "fig6")


def _synthetic(item: tuple[str, int], variables: int, points: int) -> Drawn:
    kind, seed = item
    config = JointPrecisionConfig(generator=kind, variables=variables)
    truth = partial_correlations(synthetic_truth(config, seed).precision)
    tables = [synthetic_table(config, seed, k).values for k in range(config.clients)]
    return _as_dense_as(tables, truth, points)


def figure_6_abide(making: Making) -> list[Finding]:
    """Draw graphs learned from brain scans, and what is learned from samples drawn from them."""
    scans = read_scans("abide_aal116.npz", "dx")
    count = making["variables"]
    places, lobes = places_and_lobes(scans.kept)
    samples = {name: table[:, :count] for name, table in scans.tables.items()}
    matrices = [_latent(table) for table in samples.values()]
    (solution,) = making.on_all_cores(_brains, [(np.array(matrices), making["lambda1"])], "brains")
    work = partial(
        _drawn_from, precision=solution, samples=making["samples"], points=making["path"]
    )
    found = making.on_all_cores(work, list(making.seeds))
    _draw(
        making,
        found[0],
        "",
        list(samples),
        places=places[:count],
        names=scans.regions[:count],
        groups=lobes[:count],
    )
    rows = [
        {"network": "ABIDE", "seed": seed, **row}
        for seed, drawn in zip(making.seeds, found, strict=True)
        for row in _rows(drawn, list(samples))
    ]
    making.table(rows)
    return _findings(making, rows, "network", ["ABIDE"], "fig6-abide")


def _brains(item: tuple[Matrix, float]) -> Matrix:
    matrices, lambda1 = item
    return solve_path(matrices, [(lambda1, lambda1)], tolerance=1e-6)[0].sparse


def _drawn_from(seed: int, precision: Matrix, samples: int, points: int) -> Drawn:
    """Return what is learned from nonparanormal samples of networks with these precisions."""
    tables = []
    for client, matrix in enumerate(precision):
        covariance = np.linalg.inv(matrix)
        rng = generator(seed, "samples", client)
        latent = rng.multivariate_normal(np.zeros(len(matrix)), covariance, samples)
        latent /= np.sqrt(np.diag(covariance))
        tables.append(bent(latent, generator(seed, "margins", client)))
    return _as_dense_as(tables, partial_correlations(precision), points)


def _latent(table: Matrix) -> Matrix:
    return to_positive_semidefinite(correlation(table, "kendall"))[0]


def _as_dense_as(tables: Sequence[Matrix], truth: Matrix, points: int) -> Drawn:
    """Learn jointly along a path; return the point with the truth's number of edges."""
    matrices = np.array([_latent(table) for table in tables])
    lambdas = np.geomspace(0.6, 0.01, points)
    path = solve_path(matrices, [(float(v), float(v)) for v in lambdas], tolerance=1e-3)
    wanted = np.count_nonzero(np.triu(truth, 1))
    edges = [np.count_nonzero(np.triu(point.sparse, 1)) for point in path]
    nearest = int(np.argmin(np.abs(np.array(edges) - wanted)))
    return Drawn(truth, partial_correlations(path[nearest].sparse), float(lambdas[nearest]))


def _draw(
    making: Making,
    drawn: Drawn,
    part: str,
    titles: Sequence[str] = ("client 1", "client 2", "client 3"),
    *,
    places: Matrix | None = None,
    names: Sequence[str] = (),
    groups: Sequence[str] | None = None,
) -> None:
    hits = (drawn.truth != 0.0) & (drawn.learned != 0.0)
    figure = connectomes(
        list(drawn.learned), list(titles), places, names, groups, truth=list(drawn.truth),
        common=hits, legend=("true and found", "missed (above) or false (below)"),
    )  # fmt: skip
    making.plot(figure, part)


def _rows(drawn: Drawn, clients: Sequence[str]) -> list[dict[str, Any]]:
    """Count edges of every client, and those that all clients have."""
    a, b = np.triu_indices(drawn.truth.shape[-1], 1)
    fact, graph = drawn.truth[:, a, b] != 0.0, drawn.learned[:, a, b] != 0.0
    rows = []
    for k, client in enumerate(clients):
        size = np.abs(drawn.truth[k, a, b])
        strong = size >= np.quantile(size[size > 0.0], 0.9)
        rows.append(
            {"client": client, "true": int(fact[k].sum()), "learned": int(graph[k].sum())}
            | {"hits": int((fact & graph)[k].sum())}
            | {"strongest-tenth-found": float(graph[k][strong].mean())}
            | {"common-true": int(fact.all(axis=0).sum())}
            | {"common-learned": int(graph.all(axis=0).sum())}
            | {"common-hits": int((fact.all(axis=0) & graph.all(axis=0)).sum())}
            | {"pairs": len(a), "lambda1": drawn.lambda1}
        )
    return rows


def _findings(
    making: Making, rows: Sequence[dict[str, Any]], key: str, kinds: Sequence[str], name: str
) -> list[Finding]:
    """Judge the two claims on every kind of network; the first is the paper's."""
    strong, shared, said = [], [], ([], [])  # type: ignore[var-annotated]
    for kind in kinds:
        own = [row for row in rows if row[key] == kind]
        by_seed = [
            [row for row in own if row["seed"] == seed]
            for seed in dict.fromkeys(r["seed"] for r in own)
        ]
        shares = np.array([np.mean([r["strongest-tenth-found"] for r in some]) for some in by_seed])
        overall = float(np.mean([row["hits"] / max(row["true"], 1) for row in own]))
        strong.append(shares.mean() > 0.5)
        said[0].append(f"{kind}: {spread(shares, 2)} of the strongest tenth, {overall:.2f} of all")
        hits, learned, true, pairs = (
            float(np.mean([some[0][column] for some in by_seed]))
            for column in ("common-hits", "common-learned", "common-true", "pairs")
        )
        # More of them right than if as many pairs were drawn at random.
        shared.append(hits > 2.0 * learned * true / pairs)
        said[1].append(
            f"{kind}: {hits:.0f} of the {true:.0f} shared edges among {learned:.0f} found"
        )
    whys = (
        "on that network most of the strong edges are missed too",
        "on that network shared edges are hardly more often right than random pairs",
    )
    claims = (f"{name}-strong", f"{name}-shared")
    found = []
    for claim, right, words, why in zip(claims, (strong, shared), said, whys, strict=True):
        seeds = len(making.seeds)
        if all(right):
            found.append(Finding(claim, "; ".join(words), "reproduced", seeds=seeds))
            continue
        wrong = [kind for kind, good in zip(kinds, right, strict=True) if not good]
        verdict: Verdict = "partly" if any(right) else "refuted"
        found.append(Finding(claim, "; ".join(words), verdict, f"{', '.join(wrong)}: {why}", seeds))
    return found
