"""One pair: POT's values, zero for copies, and no trace of how nodes are numbered."""

from __future__ import annotations

import subprocess
import sys
from itertools import pairwise as successive
from itertools import permutations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog
from scipy.spatial.distance import cdist

from trellis.strategies.gromov_wasserstein.pair import (
    Space,
    couple,
    fused_gromov_wasserstein,
    gromov_wasserstein,
    lump,
    wasserstein,
)
from trellis.strategies.gromov_wasserstein.simplex import TransportError, check_marginals, transport
from trellis.strategies.gromov_wasserstein.space import isometry

ot = pytest.importorskip("ot")

seeds = st.integers(0, 2**32 - 1)


def cloud(generator, nodes, dimension=3, copies=0):
    points = generator.normal(size=(nodes, dimension))
    return np.vstack([points, points[generator.integers(nodes, size=copies)]])


def distances(generator, nodes, dimension=3, copies=0):
    points = cloud(generator, nodes, dimension, copies)
    return cdist(points, points)


def weights(generator, nodes):
    return generator.dirichlet(np.full(nodes, 3.0))


def renumbered(generator, matrix, *vectors):
    order = generator.permutation(len(matrix))
    return matrix[np.ix_(order, order)], *(vector[order] for vector in vectors)


def objective(c1, c2, plan):
    """The four-fold sum of the definition."""
    difference = c1[:, None, :, None] - c2[None, :, None, :]
    return np.einsum("ijkl,ij,kl->", difference**2, plan, plan)


@settings(max_examples=60, deadline=None)
@given(seeds)
def test_values_are_those_of_pot(seed):
    generator = np.random.default_rng(seed)
    n, m = generator.integers(2, 12, size=2)
    c1, c2 = distances(generator, n, copies=3), distances(generator, m)
    p, q = weights(generator, n + 3), weights(generator, m)
    wanted = ot.gromov.gromov_wasserstein(c1, c2, p, q, log=True)[1]["gw_dist"]
    assert gromov_wasserstein(c1, c2, p, q).value == pytest.approx(wanted, rel=1e-7, abs=1e-9)


def test_values_are_those_of_pot_where_steps_are_not_full():
    # Distances against similarities: the objective is convex, its minimum in the interior.
    for seed in range(2):
        generator = np.random.default_rng(seed)
        a, b = generator.normal(size=(7, 2)), generator.normal(size=(5, 2))
        c1, c2 = cdist(a, a), np.exp(-(cdist(b, b) ** 2))
        plan, log = ot.gromov.gromov_wasserstein(c1, c2, log=True)
        assert np.count_nonzero(plan > 1e-9) > 11  # more than a vertex has
        found = gromov_wasserstein(c1, c2)
        assert found.value == pytest.approx(log["gw_dist"], rel=1e-5)


@settings(max_examples=40, deadline=None)
@given(seeds)
def test_the_plan_has_the_marginals_and_the_value(seed):
    generator = np.random.default_rng(seed)
    c1, c2 = distances(generator, 6, copies=4), distances(generator, 8)
    p, q = weights(generator, 10), weights(generator, 8)
    p[3] = 0.0
    p /= p.sum()
    found = gromov_wasserstein(c1, c2, p, q, restarts=2)
    check_marginals(found.plan, p, q)
    assert found.plan.min() >= 0.0
    assert objective(c1, c2, found.plan) == pytest.approx(found.value, abs=1e-12)


def test_a_node_without_weight_does_not_count():
    generator = np.random.default_rng(0)
    c1, c2 = distances(generator, 6), distances(generator, 5)
    p = np.array([0.0, 0.2, 0.2, 0.2, 0.2, 0.2])
    assert gromov_wasserstein(c1, c2, p).value == gromov_wasserstein(c1[1:, 1:], c2).value


def test_restarts_find_the_best_of_all_assignments_of_a_small_case():
    generator = np.random.default_rng(5)
    c1, c2 = distances(generator, 5), distances(generator, 5)
    # The objective is concave, so a permutation is best.
    best = min(
        np.mean((c1 - c2[np.ix_(order, order)]) ** 2) for order in map(list, permutations(range(5)))
    )
    assert gromov_wasserstein(c1, c2, restarts=60).value == pytest.approx(best, rel=1e-12)
    values = [gromov_wasserstein(c1, c2, restarts=k, seed=3).value for k in (0, 1, 4, 16)]
    assert all(later <= earlier for earlier, later in successive(values))


def test_a_start_is_improved_and_must_be_a_plan():
    generator = np.random.default_rng(1)
    c1, c2 = distances(generator, 6, copies=2), distances(generator, 6)
    begin = ot.emd(np.full(8, 1 / 8), np.full(6, 1 / 6), generator.random((8, 6)))
    found = gromov_wasserstein(c1, c2, start=begin)
    wanted = ot.gromov.gromov_wasserstein(c1, c2, G0=begin, log=True)[1]["gw_dist"]
    assert found.value == pytest.approx(wanted, rel=1e-9)
    assert found.value < objective(c1, c2, begin)
    with pytest.raises(ValueError, match=r"start: shape \(6, 8\), \(8, 6\) is needed"):
        gromov_wasserstein(c1, c2, start=begin.T)
    with pytest.raises(TransportError, match="misses its marginals"):
        gromov_wasserstein(c1, c2, start=begin / 2)


@settings(max_examples=60, deadline=None)
@given(seeds)
def test_a_value_does_not_depend_on_order_or_numbering(seed):
    generator = np.random.default_rng(seed)
    n, m = generator.integers(1, 10, size=2)
    c1, c2 = distances(generator, n, copies=2), distances(generator, m, copies=1)
    p, q = weights(generator, n + 2), weights(generator, m + 1)
    value = gromov_wasserstein(c1, c2, p, q).value
    assert gromov_wasserstein(c2, c1, q, p).value == value
    (d1, r1), (d2, r2) = renumbered(generator, c1, p), renumbered(generator, c2, q)
    assert gromov_wasserstein(d1, d2, r1, r2).value == pytest.approx(value, rel=1e-9, abs=1e-12)


@settings(max_examples=40, deadline=None)
@given(seeds)
def test_ties_are_broken_by_shape_not_by_numbers(seed):
    # Rows of signs and zeros have three distances; POT's value then depends on the numbering.
    generator = np.random.default_rng(seed)
    spaces = []
    for nodes in generator.integers(4, 20, size=2):
        rows = np.eye(5)[generator.integers(5, size=nodes)] * generator.choice([-1, 1], (nodes, 1))
        spaces.append(cdist(rows, rows))
    value = gromov_wasserstein(*spaces).value
    again = [renumbered(generator, c)[0] for c in spaces[::-1]]
    assert gromov_wasserstein(*again).value == value


@settings(max_examples=80, deadline=None)
@given(seeds)
def test_a_renumbered_copy_is_at_distance_zero(seed):
    generator = np.random.default_rng(seed)
    n = int(generator.integers(1, 15))
    kind = generator.integers(3)
    if kind == 0:
        c = distances(generator, n, copies=int(generator.integers(4)))
    elif kind == 1:  # a lattice: many ties and symmetries
        points = generator.integers(0, 3, size=(n, 3)).astype(float)
        c = cdist(points, points)
    else:  # shortest paths in a ring: every node looks alike
        steps = np.abs(np.arange(n)[:, None] - np.arange(n))
        c = np.minimum(steps, n - steps).astype(float)
    p = weights(generator, len(c)) if generator.integers(2) else np.full(len(c), 1 / len(c))
    copy, q = renumbered(generator, c, p)
    found = gromov_wasserstein(c, copy, p, q)
    assert found.value <= 1e-9
    assert objective(c, copy, found.plan) <= 1e-9
    check_marginals(found.plan, p, q)


def test_a_copy_is_found_where_each_node_looks_like_every_other():
    # The 4 x 4 rook's graph and Shrikhande's: all nodes have the same distances, and the two graphs
    # the same numbers of them, but no relabelling leads from one to the other.
    nodes = [(i, j) for i in range(4) for j in range(4)]

    def paths(near):
        adjacency = np.array([[near(a, b) for b in nodes] for a in nodes])
        return np.where(adjacency, 1.0, 2.0) * (1.0 - np.eye(16))

    rook = paths(lambda a, b: (a[0] == b[0]) != (a[1] == b[1]))
    steps = {(0, 1), (1, 0), (1, 1), (0, 3), (3, 0), (3, 3)}
    shrikhande = paths(lambda a, b: ((a[0] - b[0]) % 4, (a[1] - b[1]) % 4) in steps)
    generator = np.random.default_rng(0)
    for c in (rook, shrikhande):
        assert gromov_wasserstein(c, renumbered(generator, c)[0]).value <= 1e-9
    assert isometry(Space.of(rook)[0], Space.of(shrikhande)[0]) is None
    assert gromov_wasserstein(rook, shrikhande, restarts=5).value > 1e-3


def test_a_copy_but_for_one_distance_is_not_at_distance_zero():
    generator = np.random.default_rng(2)
    c = distances(generator, 8)
    other = c.copy()
    other[0, 1] = other[1, 0] = c[0, 1] * 1.01
    found = gromov_wasserstein(c, other)
    assert 0.0 < found.value <= 2 * (0.01 * c[0, 1]) ** 2 / 64 * (1 + 1e-9)


@settings(max_examples=40, deadline=None)
@given(seeds)
def test_lumping_changes_no_value(seed):
    generator = np.random.default_rng(seed)
    n, m = generator.integers(2, 7, size=2)
    c1, c2 = distances(generator, n, copies=6), distances(generator, m, copies=4)
    p, q = weights(generator, n + 6), weights(generator, m + 4)
    atoms, mass, of_node = lump(c1, p)
    assert len(atoms) == n
    assert np.abs(atoms[np.ix_(of_node, of_node)] - c1).max() <= 1e-12 * c1.max()
    assert mass == pytest.approx(np.bincount(of_node, p))
    whole = couple(Space.of(c1, p, lump=False)[0], Space.of(c2, q, lump=False)[0]).value
    lumped = couple(Space.of(c1, p)[0], Space.of(c2, q)[0]).value
    assert lumped == pytest.approx(whole, rel=1e-10, abs=1e-12)


def test_only_nodes_with_the_same_row_are_lumped():
    # Zero between two nodes is not enough where the matrix is no metric.
    c = np.array([[0.0, 0.0, 1.0], [0.0, 0.0, 2.0], [1.0, 2.0, 0.0]])
    assert len(lump(c)[0]) == 3
    features = np.array([[0.0], [1.0], [1.0]])
    same = np.zeros((3, 3))
    assert Space.of(same)[0].weights.size == 1
    assert Space.of(same, features=features)[0].weights.size == 2


def test_one_node_is_a_space():
    c = np.array([[0.0, 2.0], [2.0, 0.0]])
    found = gromov_wasserstein(np.zeros((1, 1)), c)
    assert found.value == pytest.approx(np.mean(c**2))
    assert found.plan.tolist() == [[0.5, 0.5]]
    assert gromov_wasserstein(np.zeros((1, 1)), np.zeros((1, 1))).value == 0.0


@settings(max_examples=30, deadline=None)
@given(seeds, st.sampled_from([0.0, 0.3, 0.5, 1.0]))
def test_fused_values_are_those_of_pot(seed, alpha):
    generator = np.random.default_rng(seed)
    x, y = cloud(generator, 6), cloud(generator, 8)
    p, q = weights(generator, 6), weights(generator, 8)
    m, c1, c2 = cdist(x, y) ** 2, cdist(x, x), cdist(y, y)
    wanted = ot.gromov.fused_gromov_wasserstein(m, c1, c2, p, q, alpha=alpha, log=True)[1]
    found = fused_gromov_wasserstein(m, c1, c2, p, q, alpha)
    assert found.value == pytest.approx(wanted["fgw_dist"], rel=1e-7)
    check_marginals(found.plan, p, q)
    total = (1 - alpha) * np.vdot(m, found.plan) + alpha * objective(c1, c2, found.plan)
    assert found.value == pytest.approx(total)
    assert fused_gromov_wasserstein(m.T, c2, c1, q, p, alpha).value == found.value


def test_fused_tells_isometric_graphs_with_other_features_apart():
    generator = np.random.default_rng(0)
    x = cloud(generator, 6)
    order = generator.permutation(6)
    c, d = cdist(x, x), cdist(x[order], x[order])
    assert fused_gromov_wasserstein(cdist(x, x[order]) ** 2, c, d).value <= 1e-9
    moved = cdist(x, x[order] + 1.0) ** 2
    assert fused_gromov_wasserstein(moved, c, d, alpha=0.5).value == pytest.approx(1.5)


def test_wasserstein_is_the_linear_programme():
    generator = np.random.default_rng(0)
    x, y = cloud(generator, 4, copies=2), cloud(generator, 5)
    p, q = weights(generator, 6), weights(generator, 5)
    costs = cdist(x, y) ** 2
    sums = np.vstack([np.kron(np.eye(6), np.ones(5)), np.kron(np.ones(6), np.eye(5))])
    best = linprog(costs.ravel(), A_eq=sums, b_eq=np.concatenate([p, q])).fun
    assert wasserstein(x, y, p, q) == pytest.approx(np.sqrt(best))
    assert wasserstein(y, x, q, p) == wasserstein(x, y, p, q)
    assert wasserstein(x, x[::-1], p, p[::-1]) == 0.0
    with pytest.raises(ValueError, match="rows of 3 and of 2 features"):
        wasserstein(x, y[:, :2])


def test_transport_with_negative_costs_is_transport():
    # POT returns a plan of zeros for these.
    generator = np.random.default_rng(0)
    costs = -1.0 - generator.random((4, 5))
    p, q = weights(generator, 4), weights(generator, 5)
    plan = transport(p, q, costs)
    check_marginals(plan, p, q)
    assert np.vdot(plan, costs) == pytest.approx(np.vdot(ot.emd(p, q, costs + 3.0), costs))


def test_transport_that_cannot_be_is_refused():
    with pytest.raises(TransportError, match="ended with code"):
        transport(np.array([0.5, 0.5]), np.array([0.2, 0.2]), np.ones((2, 2)))


def test_pot_that_is_missing_is_named_with_its_extra():
    code = (
        "import sys\n"
        "sys.modules['ot'] = None\n"
        "from trellis.strategies.gromov_wasserstein.pair import gromov_wasserstein\n"
        "try:\n"
        "    gromov_wasserstein([[0, 1], [1, 0]], [[0, 2], [2, 0]], [0.2, 0.8])\n"
        "except ImportError as error:\n"
        "    print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "pip install '.[gnn]'" in done.stdout


@pytest.mark.parametrize(
    ("matrix", "message"),
    [
        (np.zeros((2, 3)), r"C1: shape \(2, 3\), a square matrix"),
        (np.zeros((0, 0)), r"C1: shape \(0, 0\)"),
        (np.array([[0.0, np.nan], [1.0, 0.0]]), r"C1: entry \[0, 1\] is nan"),
        (np.array([[0.0, 1.0], [2.0, 0.0]]), r"C1: not symmetric, \[0, 1\] is 1 and \[1, 0\] is 2"),
        (np.array([[0.0, -1.0], [-1.0, 0.0]]), r"C1: entry \[0, 1\] is -1, a distance is not neg"),
    ],
)
def test_a_matrix_that_is_none_of_distances_is_refused(matrix, message):
    with pytest.raises(ValueError, match=message):
        gromov_wasserstein(matrix, np.zeros((1, 1)))


@pytest.mark.parametrize("p", [[0.5, 0.4], [1.5, -0.5], [1.0], [np.nan, 1.0]])
def test_weights_that_are_none_are_refused(p):
    with pytest.raises(ValueError, match="C1: weights"):
        gromov_wasserstein([[0.0, 1.0], [1.0, 0.0]], np.zeros((1, 1)), p)


@pytest.mark.parametrize("alpha", [-0.1, 1.1, np.nan])
def test_alpha_outside_its_range_is_refused(alpha):
    c = np.array([[0.0, 1.0], [1.0, 0.0]])
    with pytest.raises(ValueError, match="alpha="):
        fused_gromov_wasserstein(c, c, c, alpha=alpha)


def test_the_solver_alone_is_pot_s_and_leaves_pot_whole():
    """In a new process: here POT is loaded already."""
    code = """
import sys
import numpy as np
from trellis.strategies.gromov_wasserstein.simplex import transport
rng = np.random.default_rng(0)
p, costs = np.full(5, 0.2), rng.random((5, 5))
plan = transport(p, p, costs)
assert not {"ot", "torch", "sklearn"} & set(sys.modules)
import ot
assert np.array_equal(plan, ot.emd(p, p, costs))
x, y = rng.random(5), rng.random(5)
found = ot.emd2_1d(x, y, metric="cityblock")
assert abs(found - np.abs(np.sort(x) - np.sort(y)).mean()) < 1e-12
print("whole")
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout == "whole\n", done.stderr
