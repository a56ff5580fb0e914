"""Fig. 6a: what the noise of Theorem 3 does to graphs.

Everything that is compared runs K = 25 steps in T = 8 rounds, the reference without noise and
learning alone included. Noise as printed is **not private** (see ``theorem3``); beside it stands
what valid noise of the same epsilon leaves of five clients' graphs.
"""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import numpy as np

from trellis.apps.common.metrics import relative_error
from trellis.apps.common.node import Node
from trellis.apps.experiments.finding import Finding, spread
from trellis.apps.experiments.making import Making

from ..as_printed import paper_noise
from ..config import ConsensusGraphConfig
from ..local import Statistic
from ..problem import Vector, degrees
from .algorithm import (
    ALPHA,
    Constants,
    Course,
    Noise,
    guarded_rounds,
    statistics_of,
    true_graphs,
)
from .judging import holds, ordered, outcome
from .points import Scores, settings
from .private import Federation, at_home, by_rounds, pooled_statistic

ALONE, OPEN = "IGL", "FedGL without noise"
CLIP = 25.0  # the paper's C
DELTA = 1e-5


def noisy_name(epsilon: float) -> str:
    """Return what a line with noise as printed is called."""
    return f"FedGL, noise as printed, epsilon {epsilon:g}"


def dp_name(how: str, epsilon: float) -> str:
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
        known = Statistic(z[client], signals)
        return paper_noise(config, seed, node, known, server_round)[0]

    return draw


Item = tuple[int, int, tuple[float, ...], tuple[float, ...], int, Constants, Constants]


def errors_at(item: Item) -> dict[str, float]:
    """Return RE of clients' graphs at one number of signals, by line."""
    signals, nodes, epsilons, dp, seed, fedgl, alone = item
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
    for epsilon in dp:
        _, graphs = at_home(federation, pooled_statistic(federation, epsilon))
        found[dp_name("one sum", epsilon)] = error([graphs[i] for i in sorted(graphs)])
        _, graphs = by_rounds(federation, epsilon)
        found[dp_name("each client", epsilon)] = error([graphs[i] for i in sorted(graphs)])
    return found


NormalItem = tuple[int, int, tuple[float, ...], int, Constants]


def normalised_errors(item: NormalItem) -> dict[str, float]:
    """Return RE with the paper's own constants, on weights normalised to trace d.

    Signals are then c times as smooth, c the raw mean degree, and C = 25 clips nearly all of them.
    """
    signals, nodes, epsilons, seed, known = item
    config = ConsensusGraphConfig(signals=str(signals), nodes=nodes)
    truth = true_graphs(config, seed)
    scale = float(np.mean([degrees(w, nodes).mean() for w in truth]))
    z = scale * statistics_of(config, seed)
    clipped = scale * statistics_of(config, seed, CLIP / scale)  # of c z_n, cut at C

    def error(course: Course) -> float:
        pairs = zip(course.weights[-1], truth / scale, strict=True)
        return float(np.mean([relative_error(w, t) for w, t in pairs]))

    found = {
        ALONE: error(guarded_rounds(z, replace(known, rho=0.0))),
        OPEN: error(guarded_rounds(z, known)),
        "FedGL, clipped, without noise": error(guarded_rounds(clipped, known)),
    }
    for epsilon in epsilons:
        noise = printed_noise(clipped, signals, epsilon, known.rounds, known.local_steps, seed)
        found[noisy_name(epsilon)] = error(guarded_rounds(clipped, known, noise))
    return found


def _with_paper_constants(making: Making) -> Finding:
    """Draw the same with beta = 1.5, rho = 0.3, lambda = 0.2 and a step of 0.0005."""
    sizes, epsilons = making["sizes"], tuple(making["epsilons"])
    known = Constants(
        ALPHA,
        making["paper-beta"],
        making["paper-rho"],
        making["paper-lambda"],
        making["paper-step"],
        making["local-steps"],
        making["rounds"],
    )
    items = [(n, making["nodes"], epsilons, seed, known) for n in sizes for seed in making.seeds]
    found = making.on_all_cores(normalised_errors, items, "fig6, normalised weights")
    scores = Scores(
        {
            (line, size, "re"): np.array(
                [one[line] for item, one in zip(items, found, strict=True) if item[0] == size]
            )
            for size in sizes
            for line in found[0]
        }
    )
    making.table(scores.rows("signals", sizes, list(found[0]), ("re",)), "normalised")
    label = "signals of every client"
    plot = scores.plot(sizes, list(found[0]), "re", x_label=label, log_x=True, log_y=True)
    making.plot(plot, "normalised")
    points = {
        f"epsilon {e:g} at {n} signals": (
            -scores.at(noisy_name(e), n, "re"),
            -scores.at(ALONE, n, "re"),
        )
        for e in epsilons
        for n in sizes
    }
    what = "RE with noise as printed against learning alone, normalised weights"
    reason = "C = 25 clips nearly all signals there, which costs more than the noise"
    return ordered("fig6-normalised", what, points, reason, len(making.seeds))


def constants_for(making: Making, method: str, signals: int) -> Constants:
    """Return a method's tuned constants, steps and rounds as the figure says."""
    return Constants.of(
        settings(method, 0.5, signals),
        step=making["step"],
        local_steps=making["local-steps"],
        rounds=making["rounds"],
    )


def figure_6(making: Making) -> list[Finding]:
    """Draw RE over the number of signals, without noise, with it as printed, with valid noise."""
    sizes, epsilons, dp = making["sizes"], making["epsilons"], making["dp-epsilons"]
    items: list[Item] = [
        (
            size,
            making["nodes"],
            tuple(epsilons),
            tuple(dp),
            seed,
            constants_for(making, "fedgl", size),
            constants_for(making, "igl", size),
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
    return [*_judged_noise(making, scores), _with_paper_constants(making)]


def _judged_noise(making: Making, scores: Scores) -> list[Finding]:
    sizes, epsilons, dp = making["sizes"], making["epsilons"], making["dp-epsilons"]
    seeds = len(making.seeds)

    def better(line: str, other: str, size: int) -> tuple[Vector, Vector]:
        return -scores.at(line, size, "re"), -scores.at(other, size, "re")

    rivals = [ALONE, *(noisy_name(e) for e in epsilons)]
    best = {f"at {n} signals, {other}": better(OPEN, other, n) for n in sizes for other in rivals}
    rising = sorted(epsilons)
    order = {
        f"epsilon {b:g} against {a:g} at {n} signals": better(noisy_name(b), noisy_name(a), n)
        for n in sizes
        for a, b in itertools.pairwise(rising)
    }
    beats = {
        f"epsilon {e:g} at {n} signals": better(noisy_name(e), ALONE, n)
        for e in rising[1:] or rising
        for n in sizes
    }
    valid = {
        f"in {how}, epsilon {e:g} at {n} signals": better(dp_name(how, e), ALONE, n)
        for e in dp
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
            "a round's noise is step times 2 sqrt(2 ln(1.25 / delta_t)) C / (N epsilon_t) in every "
            "weight: 0.84 at 50 signals and epsilon 0.5, as large as the weights",
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
