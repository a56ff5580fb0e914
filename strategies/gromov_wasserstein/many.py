"""Many pairs at once: by the compiled loop where it can, and who solves what.

``pot`` calls POT's network simplex from Python for every step of every pair (`pair`). ``compiled``
is one loop over all pairs (`compiled`), several times as fast, and needs numba. Where transport
problems have one solution the two differ in the last digits only; where costs tie, as between
encoded rows, each may end in another local minimum. So a computation is done by one of them from
its first pair to its last, and its checkpoint says by which.

Importing numba and what it compiled takes half a second, and some ten seconds where nothing was
compiled on this machine yet. `choose` therefore takes it for enough work, and goes by the whole
work, not by what is still to do.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from trellis.install import pip_install

from .space import Matrix, Space, Vector, isometry

Pairs = NDArray[np.int64]  # (k, 2)
Solver = Literal["pot", "compiled"]

SOLVERS = ("pot", "compiled")
METRICS = ("gw", "fgw")  # of the compiled loop
_WORTH_COMPILING = 2.0  # seconds of POT's work

_log = logging.getLogger(__name__)


def choose(metric: str, seconds: float) -> Solver:
    """Return the solver for work that would take POT some seconds."""
    return "compiled" if metric in METRICS and seconds > _WORTH_COMPILING and ready() else "pot"


def ready() -> bool:
    """Return whether the compiled loop can be used here, and load it."""
    try:
        from . import compiled  # noqa: F401
    except ImportError as error:
        _log.info("pairs are solved without numba, which is several times slower (%s)", error)
        return False
    return True


def warm_up() -> None:
    """Compile, or load what was compiled: once, before processes start that would all do it."""
    spaces = [Space.prepared(np.array([[0.0, d], [d, 0.0]]), np.full(2, 0.5)) for d in (1.0, 2.0)]
    solve_many(spaces, np.array([[0, 1]]), fused=False, alpha=1.0, restarts=1, seed=0)


def solve_many(
    spaces: Sequence[Space],
    pairs: Pairs,
    *,
    fused: bool,
    alpha: float,
    restarts: int,
    seed: int,
) -> Vector:
    """Return the values of pairs by the compiled loop, not a number where it gave up.

    Parameters
    ----------
    spaces, pairs : as for `pool.solve`
    fused : whether features count
    alpha, restarts, seed : as for `couple`
    """
    if not len(pairs):
        return np.zeros(0)
    used, ends = np.unique(pairs, return_inverse=True)
    spaces, pairs = [spaces[i] for i in used.tolist()], ends.reshape(-1, 2)
    ordered = _ordered(spaces, pairs)
    values = np.full(len(pairs), np.nan)
    values[_isometric(spaces, ordered, fused)] = 0.0
    rest = np.flatnonzero(np.isnan(values))
    values[rest] = _run(spaces, ordered[rest], fused, alpha, restarts, seed, np.zeros(0))
    return values


def plan_of(
    x: Space, y: Space, *, fused: bool = False, alpha: float = 1.0, restarts: int = 0, seed: int = 0
) -> tuple[float, Matrix]:
    """Return value and plan (n, m) of one pair that is not isometric, as `solve_many` does."""
    pair = np.array([[0, 1]])
    ordered = _ordered([x, y], pair)
    plan = np.zeros(x.weights.size * y.weights.size)
    value = float(_run([x, y], ordered, fused, alpha, restarts, seed, plan)[0])
    if (ordered == pair).all():
        return value, plan.reshape(x.weights.size, y.weights.size)
    return value, plan.reshape(y.weights.size, x.weights.size).T


def _run(
    spaces: Sequence[Space],
    pairs: Pairs,
    fused: bool,
    alpha: float,
    restarts: int,
    seed: int,
    plans: Vector,
) -> Vector:
    try:
        from . import compiled
    except ImportError as error:  # on another machine than the one that chose
        raise ImportError(
            f"pairs begun with solver='compiled' need numba: {pip_install('gnn')}"
        ) from error
    kinds, orders = _orders(spaces, pairs, restarts, seed)
    found = compiled.solve_pairs(
        pairs, _packed(spaces, fused), float(alpha), restarts, kinds, orders, plans
    )
    return np.where(found == compiled.GAVE_UP, np.nan, found)


def _ordered(spaces: Sequence[Space], pairs: Pairs) -> Pairs:
    """Return pairs with the space in front that is `Space.before` the other."""
    order = sorted(range(len(spaces)), key=lambda i: (spaces[i].rank, spaces[i].content()))
    place = np.argsort(order)
    swapped = place[pairs[:, 0]] > place[pairs[:, 1]]
    return np.ascontiguousarray(np.where(swapped[:, None], pairs[:, ::-1], pairs))


def _isometric(spaces: Sequence[Space], pairs: Pairs, fused: bool) -> NDArray[np.int64]:
    """Return which pairs are two copies of one space; few are worth a closer look."""
    from .rows import squared_distances

    rank, scale = np.array([s.rank for s in spaces]), np.array([s.scale for s in spaces])
    left, right = rank[pairs[:, 0]], rank[pairs[:, 1]]
    near = 1e-8 * np.maximum(scale[pairs[:, 0]], scale[pairs[:, 1]])  # wider than `isometry`
    like = (left[:, 0] == right[:, 0]) & (np.abs(left[:, 1] - right[:, 1]) <= near)
    found = []
    for place in np.flatnonzero(like).tolist():
        x, y = (spaces[i] for i in pairs[place].tolist())
        costs = None
        if fused and x.features is not None and y.features is not None:
            costs = squared_distances(x.features, y.features)
        if isometry(x, y, costs) is not None:
            found.append(place)
    return np.array(found, dtype=np.int64)


def _orders(
    spaces: Sequence[Space], pairs: Pairs, restarts: int, seed: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the orders of random staircases: they depend on a pair's sizes and on the seed."""
    sizes = np.array([space.weights.size for space in spaces], dtype=np.int64)
    if not restarts:
        return np.zeros(len(pairs), dtype=np.int64), np.zeros((0, 0), dtype=np.int64)
    shapes, kinds = np.unique(sizes[pairs], axis=0, return_inverse=True)
    orders = np.zeros((len(shapes), restarts, 2, sizes.max()), dtype=np.int64)
    for kind, shape in enumerate(shapes.tolist()):
        generator = np.random.default_rng(seed)
        for restart in range(restarts):
            for side, size in enumerate(shape):
                orders[kind, restart, side, :size] = generator.permutation(size)
    return kinds.reshape(-1) * 2 * restarts, orders.reshape(-1, orders.shape[-1])


def _packed(spaces: Sequence[Space], fused: bool) -> tuple[Any, ...]:
    """Return the arrays of all spaces one after the other, see `compiled.solve_pairs`."""
    sizes = np.array([space.weights.size for space in spaces], dtype=np.int64)
    features = np.zeros((0, 0))
    if fused:
        rows = [space.features for space in spaces if space.features is not None]
        features = np.ascontiguousarray(np.concatenate(rows))
    return (
        sizes,
        np.cumsum(sizes) - sizes,
        np.cumsum(sizes**2) - sizes**2,
        np.concatenate([space.distances.ravel() for space in spaces]),
        np.concatenate([space.eccentricity for space in spaces]),
        np.concatenate([space.squares for space in spaces]),
        np.concatenate([space.weights for space in spaces]),
        np.array([space.tied for space in spaces]),
        features,
    )
