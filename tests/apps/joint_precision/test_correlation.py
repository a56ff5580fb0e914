from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import scipy.linalg
import scipy.stats
from hypothesis import given, settings
from hypothesis import strategies as st

from trellis.apps.experiments.datasets import VARIABLE
from trellis.apps.joint_precision import correlation as module
from trellis.apps.joint_precision.correlation import (
    KINDS,
    correlation,
    correlation_from_tau,
    pearson,
    spearman,
    symmetric_eigen,
    to_positive_semidefinite,
)
from trellis.apps.joint_precision.kendall import kendall

ORACLE = "lapack-evd-fails-54.npy"


def gaussian(n: int, p: int, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, p)) @ rng.normal(size=(p, p)) + rng.normal(size=p) * 5


def symmetric(p: int, seed: int = 0) -> np.ndarray:
    half = np.random.default_rng(seed).normal(size=(p, p))
    return half + half.T


def test_pearson_is_numpys():
    X = gaussian(40, 7)
    np.testing.assert_allclose(pearson(X), np.corrcoef(X.T), rtol=0, atol=1e-14)


def test_spearman_is_scipys_with_and_without_ties():
    X = gaussian(40, 7)
    X[:, :3] = np.round(X[:, :3])
    np.testing.assert_allclose(spearman(X), scipy.stats.spearmanr(X).statistic, rtol=0, atol=1e-14)


def test_latent_correlations_are_sines_of_rank_correlations():
    X = gaussian(60, 5)
    tau, rho = kendall(X), scipy.stats.spearmanr(X).statistic
    off = ~np.eye(5, dtype=bool)
    S = correlation(X, "kendall")
    np.testing.assert_allclose(S[off], np.sin(np.pi / 2 * tau[off]), rtol=0, atol=1e-14)
    S = correlation(X, "spearman")
    np.testing.assert_allclose(S[off], 2 * np.sin(np.pi / 6 * rho[off]), rtol=0, atol=1e-14)
    assert np.array_equal(correlation(X, "pearson"), pearson(X))


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_finds_the_correlation_of_gaussian_data(kind):
    truth = np.array([[1.0, 0.6, -0.3], [0.6, 1.0, 0.1], [-0.3, 0.1, 1.0]])
    X = np.random.default_rng(0).multivariate_normal(np.zeros(3), truth, size=20_000)
    # The standard error of a correlation is at most 1.1 / sqrt(n) here, 0.008.
    np.testing.assert_allclose(correlation(X, kind), truth, rtol=0, atol=0.03)


@pytest.mark.parametrize("kind", ["kendall", "spearman"])
def test_rank_correlations_do_not_see_the_margins(kind):
    X = np.random.default_rng(0).normal(size=(50, 4))
    X[:, 1:] += X[:, :1]
    Y = np.column_stack([np.exp(X[:, 0]), X[:, 1] ** 3, np.arctan(X[:, 2]), 7 * X[:, 3]])
    assert np.array_equal(correlation(X, kind), correlation(Y, kind))


@settings(max_examples=30, deadline=None)
@given(
    n=st.integers(2, 12),
    p=st.integers(1, 8),
    seed=st.integers(0, 1000),
    kind=st.sampled_from(KINDS),
)
def test_correlations_are_symmetric_with_unit_diagonal_and_at_most_one(n, p, seed, kind):
    S = correlation(gaussian(n, p, seed), kind)
    assert S.shape == (p, p)
    assert np.array_equal(S, S.T)
    assert np.array_equal(np.diagonal(S), np.ones(p))
    assert np.abs(S).max() <= 1.0


@pytest.mark.parametrize("scale", [1e-300, 1e300])
def test_pearson_does_not_leave_the_range_of_floating_point(scale):
    X = np.random.default_rng(0).normal(size=(30, 3))
    np.testing.assert_allclose(pearson(X * scale), pearson(X), rtol=0, atol=1e-12)


@pytest.mark.parametrize("kind", KINDS)
def test_correlations_leave_the_data_alone_and_refuse_bad_data_by_name(kind):
    X = gaussian(10, 3)
    before = X.copy()
    correlation(X, kind)
    assert np.array_equal(X, before)
    X[:, 1] = 0.1
    with pytest.raises(ValueError, match="column 'b': constant"):
        correlation(X, kind, ["a", "b", "c"])
    X[4, 2] = np.nan
    with pytest.raises(ValueError, match=r"row 4 .*column 'c': nan"):
        correlation(X, kind, ["a", "b", "c"])
    with pytest.raises(ValueError, match="at least 2"):
        correlation(X[:1], kind)


def test_integers_that_float64_cannot_tell_apart_are_constant_to_pearson():
    X = np.array([[2**60, 0], [2**60 + 1, 1], [2**60, 2]])
    with pytest.raises(ValueError, match="column 0: constant to floating point"):
        pearson(X)


def test_an_unknown_kind_is_refused():
    with pytest.raises(ValueError, match=r"correlation='tau'.*kendall, spearman, pearson"):
        correlation(gaussian(5, 2), "tau")


def test_noised_tau_is_clipped_and_read_from_its_upper_triangle():
    tau = np.array([[3.0, 1.4, 0.2], [9.0, -2.0, -1.1], [9.0, 9.0, 0.0]])
    low = np.sin(np.pi / 2 * 0.2)
    expected = [[1.0, 1.0, low], [1.0, 1.0, -1.0], [low, -1.0, 1.0]]
    before = tau.copy()
    np.testing.assert_allclose(correlation_from_tau(tau), expected, rtol=0, atol=1e-15)
    assert np.array_equal(tau, before)
    tau[0, 2] = np.nan
    with pytest.raises(ValueError, match=r"tau\[0, 2\] = nan"):
        correlation_from_tau(tau)


def test_a_semidefinite_matrix_is_returned_itself_even_where_it_is_singular():
    for S in (np.eye(4), pearson(gaussian(50, 6)), pearson(gaussian(5, 40)), np.ones((8, 8))):
        projected, smallest = to_positive_semidefinite(S)
        assert projected is S
        assert smallest == pytest.approx(np.linalg.eigvalsh(S)[0], abs=1e-12)


@pytest.mark.parametrize("floor", [0.0, 1e-3])
def test_an_indefinite_matrix_becomes_a_correlation_matrix_by_its_eigenvalues(floor):
    S = correlation(gaussian(15, 40), "kendall")
    before = S.copy()
    projected, smallest = to_positive_semidefinite(S, floor)
    values, vectors = np.linalg.eigh(S)
    assert smallest < -0.1
    assert smallest == pytest.approx(values[0], abs=1e-12)
    assert np.array_equal(S, before)
    clipped = (vectors * np.maximum(values, floor)) @ vectors.T
    scale = np.sqrt(np.diagonal(clipped))
    np.testing.assert_allclose(projected, clipped / np.outer(scale, scale), rtol=0, atol=1e-12)
    assert np.array_equal(projected, projected.T)
    assert np.array_equal(np.diagonal(projected), np.ones(40))
    again, left = to_positive_semidefinite(projected, floor)
    assert again is projected
    assert left >= floor / scale.max() ** 2 - 1e-12


def test_a_negative_floor_is_refused():
    with pytest.raises(ValueError, match=r"floor=-0\.1"):
        to_positive_semidefinite(np.eye(2), -0.1)


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("overwrite", [False, True])
@pytest.mark.parametrize("p", [1, 2, 54])
def test_symmetric_eigen_is_numpys(p, overwrite, order):
    matrix = symmetric(p)
    given_ = np.array(matrix, order=order)
    values, vectors = symmetric_eigen(given_, overwrite)
    np.testing.assert_allclose(values, np.linalg.eigvalsh(matrix), rtol=0, atol=1e-12)
    np.testing.assert_allclose((vectors * values) @ vectors.T, matrix, rtol=0, atol=1e-12)
    np.testing.assert_allclose(vectors.T @ vectors, np.eye(p), rtol=0, atol=1e-12)
    assert np.shares_memory(vectors, given_) == overwrite
    assert overwrite or np.array_equal(given_, matrix)


@pytest.mark.parametrize("symptom", ["code", "values", "vectors"])
@pytest.mark.parametrize("overwrite", [False, True])
def test_where_divide_and_conquer_fails_evr_takes_over(monkeypatch, overwrite, symptom):
    calls = []

    def failing(a, compute_v, lower, overwrite_a):
        calls.append(a.shape)
        values, vectors = np.zeros(a.shape[0]), a if overwrite_a else a.copy()
        vectors[:] = np.nan if symptom == "vectors" else 0.0  # LAPACK leaves neither triangle
        if symptom == "values":
            values[1] = np.inf
        return values, vectors, 109 if symptom == "code" else 0

    monkeypatch.setattr(module, "lapack", lambda: SimpleNamespace(dsyevd=failing))
    matrix = symmetric(20)
    values, vectors = symmetric_eigen(matrix.copy(), overwrite)
    assert calls == [(20, 20)]
    np.testing.assert_allclose(values, np.linalg.eigvalsh(matrix), rtol=0, atol=1e-12)
    np.testing.assert_allclose((vectors * values) @ vectors.T, matrix, rtol=0, atol=1e-12)


@pytest.mark.parametrize("overwrite", [False, True])
def test_a_matrix_on_which_lapack_evd_failed_is_decomposed(overwrite):
    data = Path(os.environ.get(VARIABLE) or Path(__file__).resolve().parents[4] / "shared" / "data")
    path = data.parent / "oracle" / ORACLE
    if not path.is_file():
        pytest.skip(f"{path} is not there")
    matrix = np.load(path)
    values, vectors = symmetric_eigen(matrix.copy(), overwrite)
    expected = scipy.linalg.eigh(matrix, driver="ev", eigvals_only=True)
    np.testing.assert_allclose(values, expected, rtol=0, atol=1e-12 * np.abs(expected).max())
    np.testing.assert_allclose(vectors.T @ vectors, np.eye(len(matrix)), rtol=0, atol=1e-12)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_matrix_that_is_not_finite_is_refused(value):
    matrix = symmetric(6)
    matrix[1, 4] = matrix[4, 1] = value
    with pytest.raises(ValueError, match=rf"matrix\[1, 4\] = {value}"):
        symmetric_eigen(matrix)
