from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trellis.apps.joint_precision.correlation import correlation
from trellis.apps.joint_precision.counting import count_pairs, untied_pairs
from trellis.apps.joint_precision.kendall import kendall
from trellis.apps.joint_precision.large import bits, stream
from trellis.apps.joint_precision.large.stream import (
    TooManyEntries,
    correlation_tiles,
    large_entries,
)

KINDS = ("kendall", "spearman", "pearson")


def table(n: int = 60, p: int = 90, seed: int = 0) -> np.ndarray:
    """Columns without ties, with a few, with many; correlated in groups of three."""
    rng = np.random.default_rng(seed)
    X = np.repeat(rng.normal(size=(n, p // 3)), 3, axis=1) + 0.7 * rng.normal(size=(n, p))
    X[:, 1::4] = np.round(X[:, 1::4], 1)
    X[:, 2::4] = np.round(X[:, 2::4])
    return X


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("block_bytes", [900_000, 256 << 20])
def test_tiles_are_the_dense_matrix(kind, block_bytes):
    X = table()
    dense, built, seen = correlation(X, kind), np.zeros((90, 90)), 0
    for first, second, tile in correlation_tiles(X, kind, block_bytes=block_bytes):
        built[first, second] = tile
        built[second, first] = tile.T
        seen += 1
    assert (seen > 1) == (block_bytes == 900_000 and kind == "kendall")
    if kind == "kendall":  # of whole numbers
        assert np.array_equal(built, dense)
    np.testing.assert_allclose(built, dense, rtol=0, atol=2e-15)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("threshold", [0.0, 0.2, 0.5, 0.7, 0.95])
def test_large_entries_are_those_of_the_dense_matrix(kind, threshold):
    X = table()
    dense = correlation(X, kind)
    rows, columns = np.nonzero(np.triu(np.abs(dense) > threshold, 1))
    found = large_entries(X, kind, threshold, block_bytes=900_000)
    assert np.array_equal(found.rows, rows)
    assert np.array_equal(found.columns, columns)
    np.testing.assert_allclose(found.values, dense[rows, columns], rtol=0, atol=2e-15)
    if kind == "kendall":
        assert np.array_equal(found.values, dense[rows, columns])


@settings(max_examples=80, deadline=None)
@given(
    n=st.integers(3, 30),
    p=st.integers(2, 8),
    levels=st.integers(2, 60),
    seed=st.integers(0, 10_000),
)
def test_ranks_bound_concordances_with_and_without_ties(n, p, levels, seed):
    # The inequality behind the filter, by brute force: c from all pairs of rows, g from row sums.
    X = np.random.default_rng(seed).integers(0, levels, size=(n, p))
    X[0], X[1] = 0, 1
    signs = np.sign(X[:, None, :] - X[None, :, :])  # A_j, (n, n, p)
    c = np.einsum("rsj,rsk->jk", signs, signs) / 2
    sums = signs.sum(axis=1)
    g = sums.T @ sums / n
    rest = np.diagonal(c) - np.diagonal(g)
    assert rest.min() >= -1e-9
    bound = np.sqrt(np.outer(np.maximum(rest, 0.0), np.maximum(rest, 0.0)))
    assert np.all(np.abs(c - g) <= bound + 1e-9)


def test_without_ties_the_bound_is_daniels_inequality():
    rng, n = np.random.default_rng(2), 25
    X = rng.normal(size=(n, 12)) + rng.normal(size=(n, 1))
    tau, rho = kendall(X), correlation(X, "spearman")
    rho = 6.0 / np.pi * np.arcsin(rho / 2.0)
    between = 3 * n / (n - 2) * tau - 2 * (n + 1) / (n - 2) * rho
    assert np.all(np.abs(between) <= 1.0 + 1e-12)


def test_filter_leaves_out_most_pairs_and_none_that_is_large(monkeypatch):
    X = table(80, 120)
    dense = np.abs(np.triu(kendall(X), 1))
    untied = untied_pairs(X)
    least = 0.6
    some = stream._Filter.of(X, untied, least)
    assert some is not None
    rows, columns = some.candidates(slice(0, 120), slice(0, 120))
    kept = np.zeros_like(dense, dtype=bool)
    kept[rows, columns] = True
    assert kept.sum() < 0.1 * 120 * 119 / 2
    assert not np.any((dense > least) & ~kept)
    assert stream._Filter.of(X, untied, 0.1) is None  # nothing to leave out: no ranks kept

    def refused(*_args):
        raise AssertionError("a tile was counted whole")

    for name in ("gemm", "sort", "bits"):
        monkeypatch.setitem(stream.concordance_tiles.__globals__["_COUNTS"], name, refused)
    found = large_entries(X, "kendall", 0.75)
    assert found.values.size > 0


def test_pairs_counted_one_by_one_are_those_of_the_matrix():
    X = table(30, 9)
    rows, columns = np.triu_indices(9, 1)
    untied = untied_pairs(X)
    tau = count_pairs(X, rows, columns) / np.sqrt(untied[rows] * untied[columns])
    assert np.array_equal(tau, kendall(X)[rows, columns])


@pytest.mark.parametrize("tied", [False, True])
def test_compiled_counting_is_numpys(tied):
    pytest.importorskip("numba")
    X = table(70, 60) if tied else np.random.default_rng(0).normal(size=(70, 60))
    ranks = np.argsort(np.argsort(X, axis=0), axis=0).T + 1
    if tied:
        ranks = np.array([np.unique(column, return_inverse=True)[1] + 1 for column in X.T])
    b, t = bits.sign_bits(ranks, 16)
    assert bool(len(t)) == tied
    compiled = bits._compiled()
    assert compiled is not None
    for same in (False, True):
        ours, theirs = np.zeros((60, 60)), np.zeros((60, 60))
        bits._by_numpy(b, b, t, t, tied, same, ours)
        compiled(b, b, t, t, tied, same, theirs)
        assert np.array_equal(ours, theirs)


def test_progress_reaches_one_and_memory_is_bounded_with_advice():
    X, told = table(), []
    large_entries(X, "kendall", 0.3, block_bytes=900_000, progress=told.append)
    assert told == sorted(told)
    assert told[-1] == 1.0
    with pytest.raises(TooManyEntries, match=r"correlations are above 0.*Raise lambda1"):
        large_entries(X, "pearson", 0.0, most_bytes=16 * 1000)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("kendall", -0.1), "threshold=-0.1"),
        (("tau", 0.1), "correlation='tau'"),
    ],
)
def test_wrong_arguments_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        large_entries(table(), *arguments)


def test_constant_columns_are_named():
    X = table(20, 9)
    X[:, 4] = 1.0
    with pytest.raises(ValueError, match="column 'e': constant"):
        large_entries(X, "kendall", 0.3, columns="abcdefghi")
