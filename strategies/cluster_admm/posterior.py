"""From noisy moments of clusters to their models: shrinkage by the noise that is known [GG].

Cluster q has n_q samples (u, t), |u| <= 1, with t = u'theta_q + error. Known are noisy sums

    square_q = sum u u' + noise        (first release)
    cross_q  = sum t u + noise,  power_q = sum t^2 + noise

whose noise has a known deviation. What is solved for is the mean of theta given these, under

    theta_q = beta + delta_q,   beta ~ N(0, kappa^2 I),   delta_q ~ N(0, gamma^2 I):

the ridge of (1) is 1 / kappa^2, the pull tau between its clusters 1 / gamma^2, but for constants.
Both are taken where the noisy sums are most likely (evidence): all of it is computed from what was
released, so it costs no privacy. Noise alone gives kappa = 0, hence models of zero, and clusters
that cannot be told apart give gamma = 0, one model for all.

The samples' second moment is that of all clusters together, shrunk: with S = square / n, mu its
mean eigenvalue and N^2 the expected squared norm of its noise,

    Sigma = mu I + r (S - mu I),   r = max(0, 1 - N^2 / |S - mu I|_F^2),

the least mean square error among such (Ledoit and Wolf, with the noise's share known and not
estimated), its eigenvalues no less than what noise is left in them. This stands in the place of
AdaSSP's lambda I (Wang 2018), which is sized for the worst data.

A later release at models theta_j has cross_q = a n_q Sigma (theta_q - theta_j) + noise: an
observation of n_q Sigma theta_q once n_q Sigma theta_j is added. Its error in Sigma counts by
theta_q - theta_j only, which is why rounds help where n is large. Observations are weighted by
their variances.

    Sigma = V diag(values) V'   values : (d,)   V : (d, d)   observations, models : (Q, d)
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

_SURE = 2.0  # deviations
_LEAST_VALUE = 1e-3  # of the mean eigenvalue
_LEAST_UNEXPLAINED = 0.05  # of the variance of t: no data is explained wholly
# kappa^2, of what would explain all of t: more than all is not there to be explained
_KAPPAS = np.concatenate([[0.0], np.geomspace(1e-4, 1.5, 31)])
_GAMMAS = np.array([0.0, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0])  # gamma^2 / kappa^2


@dataclass(frozen=True)
class Spectrum:
    """Sigma by its eigenvalues and vectors, and the deviation of the noise left in an entry."""

    values: Array
    vectors: Array
    error: float

    def times(self, rows: Array) -> Array:
        """Return Sigma applied to every row (Q, d)."""
        return (rows @ self.vectors * self.values) @ self.vectors.T


@dataclass(frozen=True)
class Posterior:
    """The clusters' models, and what is not known of them.

    Attributes
    ----------
    models : (Q, d) the mean of theta
    doubt : (Q,) the expected squared distance of theta from it
    unexplained : the variance of t that theta does not explain
    missed : (Q,) the variance of u'(theta - mean)
    common, apart : kappa^2 and gamma^2
    """

    models: Array
    doubt: Array
    missed: Array
    unexplained: float
    common: float
    apart: float


def spectrum(square: Array, count: float, sigma: float) -> Spectrum:
    """Return Sigma from the noisy sum ``square`` (d, d) over ``count`` samples.

    Parameters
    ----------
    sigma : deviation of the noise on the diagonal; off it, it is sigma / sqrt(2)
    """
    size = len(square)
    S = square / count
    level = sigma / count
    # The trace has noise too: one that is too small would make models as much too long.
    mu = max(float(np.trace(S)) / size, _SURE * level / math.sqrt(size), 1e-300)
    off = S - mu * np.eye(size)
    seen = float(np.sum(off**2))
    noise = level**2 * size * (size + 1) / 2.0
    kept = max(0.0, 1.0 - noise / seen) if seen > 0.0 else 0.0
    values, vectors = np.linalg.eigh(kept * off)
    # The noise's own eigenvalues reach kept * level * sqrt(2 d) on either side.
    least = max(_LEAST_VALUE * mu, 0.5 * kept * level * math.sqrt(2.0 * size))
    return Spectrum(np.maximum(values + mu, least), vectors, kept * level / math.sqrt(2.0))


def observed(rows: Array, covariances: Array) -> tuple[Array, Array]:
    """Return the mean of observations (R, Q, d), and its own covariance (Q, Q) in a coordinate.

    ``covariances`` (R, Q, Q) are those of the observations, by which they are weighted.
    """
    weights = np.linalg.inv(covariances)
    own = np.linalg.inv(weights.sum(axis=0))
    return np.einsum("pq,rqs,rsd->pd", own, weights, rows), own


def posterior(
    rows: Array,
    covariance: Array,
    counts: Array,
    power: float,
    known: Spectrum,
    unexplained: float | None = None,
) -> Posterior:
    """Return the models from ``rows`` (Q, d), each n_q Sigma theta_q + noise.

    Parameters
    ----------
    covariance : (Q, Q) of the noise in a coordinate of ``rows``
    counts : (Q,) n_q
    power : mean of t^2 at theta = 0, of all samples
    known : Sigma
    unexplained : variance of t about u'theta, where later releases have told it: then
        ``covariance`` has the error in Sigma in it. Else both go with what the prior explains
    """
    clusters, size = rows.shape
    turned = rows @ known.vectors  # coordinates in which Sigma is diagonal
    gain = counts[:, None] * known.values  # (Q, d)
    whole = float(known.values.sum())

    def errors(prior: float) -> tuple[Array, float]:
        """Return the covariance (d, Q, Q) of rows about n Sigma theta, and the variance of t."""
        left, noise = unexplained, covariance
        if left is None:
            left = max(power - prior * whole, _LEAST_UNEXPLAINED * power)
            noise = noise + np.diag((counts * known.error) ** 2 * prior * size)
        return noise + left * np.einsum("qd,qr->dqr", gain, np.eye(clusters)), left

    best, kappa, gamma = -math.inf, 0.0, 0.0
    unit = max(power, 1e-300) / max(whole, 1e-300)
    for one in (_KAPPAS * unit).tolist():
        for share in _GAMMAS.tolist() if clusters > 1 and one > 0.0 else [0.0]:
            found = _evidence(turned, gain, errors(one * (1.0 + share))[0], one, one * share)
            if found > best:
                best, kappa, gamma = found, one, one * share
    noise, left = errors(kappa + gamma)
    mean, variance = _mean(turned, gain, noise, kappa, gamma)
    found_models = mean @ known.vectors.T
    doubt, missed = variance.sum(axis=1), variance @ known.values
    return Posterior(found_models, doubt, missed, left, kappa, gamma)


def expected_doubt(
    covariance: Array,
    counts: Array,
    known: Spectrum,
    unexplained: float,
    prior: tuple[float, float],
) -> float:
    """Return the mean squared error of the models to expect of observations with ``covariance``.

    ``prior`` is kappa^2 and gamma^2; the rest as in `posterior`.
    """
    gain = counts[:, None] * known.values
    noise = covariance + unexplained * np.einsum("qd,qr->dqr", gain, np.eye(len(counts)))
    _, variance = _mean(np.zeros_like(gain), gain, noise, *prior)
    return float(variance.sum())


def _covariance(gain: Array, noise: Array, kappa: float, gamma: float) -> Array:
    """Return the covariance (d, Q, Q) of the rows, one matrix a coordinate."""
    gains = gain.T
    prior = kappa + gamma * np.eye(len(gain))
    return prior * gains[:, :, None] * gains[:, None, :] + noise


def _evidence(turned: Array, gain: Array, noise: Array, kappa: float, gamma: float) -> float:
    """Return the log likelihood of the rows, but for a constant."""
    factors = np.linalg.cholesky(_covariance(gain, noise, kappa, gamma))
    solved = np.linalg.solve(factors, turned.T[:, :, None])
    diagonals = np.einsum("dqq->dq", factors)
    return -float(np.log(diagonals).sum()) - 0.5 * float(np.sum(solved**2))


def _mean(
    turned: Array, gain: Array, noise: Array, kappa: float, gamma: float
) -> tuple[Array, Array]:
    """Return mean and variance (Q, d) of theta in the turned coordinates."""
    prior = kappa + gamma * np.eye(len(turned))
    reach = prior * gain.T[:, None, :]  # cov(theta, rows), (d, Q, Q)
    both = np.concatenate([turned.T[:, :, None], reach.transpose(0, 2, 1)], axis=2)
    solved = np.linalg.solve(_covariance(gain, noise, kappa, gamma), both)
    mean = np.einsum("dqr,dr->qd", reach, solved[:, :, 0])
    told = np.einsum("dqr,drq->qd", reach, solved[:, :, 1:])
    return mean, np.maximum(np.diag(prior)[:, None] - told, 0.0)
