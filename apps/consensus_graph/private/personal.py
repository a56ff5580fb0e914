"""A client's own graph, computed at home from its raw signals and the public consensus.

Nothing of it leaves the device, so it needs no noise: others learn what they could compute
themselves from the consensus. The graph is (13) with the client's raw zbar,

    min_{w >= 0}  2 zbar'w - alpha 1'log(S w) + 2 beta |w|^2 + (pull / 2) |w - c w_con|^2,

with c the factor at which c w_con itself is best for the client's data, so that the unit of the
consensus does not matter, and pull = 4 beta times one of `PULLS`, 0 (alone) among them.

*How hard to pull* is chosen by the client's own held-out signals: fold by fold, the log-likelihood
of the left-out signals as Gaussian with precision c' L(w), L the Laplacian, c' the best for the
fold. A few dozen signals cannot tell neighbouring pulls apart, so of those whose likelihood is
within k standard errors of the best one is taken by how well the consensus is known: its noise
over that of the client's own statistic, sqrt(2 / N), both public,

    k = (25 / N) log2(0.3 / (noise / sqrt(2 / N))),   between -2 and 2,

the strongest of them where k > 0 that is no less likely than learning alone, the weakest where
k < 0; with many signals likelihood alone decides. Measured at d = 20, mean MCC of the clients'
graphs, against the best likelihood: I = 1000, N = 20, epsilon = 1: .62 against .58; I = 20, N = 50,
epsilon = 0.3, where the consensus is mostly noise: .51 against .50 (alone .52).

*The ridge* follows from the number of signals: alpha beta / (mean z)^2 = 3 / sqrt(N), which is
what was best for learning alone from 10 to 100 signals. Choosing it by the same held-out
likelihood was measured to be worse (MCC .645 against .661): likelihood likes many faint edges.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from trellis.apps.consensus_graph.problem import Matrix, Vector, adjacency, node_count, statistic
from trellis.apps.consensus_graph.solver import solve

from .pooled import smoothness_beta

# Pulls to try, in units of the ridge's own curvature 4 beta.
PULLS = (0.0, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0)
FOLDS = 5
_OWN_SMOOTHNESS = 3.0
_TRUSTED = 0.3  # noise of the consensus over the client's own at which it is neither side's
_HALF_SIGNALS = 25.0
_MOST_ERRORS = 2.0
# Of the complete graph on top of one that is scored, see `with_faint`.
_FAINT = 0.05
_FOLD_TOLERANCE = 1e-8  # folds are compared only; the graph itself is solved to the end
_LEAST_ROUGHNESS = 1e-30  # of a fold, where its mean over all signals is of order 1


@dataclass(frozen=True)
class PersonalGraph:
    """A client's graph, and how it came about.

    Attributes
    ----------
    weights : (p,)
    alone : (p,) the graph without the consensus, to compare
    pull : of `PULLS`, the one taken; 0 is learning alone
    beta : ridge, in the unit of the data
    gain : held-out log-likelihood a signal, beyond that of learning alone
    gamma : 1 / |w - c w_con|, the client's weight in (20) relative to the size of its graph
    """

    weights: Vector
    alone: Vector
    pull: float
    beta: float
    gain: float
    gamma: float


def personal_graph(
    signals: Matrix, consensus: Vector | None, noise: float, alpha: float
) -> PersonalGraph:
    """Return the client's own graph from its raw ``signals`` (N, d).

    Parameters
    ----------
    consensus : (p,) in any unit; None learns alone
    noise : of the consensus, `pooled.Pooled.noise`
    """
    unit, size = _in_own_unit(signals)
    z = statistic(unit)
    pulls = PULLS if consensus is not None and np.any(consensus > 0.0) else PULLS[:1]
    if not np.mean(z) > 0.0:  # constant signals say nothing: what is known is the consensus
        known = consensus if consensus is not None else np.zeros(z.size)
        return PersonalGraph(known, np.zeros(z.size), float("inf"), 0.0, 0.0, float("inf"))
    shared = consensus if consensus is not None else np.zeros(z.size)
    scores = held_out(unit, shared, alpha, pulls)
    best = choose(scores, errors_allowed(noise, len(unit)))
    alone = _fit(z, shared, alpha, 0.0, len(unit), tolerance=1e-12)
    w = alone if best == 0 else _fit(z, shared, alpha, pulls[best], len(unit), tolerance=1e-12)
    target = _scaled(shared, z, alpha, own_beta(z, alpha, len(unit)))
    distance = float(np.linalg.norm(w - target) / np.linalg.norm(w))
    gain = float(np.mean(scores[best] - scores[0]))
    # w*(c^2 z) = w*(z) / c^2: from signals of the client's own unit back to those of its file.
    with np.errstate(over="ignore", under="ignore"):
        largest = np.finfo(np.float64).max
        weights, alone = (np.minimum(x / size / size, largest) for x in (w, alone))
        beta = float(np.minimum(own_beta(z, alpha, len(unit)) * size**2 * size**2, 1e300))
    return PersonalGraph(weights, alone, pulls[best], beta, gain, 1.0 / (distance + 1e-6))


def errors_allowed(noise: float, count: int) -> float:
    """Return k: how many standard errors of likelihood to give up, and (sign) for which side."""
    if noise <= 0.0:
        return _MOST_ERRORS
    relative = noise / np.sqrt(2.0 / count)
    errors = _HALF_SIGNALS / count * np.log2(_TRUSTED / relative)
    return float(np.clip(errors, -_MOST_ERRORS, _MOST_ERRORS))


def choose(scores: Matrix, errors: float) -> int:
    """Return the row of ``scores`` (pulls, N) to take, see the module; row 0 is alone."""
    total = np.sum(scores, axis=1)
    if not np.all(np.isfinite(total)):  # signals of sizes that have no likelihood in floats
        return 0
    best = int(np.argmax(total))
    behind = scores[best] - scores
    error = np.std(behind, axis=1) * np.sqrt(scores.shape[1])
    # Whatever is given up for the consensus, not so much that alone would have done better.
    allowed = np.minimum(abs(errors) * error, total[best] - total[0] if errors > 0.0 else np.inf)
    close = np.flatnonzero(np.sum(behind, axis=1) <= allowed)
    return int(close[-1] if errors > 0.0 else close[0])


def held_out(unit: Matrix, consensus: Vector, alpha: float, pulls: tuple[float, ...]) -> Matrix:
    """Return the log-likelihood (pulls, N) of every signal, held out of learning in its fold.

    Folds are every `FOLDS`-th signal, so they are the same on every run.
    """
    count = len(unit)
    folds = np.arange(count) % min(FOLDS, count)
    scores = np.zeros((len(pulls), count))
    for fold in range(min(FOLDS, count)):
        left = folds == fold
        z = statistic(unit[~left])
        if not np.mean(z) > 0.0:
            continue
        for row, pull in enumerate(pulls):
            w = _fit(z, consensus, alpha, pull, int(np.sum(~left)))
            scores[row, left] = log_likelihood(with_faint(w), unit[left])
    return scores


def with_faint(w: Vector) -> Vector:
    """Return a graph with a faint complete one on top: none gives a signal no chance at all."""
    return np.asarray(w + _FAINT * np.mean(w), dtype=np.float64)


def best_scale(w: Vector, signals: Matrix) -> float:
    """Return the c under which precision c L(w) makes ``signals`` (N, d) most likely."""
    return (node_count(w.size) - 1) / _mean_roughness(roughness_of(w, signals))


def roughness_of(w: Vector, signals: Matrix) -> Vector:
    """Return x'L(w)x (N,) of every signal."""
    return np.asarray(np.sum((signals @ laplacian_of(w)) * signals, axis=1), dtype=np.float64)


def _mean_roughness(roughness: Vector) -> float:
    return max(float(np.mean(roughness)), _LEAST_ROUGHNESS)


def log_likelihood(w: Vector, signals: Matrix, scale: float | None = None) -> Vector:
    """Return the Gaussian log-likelihood (N,) of signals with precision c L(w).

    Of their differences only, which is all L sees, and without the constant (d - 1) log(2 pi) / 2.
    ``scale`` is c; None takes the one that is best for these signals.
    """
    laplacian = laplacian_of(w)
    d = laplacian.shape[0]
    log_determinant = float(np.linalg.slogdet(laplacian + 1.0 / d)[1])
    roughness = roughness_of(w, signals)
    if scale is None:
        scale = (d - 1) / _mean_roughness(roughness)
    found = 0.5 * (log_determinant + (d - 1) * np.log(scale)) - 0.5 * scale * roughness
    return np.asarray(found, dtype=np.float64)


def laplacian_of(w: Vector) -> Matrix:
    """Return L (d, d), degrees on the diagonal and -w beside it."""
    matrix = adjacency(w)
    return np.asarray(np.diag(matrix.sum(axis=1)) - matrix, dtype=np.float64)


def _fit(
    z: Vector,
    consensus: Vector,
    alpha: float,
    pull: float,
    count: int,
    tolerance: float = _FOLD_TOLERANCE,
) -> Vector:
    beta = own_beta(z, alpha, count)
    if pull == 0.0:
        return solve(z, alpha, beta, tolerance=tolerance).w
    target = _scaled(consensus, z, alpha, beta)
    return solve(z, alpha, beta, 4.0 * beta * pull, target, tolerance=tolerance).w


def own_beta(z: Vector, alpha: float, count: int) -> float:
    """Return the ridge for ``count`` signals, in the unit of ``z``; see the module."""
    return smoothness_beta(z, alpha, _OWN_SMOOTHNESS / float(np.sqrt(count)))


def _scaled(consensus: Vector, z: Vector, alpha: float, beta: float) -> Vector:
    """Return c w_con with the c that is best for (13) without a pull: a quadratic equation."""
    square = 4.0 * beta * float(np.sum(consensus * consensus))
    slope = 2.0 * float(np.sum(z * consensus))
    if not square > 0.0:
        return consensus
    barrier = alpha * node_count(z.size)
    # The positive root of square c^2 + slope c = barrier, in the form that does not cancel.
    factor = 2.0 * barrier / (slope + np.sqrt(slope * slope + 4.0 * square * barrier))
    return np.asarray(factor * consensus, dtype=np.float64)


def _in_own_unit(signals: Matrix) -> tuple[Matrix, float]:
    """Return the signals, centred, with squared differences of mean 1, and their unit.

    By a power of two first: squares of any finite signals are ordinary floats then.
    """
    block = np.asarray(signals, dtype=np.float64)
    exponent = int(np.frexp(np.max(np.abs(block), initial=0.0))[1])
    block = np.ldexp(block, -exponent)
    block = block - block.mean(axis=1, keepdims=True)
    mean = float(np.mean(statistic(block)))
    if not mean > 0.0:
        return block, 1.0
    root = float(np.sqrt(mean))
    return block / root, float(np.ldexp(root, min(exponent, 1000)))
