"""Lower bounds: below every value that is found, zero for copies, and the textbook's own values."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import linprog
from scipy.spatial.distance import cdist

from trellis.privacy.mechanisms.multibit import MultiBit, encode
from trellis.strategies.gromov_wasserstein.pair import couple
from trellis.strategies.gromov_wasserstein.pairwise import pairwise
from trellis.strategies.gromov_wasserstein.pruning.bounds import (
    ROW_CELLS,
    Signatures,
    cell_means,
    row_cells,
    third_bound,
)
from trellis.strategies.gromov_wasserstein.rows import couple_rows, squared_distances
from trellis.strategies.gromov_wasserstein.space import Space

pytest.importorskip("ot")


def transported(p, q, costs):
    """The least cost of moving p to q, by another solver."""
    n, m = costs.shape
    rows = np.kron(np.eye(n), np.ones(m))
    columns = np.kron(np.ones(n), np.eye(m))
    found = linprog(costs.ravel(), A_eq=np.vstack([rows, columns]), b_eq=np.concatenate([p, q]))
    return found.fun


def on_the_line(f, p, g, q):
    return transported(p, q, (np.asarray(f)[:, None] - np.asarray(g)) ** 2)


def drawn(seed, *, euclidean=True, uniform=False, most=7):
    generator = np.random.default_rng(seed)
    n = int(generator.integers(1, most))
    c = generator.random((n, n)) * 3.0
    x = generator.normal(size=(n, 2))
    c = cdist(x, x) if euclidean else (c + c.T) / 2.0
    p = np.full(n, 1.0 / n) if uniform else generator.dirichlet(np.ones(n))
    return c, p, x


def space(c, p=None, x=None):
    return Space.of(c, p, x)[0]


def all_bounds(x, y):
    found = Signatures.of([x, y])
    squared = {
        name: float(np.sum(np.diff(getattr(found, name), axis=0) ** 2))
        for name in ("first", "second", "spectral")
    }
    return {**squared, "third": third_bound(x, y), "best": found.bounds()[0, 1]}


@given(st.integers(0, 10**6), st.booleans(), st.booleans())
def test_no_bound_is_above_a_value_that_is_found(seed, euclidean, uniform):
    x, y = (space(*drawn(seed + k, euclidean=euclidean, uniform=uniform)[:2]) for k in (0, 1))
    value = couple(x, y, restarts=3).value
    for name, bound in all_bounds(x, y).items():
        assert 0.0 <= bound <= value + 1e-9, name


@given(st.integers(0, 10**6))
def test_no_bound_is_above_the_least_value_of_all_permutations(seed):
    generator = np.random.default_rng(seed)
    n = int(generator.integers(2, 6))
    c, d = (cdist(z, z) for z in generator.normal(size=(2, n, 2)))
    # Euclidean distances make the objective concave: the minimum is at a vertex.
    orders = [list(order) for order in permutations(range(n))]
    least = min(np.mean((c - d[np.ix_(order, order)]) ** 2) for order in orders)
    for name, bound in all_bounds(space(c), space(d)).items():
        assert bound <= least + 1e-9, name


@given(st.integers(0, 10**6), st.booleans())
def test_bounds_are_the_transport_problems_they_stand_for(seed, euclidean):
    (c, p, _), (d, q, _) = (drawn(seed + k, euclidean=euclidean, most=5) for k in (0, 1))
    x, y = space(c, p), space(d, q)
    first = on_the_line(np.sqrt(c**2 @ p), p, np.sqrt(d**2 @ q), q)
    second = on_the_line(c.ravel(), np.outer(p, p).ravel(), d.ravel(), np.outer(q, q).ravel())
    rows = np.array([[on_the_line(a, p, b, q) for b in d] for a in c])
    third = transported(p, q, rows)
    found = all_bounds(x, y)
    # From below, by the means over cells, and near.
    scale = max(c.max(), d.max(), 1e-9) ** 2
    for name, exact in (("first", first), ("second", second), ("third", third)):
        assert found[name] <= exact + 1e-9 * scale
        assert exact - found[name] <= (0.1 if name == "third" else 0.03) * scale
    assert max(first, second) <= third + 1e-9 * scale


def test_means_over_cells_are_those_of_the_quantile_function():
    # 1 on the first half, 3 on the second: three cells have 1, 2 and 3.
    means = cell_means(np.array([3.0, 1.0]), np.array([0.5, 0.5]), 3)
    assert means == pytest.approx([1.0, 2.0, 3.0])
    one = space(*drawn(3, most=9)[:2])
    rows = [cell_means(row, one.weights, ROW_CELLS) for row in one.distances]
    assert row_cells(one) * np.sqrt(ROW_CELLS) == pytest.approx(np.array(rows), abs=1e-9)


def test_the_spectral_bound_is_exact_for_two_points():
    # Of two atoms at distance r with weights (w, 1 - w), moved to atoms at distance s alike.
    for w in (0.5, 0.3):
        p = [w, 1.0 - w]
        a, b = (np.array([[0.0, r], [r, 0.0]]) for r in (1.0, 3.0))
        x, y = space(a, p), space(b, p)
        # But for the cell in which the quantile function jumps.
        assert all_bounds(x, y)["spectral"] == pytest.approx(2 * w * (1 - w) * 4.0, rel=3e-3)
        assert couple(x, y).value == pytest.approx(2 * w * (1 - w) * 4.0)


@given(st.integers(0, 10**6), st.booleans())
def test_a_renumbered_copy_has_bounds_of_zero(seed, euclidean):
    c, p, _ = drawn(seed, euclidean=euclidean, most=12)
    order = np.random.default_rng(seed).permutation(len(c))
    x, y = space(c, p), space(c[np.ix_(order, order)], p[order])
    assert couple(x, y).value == 0.0
    found = all_bounds(x, y)
    assert found["best"] == found["third"] == 0.0


def test_lumped_and_encoded_graphs_keep_their_bounds():
    generator = np.random.default_rng(0)
    code = MultiBit(h=4, eps_row=1.0, m=1)
    rows = [generator.dirichlet(np.ones(4), size=n) for n in (3, 9, 14, 20)]
    encoded = [encode(row, code, generator).astype(float) for row in rows]
    matrices = [cdist(x, x) for x in encoded]
    lumped = [Space.of(c)[0] for c in matrices]
    apart = [Space.of(c, lump=False)[0] for c in matrices]
    assert lumped[-1].weights.size < 20
    bounds = Signatures.of(lumped).bounds()
    assert bounds == pytest.approx(Signatures.of(apart).bounds(), abs=1e-6)
    assert (bounds <= pairwise(matrices, workers=1) + 1e-12).all()
    whole = third_bound(apart[1], apart[3])
    assert third_bound(lumped[1], lumped[3]) == pytest.approx(whole, abs=1e-6)


@given(st.integers(0, 10**6), st.floats(0.0, 1.0))
def test_features_have_bounds_too(seed, alpha):
    (c, p, a), (d, q, b) = drawn(seed), drawn(seed + 1)
    b = b + np.random.default_rng(seed).normal(size=2)
    x, y = space(c, p, a), space(d, q, b)
    fused = couple(x, y, costs=squared_distances(x.features, y.features), alpha=alpha).value
    found = Signatures.of([x, y])
    assert found.bounds("fgw", alpha)[0, 1] <= fused + 1e-9
    assert third_bound(x, y, metric="fgw", alpha=alpha) <= fused + 1e-9
    rows = couple_rows((x.features, x.weights), (y.features, y.weights))
    alone = Signatures.of([x, y], structure=False)
    assert alone.bounds("wasserstein")[0, 1] <= rows + 1e-9


def test_the_features_bound_is_exact_for_a_shift():
    rows = np.random.default_rng(0).normal(size=(6, 3))
    found = Signatures.of([space(cdist(z, z), None, z) for z in (rows, rows + 2.0)])
    assert found.bounds("wasserstein")[0, 1] == pytest.approx(np.sqrt(12.0), rel=1e-6)


def test_more_eigenvalues_than_are_kept_stay_a_bound(monkeypatch):
    from trellis.strategies.gromov_wasserstein.pruning import bounds

    x, y = (space(*drawn(k, euclidean=False, most=12)[:2]) for k in (4, 5))
    every = all_bounds(x, y)["spectral"]
    monkeypatch.setattr(bounds, "_EIGENVALUES", 1)
    few = all_bounds(x, y)["spectral"]
    assert 0.0 < few <= every + 1e-12
