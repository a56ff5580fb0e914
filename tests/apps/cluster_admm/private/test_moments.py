"""What a client adds to noisy sums: bounds that hold for all data, and what is in the sums."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trellis.apps.cluster_admm.private import scales, score
from trellis.apps.cluster_admm.private.moments import (
    SENSITIVITY,
    Question,
    bounded_rows,
    layout,
    moments,
)
from trellis.strategies.cluster_admm.releases import unpacked

LOSSES = ("ridge", "logistic")
ODD = (0.0, 1.0, -1.0, 1e-300, 1e-160, 1e160, -1e308, math.inf, -math.inf, math.nan, 3.0)


def distance(first, second):
    return math.sqrt(sum(float(np.sum((first[name] - second[name]) ** 2)) for name in first))


@settings(max_examples=150, deadline=None)
@given(
    st.integers(0, 2**32 - 1),
    st.sampled_from(LOSSES),
    st.floats(0.0, 1.0),
    st.sampled_from([1e-12, 1e-3, 1.0, 50.0, 1e12]),
    st.sampled_from([1e-12, 0.1, 1.0, 1e12]),
    st.booleans(),
)
def test_no_sample_moves_the_moments_by_more_than_their_sensitivity(
    seed, loss, weight, length, width, whole
):
    rng = np.random.default_rng(seed)
    X, y = rng.standard_normal((5, 4)), 10.0 * rng.standard_normal(5)
    question = Question(5.0 * rng.standard_normal((3, 4)), length, width, weight, whole)
    other_X, other_y = X.copy(), y.copy()
    if rng.random() < 0.5:
        other_X[2], other_y[2] = rng.choice(ODD, 4), rng.choice(ODD)
        X[2], y[2] = rng.choice(ODD, 4), rng.choice(ODD)
    else:
        other_X[2], other_y[2] = -X[2], y[2]  # the worst: the same target, the other way
    first = moments(loss, X, y, 1, question)
    second = moments(loss, other_X, other_y, 1, question)
    assert {name: a.shape for name, a in first.items()} == layout(3, 4, whole)
    assert all(np.isfinite(a).all() for a in (*first.values(), *second.values()))
    assert distance(first, second) <= SENSITIVITY


def test_the_bound_is_reached_so_that_no_noise_is_wasted():
    X, y = np.array([[3.0, 4.0]]), np.array([100.0])
    question = Question(np.zeros((1, 2)), 1.0, 1.0, 1.0, whole=True)
    first, second = (moments("ridge", x, y, 0, question) for x in (X, -X))
    assert distance(first, second) == pytest.approx(math.sqrt(8.0))


def test_only_the_slot_of_the_cluster_and_the_shared_one_are_filled():
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((6, 3)), rng.standard_normal(6)
    found = moments("ridge", X, y, 2, Question(np.zeros((4, 3)), 2.0, 2.0, 0.6, whole=True))
    cross = found["cross"]
    assert not cross[[0, 1, 3]].any()
    np.testing.assert_allclose(cross[2] / 0.6, cross[4] / 0.8)


def test_of_samples_within_the_bounds_the_moments_are_the_plain_ones():
    rng = np.random.default_rng(1)
    X, w = rng.standard_normal((7, 3)), np.array([0.5, -1.0, 0.2])
    y = rng.standard_normal(7)
    found = moments("ridge", X, y, 0, Question(w[None], 20.0, 30.0, 1.0, whole=True))
    residual = (y - X @ w) / 30.0
    np.testing.assert_allclose(found["cross"][0], math.sqrt(2.0) * X.T @ residual / 20.0)
    np.testing.assert_allclose(found["power"], residual @ residual)
    np.testing.assert_allclose(unpacked(found["square"], 3), X.T @ X / 400.0)


def test_a_row_that_is_shortened_still_fits_its_model():
    rng = np.random.default_rng(2)
    X, w = 10.0 * rng.standard_normal((5, 3)), rng.standard_normal(3)
    found = moments("ridge", X, X @ w, 0, Question(w[None], 0.5, 1.0, 1.0, whole=False))
    np.testing.assert_allclose(found["cross"], 0.0, atol=1e-12)
    U, shrink = bounded_rows(X, 0.5)
    np.testing.assert_allclose(np.linalg.norm(U, axis=1), 1.0)
    np.testing.assert_allclose(U * 0.5, shrink[:, None] * X)


@pytest.mark.parametrize("loss", LOSSES)
def test_no_sample_moves_scales_and_scores_by_more_than_their_sensitivity(loss):
    rng = np.random.default_rng(3)
    for _ in range(300):
        X, y = rng.standard_normal((3, 2)), rng.standard_normal(3)
        other_X, other_y = X.copy(), y.copy()
        other_X[0], other_y[0] = rng.choice(ODD, 2), rng.choice(ODD)
        counts = [scales.scale_counts(loss, *one) for one in ((X, y), (other_X, other_y))]
        assert all(np.isfinite(one).all() and (one >= 0.0).all() for one in counts)
        assert np.linalg.norm(counts[0] - counts[1]) <= scales.SENSITIVITY[loss]
        w, width = rng.standard_normal(2), float(rng.choice([1e-12, 1.0, 1e12]))
        terms = [score.score_terms(loss, *one, w, width) for one in ((X, y), (other_X, other_y))]
        assert np.linalg.norm(terms[0] - terms[1]) <= score.SENSITIVITY[loss]


def test_scales_are_geometric_means_and_none_where_noise_hides_them():
    rng = np.random.default_rng(4)
    X, y = rng.standard_normal((4000, 9)), 5.0 * rng.standard_normal(4000)
    counts = scales.scale_counts("ridge", X, y)
    length, width = scales.scales_in(counts + rng.standard_normal(counts.shape), 1.0)
    lengths = np.linalg.norm(X, axis=1)
    assert length == pytest.approx(np.exp(np.mean(np.log(lengths))), rel=0.03)
    # what is far below the highest place is left out, so it is a little more
    assert width == pytest.approx(2.0 * np.exp(np.mean(np.log(np.abs(y)))), rel=0.25)
    assert scales.scales_in(counts, 1e6) == (None, None)
    assert scales.scales_in(scales.scale_counts("logistic", X, y), 1.0)[1] is None


def test_the_score_is_the_explained_share_and_the_share_of_right_labels():
    rng = np.random.default_rng(5)
    X, w = rng.standard_normal((200, 3)), np.array([1.0, 2.0, 0.0])
    y = X @ w + 0.1 * rng.standard_normal(200)
    terms = score.score_terms("ridge", X, y, w, 100.0)
    found, error = score.score_of("ridge", terms, 200, 0.0)
    assert found == pytest.approx(1.0 - np.sum((y - X @ w) ** 2) / np.sum(y**2))
    assert error == 0.0
    labels = np.sign(y)
    right = score.score_terms("logistic", X, labels, w, 1.0)
    assert score.score_of("logistic", right, 200, 2.0) == (np.mean(np.sign(X @ w) == labels), 0.01)
