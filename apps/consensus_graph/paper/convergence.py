"""Fig. 6b: how rounds converge with and without noise, and what fewer rounds would do."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from trellis.apps.common.metrics import relative_error
from trellis.apps.experiments.finding import Finding
from trellis.apps.experiments.making import Making

from ..config import ConsensusGraphConfig
from ..problem import Vector
from .algorithm import Constants, guarded_rounds, statistics_of, true_graphs
from .judging import mean_and_error, ordered, outcome
from .noise import CLIP, OPEN, constants_for, noisy_name, printed_noise
from .points import Scores

CourseItem = tuple[int, int, float, int, int, Constants]


def course_at(item: CourseItem) -> dict[str, Vector]:
    """Return RE after every round (T + 1,), and how far each round moves the graphs (T,)."""
    signals, nodes, epsilon, rounds, seed, known = item
    config = ConsensusGraphConfig(signals=str(signals), nodes=nodes)
    truth = true_graphs(config, seed)
    z = statistics_of(config, seed, CLIP if epsilon else None)
    known = replace(known, rounds=rounds)
    noise = None
    if epsilon:
        noise = printed_noise(z, signals, epsilon, rounds, known.local_steps, seed)
    weights = guarded_rounds(z, known, noise).weights
    error = [
        np.mean([relative_error(w, t) for w, t in zip(ws, truth, strict=True)]) for ws in weights
    ]
    moved = np.linalg.norm(np.diff(weights, axis=0), axis=2) / np.linalg.norm(weights[1:], axis=2)
    return {"re": np.array(error), "moved": moved.mean(axis=1)}


def figure_6b(making: Making) -> list[Finding]:
    """Draw RE and the change of graphs over rounds, and RE by how many rounds share the budget."""
    signals, nodes, total = making["signals"], making["nodes"], making["rounds"]
    known = constants_for(making, "fedgl", signals)
    lines = {0.0: OPEN, **{e: noisy_name(e) for e in making["epsilons"]}}
    budgets = [t for t in making["fewer-rounds"] if t < total]
    keys = [(e, total) for e in lines] + [(e, t) for e in lines for t in budgets]
    items = [(signals, nodes, e, t, seed, known) for e, t in keys for seed in making.seeds]
    found = making.on_all_cores(course_at, items)
    by_key = {
        key: [one for item, one in zip(items, found, strict=True) if (item[2], item[3]) == key]
        for key in keys
    }
    error = Scores(
        {
            (name, t, "re"): np.array([one["re"][t] for one in by_key[e, total]])
            for e, name in lines.items()
            for t in range(total + 1)
        }
    )
    moved = Scores(
        {
            (name, t + 1, "re"): np.array([one["moved"][t] for one in by_key[e, total]])
            for e, name in lines.items()
            for t in range(total)
        }
    )
    budget = Scores(
        {
            (name, t, "re"): np.array([one["re"][-1] for one in by_key[e, t]])
            for e, name in lines.items()
            for t in [*budgets, total]
        }
    )
    names = list(lines.values())
    after = list(range(total + 1))
    making.table(error.rows("round", after, names, ("re",)))
    making.plot(error.plot(after, names, "re", x_label="round", log_y=True))
    change = "relative change of graphs"
    plot = moved.plot(after[1:], names, "re", x_label="round", y_label=change, log_y=True)
    making.plot(plot, "change")
    making.table(budget.rows("rounds in all", [*budgets, total], names, ("re",)), "fewer")
    label = "rounds that share the privacy budget, T"
    plot = budget.plot([*budgets, total], names, "re", x_label=label, log_y=True)
    making.plot(plot, "fewer")
    return _judged_course(making, error, moved, budget, lines)


def settled_from(errors: Vector, close: float) -> int:
    """Return the round from which on the mean RE stays within ``close`` of its last value."""
    off = np.flatnonzero(np.abs(errors - errors[-1]) > close * errors[-1])
    return int(off[-1]) + 1 if off.size else 0


def _judged_course(
    making: Making, error: Scores, moved: Scores, budget: Scores, lines: dict[float, str]
) -> list[Finding]:
    total, seeds = making["rounds"], len(making.seeds)
    rounds = {
        name: settled_from(
            np.array([error.at(name, t, "re").mean() for t in range(total + 1)]), making["close"]
        )
        for name in lines.values()
    }
    change = {name: mean_and_error(moved.at(name, total, "re")) for name in lines.values()}

    def told(name: str) -> str:
        mean, doubt = change[name]
        return (
            f"{name}: RE within {making['close']:.0%} of its last value from round {rounds[name]}, "
            f"the last round moves graphs by {mean:.2g} ± {doubt:.1g} of their norm"
        )

    def converged(name: str) -> int:
        return 1 if rounds[name] < total and change[name][0] <= making["close"] else -1

    noisy = [name for e, name in lines.items() if e]
    verdict, why = outcome({OPEN: converged(OPEN)}, lost="not settled in so many rounds:")
    findings = [Finding("fig6b-open", told(OPEN), verdict, why, seeds)]
    sides = {name: converged(name) for name in noisy}
    reason = "every round's noise is new, so graphs keep moving at its level, as (29) itself says"
    verdict, why = outcome(sides, reason, lost="graphs do not come to rest:")
    levels = [rounds[name] < total for name in noisy]
    if verdict == "refuted" and all(levels):
        verdict, why = "partly", f"the level of RE settles, graphs do not: {reason}"
    findings.append(
        Finding("fig6b-noise", "; ".join(told(name) for name in noisy), verdict, why, seeds)
    )
    fewest = min(t for t in making["fewer-rounds"])
    points = {
        f"epsilon {e:g}, T = {fewest} and {total}": (
            -budget.at(name, fewest, "re"),
            -budget.at(name, total, "re"),
        )
        for e, name in lines.items()
        if e
    }
    findings.append(
        ordered("fig6b-fewer", "RE with fewer and with all rounds", points, seeds=seeds)
    )
    return findings
