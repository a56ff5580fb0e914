"""CLIME against CVXPY and HiGHS, its certificate, its two limits, and what it refuses."""

from __future__ import annotations

import cvxpy as cp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trellis.apps.joint_precision import clime as module
from trellis.apps.joint_precision.clime import (
    ClimeError,
    clime,
    clime_columns,
    clime_path,
    solve_column,
    symmetrised,
)


def correlation(p: int, n: int, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    mixing = np.eye(p) + 0.4 * rng.normal(size=(p, p)) * (rng.random((p, p)) < 0.2)
    return np.corrcoef((rng.normal(size=(n, p)) @ mixing).T)


def optimum_by_cvxpy(S: np.ndarray, lambda_: float) -> np.ndarray:
    """Return the least |beta|_1 of every column, (20) whole."""
    omega = cp.Variable(S.shape)
    constraint = [cp.max(cp.abs(S @ omega - np.eye(len(S)))) <= lambda_]
    cp.Problem(cp.Minimize(cp.sum(cp.abs(omega))), constraint).solve(
        solver=cp.CLARABEL, tol_gap_abs=1e-10, tol_gap_rel=1e-10, tol_feas=1e-10
    )
    return np.abs(omega.value).sum(axis=0)


@pytest.mark.parametrize("lambda_", [0.02, 0.1, 0.4])
@pytest.mark.parametrize(("p", "n"), [(2, 10), (5, 40), (12, 60)])
def test_every_column_is_as_short_as_cvxpy_finds_it(p, n, lambda_):
    S = correlation(p, n)
    columns = clime_columns(S, [lambda_])[0]
    assert np.max(np.abs(S @ columns - np.eye(p))) <= lambda_ + 1e-9
    np.testing.assert_allclose(
        np.abs(columns).sum(axis=0), optimum_by_cvxpy(S, lambda_), rtol=1e-6, atol=1e-7
    )


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10_000), st.integers(2, 14), st.floats(0.01, 0.9))
def test_the_descent_ends_where_highs_does(seed, p, lambda_):
    S = correlation(p, 30, seed)
    columns = clime_columns(S, [lambda_])[0]
    for j in range(p):
        np.testing.assert_allclose(columns[:, j], solve_column(S, j, lambda_), atol=1e-7)


def test_the_descent_needs_no_help_on_ordinary_data(monkeypatch):
    monkeypatch.setattr(module, "solve_column", lambda *_: pytest.fail("HiGHS was asked"))
    assert clime(correlation(30, 100), 0.05).any()


def test_a_path_is_its_points_in_the_order_asked_for():
    S = correlation(10, 50)
    lambdas = [0.1, 1.5, 0.02, 0.3, 0.1]
    for matrix, lambda_ in zip(clime_path(S, lambdas), lambdas, strict=True):
        np.testing.assert_allclose(matrix, clime(S, lambda_), atol=1e-10)


def test_columns_may_descend_one_by_one(monkeypatch):
    S = correlation(10, 50)
    together = clime_columns(S, [0.2, 0.05])
    monkeypatch.setattr(module, "_BATCH_ENTRIES", 1)
    np.testing.assert_allclose(clime_columns(S, [0.2, 0.05]), together, atol=1e-12)


@pytest.mark.parametrize("lambda_", [1.0, 3.0])
def test_a_large_lambda_gives_zero(lambda_):
    assert not clime(correlation(6, 30), lambda_).any()


def test_a_tiny_lambda_approaches_the_inverse():
    S = correlation(8, 100)
    np.testing.assert_allclose(clime(S, 1e-9), np.linalg.inv(S), atol=1e-6)


def test_a_diagonal_matrix_is_shrunk_in_closed_form():
    # Everything ties here: all the programmes are degenerate.
    np.testing.assert_allclose(clime(np.eye(7), 0.3), 0.7 * np.eye(7), atol=1e-12)


def test_a_result_that_is_not_certified_is_solved_again(monkeypatch):
    S = correlation(9, 40)
    right = clime_columns(S, [0.1])
    monkeypatch.setattr(module, "_PIVOTS_A_VARIABLE", 0)
    np.testing.assert_allclose(clime_columns(S, [0.1]), right, atol=1e-9)


def test_the_certificate_sees_a_column_that_is_feasible_and_too_long():
    S = correlation(6, 40)
    inverse, none = np.linalg.inv(S)[None], np.zeros((1, 6, 6))
    assert not module._certified(S, np.array([0.1]), inverse, none).any()
    assert not module._certified(S, np.array([0.1]), none, none).any()


def test_the_smaller_of_each_pair_is_kept():
    columns = np.array([[1.0, -0.2, 0.5], [0.3, 2.0, 0.0], [-0.5, 0.7, 3.0]])
    kept = symmetrised(columns)
    np.testing.assert_array_equal(kept, kept.T)
    assert (kept[0, 1], kept[1, 2]) == (-0.2, 0.0)
    assert abs(kept[0, 2]) == 0.5  # equal magnitudes: one of them, not zero as (22) has it
    np.testing.assert_array_equal(np.diag(kept), [1.0, 2.0, 3.0])


def test_a_singular_matrix_below_its_smallest_lambda_names_the_column():
    S = np.ones((2, 2))  # S beta has equal entries: none is within 0.4 of both 1 and 0
    with pytest.raises(ClimeError, match=r"column 0 of 2, lambda=0\.4: status 2.*larger lambda"):
        clime(S, 0.4)
    np.testing.assert_allclose(np.abs(clime_columns(S, [0.6])[0]).sum(axis=0), 0.4, atol=1e-9)


@pytest.mark.parametrize("lambda_", [0.0, -1.0, float("nan")])
def test_lambda_must_be_positive(lambda_):
    with pytest.raises(ValueError, match="must be > 0"):
        clime(np.eye(3), lambda_)


@pytest.mark.parametrize("bad", [np.ones((2, 3)), np.full((2, 2), np.nan)])
def test_a_matrix_that_is_none_is_refused(bad):
    with pytest.raises(ValueError, match="square matrix of finite numbers"):
        clime(bad, 0.1)
