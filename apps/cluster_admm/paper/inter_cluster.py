"""Theorem 2, checked by numbers: how far learning between clusters takes the models.

It bounds how far tau takes a server's model from what it would be without,

    |wbar_n - w_n|^2 <= (1 - prod_{i <= n} (1 - tau_i)) eta,   eta = max_{q,r} |w*_q - w*_r|^2  (28)

in expectation over the noise of data and privacy, for rho large enough. (The sum in (28) is that
product.) The worst ratio is the largest of left to right over iterations, servers and clusters,
both sides means over seeds. Both sides have the same draws. The noise of (12) falls with rho, as
the sensitivity (43) does: what is large enough for the data is so for the noise.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np

from trellis.apps.experiments.finding import Finding
from trellis.apps.experiments.making import Making
from trellis.apps.pages.plots import curves

from ..config import ClusterAdmmConfig
from ..data import synthetic_truth
from ..simulate import Rounds, client_tables
from .convergence import readings, sizes
from .judging import judged, known
from .setting import NO_LIMIT, Settings, Vector, config_of

# Sequences of tau by iteration; the last is the Corollary's: one iteration of learning between
# clusters after many without.
LAST = "only the last"
Sequence = Callable[[int, int], float]
TAUS: dict[str, Sequence] = {
    "tau 0.4": lambda n, last: 0.4,
    "tau 0.1": lambda n, last: 0.1,
    "tau 0.4 x 0.98^n": lambda n, last: 0.4 * 0.98**n,
    LAST: lambda n, last: 0.4 if n == last else 0.0,
}


def theorem_2(making: Making) -> list[Finding]:
    """Write how far tau takes the models, beside the bound (28)."""
    rhos, rounds, seeds = list(map(float, making["rhos"])), making["rounds"], making.seeds
    base = sizes(making) | {"rounds": rounds, "epsilon": NO_LIMIT}
    cells = list(itertools.product(("none", "paper"), ("zero", "optimum"), rhos, TAUS))
    jobs = [
        ({**base, "privacy": noise, "rho": rho}, start, name, seed)
        for noise, start, rho, name in cells
        for seed in seeds
    ]
    found = making.on_all_cores(_impact, jobs)
    count = len(seeds)
    rows: list[dict[str, Any]] = []
    worst: dict[tuple[str, str, float, str], float] = {}
    by_seed: dict[tuple[str, str, float, str], Vector] = {}
    for i, cell in enumerate(cells):
        each = found[i * count : (i + 1) * count]
        etas = np.array([eta for _, eta in each])
        runs = np.array([apart for apart, _ in each])  # (seeds, T, S, Q)
        bound = np.array(shares(TAUS[cell[-1]], rounds))
        told = bound > 0.0
        ratios = runs.max(axis=(2, 3))[:, told] / bound[told] / etas[:, None]
        by_seed[cell] = ratios.max(axis=1)
        mean = runs.mean(axis=0) / etas.mean()  # in units of eta
        worst[cell] = float(np.max(mean[told].max(axis=(1, 2)) / bound[told]))
        row = dict(zip(("noise", "start", "rho", "tau"), cell, strict=True))
        row |= {"moved by, of eta": float(mean[-1].max()), "bound, of eta": float(bound[-1])}
        rows.append({**row, "worst ratio": worst[cell]})
    making.table(rows)
    summary = [
        {"noise": noise, "start": start, "rho": rho}
        | {name: worst[noise, start, rho, name] for name in TAUS}
        for noise, start, rho in dict.fromkeys(cell[:3] for cell in cells)
    ]
    making.table(summary, "worst", show=f"Worst ratio of distance to bound, {count} seeds")
    lines, bands = {}, {}
    for noise, name in itertools.product(("none", "paper"), ("tau 0.4", "tau 0.1")):
        line = f"{'noise' if noise == 'paper' else 'no noise'}, {name}"
        lines[line] = [worst[noise, "zero", rho, name] for rho in rhos]
        spans = np.array([by_seed[noise, "zero", rho, name] for rho in rhos])
        bands[line] = spans.min(axis=1), spans.max(axis=1)
    plot = curves(
        rhos, lines, x_label="rho, the penalty parameter", log_x=True, log_y=True, bands=bands,
        y_label="worst ratio of distance to bound",
    )  # fmt: skip
    making.plot(plot)
    return [
        _verdict("theorem2-bound", worst, [name for name in TAUS if name != LAST], rhos, count),
        _verdict("theorem2-corollary", worst, [LAST], rhos, count),
    ]


def _verdict(
    claim: str,
    worst: dict[tuple[str, str, float, str], float],
    names: list[str],
    rhos: list[float],
    seeds: int,
) -> Finding:
    """Judge the largest rho, and tell the others."""

    def most(noise: str, rho: float) -> float:
        return max(v for key, v in worst.items() if key[::2] == (noise, rho) and key[3] in names)

    told = {
        noise: ", ".join(f"{most(noise, rho):.2g} at rho {rho:g}" for rho in rhos)
        for noise in ("none", "paper")
    }
    return judged(
        claim,
        f"largest ratio of distance to bound: without noise {told['none']}; with the paper's "
        f"(C = 0.1) {told['paper']}",
        {
            f"within the bound {words} at rho {rhos[-1]:g}": known(most(noise, rhos[-1]) <= 1.0)
            for noise, words in (("none", "without noise"), ("paper", "with noise"))
        },
        seeds,
        "noise is in both models and is no part of eta, which step (39) of the proof takes it for",
    )


def shares(tau: Sequence, rounds: int) -> list[float]:
    """Return the right side of (28) in units of eta, after every iteration."""
    left, found = 1.0, []
    for n in range(1, rounds + 1):
        left *= 1.0 - tau(n, rounds)
        found.append(1.0 - left)
    return found


def _impact(job: tuple[Settings, str, str, int]) -> tuple[Vector, float]:
    """Return |wbar - w|^2 (T, S, Q), with the same draws on both sides, and eta."""
    changes, start, name, seed = job
    config = config_of({**changes, "tau": 0.4})
    optima = readings(config, seed)
    # Of the readings the one with the largest eta, and so the weakest bound.
    etas = {
        which: float(np.max(np.sum((w[:, None] - w[None]) ** 2, axis=-1)))
        for which, w in optima.items()
    }
    eta = max(etas.values())
    best = optima["(1)"] if start == "optimum" else None
    ways = [_way(config, seed, tau, best) for tau in (TAUS[name], lambda n, last: 0.0)]
    apart = np.array(
        [np.sum((one - other) ** 2, axis=-1) for one, other in zip(*ways, strict=True)]
    )
    return apart, eta


def _way(config: ClusterAdmmConfig, seed: int, tau: Sequence, best: Vector | None) -> list[Vector]:
    """Return the servers' models after every round; from their optimum (Q, d) where it is given."""
    tables = client_tables(config, seed)
    run = Rounds(config, seed, synthetic_truth(config, seed).clusters, tables)
    strategy = run.strategy
    setattr(strategy, "tau_in", lambda n: tau(n, config.rounds))  # noqa: B010 (mypy: a method)
    if best is not None:
        strategy.models[:] = best
        for k, (X, y) in enumerate(tables):  # phi_k = grad f_k: a client's own rest
            w = best[run.groups[k]]
            slope = 2.0 / len(y) * (X.T @ (X @ w - y)) + 2.0 * strategy.share(k) * config.ridge * w
            strategy.duals[k] = slope
    found = []
    for n in range(1, config.rounds + 1):
        run.step(n)
        found.append(run.models.copy())
    return found
