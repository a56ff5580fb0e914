from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.stats import trim_mean

from trellis.strategies.core.robust import (
    Robust,
    clipped,
    clipped_rows,
    coordinate_median,
    excess,
    trimmed_mean,
)

_NUMBERS = st.floats(-1e6, 1e6)
_LIES = st.sampled_from([-1e100, -1e9, -1.0, 0.0, 1.0, 1e9, 1e100])


def _rows(least: int, most: int) -> st.SearchStrategy[np.ndarray]:
    return st.integers(least, most).flatmap(lambda n: arrays(np.float64, (n, 3), elements=_NUMBERS))


@given(_rows(2, 2), st.floats(1e-3, 1e9))
def test_a_clipped_vector_is_within_the_bound_and_on_its_way(rows, bound):
    vector, reference = rows
    found = clipped(vector, reference, bound)
    step, whole = found - reference, vector - reference
    assert np.linalg.norm(step) <= bound * (1 + 1e-9) + 1e-9 * np.linalg.norm(reference)
    assert excess(found, reference, bound) == 0.0
    if np.linalg.norm(whole) <= bound:
        assert found is vector
    else:
        # The nearest point of the ball: the same direction, as far as the bound goes.
        expected = reference + whole * (bound / np.linalg.norm(whole))
        np.testing.assert_allclose(found, expected, rtol=1e-12)
        assert excess(vector, reference, bound) in (0.0, np.linalg.norm(whole))


def test_no_bound_returns_what_came_itself():
    vector = np.full(3, 1e99)
    assert clipped(vector, np.zeros(3), 0.0) is vector
    rows = np.ones((2, 3))
    assert clipped_rows(rows, rows, 0.0) is rows


def test_rows_are_clipped_one_by_one():
    found = clipped_rows(np.array([[3.0, 4.0], [0.3, 0.4]]), np.zeros((2, 2)), 1.0)
    np.testing.assert_allclose(found, [[0.6, 0.8], [0.3, 0.4]])


@given(_rows(1, 12))
def test_the_median_is_numpy_s(rows):
    np.testing.assert_array_equal(coordinate_median(rows), np.median(rows, axis=0))


@given(_rows(1, 40), st.floats(0.01, 0.49))
def test_the_trimmed_mean_is_scipy_s_where_that_cuts(rows, share):
    found = trimmed_mean(rows, share)
    if int(share * len(rows)) >= 1 or len(rows) < 3:
        expected = trim_mean(rows, share, axis=0)
    else:  # where scipy cuts nothing, one is left out at either end all the same
        expected = np.mean(np.sort(rows, axis=0)[1:-1], axis=0)
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-9)


@given(_rows(3, 12), st.data())
def test_no_minority_of_liars_brings_the_median_out_of_the_honest_range(honest, data):
    liars = data.draw(st.integers(0, len(honest) - 1))
    lies = data.draw(arrays(np.float64, (liars, 3), elements=_LIES))
    found = coordinate_median(np.vstack([honest, lies]))
    assert np.all(found >= honest.min(axis=0))
    assert np.all(found <= honest.max(axis=0))


@given(_rows(3, 30), st.floats(0.05, 0.4), st.data())
def test_as_many_liars_as_are_cut_leave_the_trimmed_mean_in_the_honest_range(honest, share, data):
    most = max(n for n in range(len(honest)) if n <= max(int(share * (len(honest) + n)), 1))
    liars = data.draw(st.integers(0, most))
    lies = data.draw(arrays(np.float64, (liars, 3), elements=_LIES))
    found = trimmed_mean(np.vstack([honest, lies]), share)
    slack = 1e-9 * np.abs(honest).max() + 1e-12
    assert np.all(found >= honest.min(axis=0) - slack)
    assert np.all(found <= honest.max(axis=0) + slack)


@given(_rows(3, 30), _rows(1, 1), st.floats(1e-2, 1e3))
def test_one_clipped_liar_moves_a_mean_by_the_bound_over_the_number(rows, lie, bound):
    reference = np.zeros(3)
    others = clipped_rows(rows, np.zeros_like(rows), bound)
    before = np.mean(np.vstack([others, reference]), axis=0)
    after = np.mean(np.vstack([others, clipped(lie[0], reference, bound)]), axis=0)
    assert np.linalg.norm(after - before) <= bound / (len(rows) + 1) * (1 + 1e-9) + 1e-9


@pytest.mark.parametrize("rule", ["median", "trimmed"])
def test_places_with_fewer_than_three_rows_keep_what_they_have(rule):
    rows = np.array([[1.0], [2.0], [1e9], [5.0], [1e9]])
    before = np.array([[-1.0], [-2.0], [-3.0]])
    found = Robust(rule).centres(rows, np.array([0, 0, 0, 2, 2]), before)
    np.testing.assert_array_equal(found, [[2.0], [-2.0], [-3.0]])


def test_without_a_rule_the_centre_is_the_mean():
    assert Robust().centre(np.array([[1.0], [3.0]])) == 2.0
    assert not Robust("clip", 1.0).replaces_mean
