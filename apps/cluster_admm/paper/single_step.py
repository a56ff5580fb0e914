"""The single-step mechanism (6)-(7) as printed, beside the multi-step one (8)-(10).

The paper derives (6)-(7) from the Lagrangian (3), and replaces them by (8)-(10) for using the last
round's models. Nobody runs them: they are here for what they converge to. With a_{s,q} the mean of
w_k - phi_k / rho over s's clients in q, N_s^- its neighbours, psi a dual for every server,

    w_s   = [ a_s - psi_s/2 + rho/2 sum_p (w_s - w_p) + tau mean of others ] / (1 + tau + rho n) (6)
    psi_s = psi_s + rho sum_p (w_p - w_s)                                                        (7)

over p in N_s^-, n of them. Where all servers agree on w, (6) says rho n_s w = -phi_s / rho - psi_s
/ 2 with phi_s the mean dual. The psi_s sum to zero, so the gradients do not: they sum to minus
rho^2 w times the number of links. Whatever (6)-(7) come to is shrunk to nearly zero; and the two
signs, of w_p in (6) and in (7), drive neighbours apart. With both turned,

    rho/2 sum_p (w_s + w_p) in (6),    psi_s = psi_s + rho sum_p (w_s - w_p) in (7),

what is left is mean_s phi_s = 0: the optimum of servers that count alike, on every connected graph.
``variants`` has all four. Clients' steps are the study's own.
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from trellis.apps.common.servers import build_topology
from trellis.apps.experiments.finding import Finding, spread
from trellis.apps.experiments.making import Making
from trellis.apps.pages.plots import curves

from ..config import ClusterAdmmConfig
from ..data import synthetic_truth
from ..simulate import Rounds, client_tables
from ..steps import primal_steps
from .convergence import EXACT, readings, relative, sizes
from .judging import judged, known
from .setting import Settings, Vector, config_of

PRINTED, REPAIRED, MULTI = "(6)-(7) as printed", "both signs turned", "(8)-(10)"
# Signs of w_p in (6), and of (7) as printed.
VARIANTS: dict[str, tuple[float, float]] = {
    PRINTED: (-1.0, 1.0),
    "sign in (6) turned": (1.0, 1.0),
    "sign in (7) turned": (-1.0, -1.0),
    REPAIRED: (1.0, -1.0),
}
_LOST = 1e6  # times the optimum's length: it has diverged
_EVERY = 5  # rounds between distances that are kept


def single_step(making: Making) -> list[Finding]:
    """Write where (6)-(7) end, as printed and with signs turned, by graph and rho."""
    graphs, rhos = list(making["graphs"]), list(map(float, making["rhos"]))
    names = [*VARIANTS, MULTI]
    base = sizes(making) | {"tau": 0.0, "rounds": making["rounds"]}
    cells = list(itertools.product(graphs, rhos, names))
    jobs = [
        ({**base, "topology": graph, "rho": rho}, name, seed)
        for graph, rho, name in cells
        for seed in making.seeds
    ]
    found = making.on_all_cores(_ends, jobs)
    count = len(making.seeds)
    runs = {cell: found[i * count : (i + 1) * count] for i, cell in enumerate(cells)}
    rows: list[dict[str, Any]] = []
    for (graph, rho, name), ended in runs.items():
        row: dict[str, Any] = {"graph": graph, "rho": rho, "mechanism": name}
        row["diverges, of seeds"] = sum(run["lost"] for run in ended)
        for what in ("nearest", "uniform", "length"):
            row[what] = float(np.mean([run[what] for run in ended]))
        rows.append(row)
    making.table(rows, show=f"After {making['rounds']} rounds at tau 0, {count} seeds")
    making.console.print(
        "nearest: relative distance from the nearest of four readings of the optimum; uniform: "
        "from that of servers that count alike; length: of the models, by that of the optimum"
    )
    shown = graphs[0], rhos[-1]
    lines, bands = {}, {}
    for name in names:
        ways = np.array([run["way"] for run in runs[(*shown, name)]])
        lines[name] = ways.mean(axis=0)
        bands[name] = ways.min(axis=0), ways.max(axis=0)
    x = np.arange(1, ways.shape[1] + 1) * _EVERY
    making.table(
        [
            {"iteration": int(n), **{name: float(lines[name][i]) for name in names}}
            for i, n in enumerate(x)
        ],
        "way",
    )
    plot = curves(
        x, lines, x_label="iteration", y_label="relative distance from the optimum", log_y=True,
        bands=bands, title=f"{shown[0]}, rho {rhos[-1]:g}",
    )  # fmt: skip
    making.plot(plot, "way")

    def of(name: str, what: str) -> list[float]:
        return [run[what] for key, ended in runs.items() if key[2] == name for run in ended]

    sparse = [
        run["nearest"] for key, ended in runs.items() for run in ended
        if key[2] == MULTI and key[0] != "complete"
    ]  # fmt: skip
    total = len(of(PRINTED, "lost"))
    pairs = zip(of(PRINTED, "nearest"), of(PRINTED, "lost"), strict=True)
    finite = [off for off, lost in pairs if not lost]
    others = f", the others end {min(finite):.2g} or more from every optimum" if finite else ""
    repaired = of(REPAIRED, "nearest")
    return [
        judged(
            "equations-6-7",
            f"as printed, at rho {rhos[0]:g} to {rhos[-1]:g} on {len(graphs)} graphs: "
            f"{sum(of(PRINTED, 'lost'))} of {total} runs diverge{others}; with both signs turned "
            f"{sum(of(REPAIRED, 'lost'))} of {total} diverge and the median distance is "
            f"{float(np.median(repaired)):.1g} ({min(repaired):.1g} to {max(repaired):.1g})",
            {"the optimum is reached as printed": known(max(of(PRINTED, "nearest")) <= EXACT)},
            count,
            "the signs of w_p in (6) and (7) drive neighbours apart, and the client terms lack rho",
        ),
        judged(
            "multi-step-better",
            f"(8)-(10) end {spread(sparse, 2)} from the nearest optimum on sparse graphs and "
            f"{sum(of(MULTI, 'lost'))} of {total} runs diverge; (6)-(7) with both signs turned end "
            f"{float(np.median(repaired)):.1g} from it (median)",
            {
                "(8)-(10) are better than (6)-(7) as printed": known(
                    max(of(MULTI, "nearest")) < min(of(PRINTED, "nearest"))
                ),
                "and than (6)-(7) with their signs put right": known(
                    float(np.median(sparse)) < float(np.median(repaired))
                ),
            },
            count,
            "with its signs put right the single step has what the multi-step one gives up: the "
            "optimum as its fixed point on every connected graph",
        ),
    ]


def _ends(job: tuple[Settings, str, int]) -> dict[str, Any]:
    """Return where one mechanism ends, and its way there."""
    changes, name, seed = job
    config = config_of(changes)
    optima = readings(config, seed)
    best = optima["uniform"]
    models, way = _multi(config, seed, best) if name == MULTI else _single(config, seed, best, name)
    lost = not np.isfinite(models).all() or relative(models, best) > _LOST
    way = np.minimum(np.nan_to_num(way, nan=_LOST, posinf=_LOST), _LOST)
    if lost:
        return {"lost": True, "nearest": _LOST, "uniform": _LOST, "length": _LOST, "way": way}
    length = float(np.sqrt(np.sum(models**2) / (len(models) * np.sum(best**2))))
    off = [relative(models, reading) for reading in optima.values()]
    return {
        "lost": False, "nearest": min(off), "uniform": relative(models, best), "length": length,
        "way": way,
    }  # fmt: skip


def _multi(config: ClusterAdmmConfig, seed: int, best: Vector) -> tuple[Vector, Vector]:
    run = Rounds(config, seed, synthetic_truth(config, seed).clusters, client_tables(config, seed))
    way = []
    for n in range(1, config.rounds + 1):
        run.step(n)
        if n % _EVERY == 0:
            way.append(relative(run.models, best))
    return run.models, np.array(way)


def _single(config: ClusterAdmmConfig, seed: int, best: Vector, name: str) -> tuple[Vector, Vector]:
    """Run (4), (6), (7), (5) with all clients; stop where it has surely diverged."""
    tables, groups = client_tables(config, seed), synthetic_truth(config, seed).clusters
    homes = np.arange(config.clients) * config.servers // config.clients
    graph = build_topology(config, seed).adjacency.astype(np.float64)
    per_server = 1.0 / np.bincount(homes, minlength=config.servers)[homes]  # 1 / |C_s| of (4)
    rho, tau, count = config.rho, config.tau, config.cluster_count
    steps = primal_steps("ridge", tables, config.ridge, per_server, rho)
    members = np.zeros((config.servers, count))
    np.add.at(members, (homes, groups), 1.0)
    w = np.zeros((config.servers, count, config.features))
    psi, phi = np.zeros_like(w), np.zeros((config.clients, config.features))
    way: list[float] = []
    with np.errstate(all="ignore"):
        for n in range(1, config.rounds + 1):
            own = steps.solve(phi + rho * w[homes, groups])  # (4)
            total = np.zeros_like(w)
            np.add.at(total, (homes, groups), own - phi / rho)
            mean = np.where(members[..., None] > 0, total / np.maximum(members, 1.0)[..., None], w)
            w, psi = server_step(w, psi, mean, graph, rho, tau, *VARIANTS[name])
            phi += rho * (w[homes, groups] - own)  # (5)
            if n % _EVERY == 0:
                way.append(relative(w, best))
                if not way[-1] < _LOST:
                    break
    left = config.rounds // _EVERY - len(way)
    return w, np.array(way + [_LOST] * left)


def server_step(
    w: Vector,
    psi: Vector,
    mean: Vector,
    graph: Vector,
    rho: float,
    tau: float,
    neighbours: float = -1.0,
    dual: float = 1.0,
) -> tuple[Vector, Vector]:
    """Return the next models and duals (S, Q, d) of all servers: (6), (7).

    Parameters
    ----------
    mean : (S, Q, d) of w_k - phi_k / rho over a server's clients in a cluster
    graph : (S, S) zeros and ones
    neighbours, dual : the signs of w_p in (6) and of (7); -1 and 1 as printed
    """
    degree = graph.sum(axis=1)[:, None, None]
    heard = np.einsum("sp,pqd->sqd", graph, w)
    total = mean - 0.5 * psi + 0.5 * rho * (degree * w + neighbours * heard)
    if tau > 0.0 and w.shape[1] > 1:
        around = (heard + w) / (degree + 1.0)  # the mean over N_s, which contains s
        total = total + tau / (w.shape[1] - 1) * (around.sum(axis=1, keepdims=True) - around)
    now = total / (1.0 + tau + rho * degree)  # (6)
    spoken = np.einsum("sp,pqd->sqd", graph, now)
    return now, psi + dual * rho * (spoken - degree * now)  # (7)
