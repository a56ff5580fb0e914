"""Gromov-Wasserstein discrepancies of one pair of graphs, exactly as POT's and faster.

    GW = min_T sum_{ijkl} (C1_ik - C2_jl)^2 T_ij T_kl     over T >= 0, T 1 = p, T' 1 = q   [JC] (1)

C1 : (n, n) and C2 : (m, m) symmetric distances, p : (n,) and q : (m,) weights of the nodes. With
the square loss the objective is c - 2 <C1 T C2, T> with c = p'(C1 * C1)p + q'(C2 * C2)q [PC]_, and
Frank-Wolfe minimises its linearisation, a transport problem, again and again [VC]_. It finds a
local minimum; which one depends on the start, here p q' as in POT. Where transport problems have
several solutions (an encoded embedding has few different distances) it also depends on the one
taken, for POT on how nodes are numbered; here that is settled by `gw_space`.

Why it is faster than POT's loop at the same iterates:

- spaces are lumped and sorted first (`gw_space`);
- at p q' the gradient is -4 e f' plus terms of a row or a column, with e = C1 p and f = C2 q. That
  transport problem is one on the line: the coupling that is monotone in e and f solves it, no LP;
- the line search costs no product of matrices beyond the C1 T C2 that the next gradient needs. For
  Euclidean distances the objective is concave on couplings, every step is a full one and
  iterates are vertices;
- the network simplex is called without POT's wrapper (`gw_simplex`).

POT's start does not find that a graph equals a renumbered copy of itself. So isometric spaces
are recognised first, and their discrepancy is zero.

.. [JC] H. Jin, X. Chen, Gromov-Wasserstein discrepancy with local differential privacy for
   distributed structural graphs, 2022.
.. [PC] G. Peyré, M. Cuturi, J. Solomon, Gromov-Wasserstein averaging of kernel and distance
   matrices, ICML 2016.
.. [VC] T. Vayer, L. Chapel, R. Flamary, R. Tavenard, N. Courty, Optimal transport for structured
   data with application on graphs, ICML 2019.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from .losses import Loss, terms
from .rows import wasserstein
from .simplex import check_marginals, transport
from .space import Labels, Matrix, Space, Vector, checked_weights, isometry, lump

__all__ = [
    "Coupling",
    "Space",
    "couple",
    "fused_gromov_wasserstein",
    "gathered",
    "gromov_wasserstein",
    "lump",
    "spread",
    "wasserstein",
]

_SECOND = 1e-7  # weight of what decides between solutions that tie
_RELATIVE, _ABSOLUTE, _MOST_STEPS = 1e-9, 1e-9, 10_000  # POT's rules, for POT's values


@dataclass(frozen=True)
class Coupling:
    """A value and the plan (n, m) that has it."""

    value: float
    plan: Matrix


def gromov_wasserstein(
    C1: ArrayLike,
    C2: ArrayLike,
    p: ArrayLike | None = None,
    q: ArrayLike | None = None,
    *,
    start: Literal["product"] | Matrix = "product",
    restarts: int = 0,
    seed: int = 0,
    loss: Loss = "square",
) -> Coupling:
    """Return the discrepancy of [JC] (1), not its root, and its plan.

    Parameters
    ----------
    C1, C2 : (n, n) and (m, m), symmetric, not negative
    p, q : (n,) and (m,), weights of sum one; None is uniform
    loss : ``square``, or ``kl`` from C1 to C2, which is another number from C2 to C1 (`losses`)
    start : ``product`` is p q', POT's; or a plan (n, m), which is then improved
    restarts : further starts at random vertices, of which the best is kept
    seed : of the restarts; the same for each pair, so values do not depend on what else is computed
    """
    (x, atoms_x), (y, atoms_y) = Space.of(C1, p, name="C1"), Space.of(C2, q, name="C2")
    begin = None if isinstance(start, str) else gathered(start, x, y, atoms_x, atoms_y)
    found = couple(x, y, start=begin, restarts=restarts, seed=seed, loss=loss)
    p, q = checked_weights(p, atoms_x.size, "C1"), checked_weights(q, atoms_y.size, "C2")
    return Coupling(found.value, spread(found.plan, x, y, atoms_x, atoms_y, p, q))


def fused_gromov_wasserstein(
    M: ArrayLike,
    C1: ArrayLike,
    C2: ArrayLike,
    p: ArrayLike | None = None,
    q: ArrayLike | None = None,
    alpha: float = 0.5,
    *,
    restarts: int = 0,
    seed: int = 0,
    loss: Loss = "square",
) -> Coupling:
    """Return min_T (1 - alpha) <M, T> + alpha GW(T) of [VC], and its plan.

    Parameters
    ----------
    M : (n, m), costs between features, not negative
    C1, C2, p, q, restarts, seed, loss : as for `gromov_wasserstein`
    alpha : **of the structure**, 0 to 1, as in POT; 0 leaves the features alone
    """
    (x, atoms_x), (y, atoms_y) = (
        Space.of(C1, p, lump=False, name="C1"),
        Space.of(C2, q, lump=False, name="C2"),
    )
    m = np.asarray(M, dtype=np.float64)
    if m.shape != (atoms_x.size, atoms_y.size) or not (np.isfinite(m).all() and m.min() >= 0.0):
        raise ValueError(
            f"M: shape {m.shape}, needed are ({atoms_x.size}, {atoms_y.size}) finite costs that "
            "are not negative"
        )
    atom_costs = np.empty((x.weights.size, y.weights.size))
    kept_x, kept_y = atoms_x >= 0, atoms_y >= 0
    atom_costs[np.ix_(atoms_x[kept_x], atoms_y[kept_y])] = m[np.ix_(kept_x, kept_y)]
    found = couple(x, y, costs=atom_costs, alpha=alpha, restarts=restarts, seed=seed, loss=loss)
    p, q = checked_weights(p, atoms_x.size, "C1"), checked_weights(q, atoms_y.size, "C2")
    return Coupling(found.value, spread(found.plan, x, y, atoms_x, atoms_y, p, q))


def couple(
    x: Space,
    y: Space,
    *,
    costs: Matrix | None = None,
    alpha: float = 1.0,
    start: Matrix | None = None,
    restarts: int = 0,
    seed: int = 0,
    loss: Loss = "square",
) -> Coupling:
    """Return the (fused) discrepancy of two prepared spaces. Symmetric in them, but for ``kl``.

    Parameters
    ----------
    x, y : from `Space.of`
    costs : M between their atoms (n, m); None is plain Gromov-Wasserstein
    alpha : weight of the structure where there are costs
    start : a plan; None is p q'
    restarts, seed, loss : as for `gromov_wasserstein`
    """
    if not 0.0 <= alpha <= 1.0:
        raise ValueError(f"alpha={alpha}: 0 (features only) to 1 (structure only)")
    if loss == "square" and not x.before(y):
        found = couple(
            y,
            x,
            costs=None if costs is None else np.ascontiguousarray(costs.T),
            alpha=alpha,
            start=None if start is None else np.ascontiguousarray(start.T),
            restarts=restarts,
            seed=seed,
        )
        return Coupling(found.value, found.plan.T)
    partners = isometry(x, y, costs)
    if partners is not None:
        same = np.zeros((partners.size, partners.size))
        same[np.arange(partners.size), partners] = x.weights
        return Coupling(0.0, same)
    best = _descend(x, y, start, costs, alpha, loss)
    if restarts:
        generator = np.random.default_rng(seed)
        for _ in range(restarts):
            orders = (generator.permutation(space.weights.size) for space in (x, y))
            other = _descend(x, y, _staircase(x, y, *orders), costs, alpha, loss)
            best = other if other.value < best.value else best
    check_marginals(best.plan, x.weights, y.weights)
    return best


def _descend(
    x: Space, y: Space, start: Matrix | None, costs: Matrix | None, alpha: float, loss: Loss
) -> Coupling:
    """Run Frank-Wolfe with an exact line search; a local minimum."""
    p, q, of = x.weights, y.weights, terms(x, y, loss)
    c1, doubled = of.left, of.right  # C1 and, with the square loss, 2 C2
    fixed = of.rows[:, None] + of.columns  # sum_kl (C1_ik^2 + C2_jl^2) T_kl, for every coupling
    constant = alpha * float(p @ of.rows + q @ of.columns)
    linear = None if costs is None else (1.0 - alpha) * costs
    if start is None:
        plan, product = p[:, None] * q, of.start_rows[:, None] * of.start_columns
    else:
        plan, product = start, c1 @ start @ doubled
    inner = float(np.vdot(product, plan))  # <2 C1 T C2, T>
    price = 0.0 if linear is None else float(np.vdot(linear, plan))
    value = constant + price - alpha * inner
    for step in range(_MOST_STEPS):
        if linear is None and start is None and step == 0 and loss == "square":
            vertex = _first_vertex(x, y)
        else:
            gradient = fixed - product  # half the gradient of GW; not negative with squares
            if linear is not None:
                gradient *= 2.0 * alpha
                gradient += linear
            vertex = transport(p, q, gradient if loss == "square" else gradient - gradient.min())
        # On T + s (V - T) the objective is value + slope s + curvature s^2.
        vertex_product = c1 @ vertex @ doubled
        vertex_inner = float(np.vdot(vertex_product, vertex))
        cross = float(np.vdot(vertex_product, plan))  # = <2 C1 T C2, V>, as both are symmetric
        vertex_price = 0.0 if linear is None else float(np.vdot(linear, vertex))
        curvature = -alpha * (vertex_inner - 2.0 * cross + inner)
        slope = vertex_price - price - 2.0 * alpha * (cross - inner)
        if curvature > 0.0:
            s = min(1.0, max(0.0, -slope / (2.0 * curvature)))
        else:
            s = 1.0 if curvature + slope < 0.0 else 0.0
        if s == 1.0:
            plan, product, inner, price = vertex, vertex_product, vertex_inner, vertex_price
            new_value = constant + price - alpha * inner
        elif s > 0.0:
            plan = plan + s * (vertex - plan)
            product = product + s * (vertex_product - product)
            inner = float(np.vdot(product, plan))
            price += s * (vertex_price - price)
            new_value = constant + price - alpha * inner
        else:
            break
        change, value = abs(new_value - value), new_value
        if change < _ABSOLUTE or change < _RELATIVE * abs(value):
            break
    return Coupling(max(value, 0.0), plan)


def _first_vertex(x: Space, y: Space) -> Matrix:
    """Return the solution of the transport problem at p q'.

    Its costs are of rank one and atoms are sorted by eccentricity, so no LP is needed. Unless
    eccentricities tie: then there are many solutions, and one is taken in which atoms are as far
    from the last atom of their space as their partners are.
    """
    if not (x.tied or y.tied):
        return _staircase(x, y)
    costs = x.eccentricity[:, None] * -y.eccentricity
    second = (x.distances[:, -1, None] - y.distances[:, -1]) ** 2
    costs += _SECOND * second
    return transport(x.weights, y.weights, costs - costs.min())


def _staircase(
    x: Space, y: Space, order_x: Labels | None = None, order_y: Labels | None = None
) -> Matrix:
    """Return the coupling that is monotone in two orders of the atoms; a vertex."""
    n, m = x.weights.size, y.weights.size
    if order_x is None or order_y is None:
        ends_x, ends_y = x.cumulated, y.cumulated
    else:
        ends_x, ends_y = np.cumsum(x.weights[order_x]), np.cumsum(y.weights[order_y])
        ends_x[-1] = ends_y[-1] = 1.0
    ends = np.sort(np.concatenate((ends_x, ends_y[:-1])))
    begins = np.concatenate(([0.0], ends[:-1]))
    middles = (begins + ends) / 2.0
    rows, columns = np.searchsorted(ends_x, middles), np.searchsorted(ends_y, middles)
    if order_x is not None and order_y is not None:
        rows, columns = order_x[rows], order_y[columns]
    # Added, not set: two ends that differ in the last bit leave a sliver without a middle.
    plan = np.bincount(rows * m + columns, ends - begins, n * m)
    return np.asarray(plan, dtype=np.float64).reshape(n, m)


def gathered(start: Matrix, x: Space, y: Space, atoms_x: Labels, atoms_y: Labels) -> Matrix:
    """Return a plan of nodes as one of atoms."""
    plan = np.asarray(start, dtype=np.float64)
    if plan.shape != (atoms_x.size, atoms_y.size):
        raise ValueError(f"start: shape {plan.shape}, ({atoms_x.size}, {atoms_y.size}) is needed")
    if not (np.isfinite(plan).all() and plan.min() >= -1e-12):
        raise ValueError("start: a plan is finite and not negative")
    kept_x, kept_y = np.flatnonzero(atoms_x >= 0), np.flatnonzero(atoms_y >= 0)
    result = np.zeros((x.weights.size, y.weights.size))
    where = np.ix_(atoms_x[kept_x], atoms_y[kept_y])
    np.add.at(result, where, plan[np.ix_(kept_x, kept_y)])
    check_marginals(result, x.weights, y.weights)
    return result


def spread(
    plan: Matrix, x: Space, y: Space, atoms_x: Labels, atoms_y: Labels, p: Vector, q: Vector
) -> Matrix:
    """Return a plan of atoms as one of nodes: mass is shared among twins by their weights."""
    share_x = np.where(atoms_x >= 0, p / x.weights[atoms_x], 0.0)
    share_y = np.where(atoms_y >= 0, q / y.weights[atoms_y], 0.0)
    return plan[np.ix_(atoms_x, atoms_y)] * share_x[:, None] * share_y
