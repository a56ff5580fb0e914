"""Fig. 7: three networks of 32 students as three clients, signals drawn by (33).

The paper does not say which three of the twelve networks: the three with the most edges. Everything
runs Algorithm 1 as printed; beta, rho and lambda are tuned for every method and number of signals
by the rule of `baselines`: the best MCC of clients' graphs on the tuning seeds.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from trellis.apps.common.metrics import matthews, relative_error
from trellis.apps.common.seeds import generator
from trellis.apps.experiments.datasets import dataset
from trellis.apps.experiments.finding import Finding
from trellis.apps.experiments.making import Making

from ...config import ConsensusGraphConfig
from ...data import Truth, smooth_signals
from ...problem import Matrix, Vector, adjacency, edge_vector, statistic
from ..algorithm import Constants
from ..judging import ordered
from ..noise import CLIP, noisy_name, printed_noise
from ..points import METRICS, Scores
from ..private import Federation, at_home, pooled_statistic
from .baselines import FEDAVG, FEDGL, IGL, run_method, search, setting_rows
from .baselines import constants_of as fitted

STUDENTS = 32
# Networks, number of signals, seed.
Draw = tuple[tuple[int, ...], int, int]


def student_networks(numbers: Sequence[int]) -> Matrix:
    """Return undirected networks (n, p) of 32 students."""
    folder = dataset("students")
    vectors = []
    for number in numbers:
        arcs = np.loadtxt(folder / f"as{number}.net.txt").astype(int)
        matrix = np.zeros((STUDENTS, STUDENTS))
        matrix[arcs[:, 0] - 1, arcs[:, 1] - 1] = 1.0
        vectors.append(edge_vector(np.maximum(matrix, matrix.T)))
    return np.array(vectors)


def _signals(draw: Draw, truth: Matrix) -> list[Matrix]:
    networks, count, seed = draw
    return [
        smooth_signals(adjacency(w), count, generator(seed, "students", n, count))
        for n, w in zip(networks, truth, strict=True)
    ]


def _scores(graphs: Any, truth: Matrix) -> dict[str, float]:
    pairs = list(zip(graphs, truth, strict=True))
    return {
        "mcc": float(np.mean([matthews(w, t) for w, t in pairs])),
        "re": float(np.mean([relative_error(w, t) for w, t in pairs])),
    }


def tuning_score(item: tuple[str, Constants, Draw]) -> float:
    """Return the mean MCC of clients' graphs on a tuning draw."""
    method, known, draw = item
    truth = student_networks(draw[0])
    z = np.array([statistic(x) for x in _signals(draw, truth)])
    graphs = run_method(method, z, known).weights[-1]
    return _scores(np.broadcast_to(graphs, truth.shape), truth)["mcc"]


Item = tuple[Draw, tuple[tuple[str, Constants], ...], tuple[float, ...], tuple[float, ...]]


def compared(item: Item) -> dict[str, dict[str, float]]:
    """Return the scores of all methods on one draw, with and without noise."""
    draw, constants, epsilons, dp = item
    truth = student_networks(draw[0])
    signals = _signals(draw, truth)
    z, clipped = (np.array([statistic(x, c) for x in signals]) for c in (None, CLIP))
    found = {}
    for method, known in constants:
        graphs = run_method(method, z, known).weights[-1]
        found[method] = _scores(np.broadcast_to(graphs, truth.shape), truth)
    known = dict(constants)[FEDGL]
    for epsilon in epsilons:
        noise = printed_noise(clipped, draw[1], epsilon, known.rounds, known.local_steps, draw[2])
        graphs = run_method(FEDGL, clipped, known, noise).weights[-1]
        found[noisy_name(epsilon)] = _scores(graphs, truth)
    config = ConsensusGraphConfig(
        clients=len(truth), signals=str(draw[1]), nodes=STUDENTS, privacy="dp"
    )
    federation = Federation(config, draw[2], Truth(truth[0], truth), signals)
    for epsilon in dp:
        _, at = at_home(federation, pooled_statistic(federation, epsilon))
        found[f"FedGL, valid noise, epsilon {epsilon:g}"] = _scores(
            [at[i] for i in sorted(at)], truth
        )
    return found


def figure_7(making: Making) -> list[Finding]:
    """Draw MCC and RE on student networks over the number of signals."""
    dataset("students")  # before any work: it may not be there
    networks, sizes = tuple(making["networks"]), making["sizes"]
    first = making["first-tuning-seed"]
    tuned = {
        size: search(
            making,
            tuning_score,
            [(networks, size, seed) for seed in range(first, first + making["tuning-seeds"])],
        )
        for size in sizes
    }
    items: list[Item] = [
        (
            (networks, size, seed),
            tuple((method, fitted(making, given)) for method, given in tuned[size].items()),
            tuple(making["epsilons"]),
            tuple(making["dp-epsilons"]),
        )
        for size in sizes
        for seed in making.seeds
    ]
    found = making.on_all_cores(compared, items)
    scores = Scores(
        {
            (line, size, metric): np.array(
                [f[line][metric] for i, f in zip(items, found, strict=True) if i[0][1] == size]
            )
            for size in sizes
            for line in found[0]
            for metric in METRICS
        }
    )
    lines = list(found[0])
    making.table(scores.rows("signals", sizes, lines, list(METRICS)))
    making.table(setting_rows(tuned, "signals"), "settings")
    for metric in METRICS:
        making.plot(scores.plot(sizes, lines, metric, x_label="signals of every client"), metric)
    return _judged(making, scores)


def _judged(making: Making, scores: Scores) -> list[Finding]:
    sizes, seeds = making["sizes"], len(making.seeds)

    def against(line: str, rivals: Sequence[str]) -> dict[str, tuple[Vector, Vector]]:
        return {
            f"{metric.upper()} at {n} signals, {rival}": (
                sign * scores.at(line, n, metric),
                sign * scores.at(rival, n, metric),
            )
            for metric, sign in (("mcc", 1.0), ("re", -1.0))
            for n in sizes
            for rival in rivals
        }

    noisy = {
        f"epsilon {e:g}, {where}": pair
        for e in making["epsilons"]
        for where, pair in against(noisy_name(e), [IGL]).items()
    }
    return [
        ordered(
            "fig7-best",
            "FedGL without noise against learning alone and FedAvg",
            against(FEDGL, [IGL, FEDAVG]),
            "with many signals a client's own are enough",
            seeds,
        ),
        ordered(
            "fig7-noise",
            "FedGL with noise as printed against learning alone",
            noisy,
            "the noise as printed, which is not even private, moves every one of 496 weights",
            seeds,
        ),
    ]
