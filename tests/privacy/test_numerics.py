"""Parts of scipy taken alone give scipy's own bits, and leave scipy as it was."""

from __future__ import annotations

import math
import subprocess
import sys

import numpy as np
import pytest
import scipy.linalg
import scipy.optimize
import scipy.special
import scipy.stats

from trellis.privacy import numerics

RNG = np.random.default_rng(3)


def positive(size: int) -> np.ndarray:
    root = RNG.standard_normal((size, size + 2))
    return root @ root.T


@pytest.mark.parametrize("name", ["expit", "ndtr", "log_ndtr", "erf", "gammaln"])
def test_special_functions_have_scipy_s_bits(name):
    x = np.concatenate([RNG.standard_normal(500) * 10.0, [0.0, -40.0, 40.0, 1e-300, -1e3]])
    mine, theirs = getattr(numerics, name)(x), getattr(scipy.special, name)(x)
    assert np.array_equal(mine, theirs)


def test_the_normal_density_has_scipy_s_bits():
    for x in [0.0, 1e-9, 40.0, *RNG.uniform(-9.0, 9.0, 300)]:
        assert numerics.normal_density(float(x)) == float(scipy.stats.norm.pdf(float(x)))


@pytest.mark.parametrize("shape", [(1, 1), (3, 3), (9, 4), (2, 7)])
def test_a_matching_is_scipy_s(shape):
    costs = np.round(3.0 * RNG.standard_normal(shape))  # with ties
    mine, theirs = numerics.linear_sum_assignment(costs), scipy.optimize.linear_sum_assignment
    assert np.array_equal(mine, theirs(costs))


@pytest.mark.parametrize("size", [1, 2, 40, 1025])
@pytest.mark.parametrize("scale", [0.1, 1.0, 500.0])
def test_a_log_of_a_sum_has_scipy_s_bits(size, scale):
    terms = scale * RNG.standard_normal(size)
    terms[-1] = terms[0]  # two that are largest, sometimes
    assert numerics.log_sum_exp(terms) == float(scipy.special.logsumexp(terms))


@pytest.mark.parametrize("terms", [[-np.inf, -np.inf], [np.inf, 0.0], [3.0, 3.0, 3.0], [1e308]])
def test_a_log_of_a_sum_at_the_edges(terms):
    found = numerics.log_sum_exp(np.array(terms))
    assert found == float(scipy.special.logsumexp(terms))


@pytest.mark.parametrize("target", [0.1, 0.5, 0.9, 1.0 - 1e-9])
def test_a_root_has_scipy_s_bits(target):
    def excess(x: float) -> float:
        return float(scipy.special.ndtr(x)) - target

    for xtol in (1e-3, 2e-12, 1e-14):
        mine = numerics.brentq(excess, -10.0, 10.0, xtol=xtol)
        assert mine == scipy.optimize.brentq(excess, -10.0, 10.0, xtol=xtol)


def test_no_root_is_refused_as_scipy_refuses_it():
    with pytest.raises(ValueError, match="different signs"):
        numerics.brentq(lambda x: 1.0, 0.0, 1.0)
    with pytest.raises(ValueError, match="not a number"):
        numerics.brentq(lambda x: math.nan, 0.0, 1.0)
    with pytest.raises(ValueError, match="too small"):
        numerics.brentq(lambda x: x, -1.0, 1.0, xtol=0.0)
    with pytest.raises(RuntimeError, match="converge"):
        numerics.brentq(lambda x: -1.0 if x < math.pi else 1.0, 0.0, 1e300, xtol=1e-300)


@pytest.mark.parametrize("size", [0, 1, 7, 80])
@pytest.mark.parametrize("order", ["C", "F"])
def test_factorisations_have_scipy_s_bits(size, order):
    a, b = np.asarray(positive(size), order=order), RNG.standard_normal(size)
    if size:
        theirs = scipy.linalg.cholesky(a, lower=True, check_finite=False)
        assert np.array_equal(numerics.cholesky(a), theirs)
        lower = np.linalg.cholesky(a)
        found = numerics.solve_lower(lower, a)
        assert np.array_equal(found, scipy.linalg.solve_triangular(lower, a, lower=True))
    mine = numerics.cho_solve(numerics.cho_factor(a), b)
    assert np.array_equal(mine, scipy.linalg.cho_solve(scipy.linalg.cho_factor(a), b))


def test_what_cannot_be_factored_is_refused():
    assert numerics.LinAlgError is scipy.linalg.LinAlgError
    with pytest.raises(numerics.LinAlgError):
        numerics.cholesky(-np.eye(3))
    with pytest.raises(numerics.LinAlgError):
        numerics.solve_lower(np.zeros((3, 3)), np.ones(3))
    with pytest.raises(ValueError, match="infs or NaNs"):
        numerics.cho_factor(np.full((2, 2), np.nan))


@pytest.mark.parametrize("shape", [(1, 1), (9, 3), (400, 5)])
def test_ranks_are_scipy_s(shape):
    values = np.round(RNG.standard_normal(shape), 1)  # with ties
    assert np.array_equal(numerics.rankdata(values), scipy.stats.rankdata(values, axis=0))
    dense = scipy.stats.rankdata(values, method="dense", axis=0)
    assert np.array_equal(numerics.rankdata(values, dense=True), dense)


def in_a_new_process(code: str) -> str:
    command = [sys.executable, "-c", code]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def test_the_rest_of_scipy_stays_away_and_can_still_be_imported():
    """Taken alone first, then with all of scipy: the same bits, in one process."""
    code = """
import sys, numpy as np
from trellis.privacy import numerics
a, b = np.diag([2.0, 3.0, 7.0]) + 0.1, np.array([1.0, 2.0, 3.0])
root = numerics.brentq(lambda x: float(numerics.ndtr(x)) - 0.3, -5.0, 5.0)
step = numerics.lapack().dposv(a, b)[1]
solved = numerics.cho_solve(numerics.cho_factor(a), b)
pairs = numerics.linear_sum_assignment(a)
heavy = ("special", "optimize", "linalg", "stats", "sparse")
print([name for name in heavy if f"scipy.{name}" in sys.modules])
import scipy.stats, scipy.linalg.lapack
assert root == scipy.optimize.brentq(lambda x: float(scipy.special.ndtr(x)) - 0.3, -5.0, 5.0)
assert np.array_equal(step, scipy.linalg.lapack.dposv(a, b)[1])
assert np.array_equal(solved, scipy.linalg.cho_solve(scipy.linalg.cho_factor(a), b))
"""
    assert in_a_new_process(code) == "[]"


def test_another_layout_of_scipy_is_imported_as_usual(monkeypatch):
    numerics.part.cache_clear()
    numerics.lapack.cache_clear()
    monkeypatch.setattr(numerics.machinery, "EXTENSION_SUFFIXES", [])
    try:
        assert numerics.part("scipy.special", "_no_such_file", "ndtr") is scipy.special
        assert numerics.part("scipy.optimize", "_zeros", "no_such_name") is scipy.optimize
        assert np.array_equal(numerics.lapack().dposv(np.eye(2), np.ones(2))[1], np.ones(2))
    finally:
        numerics.part.cache_clear()
        numerics.lapack.cache_clear()
