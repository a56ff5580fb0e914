"""Algorithm 1 of [ZW] without messages, round by round: the course that a result does not tell.

The clients' arithmetic is `solver.accelerated_steps`, as on a device; the server's that of the
strategy. `plain_rounds` has the iteration exactly as printed, without the guards of ours (no
backtracking, no restart): what the theorems speak of.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from trellis.strategies.consensus_graph.strategy import consensus_update, gamma_update

from ..config import ConsensusGraphConfig
from ..data import synthetic_table, synthetic_truth
from ..problem import Matrix, Vector, degrees, gradient, node_count, statistic
from ..solver import accelerated_steps, solve

ALPHA = 2.0
MOMENTUM = 0.9  # xi in (14)

# Noise of the last gradient of a round (26), by round (from 1) and client; None is no noise.
Noise = Callable[[int, int], Vector]


@dataclass(frozen=True)
class Constants:
    """The symbols of (8) and of Algorithm 1."""

    alpha: float
    beta: float
    rho: float
    lambda_: float
    step: float
    local_steps: int
    rounds: int

    @classmethod
    def of(cls, tuned: Mapping[str, Any], **how: Any) -> Constants:
        """Return tuned settings (beta; rho and lambda for FedGL, none for learning alone)."""
        rho, sparsity = tuned.get("rho", 0.0), tuned.get("lambda", 0.0)
        return cls(alpha=ALPHA, beta=tuned["beta"], rho=rho, lambda_=sparsity, **how)


@dataclass(frozen=True)
class Course:
    """All rounds: ``weights`` (T + 1, I, p), ``consensus`` (T + 1, p), ``gamma`` (T + 1, I).

    ``extrapolated`` is the smallest degree of any extrapolated graph (14); it is not positive where
    the logarithm is undefined, and the course ends before that round.
    """

    weights: Matrix
    consensus: Matrix
    gamma: Matrix
    extrapolated: float = np.inf


def statistics_of(config: ConsensusGraphConfig, seed: int, clip: float | None = None) -> Matrix:
    """Return zbar of every client (I, p) of the synthetic federation."""
    tables = (synthetic_table(config, seed, i).values for i in range(config.clients))
    return np.array([statistic(table, clip) for table in tables])


def true_graphs(config: ConsensusGraphConfig, seed: int) -> Matrix:
    """Return the clients' true graphs (I, p)."""
    return synthetic_truth(config, seed).weights


def exact_rounds(
    z: Matrix, known: Constants, *, tolerance: float = 1e-8, settled: float = 1e-4
) -> Course:
    """Run (13), solved exactly, (19) and (20) until the consensus has settled."""

    def client(
        i: int, t: int, own: Vector, before: Vector, pull: float, consensus: Vector
    ) -> tuple[Vector, Vector]:
        w = solve(z[i], known.alpha, known.beta, pull, consensus, tolerance=tolerance).w
        return w, own

    return _rounds(z, known, client, settled)


def guarded_rounds(z: Matrix, known: Constants, noise: Noise | None = None) -> Course:
    """Run Algorithm 1 as our clients do, momentum carried from round to round as printed.

    ``rho`` = 0 is learning alone. Momentum that noise has made too large is forgotten.
    """

    def client(
        i: int, t: int, own: Vector, before: Vector, pull: float, consensus: Vector
    ) -> tuple[Vector, Vector]:
        return accelerated_steps(
            own,
            z[i],
            known.alpha,
            known.beta,
            pull,
            consensus,
            known.local_steps,
            previous=before,
            last_gradient_noise=None if noise is None else noise(t, i),
            step=known.step,
            restart=known.step == 0.0 or noise is not None,
        )

    return _rounds(z, known, client)


def plain_rounds(z: Matrix, known: Constants, noise: Noise | None = None) -> Course:
    """Run Algorithm 1 exactly as printed: (14)-(16), (19), (20), every step of length eta_w."""
    d = node_count(z.shape[1])
    smallest = np.inf

    def client(
        i: int, t: int, own: Vector, before: Vector, pull: float, consensus: Vector
    ) -> tuple[Vector, Vector]:
        nonlocal smallest
        w, last = own, before
        for k in range(known.local_steps):
            ahead = w + MOMENTUM * (w - last)  # (14)
            smallest = min(smallest, float(degrees(ahead, d).min()))
            if smallest <= 0.0:
                raise _OutsideError
            slope = gradient(ahead, z[i], known.alpha, known.beta) + pull * (ahead - consensus)
            if noise is not None and k == known.local_steps - 1:
                slope = slope + noise(t, i)  # (26)
            w, last = np.maximum(ahead - known.step * slope, 0.0), w  # (15), (16)
        return w, last

    course = _rounds(z, known, client)
    return Course(course.weights, course.consensus, course.gamma, smallest)


class _OutsideError(Exception):
    """An extrapolated graph has left the logarithm's domain."""


def _rounds(
    z: Matrix,
    known: Constants,
    client: Callable[[int, int, Vector, Vector, float, Vector], tuple[Vector, Vector]],
    settled: float = 0.0,
) -> Course:
    count, p = z.shape
    consensus = np.full(p, 1.0 / (node_count(p) - 1))
    weights, gamma = np.tile(consensus, (count, 1)), np.full(count, 1.0 / count)
    before = weights.copy()
    seen = [(weights.copy(), consensus, gamma)]
    try:
        for t in range(1, known.rounds + 1):
            for i in range(count):
                pull = known.rho * float(gamma[i])
                weights[i], before[i] = client(i, t, weights[i], before[i], pull, consensus)
            last = consensus
            if known.rho > 0.0:
                consensus = consensus_update(weights, gamma, known.rho, known.lambda_)  # (19)
                gamma = gamma_update(weights, consensus)  # (20)
            seen.append((weights.copy(), consensus, gamma))
            if np.linalg.norm(consensus - last) <= settled * np.linalg.norm(last) and settled:
                break
    except _OutsideError:
        pass
    weights, consensus, gamma = (np.array(part) for part in zip(*seen, strict=True))
    return Course(weights, consensus, gamma)
