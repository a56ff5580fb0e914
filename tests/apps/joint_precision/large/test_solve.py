from __future__ import annotations

import numpy as np
import pytest

from trellis.apps.joint_precision.correlation import correlation, to_positive_semidefinite
from trellis.apps.joint_precision.large.solve import (
    BlockTooLarge,
    block_correlations,
    refuse_too_large,
    solve_tables,
)
from trellis.apps.joint_precision.solver import screened_blocks, solve_joint
from trellis.strategies.joint_precision.blocks import Blocks
from trellis.strategies.joint_precision.prox import PENALTIES

SAMPLES = (120, 80, 100)
WEIGHTS = np.array(SAMPLES) / 100.0


def tables(p: int = 60) -> list[np.ndarray]:
    rng = np.random.default_rng(3)
    return [
        np.repeat(rng.normal(size=(n, p // 3)), 3, axis=1) + rng.normal(size=(n, p))
        for n in SAMPLES
    ]


@pytest.mark.parametrize("penalty", ["group", "fused"])
def test_solution_from_tables_is_that_of_the_dense_matrices(penalty):
    X = tables()
    S = np.array([correlation(x, "pearson") for x in X])
    dense = solve_joint(S, 0.35, 0.1, penalty, weights=WEIGHTS, tolerance=1e-9)
    found = solve_tables(X, 0.35, 0.1, penalty, kind="pearson", tolerance=1e-9)
    assert found.gap <= 1e-9
    np.testing.assert_allclose(found.dense().sparse, dense.sparse, rtol=0, atol=1e-7)
    assert np.array_equal(found.dense().sparse != 0.0, dense.sparse != 0.0)
    exact = screened_blocks(S, WEIGHTS, PENALTIES[penalty], [(0.35, 0.1)])
    if penalty == "group":
        assert np.array_equal(found.blocks.labels, exact.labels)
    else:  # coarser than needed perhaps, never finer
        assert Blocks.joined([found.blocks, exact]).size == found.blocks.size


def test_one_client_alone_with_rank_correlations_projects_block_by_block():
    X = tables()[0]
    X[:, 1::2] = np.round(X[:, 1::2])
    found = solve_tables([X], 0.3, kind="kendall", tolerance=1e-9)
    S = correlation(X, "kendall")
    for group in found.blocks.members:
        S[np.ix_(group, group)] = to_positive_semidefinite(S[np.ix_(group, group)])[0]
    dense = solve_joint(S[None], 0.3, 0.0, tolerance=1e-9)
    assert np.array_equal(
        found.blocks.labels,
        screened_blocks(S[None], np.ones(1), PENALTIES["group"], [(0.3, 0.0)]).labels,
    )
    np.testing.assert_allclose(found.dense().sparse, dense.sparse, rtol=0, atol=1e-7)


def test_correlations_of_blocks_are_cut_from_the_matrix():
    X = tables()[0]
    blocks = Blocks(np.arange(60) // 20)
    packed, smallest = block_correlations(X, "pearson", blocks)
    np.testing.assert_allclose(packed, blocks.pack(correlation(X, "pearson")), rtol=0, atol=1e-14)
    assert 0.0 < smallest < 1.0


def test_too_large_a_block_is_refused_with_the_memory_it_needs():
    blocks = Blocks(np.zeros(1000, dtype=int))
    with pytest.raises(BlockTooLarge, match=r"1,000 of 1,000 variables.*0\.0 GB.*raise lambda1"):
        refuse_too_large(blocks, largest=999)
    refuse_too_large(blocks, largest=1000)


def test_nothing_can_be_left_out_without_lambda1():
    with pytest.raises(ValueError, match=r"lambda1=0\.0"):
        solve_tables(tables(), 0.0)
