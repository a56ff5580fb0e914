"""Graphs as weighted metric spaces: identical nodes lumped, order of the nodes forgotten.

A space is a symmetric matrix C : (n, n) with weights p : (n,) > 0 of sum one. Gromov-Wasserstein
sees it up to isometry, a solver does not: where a linear programme has several solutions, the one
found depends on how nodes are numbered. `Space.of` therefore

1. drops nodes of weight zero and **lumps** nodes with identical rows into one atom with the sum of
   their weights. Exact: couplings of atoms and of nodes have the same values, as a node's mass may
   be split in any way among its twins.
2. sorts atoms by what does not depend on their numbers, first by the eccentricity e = C p, so that
   a copy with permuted nodes is the same space bit for bit unless atoms tie in all of it.

`isometry` looks for a relabelling between the spaces that still differ.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

Vector = NDArray[np.float64]
Matrix = NDArray[np.float64]
Labels = NDArray[np.int64]

_TWIN = 1e-12  # of the largest entry: twins of a sum in another order differ in the last bits
_SAME = 1e-9  # of the largest entry: when two spaces count as isometric
_TRIALS = 5_000  # of the search for an isometry


@dataclass(frozen=True)
class Space:
    """A weighted metric space, with what a solver needs of it for every pair.

    Attributes
    ----------
    distances, weights : C (n, n) and p (n,) of the atoms
    features : (n, d) in a space that all graphs share, or None
    eccentricity, squares : C p and (C * C) p, (n,)
    cumulated : running sums of the weights
    rank : number of atoms, mean distance and mean squared distance
    scale : largest distance
    tied : whether two atoms have the same eccentricity
    """

    distances: Matrix
    weights: Vector
    features: Matrix | None
    eccentricity: Vector
    squares: Vector
    cumulated: Vector
    rank: tuple[int, float, float]
    scale: float
    tied: bool

    @classmethod
    def prepared(cls, distances: Matrix, weights: Vector, features: Matrix | None = None) -> Space:
        """Return the space of arrays that are as they should be already."""
        cumulated = np.cumsum(weights)
        cumulated[-1] = 1.0
        eccentricity, squares = distances @ weights, distances**2 @ weights
        rank = (weights.size, float(weights @ eccentricity), float(weights @ squares))
        scale = float(distances.max())
        gaps = np.abs(np.diff(eccentricity))
        tied = bool(gaps.size and gaps.min() <= _SAME * scale)
        return cls(
            distances, weights, features, eccentricity, squares, cumulated, rank, scale, tied
        )

    @classmethod
    def of(
        cls,
        distances: ArrayLike,
        weights: ArrayLike | None = None,
        features: ArrayLike | None = None,
        *,
        lump: bool = True,
        name: str = "matrix",
    ) -> tuple[Space, Labels]:
        """Return the space, and of each node its atom (-1 for one without weight).

        Parameters
        ----------
        distances : (N, N) symmetric, not negative, finite
        weights : (N,) not negative, of sum one; None is uniform
        features : (N, d); nodes are lumped only where these agree, too
        lump : whether nodes with identical rows become one atom
        name : of the space in errors
        """
        c = _checked_distances(distances, name)
        p = checked_weights(weights, len(c), name)
        x = None if features is None else checked_features(features, len(c), name)
        twins = _first_twins(c, x) if lump else np.arange(len(c))
        twins[p == 0.0] = -1
        first, inverse = np.unique(twins[twins >= 0], return_inverse=True)
        mass = np.asarray(np.bincount(inverse, p[twins >= 0]), dtype=np.float64)
        order = _canonical_order(c[np.ix_(first, first)], mass, None if x is None else x[first])
        kept = first[order]
        atoms = np.full(len(c), -1)
        atoms[twins >= 0] = np.argsort(order)[inverse]
        # Anew, from sorted arrays: the same bits for every numbering of the nodes.
        space = cls.prepared(
            np.ascontiguousarray(c[np.ix_(kept, kept)]),
            np.ascontiguousarray(mass[order]),
            None if x is None else np.ascontiguousarray(x[kept]),
        )
        return space, atoms

    def before(self, other: Space) -> bool:
        """Return whether this space is the first of the pair: a value must be symmetric."""
        if self.rank != other.rank:
            return self.rank < other.rank
        return self.content() <= other.content()

    def content(self) -> bytes:
        """Return what makes two spaces the same, bit for bit."""
        tail = b"" if self.features is None else self.features.tobytes()
        return self.distances.tobytes() + self.weights.tobytes() + tail


def lump(distances: ArrayLike, weights: ArrayLike | None = None) -> tuple[Matrix, Vector, Labels]:
    """Return C and p of the atoms, and of each node its atom (-1 without weight). Exact."""
    space, atoms = Space.of(distances, weights)
    return space.distances, space.weights, atoms


def isometry(x: Space, y: Space, costs: Matrix | None = None) -> Labels | None:
    """Return which atom of y each atom of x is, where the two are isometric, else None.

    Cheap invariants first; then atoms are fixed one after the other, each leaving the rest only the
    partners at the same distance from it. After `_TRIALS` of them it gives up: so a result is
    always right, and None nearly always.

    Parameters
    ----------
    x, y : the two spaces
    costs : (n, m), zero where features agree; None leaves features out
    """
    n = x.weights.size
    if y.weights.size != n:
        return None
    scale = max(x.scale, y.scale, np.finfo(float).tiny)
    tolerance = _SAME * scale
    if abs(x.rank[1] - y.rank[1]) > tolerance:
        return None
    partners = np.abs(x.weights[:, None] - y.weights) <= _SAME
    partners &= np.abs(x.eccentricity[:, None] - y.eccentricity) <= tolerance
    partners &= np.abs(x.squares[:, None] - y.squares) <= tolerance * scale
    if costs is not None:
        partners &= costs <= _SAME**2 * max(1.0, costs.max())
    if not (partners.any(axis=0).all() and partners.any(axis=1).all()):
        return None

    def tried(partners: NDArray[np.bool_]) -> Iterator[NDArray[np.bool_]]:
        choices = partners.sum(axis=1)
        i = int(np.argmin(np.where(fixed[-1], n + 1, choices)))
        now_fixed = fixed[-1].copy()
        now_fixed[i] = True
        for j in np.flatnonzero(partners[i]):
            rest = np.abs(x.distances[:, i, None] - y.distances[:, j]) <= tolerance
            rest &= partners
            rest[i], rest[:, j] = False, False
            rest[i, j] = True
            fixed.append(now_fixed)
            yield rest
            fixed.pop()

    fixed = [np.zeros(n, dtype=bool)]
    levels = [tried(partners)]
    for _ in range(_TRIALS):
        rest = next(levels[-1], None)
        if rest is None:
            levels.pop()
            if not levels:
                return None
        elif rest.any(axis=1).all() and rest.any(axis=0).all():
            if fixed[-1].all():
                return np.argmax(rest, axis=1).astype(np.int64)
            levels.append(tried(rest))
    return None


def _first_twins(c: Matrix, x: Matrix | None) -> Labels:
    """Return of each node the first with the same row; C is symmetric, so columns agree too."""
    found = np.arange(len(c))
    tolerance = _TWIN * np.abs(c).max()
    diagonal = np.diag(c)
    near = np.abs(c - diagonal) <= tolerance  # equal rows i, j have C_ij = C_jj
    if x is not None:
        tolerance_x = _TWIN * np.abs(x).max()
    for j in np.flatnonzero(near.sum(axis=0) > 1):
        for i in np.flatnonzero(near[:j, j]):
            if found[i] == i and np.abs(c[i] - c[j]).max() <= tolerance:
                if x is not None and np.abs(x[i] - x[j]).max() > tolerance_x:
                    continue
                found[j] = i
                break
    return found


def _canonical_order(c: Matrix, p: Vector, x: Matrix | None) -> Labels:
    """Return an order of atoms by eccentricity that does not depend on how they are numbered.

    Atoms that tie in all invariants are mostly images of each other under a symmetry. One is put
    first, the others follow by their distance from it, and so on: symmetric groups of atoms come
    out in matching orders, whichever was first.
    """
    eccentricity = c @ p
    keys = [eccentricity, c**2 @ p, p, c @ (p * eccentricity), c**2 @ (p * eccentricity)]
    keys += [] if x is None else list(x.T)
    steps = [_in_steps(key) for key in keys]
    while True:
        order = np.lexsort(steps[::-1])
        changes = np.any([np.diff(key[order]) != 0.0 for key in steps], axis=0)
        tied = np.flatnonzero(~changes)
        if not tied.size:
            return order.astype(np.int64)
        first = order[tied[0]]
        from_first = _in_steps(c[:, first])
        from_first[first] = -1.0  # before its twins, if they were not lumped
        steps.append(from_first)


def _in_steps(key: Vector) -> Vector:
    """Return a key in steps of 1e-9, as sums in another order differ in their last bits."""
    return np.rint(key / (_SAME * max(np.abs(key).max(), np.finfo(float).tiny)))


def _checked_distances(values: ArrayLike, name: str) -> Matrix:
    c = np.asarray(values, dtype=np.float64)
    if c.ndim != 2 or c.shape[0] != c.shape[1] or not c.size:
        raise ValueError(f"{name}: shape {c.shape}, a square matrix (n, n) is needed")
    if not np.isfinite(c).all():
        i, j = (int(k) for k in np.argwhere(~np.isfinite(c))[0])
        raise ValueError(
            f"{name}: entry [{i}, {j}] is {c[i, j]}; only finite numbers are distances"
        )
    if c.min() < 0.0:
        i, j = (int(k) for k in np.unravel_index(np.argmin(c), c.shape))
        raise ValueError(
            f"{name}: entry [{i}, {j}] is {c[i, j]:.6g}, a distance is not negative; clip "
            "estimated distances at zero first"
        )
    gap = np.abs(c - c.T)
    if gap.max() > 1e-8 * max(c.max(), np.finfo(float).tiny):
        i, j = (int(k) for k in np.unravel_index(np.argmax(gap), c.shape))
        raise ValueError(
            f"{name}: not symmetric, [{i}, {j}] is {c[i, j]:.6g} and [{j}, {i}] is {c[j, i]:.6g}; "
            "take (C + C.T) / 2 if that is what you mean"
        )
    return c if not gap.any() else (c + c.T) / 2.0


def checked_weights(values: ArrayLike | None, nodes: int, name: str) -> Vector:
    """Return weights of sum one exactly, uniform where there are none."""
    if values is None:
        return np.full(nodes, 1.0 / nodes)
    p = np.asarray(values, dtype=np.float64)
    if p.shape != (nodes,):
        raise ValueError(f"{name}: weights of shape {p.shape} for {nodes} nodes")
    if not (np.isfinite(p).all() and p.min() >= 0.0 and abs(p.sum() - 1.0) <= 1e-6):
        raise ValueError(
            f"{name}: weights from {p.min():.6g} to {p.max():.6g} of sum {p.sum():.6g}; they must "
            "be finite, not negative and of sum one"
        )
    return p / p.sum()


def checked_features(values: ArrayLike, nodes: int, name: str) -> Matrix:
    """Return features as a finite matrix with one row a node."""
    x = np.asarray(values, dtype=np.float64)
    if x.ndim != 2 or len(x) != nodes or not x.shape[1]:
        raise ValueError(f"{name}: features of shape {x.shape}, ({nodes}, d) is needed")
    if not np.isfinite(x).all():
        raise ValueError(f"{name}: features are not all finite")
    return x
