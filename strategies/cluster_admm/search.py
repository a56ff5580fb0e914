"""Finding clusters: the directions in which clients differ, a first split, then the best fit.

Clients k with losses l_k are to be split into Q groups with one model each,

    min over models w_1..w_Q of  sum_k n_k min_q l_k(w_q),       n_k samples at client k.

Iterative federated clustering alternates: every client joins the model that fits it best
(`fitting`), the models are trained. What it finds depends on where it starts, and clients' own
models are no start where they have fewer samples than parameters. So, from a model w trained by
all clients together,

    g_k  = grad f_k(w)                     at hand: the duals phi_k of ADMM tend to it
    U    = the directions in which the g_k differ most                          `directions`
    l_k(w + U a), a in R^r, from its values at a few points, to second order    `quadratics`
    min over a_1..a_Q of sum_k n_k min_q l_k(w + U a_q)                         `best_split`

The expected g_k of Q clusters, less their mean, span at most Q - 1 directions, so the Q-th
singular value is noise, and a direction counts where its own stands out from that. With r << d
few numbers are fitted to all clients' samples, and the last problem is small: it is solved from
many starts, spread as in k-means++, without another message. For squared errors the second order
is exact.

Adversary and what is revealed: the server learns a client's losses under every model it asks
about, in the clear.

Arrays: ``gradients`` (K, d), U (d, r), ``losses`` (K, number of models), ``groups`` (K,).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from trellis.privacy.numerics import linear_sum_assignment

Array = NDArray[np.float64]
Places = NDArray[np.intp]

STANDS_OUT = 1.1  # singular values of noise alone lie closer together than that
_STARTS = 50
_MOST_STEPS = 100
_NOTHING = 1e-12


def directions(gradients: Array, counts: Array, clusters: int) -> Array:
    """Return U (d, r), orthonormal, 1 <= r < Q: in which clients' gradients differ.

    None (r = 0) where they do not differ, or Q = 1.

    Parameters
    ----------
    counts : (K,) the clients' numbers of samples; a gradient's variance falls with them
    clusters : Q
    """
    if clusters < 2 or len(gradients) < 2:
        return np.zeros((gradients.shape[1], 0))
    mean = np.average(gradients, axis=0, weights=counts)
    apart = np.sqrt(counts / np.mean(counts))[:, None] * (gradients - mean)
    _, values, right = np.linalg.svd(apart, full_matrices=False)
    noise = values[clusters - 1] if len(values) >= clusters else 0.0
    own = values[: clusters - 1]
    kept = own > STANDS_OUT * noise
    kept[0] = True  # where none stands out, the longest is the best guess
    kept &= own > _NOTHING * max(float(np.linalg.norm(gradients)), _NOTHING)
    return np.asarray(right[: clusters - 1][kept].T)


def probes(scale: Array) -> Array:
    """Return the points a (m, r) at which losses tell their `quadratics`: 0, +-e_i, e_i + e_j."""
    axes = np.diag(scale)
    first, second = np.tril_indices(len(scale), -1)
    return np.vstack([np.zeros((1, len(scale))), axes, -axes, axes[first] + axes[second]])


@dataclass(frozen=True)
class Quadratics:
    """l_k(a) = constant + slope'a + a'curvature a / 2 of every client: (K,), (K, r), (K, r, r)."""

    constant: Array
    slope: Array
    curvature: Array

    def at(self, points: Array) -> Array:
        """Return the losses (K, Q) at ``points`` (Q, r)."""
        bent = np.einsum("qi,kij,qj->kq", points, self.curvature, points)
        return np.asarray(self.constant[:, None] + self.slope @ points.T + 0.5 * bent)

    def best(self, weights: Array) -> Array:
        """Return the minimiser (r,) of the losses' weighted sum; the shortest of several."""
        total = np.einsum("k,kij->ij", weights, self.curvature)
        return np.asarray(
            -np.linalg.pinv(total, rcond=1e-10, hermitian=True) @ (weights @ self.slope)
        )


def quadratics(losses: Array, scale: Array) -> Quadratics:
    """Return the second-order losses from their values (K, m) at `probes`; convex by force."""
    size = len(scale)
    constant, ahead, behind = (
        losses[:, 0],
        losses[:, 1 : size + 1],
        losses[:, size + 1 : 2 * size + 1],
    )
    slope = (ahead - behind) / (2.0 * scale)
    curvature = np.zeros((len(losses), size, size))
    diagonal = (ahead + behind - 2.0 * constant[:, None]) / scale**2
    curvature[:, np.arange(size), np.arange(size)] = diagonal
    first, second = np.tril_indices(size, -1)
    # l(e_i + e_j) = l(e_i) + l(e_j) - l(0) + the mixed term
    mixed = losses[:, 2 * size + 1 :] - ahead[:, first] - ahead[:, second] + constant[:, None]
    curvature[:, first, second] = curvature[:, second, first] = mixed / (
        scale[first] * scale[second]
    )
    # A client's rounding, or its lie, must not leave a problem without a minimum.
    values, vectors = np.linalg.eigh(curvature)
    convex = (vectors * np.maximum(values, 0.0)[:, None, :]) @ vectors.transpose(0, 2, 1)
    return Quadratics(constant, slope, convex)


def best_split(
    of: Quadratics, counts: Array, clusters: int, rng: np.random.Generator
) -> tuple[Places, Array]:
    """Return the groups (K,) and their points (Q, r) with the least loss found over all samples.

    No group is empty, where there are as many clients as groups.
    """
    mean = np.tensordot(counts, of.curvature, axes=1) / counts.sum()
    # Few samples may say nothing in some direction: a little of all clients' curvature.
    own = -np.linalg.solve(
        of.curvature + 0.05 * mean + _NOTHING * np.eye(len(mean)), of.slope[..., None]
    )[..., 0]
    floor = np.diagonal(of.at(own))
    best: tuple[float, Places, Array] | None = None
    for _ in range(_STARTS):
        points = _spread(of, own, floor, counts, clusters, rng)
        total, groups = _settle(of, counts, points)
        whole = len(np.unique(groups)) == min(clusters, len(groups))
        if whole and (best is None or total < best[0]):
            best = total, groups, points
    if best is None:  # clients alike to the last digit
        groups = np.arange(len(own), dtype=np.intp) % clusters
        return groups, np.array([of.best(counts * (groups == q)) for q in range(clusters)])
    return best[1], best[2]


def _spread(
    of: Quadratics, own: Array, floor: Array, counts: Array, clusters: int, rng: np.random.Generator
) -> Array:
    """Return Q clients' own points, each drawn by how badly those before it fit a client."""
    chosen = [int(rng.integers(len(own)))]
    while len(chosen) < clusters:
        excess = counts * np.maximum(of.at(own[chosen]).min(axis=1) - floor, 0.0)
        total = float(excess.sum())
        odds = excess / total if 0.0 < total < np.inf else None
        chosen.append(int(rng.choice(len(own), p=odds)))
    return own[chosen]


def _settle(of: Quadratics, counts: Array, points: Array) -> tuple[float, Places]:
    """Alternate between groups and ``points`` (changed in place) until no client moves."""
    groups = np.full(len(counts), -1, dtype=np.intp)
    for _ in range(_MOST_STEPS):
        joined = np.argmin(of.at(points), axis=1)
        if np.array_equal(joined, groups):
            break
        groups = joined
        for group in np.unique(groups):
            points[group] = of.best(counts * (groups == group))
    return float(counts @ of.at(points).min(axis=1)), groups


def fitting(losses: Array, groups: Places) -> Places:
    """Return the cluster (K,) with the smallest loss; unchanged where losses (K, Q) are missing."""
    known = np.all(np.isfinite(losses), axis=1)
    best = np.argmin(np.where(np.isfinite(losses), losses, np.inf), axis=1)
    return np.where(known, best, groups)


def agreement(found: Places, truth: Places, count: int) -> float:
    """Return the share of clients whose cluster is right, whatever the clusters are called.

    ``count`` is the larger of the two numbers of clusters.
    """
    table = np.zeros((count, count))
    np.add.at(table, (found, truth), 1.0)
    rows, columns = linear_sum_assignment(-table)
    return float(table[rows, columns].sum() / len(found))
