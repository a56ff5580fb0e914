"""Theorem 1, checked by numbers: where (8)-(10) end at tau = 0, and how fast they get there.

It says that the servers' models come to the optimal solution of (2), in linear time, where the f_k
are convex and smooth. What "the optimal solution" is depends on how servers, clients and the
regulariser are counted, and the paper counts them in more than one way. `readings` has four, and
models are compared with the nearest: a theorem that fails there fails for all.

    (1)      clients alike, R once
    (2)      clients alike, R once for every server
    (4)      clients alike, R by the clients' shares 1 / |C_s|
    uniform  servers alike, R by the same shares

(8)-(10) end at w = M (w - g(w) / rho) (`strategies.cluster_admm.mixing`), which is the last of
these where all servers are neighbours and none of them on other graphs. The rate is that of the way
to where the models end.
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from trellis.apps.experiments.finding import Finding, spread, standard_error
from trellis.apps.experiments.making import Making
from trellis.apps.pages.plots import curves
from trellis.privacy.accounting.zcdp import decaying_total

from ..config import ClusterAdmmConfig
from ..data import synthetic_truth
from ..problem import optimum, server_uniform_optimum
from ..simulate import Rounds, client_tables
from .judging import judged, known
from .setting import NO_LIMIT, Settings, Vector, config_of

EXACT = 1e-6  # relative: an optimum that is reached
STRAIGHT = 0.98  # R squared of a line through log distances: linear convergence
_FLOOR = 1e-9  # relative distances below are rounding
MARK = 10  # iterations between distances that are kept


def theorem_1(making: Making) -> list[Finding]:
    """Write where (8)-(10) end by graph, and how fast they get there."""
    graphs, rounds = list(making["graphs"]), making["rounds"]
    base = sizes(making) | {"tau": 0.0, "rounds": rounds}
    noisy = {"privacy": "paper", "epsilon": NO_LIMIT, "topology": "random:3"}
    noisy["rounds"] = making["noisy-rounds"]
    jobs = [({**base, "topology": graph}, seed) for graph in graphs for seed in making.seeds]
    jobs += [({**base, **noisy}, seed) for seed in making.seeds]
    found = making.on_all_cores(_where_it_ends, jobs)
    count = len(making.seeds)
    by_graph = {graph: found[i * count : (i + 1) * count] for i, graph in enumerate(graphs)}
    private = found[len(graphs) * count :]
    rows = []
    for graph, runs in by_graph.items():
        row: dict[str, Any] = {"graph": graph}
        for name in runs[0]["off"]:
            row[f"from {name}"] = float(np.mean([run["off"][name] for run in runs]))
        row["from the nearest"] = float(np.mean([min(run["off"].values()) for run in runs]))
        row |= {"factor a round": float(np.mean([run["factor"] for run in runs]))}
        rows.append(row | {"R squared of a line": float(np.min([run["line"] for run in runs]))})
    making.table(rows, show=f"Relative distance of where (8)-(10) end, {count} seeds")
    lines, bands = {}, {}
    for name, runs in {**by_graph, "random:3, noise": private}.items():
        ways = np.array([run["way"] for run in runs])
        lines[name] = ways.mean(axis=0)
        error = standard_error(ways, axis=0)
        bands[name] = lines[name] - error, lines[name] + error
    x = {name: np.arange(1, len(line) + 1) * MARK for name, line in lines.items()}
    making.table(
        [
            {"graph": name, "iteration": int(n), "relative distance": float(value)}
            for name, line in lines.items()
            for n, value in zip(x[name], line, strict=True)
        ],
        "rate",
    )
    label = "relative distance from where it ends"
    plot = curves(x, lines, x_label="iteration", y_label=label, log_y=True, bands=bands)
    making.plot(plot, "rate")
    flat = slow_factor(making["slow-rounds"])
    nearest = {
        graph: [min(run["off"].values()) for run in runs] for graph, runs in by_graph.items()
    }
    factors = [run["factor"] for runs in by_graph.values() for run in runs]
    straight = min(run["line"] for runs in by_graph.values() for run in runs)
    return [
        judged(
            "theorem1-optimum",
            "relative distance from the nearest of four readings of the optimum: "
            + "; ".join(f"{graph} {spread(values, 2)}" for graph, values in nearest.items()),
            {
                "the optimum is reached on every connected graph": known(
                    all(max(values) <= EXACT for values in nearest.values())
                )
            },
            count,
            "means over neighbours (9) weigh servers by their neighbours; only where all are "
            "neighbours is the optimum of servers that count alike reached. mixing=exact reaches "
            "that of (1) on every graph",
        ),
        judged(
            "theorem1-linear",
            f"ridge: the distance falls by a factor {min(factors):.3f} to {max(factors):.3f} a "
            f"round, R squared of a line {straight:.3f} at least; a convex and smooth loss that is "
            f"flat at its optimum (a fourth power): factor {flat:.5f} after "
            f"{making['slow-rounds']:,} rounds",
            {
                "linear for ridge, whose f_k are strongly convex": known(
                    straight >= STRAIGHT and max(factors) < 1.0
                ),
                "linear for all that Assumption 1 allows": known(flat < 1.0 - 1e-3),
            },
            count,
            "convex and smooth is not enough for a linear rate; strong convexity is",
        ),
        judged(
            "theorem1-private",
            "with noise whose variance falls by 0.99 a round (its deviation by 0.995): factor "
            f"{spread([run['factor'] for run in private], 4)} a round to where it ends without "
            f"noise, R squared of a line {min(run['line'] for run in private):.3f}; by then a "
            f"client has spent {private[0]['spent']:.3g}-zCDP",
            {
                "linear with noise": known(min(run["line"] for run in private) >= 0.9),
                "to the optimum": known(
                    all(min(run["off"].values()) <= EXACT for run in by_graph["random:3"])
                ),
            },
            count,
            "it ends where it ends without noise, which is not the optimum, and the privacy loss "
            "grows without bound on the way",
        ),
    ]


def readings(config: ClusterAdmmConfig, seed: int) -> dict[str, Vector]:
    """Return the clusters' optima (Q, d) at tau = 0 of ridge regression, in four readings."""
    tables, groups = client_tables(config, seed), synthetic_truth(config, seed).clusters
    homes = np.arange(config.clients) * config.servers // config.clients
    sizes = np.bincount(homes, minlength=config.servers)
    found: dict[str, list[Vector]] = {"(1)": [], "(2)": [], "(4)": [], "uniform": []}
    for q in range(config.cluster_count):
        parts = [
            [tables[k] for k in np.flatnonzero((homes == s) & (groups == q)).tolist()]
            for s in range(config.servers)
        ]
        mine = list(itertools.chain(*parts))
        shares = float(np.sum(1.0 / sizes[homes[groups == q]]))
        for name, weight in (("(1)", 1.0), ("(2)", float(config.servers)), ("(4)", shares)):
            found[name].append(optimum("ridge", mine, weight * config.ridge))
        uniform = server_uniform_optimum("ridge", parts, config.ridge, sizes.tolist())
        found["uniform"].append(uniform)
    return {name: np.array(models) for name, models in found.items()}


def relative(models: Vector, truth: Vector) -> float:
    """Return |models - truth| / |truth| over all servers; ``truth`` (Q, d) is the same for all."""
    return float(np.sqrt(np.sum((models - truth) ** 2) / (len(models) * np.sum(truth**2))))


def slow_factor(rounds: int) -> float:
    """Return by what (8)-(10) near their optimum in the last round, for f(w) = |w - 1|^4 / 4.

    One server with one client, where (8)-(10) and (4)-(5) are w <- argmin f(u) + |u - w|^2 / 2.
    (Further than 1 from its optimum f goes on in a line, and is smooth everywhere.)
    """
    away = 1.0
    before = away
    for _ in range(rounds):
        before, root = away, away
        for _ in range(60):  # u^3 + u = away, by Newton's method
            root -= (root**3 + root - away) / (3.0 * root**2 + 1.0)
        away = root
    return away / before


def rate(distances: Vector) -> tuple[float, float]:
    """Return the factor a round of relative distances every `MARK` rounds, and R squared."""
    kept = np.flatnonzero(distances > _FLOOR)
    kept = kept[len(kept) // 10 :]  # the start is not yet of one rate
    x, y = kept.astype(np.float64), np.log(distances[kept])
    if len(kept) < 3:
        return 0.0, 1.0
    slope, height = np.polyfit(x, y, 1)
    left = float(np.sum((y - slope * x - height) ** 2))
    total = float(np.sum((y - y.mean()) ** 2))
    return float(np.exp(slope / MARK)), 1.0 - left / total if total > 0.0 else 1.0


def _where_it_ends(job: tuple[Settings, int]) -> dict[str, Any]:
    """Return distances from every reading, and the way to the end of a run without noise."""
    changes, seed = job
    config = config_of(changes)
    noisy = config.privacy != "none"
    marks = _models(config, seed)
    end = marks[-1]
    if noisy:
        quiet = config.as_method(config.method, rounds=max(config.rounds, 600))
        end = _models(quiet, seed)[-1]
    scale = float(np.linalg.norm(end))
    way = np.array([float(np.linalg.norm(models - end)) / scale for models in marks])
    way = way if noisy else way[: 3 * len(way) // 4]  # the last are near the end by being it
    factor, line = rate(way)
    spent = decaying_total(config.phi0, config.zeta, config.rounds) if noisy else 0.0
    off = {name: relative(end, best) for name, best in readings(config, seed).items()}
    return {"off": off, "way": way, "factor": factor, "line": line, "spent": spent}


def _models(config: ClusterAdmmConfig, seed: int) -> list[Vector]:
    """Return the servers' models every `MARK` rounds."""
    run = Rounds(config, seed, synthetic_truth(config, seed).clusters, client_tables(config, seed))
    found = []
    for n in range(1, config.rounds + 1):
        run.step(n)
        if n % MARK == 0:
            found.append(run.models.copy())
    return found


def mixing(making: Making) -> list[Finding]:
    """Write how far both mixings end from the optimum of (1) at tau = 0, by graph and rho."""
    graphs, rhos, rounds = (
        list(making["graphs"]),
        list(map(float, making["rhos"])),
        making["rounds"],
    )
    cells = list(itertools.product(graphs, rhos, ("paper", "exact")))
    jobs = [
        (sizes(making) | {"topology": g, "rho": r, "mixing": how, "tau": 0.0, "rounds": rounds}, s)
        for g, r, how in cells
        for s in making.seeds
    ]
    found = making.on_all_cores(_distances, jobs)
    count = len(making.seeds)
    runs = {cell: found[i * count : (i + 1) * count] for i, cell in enumerate(cells)}
    rows: list[dict[str, Any]] = []
    for graph, rho in itertools.product(graphs, rhos):
        off = {how: [run["(1)"] for run in runs[graph, rho, how]] for how in ("paper", "exact")}
        row: dict[str, Any] = {"graph": graph, "rho": rho}
        row |= {how: float(np.mean(values)) for how, values in off.items()}
        uniform = [run["uniform"] for run in runs[graph, rho, "paper"]]
        rows.append({**row, "paper, from server-uniform": float(np.mean(uniform))})
    title = f"Relative distance of servers' models from the optimum of (1), {rounds} rounds"
    making.table(rows, show=title)
    making.console.print(
        "from server-uniform: from the optimum that weighs servers, not clients, alike, which "
        "paper mixing reaches where all servers are neighbours"
    )
    for how in ("paper", "exact"):
        lines, bands = {}, {}
        for graph in graphs:
            values = np.array([[run["(1)"] for run in runs[graph, rho, how]] for rho in rhos])
            lines[graph] = values.mean(axis=1)
            bands[graph] = values.min(axis=1), values.max(axis=1)
        plot = curves(
            rhos, lines, x_label="rho, the penalty parameter", title=f"{how} mixing", log_x=True,
            y_label="relative distance from the optimum of (1)", log_y=True, bands=bands,
        )  # fmt: skip
        making.plot(plot, how)
    slow = 10.0  # beyond, these rounds are not enough
    exact = max(
        run["(1)"] for (_, rho, how), all_ in runs.items() for run in all_
        if how == "exact" and rho <= slow
    )  # fmt: skip
    return [
        judged(
            "mixing-exact",
            f"mixing=exact is at most {exact:.1g} from the optimum of (1) after {rounds:,} rounds, "
            f"for rho up to {slow:g} on all graphs",
            {"1e-7 at most": known(exact <= 1e-7)},
            count,
            "so many rounds are not enough at this size",
        )
    ]


def _distances(job: tuple[Settings, int]) -> dict[str, float]:
    changes, seed = job
    config = config_of(changes)
    run = Rounds(config, seed, synthetic_truth(config, seed).clusters, client_tables(config, seed))
    for n in range(1, config.rounds + 1):
        run.step(n)
    return {name: relative(run.models, best) for name, best in readings(config, seed).items()}


def sizes(making: Making) -> dict[str, Any]:
    """Return what a smaller variant of a figure changes."""
    return {name: making[name] for name in ("clients", "features")}
