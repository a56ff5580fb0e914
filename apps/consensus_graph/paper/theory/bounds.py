"""Proposition 1, put to Algorithm 1 exactly as printed, without our guards.

Constants that the paper assumes to exist (deg_min, B_r, B_w, B_z) are those of the run itself: the
smallest for which its assumptions hold, and so the sharpest bounds.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.spatial.distance import pdist

from trellis.apps.common.seeds import generator
from trellis.apps.experiments.finding import Finding
from trellis.apps.experiments.making import Making

from ...config import ConsensusGraphConfig
from ...problem import Matrix, Vector, degrees, gradient, node_count
from ..algorithm import Constants, Course, Noise, plain_rounds, statistics_of
from ..judging import number, outcome
from ..points import settings

CLIP = 25.0


def smoothness(known: Constants, pull: float, d: int, smallest: float) -> float:
    """Return L_i of Proposition 1 for graphs whose degrees are ``smallest`` or more."""
    return 4.0 * known.beta + 2.0 * known.alpha * (d - 1) / smallest**2 + pull


def gradient_bound(
    known: Constants, pull: float, d: int, smallest: float, data: float, width: float
) -> float:
    """Return B_g of Proposition 1, from B_z = ``data`` and B_w = ``width``."""
    log_part = known.alpha * np.sqrt(2.0 * d * (d - 1)) / smallest
    return float(2.0 * data + (4.0 * known.beta + pull) * width + log_part)


def steepest(w: Vector, known: Constants, pull: float) -> float:
    """Return the largest eigenvalue of the Hessian of f_i at a graph."""
    d = node_count(w.size)
    root = 1.0 / degrees(w, d)
    # S S' = (d - 2) I + 1 1', and S' D S has the eigenvalues of D^1/2 S S' D^1/2 and zeros.
    inner = np.diag((d - 2.0) * root**2) + np.outer(root, root)
    return 4.0 * known.beta + pull + known.alpha * float(np.linalg.eigvalsh(inner)[-1])


def run(
    signals: int, nodes: int, seed: int, known: Constants, noise: Noise | None = None
) -> tuple[Matrix, Course]:
    """Return the clients' statistics, clipped, and the course of Algorithm 1 on them."""
    config = ConsensusGraphConfig(signals=str(signals), nodes=nodes)
    z = statistics_of(config, seed, CLIP)
    return z, plain_rounds(z, known, noise)


def constants_of(making: Making, **changes: Any) -> Constants:
    """Return the constants of a run: tuned for FedGL, steps and rounds as the figure says."""
    how = {"step": making["step"], "local_steps": making["local-steps"]}
    given = {**how, "rounds": making["rounds"], **changes}
    return Constants.of(settings("fedgl", 0.5, making["signals"]), **given)


PairItem = tuple[int, int, int, Constants]


def smoothness_of(item: PairItem) -> dict[str, float]:
    """Return the largest quotients of what Proposition 1 bounds and its bounds, in one run."""
    signals, nodes, seed, known = item
    z, course = run(signals, nodes, seed, known)
    pull = known.rho * float(course.gamma.max())
    graphs = course.weights.reshape(-1, course.weights.shape[-1])
    smallest = float(min(degrees(w, nodes).min() for w in graphs))
    width = float(max(pdist(graphs).max(), np.linalg.norm(graphs, axis=1).max()))
    bound = smoothness(known, pull, nodes, smallest)
    slope_bound = gradient_bound(known, pull, nodes, smallest, CLIP, width)
    rng = generator(seed, "pairs of graphs")
    quotients, slopes, consensus = [], [], []
    for _ in range(200):
        a, b, c, e = graphs[rng.integers(len(graphs), size=4)]
        share = rng.random()
        a, b = share * a + (1.0 - share) * b, c  # any point between two is in the set as well
        client = int(rng.integers(len(z)))
        f_a, f_b = (
            gradient(w, z[client], known.alpha, known.beta) + pull * (w - e) for w in (a, b)
        )
        if np.linalg.norm(a - b) > 1e-9:
            quotients.append(np.linalg.norm(f_a - f_b) / np.linalg.norm(a - b) / bound)
        slopes.append(np.linalg.norm(f_a) / slope_bound)
        by_consensus = pull * np.linalg.norm((e - a) - (c - a))
        if np.linalg.norm(e - c) > 1e-9:
            consensus.append(by_consensus / np.linalg.norm(e - c) / pull)
    top = max(steepest(w, known, pull) for w in graphs)
    ends = course.weights[0, 0], course.weights[-1]
    beyond = min(float(degrees(ends[0] + (ends[0] - w), nodes).min()) for w in ends[1])
    return {
        "gradients' distance over L_i times graphs' distance": float(max(quotients)),
        "largest eigenvalue of the Hessian over L_i": top / bound,
        "gradient's norm over B_g": float(max(slopes)),
        "the same in the consensus over rho gamma_i": float(max(consensus)),
        "smallest degree of a run's graphs": smallest,
        "smallest degree in the extended set": beyond,
    }


def proposition_1(making: Making) -> list[Finding]:
    """Check L_i, rho gamma_i and B_g at random pairs of graphs of every run."""
    known = constants_of(making)
    items = [(making["signals"], making["nodes"], seed, known) for seed in making.seeds]
    found = making.on_all_cores(smoothness_of, items)
    making.table([{"seed": item[2], **one} for item, one in zip(items, found, strict=True)])
    worst = {name: max(one[name] for one in found) for name in found[0]}
    beyond = [one["smallest degree in the extended set"] for one in found]
    names = list(found[0])
    seeds = len(found)

    def bounded(claim: str, *which: str) -> Finding:
        verdict, why = outcome({name: 1 if worst[name] <= 1.0 + 1e-9 else -1 for name in which})
        text = ", ".join(f"{name} at most {number(worst[name])}" for name in which)
        return Finding(claim, text, verdict, why, seeds)

    outside = sum(value <= 0.0 for value in beyond)
    extended = Finding(
        "prop1-extended",
        f"the extended set of {outside} of {seeds} runs has graphs with degrees down to "
        f"{min(beyond):.3g}, where the logarithm is undefined",
        "refuted" if outside else "reproduced",
        "a + xi (a - b) of two graphs of a run may lose all edges of a node, so there is no "
        "deg_min > 0; on graphs with positive degrees it holds"
        if outside
        else "",
        seeds,
    )
    return [
        bounded("prop1-smooth", names[0], names[1]),
        bounded("prop1-consensus", names[3]),
        bounded("prop1-gradient", names[2]),
        extended,
    ]
