"""Theorem 2 and what it rests on: ``trellis paper server-graph theorem2``.

The worst two data sets and the attack are those of ``trellis audit server-graph`` (`audit`): one
client a server, all its data replaced, gradients of length B along the diagonal.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from trellis.apps.experiments.finding import Finding, Verdict
from trellis.apps.experiments.making import Making
from trellis.apps.pages.plots import curves
from trellis.privacy.accounting.sampled import ratio_for, spent

from ..audit import BETWEEN, apart, audit_between, audit_by_a_client
from ..config import ServerGraphConfig
from ..data import synthetic_table
from ..losses import LeastSquares, Logistic
from ..spending import corrected_epsilon, paper_epsilon
from .setting import PAPER, exponent, slope

ENOUGH = 1e18  # an epsilon that refuses no noise: the attacks are on the noise as it is


def config_of(making: Making, rounds: int, size: int = 2, **more: Any) -> ServerGraphConfig:
    """Return the paper's noise, with one client a server unless said otherwise."""
    given = {**BETWEEN, "privacy": "paper", "epsilon": ENOUGH}
    given |= {"sigma": making["sigma"], "clip": making["bound"], "step": making["step"]}
    return ServerGraphConfig.from_settings({**given, "rounds": rounds, "features": size, **more})


def exactly(config: ServerGraphConfig) -> float:
    """Return the log of the largest likelihood ratio of all that a server tells the others."""
    return float(np.abs(apart(config)).sum()) / (config.sigma / math.sqrt(2.0))


def attack(item: tuple[tuple[tuple[str, Any], ...], int, int]) -> tuple[float, float]:
    """Return the printed epsilon of an attacked transcript, and the bound found by the attack."""
    settings, trials, seed = item
    config = ServerGraphConfig.from_settings(dict(settings))
    found = audit_between(config, trials, seed)
    return found.claimed, found.result.epsilon_lower


def theorem_2(making: Making) -> list[Finding]:
    """Write and draw epsilon over the rounds: printed, true for the worst data, corrected."""
    rounds = [int(i) for i in making["rounds"]]
    rows = []
    for i in rounds:
        config = config_of(making, i)
        rows.append(
            {
                "rounds": i,
                "printed": paper_epsilon(config, i),
                "worst data, M = 2": exactly(config),
                "worst data, M = 10": exactly(config_of(making, i, 10)),
                "corrected, delta 1e-5, M = 2": corrected_epsilon(config, i, 2),
                "noise in sums, ours": spent(ratio_for(1.0, 1e-5, rounds[-1]), i, 1e-5),
            }
        )
    attacked = [int(i) for i in making["attacked"]]
    items = [
        (tuple(sorted(config_of(making, i).settings().items())), int(making["trials"]), seed)
        for i in attacked
        for seed in making.seeds
    ]
    shown = making.on_all_cores(attack, items)
    found: dict[int, list[float]] = {i: [] for i in attacked}
    for (settings, _, _), (_, bound) in zip(items, shown, strict=True):
        found[int(dict(settings)["rounds"])].append(bound)
    for row in rows:
        row["shown by attack, M = 2"] = min(found.get(int(row["rounds"]), [np.nan]))
    making.table(rows, show="epsilon over the rounds, sigma_g and step of Fig. 2, B = 1")
    lines = {
        name: [row[name] for row in rows]
        for name in list(rows[0])[1:]
        if not name.startswith(("shown", "corrected"))  # which is the worst data's, below delta
    }
    points = {"shown by attack": (attacked, [min(found[i]) for i in attacked])}
    title = "What all rounds spend, by whose account"
    plot = curves(
        rounds,
        lines,
        x_label="rounds",
        y_label="epsilon",
        title=title,
        log_x=True,
        log_y=True,
        points=points,
    )
    making.plot(plot)
    return [
        _sensitivity(making, rounds),
        _level(rows, found, len(making.seeds)),
        _growth(rows, rounds),
        _own_clients(making),
        _bounded(making),
        _leaks(making),
    ]


def _sensitivity(making: Making, rounds: list[int]) -> Finding:
    config = config_of(making, rounds[-1])
    bound = 2.0 * config.step * config.clip * np.arange(1, config.rounds + 1)  # (26)
    parted = np.linalg.norm(apart(config), axis=1)
    five = np.linalg.norm(apart(config_of(making, rounds[-1], clients=50)), axis=1)
    most = float((parted / bound).max())
    words = (
        f"in l2, with gradients clipped to B, the worst data part a server's models by {most:.3f} "
        f"times 2 mu B i in all of {config.rounds} rounds where it asks one client, by "
        f"{float((five / bound).max()):.3f} times where it asks five"
    )
    good = most <= 1.0 + 1e-9
    why = "" if good else "models part further than (26) says"
    return Finding("sensitivity", words, "reproduced" if good else "refuted", why)


def _level(rows: list[dict[str, Any]], found: Mapping[int, list[float]], seeds: int) -> Finding:
    by_round = {int(row["rounds"]): row for row in rows}
    first = by_round[min(found)]
    told = []
    for i, values in found.items():
        printed, true = by_round[i]["printed"], by_round[i]["worst data, M = 2"]
        told.append(
            f"after {i}: printed {printed:.3g}, true {true:.3g}, attack shows >= {min(values):.3g}"
        )
    said = "; ".join(told)
    factor = first["worst data, M = 2"] / first["printed"]
    ten = first["worst data, M = 10"] / first["printed"]
    words = f"{said}; true / printed is {factor:.3f} for M = 2 and {ten:.3f} for M = 10"
    shown = any(min(values) > by_round[i]["printed"] for i, values in found.items())
    if factor <= 1.0 + 1e-9:
        return Finding("theorem2", words, "reproduced", seeds=seeds)
    why = (
        "Laplace noise answers to the l1 distance and (26) bounds the l2 distance, so epsilon is "
        "sqrt(M) times larger; only where a server asks more than sqrt(M) clients does their mean "
        "make up for it"
    )
    return Finding("theorem2", words, "refuted" if shown else "partly", why, seeds)


def _growth(rows: list[dict[str, Any]], rounds: list[int]) -> Finding:
    late = [row for row in rows if row["rounds"] >= 10] or rows[-2:]
    at = [float(row["rounds"]) for row in late]

    def fit(name: str) -> tuple[float, float]:
        return slope(at, np.array([[row[name] for row in late]]))

    printed, true = fit("printed"), fit("worst data, M = 2")
    corrected = exponent(fit("corrected, delta 1e-5, M = 2"))
    words = (
        f"from {at[0]:.0f} to {rounds[-1]} rounds the printed epsilon grows as "
        f"i^{exponent(printed)} to {rows[-1]['printed']:.3g}, what the worst data spend as "
        f"i^{exponent(true)}, at delta 1e-5 as i^{corrected}; noise in sums as "
        f"i^{exponent(fit('noise in sums, ours'))}"
    )
    good = abs(true[0] - printed[0]) < 0.1
    why = "" if good else "the worst data spend at another pace"
    return Finding("theorem2-growth", words, "reproduced" if good else "partly", why)


def _own_clients(making: Making) -> Finding:
    config = config_of(making, 1)
    found = audit_by_a_client(config, int(making["client-trials"]), 1)
    result = found.result
    words = (
        f"claimed for round 1: {found.claimed:.3g}. A client of the server that has its model and "
        f"the servers' messages told two data sets apart in {result.true_positive} of "
        f"{result.held_out} runs, with {result.false_positive} mistakes: epsilon is at least "
        f"{result.epsilon_lower:.3g}, the most that so many runs can show"
    )
    if not found.refuted:
        return Finding("theorem2-own-clients", words, "reproduced")
    why = (
        "(27) looks at messages between servers only; the own combination takes the noise back, so "
        "whoever has w_p and the messages has psi_p exactly"
    )
    return Finding("theorem2-own-clients", words, "refuted", why)


def _bounded(making: Making) -> Finding:
    config = ServerGraphConfig.from_settings(PAPER)
    table = synthetic_table(config, 1, 0)
    lengths = {}
    for scale in (1.0, 10.0, 100.0):
        w = np.full(2, -0.5)
        G = Logistic().gradients(w, scale * table.X, table.y)
        lengths[scale] = float(np.linalg.norm(G, axis=1).max())
    noisy = {}
    for sigma in (0.0, 1.0, 10.0):
        w = sigma * np.ones(2)
        G = LeastSquares().gradients(w, table.X, table.y)
        noisy[sigma] = float(np.linalg.norm(G, axis=1).max())
    logistic = ", ".join(f"{v:.3g} for features times {k:g}" for k, v in lengths.items())
    squares = ", ".join(f"{v:.3g} at a model moved by noise of {k:g}" for k, v in noisy.items())
    words = f"largest gradient of a sample, logistic: {logistic}; least squares: {squares}"
    if lengths[100.0] < 2.0 * lengths[1.0] and noisy[10.0] < 2.0 * noisy[0.0]:
        return Finding("gradient-bound", words, "reproduced")
    why = (
        "of one data set with the logistic loss it is true, but privacy is about all data sets, "
        "and noise without a bound moves models: B holds where every gradient is clipped to it"
    )
    return Finding("gradient-bound", words, "partly", why)


def _leaks(making: Making) -> Finding:
    config = ServerGraphConfig.from_settings(PAPER)
    cosines = []
    for k in range(10):
        table = synthetic_table(config, 1, k)
        G = Logistic().gradients(np.array([0.3, -0.2]), table.X, table.y)
        lengths = np.linalg.norm(G, axis=1) * np.linalg.norm(table.X, axis=1)
        cosines.append(np.abs(np.sum(G * table.X, axis=1)) / lengths)
    least = float(np.min(cosines))
    words = (
        f"the gradients of {np.size(cosines):,} samples are parallel to their features: |cosine| "
        f"is {least:.6f} at least"
    )
    good = least > 1.0 - 1e-9
    why = "" if good else "a gradient points elsewhere"
    verdict: Verdict = "reproduced" if good else "refuted"
    return Finding("gradient-leaks", words, verdict, why)
