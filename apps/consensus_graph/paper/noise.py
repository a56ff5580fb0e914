"""Fig. 6: what the noise of Theorem 3 does to graphs, and how rounds converge with and without it.

Everything that is compared runs K = 25 steps in T = 8 rounds, the reference without noise and
learning alone included. Noise as printed is **not private** (see ``theorem3``); beside it stands
what valid noise of the same epsilon leaves of five clients' graphs.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from apps.common.metrics import relative_error
from apps.common.node import Node
from apps.common.release import Statistic
from apps.experiments.finding import Finding, spread
from apps.experiments.making import Making

from ..config import ConsensusGraphConfig
from ..problem import Vector
from ..release import paper_noise
from .algorithm import Constants, Noise, guarded_rounds, statistics_of, true_graphs
from .judging import holds, mean_and_error, ordered, outcome
from .points import Scores, settings
from .private import Federation, at_home, by_rounds, pooled_statistic

ALONE, OPEN = "IGL", "FedGL without noise"
CLIP = 25.0  # the paper's C
DELTA = 1e-5


def noisy_name(epsilon: float) -> str:
    """Return what a line with noise as printed is called."""
    return f"FedGL, noise as printed, epsilon {epsilon:g}"


def sound_name(how: str, epsilon: float) -> str:
    """Return what a line with valid noise is called; how: of one sum, or of each client."""
    return f"FedGL, valid noise in {how}, epsilon {epsilon:g}"


def printed_noise(
    z: Any,
    signals: int,
    epsilon: float,
    rounds: int,
    steps: int,
    seed: int,
    clip: float = CLIP,
) -> Noise:
    """Return the gradient noise of Theorem 3, the budget split evenly over the rounds."""
    config = ConsensusGraphConfig(
        privacy="paper",
        local_steps=steps,
        rounds=rounds,
        epsilon=epsilon,
        delta=DELTA,
        clip=clip,
    )

    def draw(server_round: int, client: int) -> Vector:
        node = Node(f"client-{client + 1}", client, None, None, True)
        known = Statistic(z[client], signals, ())
        return paper_noise(config, seed, node, known, server_round)[0]

    return draw


Item = tuple[int, int, tuple[float, ...], tuple[float, ...], int, Constants, Constants]


def errors_at(item: Item) -> dict[str, float]:
    """Return RE of clients' graphs at one number of signals, by line."""
    signals, nodes, epsilons, sound, seed, fedgl, alone = item
    config = ConsensusGraphConfig(signals=str(signals), nodes=nodes)
    truth = true_graphs(config, seed)
    z, clipped = (statistics_of(config, seed, clip) for clip in (None, CLIP))

    def error(graphs: Any) -> float:
        return float(np.mean([relative_error(w, t) for w, t in zip(graphs, truth, strict=True)]))

    found = {
        ALONE: error(guarded_rounds(z, alone).weights[-1]),
        OPEN: error(guarded_rounds(z, fedgl).weights[-1]),
    }
    for epsilon in epsilons:
        noise = printed_noise(clipped, signals, epsilon, fedgl.rounds, fedgl.local_steps, seed)
        course = guarded_rounds(clipped, fedgl, noise)
        found[noisy_name(epsilon)] = error(course.weights[-1])
    federation = Federation.of(config.clients, signals, seed, nodes=nodes)
    for epsilon in sound:
        _, graphs = at_home(federation, pooled_statistic(federation, epsilon))
        found[sound_name("one sum", epsilon)] = error([graphs[i] for i in sorted(graphs)])
        _, graphs = by_rounds(federation, epsilon)
        found[sound_name("each client", epsilon)] = error([graphs[i] for i in sorted(graphs)])
    return found


def _constants(making: Making, method: str, signals: int) -> Constants:
    return Constants.of(
        settings(method, 0.5, signals),
        step=making["step"],
        local_steps=making["local-steps"],
        rounds=making["rounds"],
    )


def figure_6(making: Making) -> list[Finding]:
    """Draw RE over the number of signals, without noise, with it as printed and with valid noise."""
    sizes, epsilons, sound = making["sizes"], making["epsilons"], making["sound-epsilons"]
    items: list[Item] = [
        (
            size,
            making["nodes"],
            tuple(epsilons),
            tuple(sound),
            seed,
            _constants(making, "fedgl", size),
            _constants(making, "igl", size),
        )
        for size in sizes
        for seed in making.seeds
    ]
    found = making.on_all_cores(errors_at, items)
    scores = Scores(
        {
            (line, size, "re"): np.array(
                [one[line] for item, one in zip(items, found, strict=True) if item[0] == size]
            )
            for size in sizes
            for line in found[0]
        }
    )
    lines = list(found[0])
    making.table(scores.rows("signals", sizes, lines, ("re",)))
    printed = [line for line in lines if "valid" not in line]
    valid = [ALONE, OPEN, *(line for line in lines if "valid" in line)]
    label = "signals of every client"
    for part, shown in (("", printed), ("valid", valid)):
        plot = scores.plot(sizes, shown, "re", x_label=label, log_x=True, log_y=True)
        making.plot(plot, part)
    return _judged_noise(making, scores)


def _judged_noise(making: Making, scores: Scores) -> list[Finding]:
    sizes, epsilons, sound = making["sizes"], making["epsilons"], making["sound-epsilons"]
    seeds = len(making.seeds)

    def better(line: str, other: str, size: int) -> tuple[Vector, Vector]:
        return -scores.at(line, size, "re"), -scores.at(other, size, "re")

    rivals = [ALONE, *(noisy_name(e) for e in epsilons)]
    best = {f"at {n} signals, {other}": better(OPEN, other, n) for n in sizes for other in rivals}
    rising = sorted(epsilons)
    order = {
        f"epsilon {b:g} against {a:g} at {n} signals": better(noisy_name(b), noisy_name(a), n)
        for n in sizes
        for a, b in zip(rising, rising[1:], strict=False)
    }
    beats = {
        f"epsilon {e:g} at {n} signals": better(noisy_name(e), ALONE, n)
        for e in rising[1:] or rising
        for n in sizes
    }
    valid = {
        f"in {how}, epsilon {e:g} at {n} signals": better(sound_name(how, e), ALONE, n)
        for e in sound
        if e <= 1.0
        for how in ("one sum", "each client")
        for n in sizes
    }
    return [
        ordered("fig6-open-best", "RE without noise against the others", best, seeds=seeds),
        ordered("fig6-order", "RE with more and with less noise", order, seeds=seeds),
        ordered(
            "fig6-beats-igl",
            "RE with noise as printed against learning alone",
            beats,
            "the noise of Theorem 3 is 2 sqrt(2 ln(1.25 / delta_t)) C / (N epsilon_t) for every "
            "one of p weights, more than the weights themselves at few signals",
            seeds,
        ),
        _regains(scores, rising[0], sizes, seeds),
        ordered(
            "fig6-valid",
            "RE with valid noise against learning alone",
            valid,
            "five clients are too few: see private and break-even for how many it takes",
            seeds,
        ),
    ]


def _regains(scores: Scores, epsilon: float, sizes: Any, seeds: int) -> Finding:
    """Judge: worse than learning alone with few signals, better with many."""
    line = noisy_name(epsilon)
    first, last = sizes[0], sizes[-1]
    pairs = {n: (scores.at(line, n, "re"), scores.at(ALONE, n, "re")) for n in (first, last)}
    sides = {
        f"at {first} signals, where it should lose": holds(*pairs[first]),
        f"at {last} signals, where it should win": holds(*pairs[last][::-1]),
    }
    verdict, why = outcome(sides)
    text = ", ".join(f"{spread(a)} against {spread(b)} at {n}" for n, (a, b) in pairs.items())
    name = f"RE at epsilon {epsilon:g} against learning alone"
    return Finding("fig6-small-epsilon", f"{name}: {text} signals", verdict, why, seeds)


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
    error = [np.mean([relative_error(w, t) for w, t in zip(ws, truth, strict=True)]) for ws in weights]
    moved = np.linalg.norm(np.diff(weights, axis=0), axis=2) / np.linalg.norm(weights[1:], axis=2)
    return {"re": np.array(error), "moved": moved.mean(axis=1)}


def figure_6b(making: Making) -> list[Finding]:
    """Draw RE and the change of graphs over rounds, and RE by how many rounds share the budget."""
    signals, nodes, total = making["signals"], making["nodes"], making["rounds"]
    known = _constants(making, "fedgl", signals)
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
    change = "relative change of clients' graphs"
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
    findings.append(ordered("fig6b-fewer", "RE with fewer and with all rounds", points, seeds=seeds))
    return findings
