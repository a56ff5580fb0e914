"""The loss by Kullback and Leibler: the definition's values, POT's minima, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.spatial.distance import cdist

from trellis.strategies.gromov_wasserstein.losses import FLOOR, terms
from trellis.strategies.gromov_wasserstein.pair import (
    Space,
    fused_gromov_wasserstein,
    gromov_wasserstein,
)
from trellis.strategies.gromov_wasserstein.pairwise import pairwise

ot = pytest.importorskip("ot")


def matrix(seed, nodes, copies=0, kind="distance"):
    rng = np.random.default_rng(seed)
    points = rng.normal(size=(nodes, 3))
    points = np.vstack([points, points[rng.integers(nodes, size=copies)]])
    found = cdist(points, points)
    return found if kind == "distance" else np.exp(-found)


def kl(c1, c2, plan):
    """The four-fold sum of the definition."""
    a, b = c1[:, None, :, None], c2[None, :, None, :]
    loss = a * np.log((a + FLOOR) / (b + FLOOR)) - a + b
    return np.einsum("ijkl,ij,kl->", loss, plan, plan)


@pytest.mark.parametrize("kind", ["distance", "similarity"])
@pytest.mark.parametrize("seed", range(6))
def test_values_and_plans_are_those_of_the_definition_and_of_pot(seed, kind):
    c1, c2 = matrix(seed, 6, 3, kind), matrix(seed + 50, 8, kind=kind)
    rng = np.random.default_rng(seed)
    p, q = rng.dirichlet(np.full(9, 3.0)), rng.dirichlet(np.full(8, 3.0))
    found = gromov_wasserstein(c1, c2, p, q, loss="kl")
    assert found.value == pytest.approx(kl(c1, c2, found.plan), rel=1e-9)
    wanted = ot.gromov.gromov_wasserstein2(c1, c2, p, q, "kl_loss")
    assert found.value == pytest.approx(float(wanted), rel=1e-6)


def test_the_fused_value_is_that_of_pot():
    c1, c2 = matrix(1, 6), matrix(2, 7)
    M = np.random.default_rng(3).uniform(size=(6, 7))
    found = fused_gromov_wasserstein(M, c1, c2, alpha=0.3, loss="kl").value
    wanted = ot.gromov.fused_gromov_wasserstein2(M, c1, c2, loss_fun="kl_loss", alpha=0.3)
    assert found == pytest.approx(float(wanted), rel=1e-6)


def test_it_has_a_direction_and_a_matrix_of_pairs_has_none():
    matrices = [matrix(seed, nodes) for seed, nodes in ((1, 5), (2, 7), (3, 6))]
    there = gromov_wasserstein(matrices[0], matrices[1], loss="kl").value
    back = gromov_wasserstein(matrices[1], matrices[0], loss="kl").value
    assert abs(there - back) > 1e-3 * there
    found = pairwise(matrices, loss="kl", workers=1)
    assert found[0, 1] == pytest.approx((there + back) / 2.0, rel=1e-12)
    np.testing.assert_array_equal(found, found.T)
    again = pairwise(matrices[::-1], loss="kl", workers=1)[::-1, ::-1]
    np.testing.assert_array_equal(found, again)


def test_a_renumbered_copy_is_at_zero():
    c = matrix(4, 9)
    order = np.random.default_rng(0).permutation(9)
    assert gromov_wasserstein(c, c[np.ix_(order, order)], loss="kl").value == 0.0


def test_a_start_that_is_better_is_kept():
    c1, c2 = matrix(5, 7), matrix(6, 7)
    plain = gromov_wasserstein(c1, c2, loss="kl").value
    assert gromov_wasserstein(c1, c2, loss="kl", restarts=10).value <= plain + 1e-12


def test_a_match_with_a_zero_costs_what_the_floor_says():
    # Two nodes at distance 1 into one node: exactly, the value is infinite.
    found = gromov_wasserstein([[0.0, 1.0], [1.0, 0.0]], [[0.0]], loss="kl").value
    assert found == pytest.approx(0.5 * (-np.log(FLOOR) - 1.0), rel=1e-6)


def test_what_holds_for_squares_alone_is_refused():
    matrices = [matrix(seed, 5) for seed in range(3)]
    with pytest.raises(ValueError, match=r"compiled.*square"):
        pairwise(matrices, loss="kl", solver="compiled")
    with pytest.raises(ValueError, match="wasserstein"):
        pairwise(None, features=[np.eye(3)] * 2, metric="wasserstein", loss="kl")
    with pytest.raises(ValueError, match="square, kl"):
        pairwise(matrices, loss="cube")
    x, y = (Space.of(c)[0] for c in matrices[:2])
    with pytest.raises(ValueError, match="square, kl"):
        terms(x, y, "cube")


def test_much_work_is_not_given_to_the_compiled_loop():
    seen = []
    matrices = [matrix(seed, 20) for seed in range(3)]
    pairwise(matrices, loss="kl", restarts=400, workers=1, on_solver=seen.append)
    assert seen == ["pot"]


def test_a_checkpoint_of_one_loss_is_refused_by_the_other(tmp_path):
    from trellis.strategies.gromov_wasserstein.progress import CheckpointError

    matrices = [matrix(seed, 5) for seed in range(3)]
    file = tmp_path / "pairs.npz"
    pairwise(matrices, loss="kl", workers=1, checkpoint=file)
    with pytest.raises(CheckpointError):
        pairwise(matrices, workers=1, checkpoint=file)
