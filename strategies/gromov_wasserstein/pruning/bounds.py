"""Lower bounds of Gromov-Wasserstein discrepancies, for all pairs of graphs at once.

    GW = min_T sum_ijkl (C_ik - D_jl)^2 T_ij T_kl    over T >= 0, T 1 = p, T' 1 = q

C : (n, n) with weights p and D : (m, m) with q; the square loss, not rooted, without the factor 1/2
of Mémoli's definitions [M]_. W^2(f, g) is the squared distance of two distributions on the line,
the integral of the squared difference of their quantile functions. For every coupling T:

first     T pushes f_i = (sum_k C_ik^2 p_k)^(1/2) and g_j forward to a coupling of their
          distributions, and by the triangle inequality in L2(T), for every i and j,
          sum_kl (C_ik - D_jl)^2 T_kl >= (f_i - g_j)^2. So GW >= W^2(f, g).
second    T x T is a coupling of p x p and q x q. So GW >= W^2 of all distances, C under p x p.
third     For every i and j, sum_kl (C_ik - D_jl)^2 T_kl >= L_ij = W^2(row i of C, row j of D).
          So GW >= min_T <L, T>, one transport problem. As L_ij >= (f_i - g_j)^2 it is never below
          the first bound, and glueing the couplings of rows along T gives one of all distances: it
          is never below the second either.
spectral  Let A = P^(1/2) C P^(1/2) with P = diag(p), B alike, U = P^(-1/2) T Q^(-1/2). Then GW(T) =
          |A|^2 + |B|^2 - 2 <A U B, U>. U takes the unit vector q^(1/2) to p^(1/2) and back, and is
          a contraction V on what is orthogonal to them. With the means a = p'Cp and b, e = C p,
          and A0 the part of A orthogonal to p^(1/2),
          <A U B, U> = a b + 2 (e' T f - a b) + <A0 V B0, V>. The middle is at most that of the
          coupling monotone in e and f; of the last, positive parts of A0 and B0 meet at most in
          the sum of the products of their eigenvalues in order, negative parts alike, and a
          positive and a negative part add nothing above 0. So
          GW >= (a - b)^2 + 2 W^2(e - a, f - b) + |eigenvalues of A0 - of B0|^2, positive and
          negative ones by themselves, each in order and with zeros behind. [HRW]_ have it for
          quadratic assignment; for graphs here it is mostly the best of the cheap ones.

All but the third are squared Euclidean distances between *signatures*, one vector a graph: all
pairs of them take a fraction of a second. Quantile functions enter by their means over equal cells:
by Jensen the squared difference of means is at most the mean of squared differences, so bounds stay
bounds. Features x of nodes (``fgw``, ``wasserstein``): min_T <|x_i - y_j|^2, T> is at least the
squared difference of the means plus that of the roots of the covariances' eigenvalues in order.

Where couplings are local minima the found value is above the minimum, so a bound of the minimum is
one of the found value, too.

.. [M] F. Mémoli, Gromov-Wasserstein distances and the metric approach to object matching,
   Foundations of Computational Mathematics 11, 2011, Section 6.
.. [HRW] S. W. Hadley, F. Rendl, H. Wolkowicz, A new lower bound via projection for the quadratic
   assignment problem, Mathematics of Operations Research 17, 1992.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.spatial.distance import cdist

from ..rows import squared_distances
from ..simplex import transport
from ..space import Matrix, Space, Vector

CELLS = 128  # of a graph's quantile functions
ROW_CELLS = 32  # of one row of its distances
_EIGENVALUES = 64  # of either sign; the rest by its length, which keeps a bound a bound
_ROUNDING = 1e-9  # how near two spaces are that count as the same, see `isometry`


@dataclass(frozen=True)
class Signatures:
    """Vectors whose squared distances are lower bounds, one row a graph.

    Attributes
    ----------
    first, second, spectral : (N, d) of the bounds of these names; empty where there is no structure
    features : (N, d') of nodes' features; empty where there are none
    rounding : (N,), what rounding may add to a bound
    """

    first: Matrix
    second: Matrix
    spectral: Matrix
    features: Matrix
    rounding: Vector

    @classmethod
    def of(cls, spaces: Sequence[Space], *, structure: bool = True) -> Signatures:
        """Return the signatures of prepared spaces; ``structure`` False reads features alone."""
        empty = np.zeros((len(spaces), 0))
        if structure and spaces:
            roots = [cell_means(np.sqrt(s.squares), s.weights, CELLS) for s in spaces]
            first = np.array(roots) / np.sqrt(CELLS)
            second = np.array([_all_distances(s) for s in spaces]) / np.sqrt(CELLS)
            spectral = np.array([_spectrum(s) for s in spaces])
        else:
            first = second = spectral = empty
        known = [s.features for s in spaces if s.features is not None]
        features = np.array([_moments(s) for s in spaces]) if known else empty
        largest = [_largest(s, structure) for s in spaces]
        return cls(first, second, spectral, features, _ROUNDING * np.array(largest))

    def bounds(self, metric: str = "gw", alpha: float = 0.5) -> Matrix:
        """Return lower bounds (N, N) of the values that a solver finds, rounding taken off.

        Parameters
        ----------
        metric, alpha : as for `pairwise`; ``wasserstein`` is a root
        """
        if metric == "wasserstein":
            found = _squared(self.features)
        else:
            found = np.maximum(_squared(self.first), _squared(self.second))
            np.maximum(found, _squared(self.spectral), out=found)
            if metric == "fgw":
                found = alpha * found + (1.0 - alpha) * _squared(self.features)
        found -= np.maximum(self.rounding[:, None], self.rounding)
        np.maximum(found, 0.0, out=found)
        np.fill_diagonal(found, 0.0)
        return np.sqrt(found) if metric == "wasserstein" else found


def third_bound(
    x: Space,
    y: Space,
    rows_x: Matrix | None = None,
    rows_y: Matrix | None = None,
    *,
    metric: str = "gw",
    alpha: float = 1.0,
) -> float:
    """Return the third lower bound of one pair, rounding taken off.

    Parameters
    ----------
    x, y : prepared spaces
    rows_x, rows_y : their `row_cells`, where these are there already
    metric, alpha : ``fgw`` adds the costs of features to the transport problem
    """
    a = row_cells(x) if rows_x is None else rows_x
    b = row_cells(y) if rows_y is None else rows_y
    costs = np.asarray(cdist(a, b, "sqeuclidean"))
    if metric == "fgw" and x.features is not None and y.features is not None:
        costs = alpha * costs + (1.0 - alpha) * squared_distances(x.features, y.features)
    value = float(np.vdot(transport(x.weights, y.weights, costs), costs))
    return max(0.0, value - _ROUNDING * max(_largest(x), _largest(y)))


def row_cells(space: Space) -> Matrix:
    """Return the quantile function of every row of distances, (n, `ROW_CELLS`).

    Scaled so that squared differences of rows sum to a bound of W^2.
    """
    n = space.weights.size
    order = np.argsort(space.distances, axis=1, kind="stable")
    values = np.take_along_axis(space.distances, order, axis=1)
    mass = space.weights[order]
    ends = np.cumsum(mass, axis=1)
    ends /= ends[:, -1:]
    # All rows end to end, the i-th on [i, i + 1]: one interpolation for all of them.
    ends += np.arange(n)[:, None]
    area = np.cumsum(values * mass)
    at = np.linspace(0.0, n, n * ROW_CELLS + 1)
    whole = np.interp(at, np.append(0.0, ends), np.append(0.0, area))
    return np.diff(whole).reshape(n, ROW_CELLS) * np.sqrt(ROW_CELLS)


def cell_means(values: Vector, mass: Vector, cells: int) -> Vector:
    """Return the means of a quantile function over equal cells of [0, 1], (cells,), exactly."""
    order = np.argsort(values, kind="stable")
    ends = np.append(0.0, np.cumsum(mass[order]))
    area = np.append(0.0, np.cumsum(values[order] * mass[order]))
    at = np.linspace(0.0, 1.0, cells + 1)
    return np.diff(np.interp(at, ends / ends[-1], area)) * cells


def _all_distances(space: Space) -> Vector:
    mass = space.weights[:, None] * space.weights
    return cell_means(space.distances.ravel(), mass.ravel(), CELLS)


def _spectrum(space: Space) -> Vector:
    """Return a, e - a and the eigenvalues of A0, so that squared distances sum to the bound."""
    root = np.sqrt(space.weights)
    mean = space.rank[1]
    whole = root[:, None] * space.distances * root
    along = whole @ root
    # A0 = (1 - rr') A (1 - rr') with r = p^(1/2) and a = r'Ar.
    inside = whole - np.outer(along, root) - np.outer(root, along) + mean * np.outer(root, root)
    values = np.linalg.eigvalsh(inside)
    eccentric = cell_means(space.eccentricity - mean, space.weights, CELLS) * np.sqrt(2.0 / CELLS)
    parts = [_leading(np.maximum(sign * values, 0.0)) for sign in (1.0, -1.0)]
    return np.concatenate([[mean], eccentric, *parts])


def _leading(values: Vector) -> Vector:
    """Return the largest, in order, and the length of the rest."""
    order = -np.sort(-values)
    found = np.zeros(_EIGENVALUES + 1)
    found[: min(_EIGENVALUES, order.size)] = order[:_EIGENVALUES]
    found[-1] = np.linalg.norm(order[_EIGENVALUES:])
    return found


def _moments(space: Space) -> Vector:
    """Return the mean of the features, and the roots of the eigenvalues of their covariance."""
    if space.features is None:
        raise ValueError("some spaces have features and some have none")
    mean = space.weights @ space.features
    apart = np.sqrt(space.weights)[:, None] * (space.features - mean)
    roots = np.zeros(space.features.shape[1])
    values = np.linalg.svd(apart, compute_uv=False)
    roots[: values.size] = values
    return np.concatenate([mean, roots])


def _largest(space: Space, structure: bool = True) -> float:
    """Return the largest value that this space can lend to a sum over its atoms."""
    found = space.scale**2 if structure else 0.0
    if space.features is not None:
        found += 4.0 * float(np.max(space.features**2, initial=0.0)) * space.features.shape[1]
    return found * space.weights.size


def _squared(rows: Matrix) -> Matrix:
    if not rows.shape[1]:
        return np.zeros((len(rows), len(rows)))
    return np.asarray(cdist(rows, rows, "sqeuclidean"))
