"""What the server makes of the sum: the graph that all clients share. Post-processing.

    tau = T / W,   S = sin(pi/2 tau), projected to the positive semidefinite,
    Omega = argmin -log det Omega + <Omega, S> + lambda |off-diagonal|_1

lambda follows from what is known: every entry of tau carries noise of standard deviation s / W (s
of the sum, the clients' own word) and sampling error near 2 / (3 sqrt(N)); lambda is `TIMES` times
what that is on the scale of correlations. A consensus for all clients: where they differ it is a
mixture, and how far to trust it is each device's own choice, see `own`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trellis.strategies.core.enrolment import StudyError

from ..correlation import correlation_from_tau, to_positive_semidefinite
from ..solver import solve_path
from .concordance import BESIDE

Matrix = NDArray[np.float64]
Vector = NDArray[np.float64]

TIMES = 1.5
# The sum of weights is used where its own noise is a small part of it; else all weights are 1.
_TRUSTED_WEIGHT = 0.05
_LEAST_WEIGHT = 0.2
_LARGEST_LAMBDA = 0.99
_DEVIATIONS = 6.0  # of noise that the sum of weights may be off by


@dataclass(frozen=True)
class Consensus:
    """The public result.

    Attributes
    ----------
    tau : (pairs,) as it came out of the sum
    correlation : (p, p) S, positive semidefinite
    precision, sparse : (p, p) Omega and Psi; Psi's entries are the graph
    noise : standard deviation of the noise in an entry of tau
    weight : mean w_r, 1 where no sample was cut
    penalty : lambda
    gap : certified distance from the smallest objective
    smallest : eigenvalue of S before projection
    """

    tau: Vector
    correlation: Matrix
    precision: Matrix
    sparse: Matrix
    noise: float
    weight: float
    penalty: float
    gap: float
    smallest: float


def consensus(
    concordance: Vector, weight: float, samples: int, variables: int, noise: float
) -> Consensus:
    """Return the consensus of a sum over clients with ``samples`` in all.

    Parameters
    ----------
    concordance, weight : the sum of what `concordance.summands` makes
    noise : standard deviation of the noise in one entry of it
    """
    cut = _mean_weight(weight, samples, variables, noise)
    tau = concordance / (samples * cut)
    level = noise / (samples * cut)
    matrix = np.zeros((variables, variables))
    matrix[np.triu_indices(variables, 1)] = tau
    correlation, smallest = to_positive_semidefinite(correlation_from_tau(matrix))
    penalty = rule(level, samples)
    found = solve_path(correlation[None], [(penalty, 0.0)])[0]
    return Consensus(
        tau,
        correlation,
        found.precision[0],
        found.sparse[0],
        level,
        cut,
        penalty,
        found.gap,
        smallest,
    )


def estimate(
    total: Mapping[str, Vector],
    declared: int,
    noise: float,
    *,
    variables: int,
    points: Vector,
    tolerance: float,
) -> tuple[dict[str, NDArray[Any]], dict[str, float]]:
    """Return the public arrays of a run and its metrics, from the sum and its noise.

    Parameters
    ----------
    total : ``concordance`` and ``weight``
    declared : how many samples clients say are in it
    points : (L,) penalties at which the consensus has curves; none of one point
    tolerance : of the graphs along them

    Raises
    ------
    StudyError
        If there are no samples to learn from.
    """
    if declared < 2:
        raise StudyError("the clients have no samples to learn from")
    weight = float(total["weight"][0])
    samples = samples_in(weight, declared, variables, noise)
    found = consensus(total["concordance"], weight, samples, variables, noise)
    arrays: dict[str, NDArray[Any]] = {
        "consensus": found.sparse,
        "precision": found.precision,
        "correlation": found.correlation,
        "tau": found.tau,
        "samples": np.array([declared, samples]),
        "numbers": np.array([found.noise, found.weight, found.penalty, found.gap, found.smallest]),
    }
    upper = np.triu_indices(variables, 1)
    if points.size > 1:
        path = consensus_path(found, points.tolist(), max(tolerance, 1e-4))
        arrays["path_support"] = np.packbits(path[:, *upper] != 0.0, axis=-1)
    edges = float(np.count_nonzero(found.sparse[upper]))
    return arrays, {"gap": found.gap, "edges": edges, "noise-of-tau": found.noise}


def samples_in(weight: float, declared: int, variables: int, noise: float) -> int:
    """Return the number of samples in a sum, where ``declared`` may be false.

    Samples weigh 1 at most and `_LEAST_WEIGHT` on average: the sum of their weights, and its noise,
    say how many there can be. Parameters as for `consensus`.
    """
    most = max(weight, 0.0) + _DEVIATIONS * noise
    return min(declared, max(round(most / (BESIDE * variables * _LEAST_WEIGHT)), 2))


def rule(noise: float, samples: int) -> float:
    """Return lambda from the noise of an entry of tau and the number of samples."""
    spread = math.hypot(noise, sampling_error(samples))
    return min(TIMES * math.pi / 2.0 * spread, _LARGEST_LAMBDA)


def sampling_error(samples: int) -> float:
    """Return the standard deviation of tau between independent variables."""
    n = float(max(samples, 2))
    return math.sqrt(2.0 * (2.0 * n + 5.0) / (9.0 * n * (n - 1.0)))


def consensus_path(found: Consensus, lambdas: Sequence[float], tolerance: float) -> Matrix:
    """Return Psi (L, p, p) of the consensus at other penalties, for its curves."""
    points = [(float(value), 0.0) for value in lambdas]
    path = solve_path(found.correlation[None], points, tolerance=tolerance)
    return np.array([point.sparse[0] for point in path])


def _mean_weight(weight: float, samples: int, variables: int, noise: float) -> float:
    unit = BESIDE * variables * samples
    if noise > _TRUSTED_WEIGHT * unit:
        return 1.0
    return float(np.clip(weight / unit, _LEAST_WEIGHT, 1.0))
