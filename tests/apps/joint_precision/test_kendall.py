from __future__ import annotations

import sys
import tracemalloc

import numpy as np
import pytest
import scipy.stats
from hypothesis import given, settings
from hypothesis import strategies as st

from trellis.apps.joint_precision import counting as module
from trellis.apps.joint_precision.kendall import kendall

METHODS = ("gemm", "sort", "bits")


def scipy_tau(X: np.ndarray) -> np.ndarray:
    tau = np.eye(X.shape[1])
    for j in range(X.shape[1]):
        for k in range(j):
            tau[j, k] = tau[k, j] = scipy.stats.kendalltau(X[:, j], X[:, k]).statistic
    return tau


def naive_tau_a(X: np.ndarray) -> np.ndarray:
    r, s = np.triu_indices(X.shape[0], 1)
    signs = np.sign(X[r] - X[s])
    tau = signs.T @ signs * 2.0 / (X.shape[0] * (X.shape[0] - 1))
    np.fill_diagonal(tau, 1.0)
    return tau


def table(n: int, p: int, seed: int = 0) -> np.ndarray:
    """Every third column without ties, with a few, with many; correlated."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, p)) + rng.normal(size=(n, 1))
    X[:, 1::3] = np.round(X[:, 1::3], 1)
    X[:, 2::3] = X[:, 2::3] > X[:, 2::3].mean(axis=0)
    return X


@pytest.mark.parametrize("method", [*METHODS, "auto"])
@pytest.mark.parametrize("shape", [(3, 4), (40, 9), (150, 7), (700, 4)])
def test_tau_b_is_scipys(shape, method):
    X = table(*shape)
    np.testing.assert_allclose(kendall(X, method=method), scipy_tau(X), rtol=0, atol=1e-14)


@pytest.mark.parametrize("method", METHODS)
def test_tau_b_without_ties_is_scipys_and_tau_a(method):
    X = np.random.default_rng(1).normal(size=(60, 6))
    tau = kendall(X, method=method)
    np.testing.assert_allclose(tau, scipy_tau(X), rtol=0, atol=1e-14)
    assert np.array_equal(tau, kendall(X, variant="a", method=method))


@pytest.mark.parametrize("method", METHODS)
def test_tau_a_counts_ties_as_zero_and_has_a_unit_diagonal(method):
    X = table(30, 6)
    X[:, 5] = 2.0  # a constant column is no correlation, but tau_a of it is 0
    tau = kendall(X, variant="a", method=method)
    np.testing.assert_allclose(tau, naive_tau_a(X), rtol=0, atol=1e-14)
    assert np.array_equal(np.diagonal(tau), np.ones(6))
    assert np.array_equal(tau[5, :5], np.zeros(5))


@settings(max_examples=60, deadline=None)
@given(
    n=st.integers(2, 25),
    p=st.integers(1, 6),
    levels=st.integers(2, 40),
    seed=st.integers(0, 10_000),
    variant=st.sampled_from(["a", "b"]),
    block_bytes=st.sampled_from([26_000, 40_000, 1 << 20]),
)
def test_methods_and_blocks_agree_to_the_bit(n, p, levels, seed, variant, block_bytes):
    X = np.random.default_rng(seed).integers(0, levels, size=(n, p))
    X[0], X[1] = 0, 1  # no column is constant
    tau = kendall(X, variant=variant, method="gemm")
    for method in METHODS:
        again = kendall(X, variant=variant, method=method, block_bytes=block_bytes)
        assert np.array_equal(again, tau)
    assert np.array_equal(tau, tau.T)
    assert np.abs(tau).max() <= 1.0
    assert np.linalg.eigvalsh(tau)[0] > -1e-12


@pytest.mark.parametrize("method", METHODS)
def test_tiles_of_columns_and_blocks_of_rows_are_equal_to_the_whole(method):
    X = table(150, 90)
    plan = module._plan(150, 90, method, 140_000)
    assert plan.width < 45
    assert plan.ranked < plan.width
    assert method == "sort" or plan.rows < 150 * 149 // 2
    assert np.array_equal(kendall(X, method=method, block_bytes=140_000), kendall(X))


@pytest.mark.parametrize("method", METHODS)
def test_monotone_transforms_change_no_bit(method):
    X = table(80, 6)
    Y = np.column_stack([np.exp(X[:, 0]), X[:, 1] ** 3, 5 * X[:, 2] - 1, *np.arctan(X[:, 3:].T)])
    assert np.array_equal(kendall(X, method=method), kendall(Y, method=method))
    assert np.array_equal(
        kendall(X * [-1, 1, 1, 1, 1, 1], method=method)[0, 1:], -kendall(X)[0, 1:]
    )


@pytest.mark.parametrize("method", METHODS)
def test_two_rows_give_ones_and_minus_ones(method):
    tau = kendall([[0.0, 5.0, 1.0], [1.0, 2.0, 7.0]], method=method)
    assert np.array_equal(tau, [[1, -1, 1], [-1, 1, -1], [1, -1, 1]])


@pytest.mark.parametrize("method", METHODS)
def test_one_column_gives_one(method):
    assert np.array_equal(kendall([[1], [2], [2]], method=method), [[1.0]])


@pytest.mark.parametrize("method", METHODS)
def test_equal_and_reversed_columns_give_exactly_one_even_with_ties(method):
    x = np.repeat(np.arange(37), 3)
    assert np.array_equal(kendall(np.column_stack([x, 2 * x, -x]), method=method)[0], [1, 1, -1])


@pytest.mark.parametrize("method", METHODS)
def test_integers_are_not_rounded(method):
    # In float64 the first two would be tied.
    X = np.array([[2**60, 0], [2**60 + 1, 1], [2**61, 2]])
    assert np.array_equal(kendall(X, method=method), np.ones((2, 2)))


@pytest.mark.parametrize("kind", [bool, np.uint8, np.int16, np.float32])
def test_any_real_type_is_taken(kind):
    X = (table(20, 6) > 0.5).astype(kind)
    np.testing.assert_allclose(kendall(X), scipy_tau(X.astype(float)), rtol=0, atol=1e-14)


def test_the_table_is_left_alone():
    X = table(30, 5)
    before = X.copy()
    for method in METHODS:
        kendall(X, method=method)
    assert np.array_equal(X, before)


@pytest.mark.parametrize(
    ("n", "p", "method", "block_bytes"),
    [
        (20_000, 12, "sort", 6_000_000),
        (20, 1500, "gemm", 3_000_000),
        (150, 300, "gemm", 1_200_000),
        (400, 30, "sort", 200_000),
        (4, 1500, "auto", module.BLOCK_BYTES),
    ],
)
def test_memory_beyond_the_result_stays_within_block_bytes(n, p, method, block_bytes):
    X = np.random.default_rng(0).normal(size=(n, p))
    kendall(X[:5, :3], method=method)  # imports
    tracemalloc.start()
    result = kendall(X, method=method, block_bytes=block_bytes)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak - result.nbytes <= block_bytes


@pytest.mark.parametrize(
    ("n", "method"), [(2, "gemm"), (45, "gemm"), (5000, "gemm"), (5000, "sort")]
)
def test_too_little_memory_is_refused_with_a_number_that_is_enough(n, method):
    with pytest.raises(ValueError, match=f"{n} rows, which need {200 * n + 20_000}"):
        module._plan(n, 3, method, 100)
    plan = module._plan(n, 1000, method, 200 * n + 20_000)
    assert plan.width >= 1
    assert method == "sort" or plan.rows >= 1


def test_auto_takes_the_product_for_few_rows_and_the_sort_for_many():
    assert module._gemm_is_quicker(150, 1280)
    assert module._gemm_is_quicker(1000, 160)
    assert not module._gemm_is_quicker(10_000, 54)
    assert not module._gemm_is_quicker(1000, 2)


def test_without_scipys_private_counter_the_public_function_gives_the_same_bits(monkeypatch):
    X = table(60, 7)
    X[:, 6] = 1.0
    expected = kendall(X, variant="a", method="sort")
    monkeypatch.setitem(sys.modules, "scipy.stats._stats", None)
    assert module._compiled_discordance.__wrapped__() is None
    monkeypatch.setattr(module, "_compiled_discordance", lambda: None)
    assert np.array_equal(kendall(X, variant="a", method="sort"), expected)
    assert np.array_equal(kendall(X[:, :6], method="sort"), kendall(X[:, :6], method="gemm"))
    assert np.array_equal(kendall(X[:2, :1], method="sort"), [[1.0]])


def test_scipys_private_counter_is_there():
    # The public function is right but slower: know when scipy moves its counter.
    assert module._compiled_discordance() is not None


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_missing_and_infinite_values_are_refused_by_row_and_column(value):
    X = table(50, 4)
    X[31, 2] = value
    with pytest.raises(ValueError, match=rf"row 31 .*column 2: {value}"):
        kendall(X)
    with pytest.raises(ValueError, match=rf"row 31 .*column 'height': {value}"):
        kendall(X, columns=["a", "b", "height", "d"])


def test_a_masked_value_is_missing():
    X = np.ma.masked_equal([[1, 2], [3, 9], [4, 5]], 9)
    with pytest.raises(ValueError, match=r"row 1 .*column 1: nan"):
        kendall(X)


def test_a_missing_value_is_found_in_a_later_block_of_rows():
    X = np.random.default_rng(0).normal(size=(40_000, 2))
    X[39_999, 1] = np.nan
    with pytest.raises(ValueError, match=r"row 39999 .*column 1"):
        kendall(X)


def test_a_column_that_varies_in_one_early_row_only_is_not_constant():
    X = np.random.default_rng(0).normal(size=(40_000, 2))
    X[:, 1] = np.arange(40_000) == 5
    # Only the 39,999 pairs with that row are untied in the second column.
    balance = np.sum(np.sign(X[5, 0] - X[:, 0]))
    pairs = 20_000 * 39_999
    assert kendall(X, variant="a")[0, 1] == balance / pairs
    assert kendall(X)[0, 1] == pytest.approx(balance / np.sqrt(39_999 * pairs), rel=1e-14)


def test_a_constant_column_is_refused_by_name():
    X = table(10, 3)
    X[:, 1] = 4.5
    with pytest.raises(ValueError, match=r"column 'b': constant \(4.5\)"):
        kendall(X, columns=["a", "b", "c"])


@pytest.mark.parametrize(
    ("X", "message"),
    [
        (np.zeros(3), r"shape \(3,\)"),
        (np.zeros((2, 2, 2)), "shape"),
        (np.zeros((3, 0)), "shape"),
        (np.zeros((1, 3)), "at least 2"),
        (np.zeros((0, 3)), "at least 2"),
        ([["1", "2"], ["3", "4"]], "numbers are needed"),
        (np.zeros((2, 2), dtype=complex), "numbers are needed"),
        (np.array([[1, None], [2, 3]]), "numbers are needed"),
    ],
)
def test_what_is_no_table_of_numbers_is_refused(X, message):
    with pytest.raises(ValueError, match=message):
        kendall(X)


def test_wrong_choices_are_refused():
    X = table(5, 3)
    with pytest.raises(ValueError, match="variant='c'"):
        kendall(X, variant="c")
    with pytest.raises(ValueError, match="method='fast'"):
        kendall(X, method="fast")
    with pytest.raises(ValueError, match="2 column names for 3 columns"):
        kendall(X, columns=["a", "b"])
