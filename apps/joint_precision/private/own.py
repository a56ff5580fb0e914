"""A device's own graph, from its raw samples and the consensus. Nothing of it leaves the device.

    min -log det Omega + <Omega, (1 - a) S_i + a R> + lambda sum_jk c / (c + |q_jk|) |Omega_jk|

S_i : correlations of the raw samples; R and q : correlations and partial correlations of the
consensus. ``a`` says how far its values are trusted (the mode of a Wishart prior around R), ``c``
how far its graph is: a pair with a strong edge there is penalised less. a = 0 without c is the
graphical lasso alone.

a, c and lambda are tried on held-out thirds of the device's own samples, by likelihood. The
consensus is used where it is better than alone on **every** third, so that noise does not pass for
help. With a and c so chosen, lambda is chosen on all samples by the extended BIC of the blended
correlations, which are worth n / (1 - a) samples: the lambda that predicts best keeps too many
edges.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from trellis.strategies.joint_precision.path import extended_bic

from ..correlation import correlation_from_tau, to_positive_semidefinite
from ..kendall import kendall
from ..problem import partial_correlations, smooth_loss
from ..solver import solve_weighted_path

Matrix = NDArray[np.float64]
Vector = NDArray[np.float64]

FOLDS = 3
FEWEST_SAMPLES = 4 * FOLDS
ALONE = (0.0, np.inf)
# How far the values are trusted, and how far the graph: all pairs of the two are tried.
BLENDS = (0.0, 0.3, 0.6, 0.85)
SCALES = (np.inf, 0.1, 0.03)
# Of a trial: lambdas, and how exactly a trial is solved. What is kept is solved to the tolerance.
TRIED = np.geomspace(0.4, 0.03, 8)
_TRIAL_TOLERANCE, _TRIAL_ROUNDS = 1e-2, 60


@dataclass(frozen=True)
class Own:
    """A client's own result at L points of a path.

    Attributes
    ----------
    blend, scale : a and c; 0 and infinity where the client is alone
    gain : held-out log likelihood a sample over that of the client alone, 0 for one that is
    lambdas, gaps, ebic : (L,)
    sparse, precision : (L, p, p)
    losses : (L,) -log det Psi + <Psi, S_i>, S_i the client's raw correlations
    chosen : the point to keep
    smallest : eigenvalue of S_i before projection
    """

    blend: float
    scale: float
    gain: float
    lambdas: Vector
    gaps: Vector
    ebic: Vector
    sparse: Matrix
    precision: Matrix
    losses: Vector
    chosen: int
    smallest: float

    @property
    def alone(self) -> bool:
        """Whether the consensus is not used."""
        return (self.blend, self.scale) == ALONE


def own_precision(
    values: Matrix,
    consensus: Matrix,
    lambdas: Sequence[float],
    *,
    trusts: Sequence[tuple[float, float]] | None = None,
    trust: tuple[float, float, float] | None = None,
    gamma: float = 0.0,
    rho: float = 1.0,
    tolerance: float = 1e-6,
    rounds: int = 1000,
) -> Own:
    """Return a client's own path of precision matrices, and the point it keeps.

    Parameters
    ----------
    values : (n, p) raw samples
    consensus : (p, p) precision matrix, positive definite
    lambdas : (L,) falling
    trusts : the (a, c) to try; `trusts_of` names them by method
    trust : what `trust_in` returned, if it is known
    gamma : of the extended BIC
    """
    count = len(values)
    reference = reference_correlation(consensus)
    strength = np.abs(partial_correlations(consensus))
    tried = trusts_of("group") if trusts is None else trusts
    blend, scale, gain = trust or choose_trust(values, reference, strength, tried)
    own, smallest = to_positive_semidefinite(raw_correlation(values))
    mixed = (1.0 - blend) * own + blend * reference
    path = solve_weighted_path(
        mixed,
        pair_weights(strength, scale),
        lambdas,
        rho=rho,
        tolerance=tolerance,
        rounds=rounds,
    )
    sparse = np.array([point.sparse[0] for point in path])
    edges = np.count_nonzero(sparse[:, *np.triu_indices(len(own), 1)], axis=1)
    fits = np.array([point.losses[0] for point in path])
    worth = np.array([count / (1.0 - blend)])
    ebic = extended_bic(fits[:, None], edges[:, None], worth, len(own), gamma)
    return Own(
        blend=blend,
        scale=scale,
        gain=gain,
        lambdas=np.asarray(lambdas, dtype=np.float64),
        gaps=np.array([point.gap for point in path]),
        ebic=ebic,
        sparse=sparse,
        precision=np.array([point.precision[0] for point in path]),
        losses=np.array([smooth_loss(matrix, own) for matrix in sparse]),
        chosen=int(np.argmin(np.where(np.isfinite(ebic), ebic, np.inf))),
        smallest=smallest,
    )


def trusts_of(method: str) -> list[tuple[float, float]]:
    """Return the (a, c) that a method tries: ``fused`` the values only, ``group`` the graph too.

    A method without a consensus tries none.
    """
    scales = {"group": SCALES, "fused": SCALES[:1]}.get(method)
    return [ALONE] if scales is None else list(itertools.product(BLENDS, scales))


def trust_in(
    values: Matrix, consensus: Matrix, trusts: Sequence[tuple[float, float]]
) -> tuple[float, float, float]:
    """Return a and c for a consensus (p, p), and what they gain: see `choose_trust`."""
    strength = np.abs(partial_correlations(consensus))
    return choose_trust(values, reference_correlation(consensus), strength, trusts)


def choose_trust(
    values: Matrix, reference: Matrix, strength: Matrix, trusts: Sequence[tuple[float, float]]
) -> tuple[float, float, float]:
    """Return a, c, and what they gain over `ALONE` in held-out log likelihood a sample."""
    tried = [ALONE, *(trust for trust in trusts if trust != ALONE)]
    if len(values) < FEWEST_SAMPLES or len(tried) == 1:
        return (*ALONE, 0.0)
    losses = np.zeros((len(tried), TRIED.size, FOLDS))
    for fold, (learned, held_out) in enumerate(_folds(values)):
        for place, (blend, scale) in enumerate(tried):
            mixed = (1.0 - blend) * learned + blend * reference
            weights = pair_weights(strength, scale)
            path = solve_weighted_path(
                mixed,
                weights,
                TRIED.tolist(),
                tolerance=_TRIAL_TOLERANCE,
                rounds=_TRIAL_ROUNDS,
            )
            # Half of -log det + trace is the negative log likelihood of a sample.
            losses[place, :, fold] = [smooth_loss(p.sparse[0], held_out) / 2.0 for p in path]
    mean = np.where(np.isfinite(losses), losses, np.inf).mean(axis=2)
    alone = losses[0, int(np.argmin(mean[0]))]
    place, point = divmod(int(np.argmin(mean)), TRIED.size)
    gains = alone - losses[place, point]
    if place == 0 or not np.all(gains > 0.0):
        return (*ALONE, 0.0)
    blend, scale = tried[place]
    return blend, scale, float(gains.mean())


def _folds(values: Matrix) -> Iterator[tuple[Matrix, Matrix]]:
    """Yield the correlations of what is learned from, positive semidefinite, and of what is not."""
    fold = np.arange(len(values)) % FOLDS
    for number in range(FOLDS):
        learned, _ = to_positive_semidefinite(raw_correlation(values[fold != number]))
        yield learned, raw_correlation(values[fold == number])


def raw_correlation(values: Matrix) -> Matrix:
    """Return S from tau-a, which a constant column does not stop."""
    return correlation_from_tau(kendall(values, variant="a"))


def pair_weights(strength: Matrix, scale: float) -> Matrix:
    """Return c / (c + |q|); 1 for infinite c."""
    return np.ones_like(strength) if np.isinf(scale) else scale / (scale + strength)


def reference_correlation(precision: Matrix) -> Matrix:
    """Return the correlation matrix of a precision matrix."""
    covariance = np.linalg.inv(precision)
    deviations = np.sqrt(np.diagonal(covariance))
    found: Matrix = covariance / np.outer(deviations, deviations)
    return (found + found.T) / 2.0
