"""What clients' messages give away: Theorem 3 under attack, and graphs that tell the statistic."""

from __future__ import annotations

from typing import Any

import numpy as np

from trellis.apps.common.node import Node
from trellis.apps.experiments.finding import Finding, spread
from trellis.apps.experiments.making import Making
from trellis.apps.pages.plots import curves, level

from ...as_printed import paper_noise
from ...audit import PAPER_SETTINGS, audit_paper, last_step, neighbours
from ...config import ConsensusGraphConfig
from ...local import Statistic
from ...problem import recover_statistic, statistic
from ..algorithm import Constants, Course, exact_rounds, guarded_rounds, statistics_of
from ..judging import mean_and_error, number
from ..points import settings

_NODE = Node("audit", 0, None, None, True)
# The settings of `trellis audit`, and those of the synthetic figures.
STRENGTHS = {
    "beta 0.01, rho 0.1": {"beta": 0.01, "rho": 0.1},
    "beta 0.05, rho 1": {"beta": 0.05, "rho": 1.0},
}

AttackItem = tuple[str, int, int, int, int]


def attacked(item: AttackItem) -> dict[str, float]:
    """Return what one round claims, what an attack shows, and true over claimed sensitivity."""
    strength, steps, nodes, trials, seed = item
    given: dict[str, Any] = {**PAPER_SETTINGS, **STRENGTHS[strength]}
    given |= {"local-steps": steps, "privacy": "paper", "nodes": nodes}
    config = ConsensusGraphConfig.from_settings(given)
    pair = neighbours(config, seed)
    known = [Statistic(statistic(x, config.bound), len(x)) for x in pair]
    _, event = paper_noise(config, seed, _NODE, known[0], 1)
    (one, length), (other, _) = (last_step(config, k.values) for k in known)
    finding = audit_paper(config, trials, seed)
    return {
        "claimed epsilon": event.epsilon,
        "epsilon is at least": finding.result.epsilon_lower,
        "true over claimed sensitivity": float(
            np.linalg.norm(one - other) / (length * event.sensitivity)
        ),
    }


def theorem_3(making: Making) -> list[Finding]:
    """Attack one round of Theorem 3 with more and more un-noised steps before the noised one."""
    items = [
        (strength, steps, making["nodes"], making["trials"], seed)
        for strength in STRENGTHS
        for steps in making["steps"]
        for seed in making.seeds
    ]
    found = making.on_all_cores(attacked, items)
    rows: list[dict[str, Any]] = []
    lines: dict[str, list[float]] = {}
    bands: dict[str, tuple[list[float], list[float]]] = {}
    for strength in STRENGTHS:
        for steps in making["steps"]:
            mine = [f for i, f in zip(items, found, strict=True) if i[:2] == (strength, steps)]
            row: dict[str, Any] = {"setting": strength, "local steps K": steps}
            for name in mine[0]:
                row[name], row[f"{name} standard error"] = mean_and_error([m[name] for m in mine])
            rows.append(row)
            mean = row["epsilon is at least"]
            half = 2.0 * row["epsilon is at least standard error"]
            lines.setdefault(strength, []).append(mean)
            low, high = bands.setdefault(strength, ([], []))
            low.append(mean - half)
            high.append(mean + half)
    making.table(rows, show="One round of Theorem 3 under attack")
    label = "epsilon of a round, at least"
    plot = curves(
        making["steps"], lines, x_label="local steps K of a round", y_label=label, bands=bands
    )
    claimed = rows[0]["claimed epsilon"]
    making.plot(level(plot, claimed, f"claimed: {claimed:g}"))
    most = making["steps"][-1]
    worst = [row for row in rows if row["local steps K"] == most]
    text = "; ".join(
        f"epsilon at least {number(row['epsilon is at least'])} ± "
        f"{row['epsilon is at least standard error']:.1g} with {row['setting']}, sensitivity "
        f"{row['true over claimed sensitivity']:.3g} times the claimed one"
        for row in worst
    )
    broken = [row for row in worst if row["epsilon is at least"] > row["claimed epsilon"]]
    text = f"one round with K = {most}, claimed at epsilon {claimed:g}: {text}"
    seeds = len(making.seeds)
    if not broken:
        return [Finding("theorem3", text, "reproduced", seeds=seeds)]
    why = (
        "only the last of K steps is noised, and what the others carry of the data enters the "
        "released graph as it is; two clipped signals are sqrt(2) C apart, not C"
    )
    return [Finding("theorem3", text, "refuted", why, seeds)]


TellItem = tuple[int, int, int, Constants]


def told(item: TellItem) -> dict[str, float]:
    """Return how well the server knows clients' statistics from the last round's graphs."""
    signals, nodes, seed, known = item
    config = ConsensusGraphConfig(signals=str(signals), nodes=nodes)
    z = statistics_of(config, seed)
    long = Constants(**{**vars(known), "rounds": 100})
    found = {}
    courses: dict[str, Course] = {
        "exact solve": exact_rounds(z, long, tolerance=1e-12),
        "as printed": guarded_rounds(z, known),
    }
    for name, course in courses.items():
        weights, consensus, gamma = course.weights[-1], course.consensus[-2], course.gamma[-2]
        errors, part = [], []
        for i, w in enumerate(weights):
            edges = w > 0.0
            guess = recover_statistic(
                w, known.rho * float(gamma[i]), consensus, known.alpha, known.beta
            )
            errors.append(np.median(np.abs(guess[edges] / z[i][edges] - 1.0)))
            part.append(edges.mean())
        found[f"median relative error, {name}"] = float(np.mean(errors))
        found[f"part of pairs that have an edge, {name}"] = float(np.mean(part))
    return found


def graphs_tell(making: Making) -> list[Finding]:
    """Recover clients' mean squared differences from the graphs that they send."""
    known = Constants.of(
        settings("fedgl", 0.5, making["signals"]),
        step=making["step"],
        local_steps=making["local-steps"],
        rounds=making["rounds"],
    )
    items = [(making["signals"], making["nodes"], seed, known) for seed in making.seeds]
    found = making.on_all_cores(told, items)
    making.table([{"seed": item[2], **one} for item, one in zip(items, found, strict=True)])
    values = {name: np.array([one[name] for one in found]) for name in found[0]}
    text = "; ".join(
        f"{name}: median relative error {spread(values[f'median relative error, {name}'])} on "
        f"{spread(values[f'part of pairs that have an edge, {name}'])} of all pairs"
        for name in ("exact solve", "as printed")
    )
    worst = max(values[f"median relative error, {n}"].mean() for n in ("exact solve", "as printed"))
    seeds = len(found)
    if worst > making["close"]:
        return [Finding("graphs-tell", text, "reproduced", seeds=seeds)]
    why = (
        "a graph satisfies the optimality condition of (13), or nearly, and that gives the "
        "client's mean squared difference on every edge"
    )
    return [Finding("graphs-tell", text, "refuted", why, seeds)]
