"""Losses: values and gradients against independent formulas, and a user's own by name."""

from __future__ import annotations

import logging

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import log_loss

from trellis.apps.common import plugins
from trellis.apps.common.settings import ConfigError
from trellis.apps.common.tables import DataError
from trellis.apps.server_graph.losses import LeastSquares, Logistic, loss_by_name, start

HERE = __name__


class Huber:
    """A loss of a user's own, of numbers."""

    targets = "numbers"

    def size(self, features):
        return features

    def loss(self, w, X, y):
        r = np.abs(X @ w - y)
        return np.where(r < 1.0, 0.5 * r**2, r - 0.5)

    def gradients(self, w, X, y):
        return np.clip(X @ w - y, -1.0, 1.0)[:, None] * X

    def predict(self, w, X):
        return X @ w

    def check_targets(self, y, source):
        return y


class Half:
    made = 0

    def __init__(self):
        Half.made += 1

    def size(self, features):
        return features

    def loss(self, w, X, y):
        return y


class Demanding(Huber):
    def __init__(self, width):
        self.width = width


class WrongStart(Huber):
    def start(self, features):
        return np.zeros(features + 1)


@pytest.fixture(autouse=True)
def _named():
    for name, part in (("half", Half), ("demanding", Demanding), ("wrong-start", WrongStart)):
        plugins.register("losses", name, part)
    plugins.register("losses", "huber", Huber)


def samples(seed, kind, n=7, d=3):
    rng = np.random.default_rng(seed)
    y = rng.choice([-1.0, 1.0], n) if kind == "logistic" else rng.normal(size=n)
    return rng.normal(size=d), rng.normal(size=(n, d)), y


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10_000), st.sampled_from(["logistic", "least-squares", "huber"]))
def test_gradients_are_the_slopes_of_each_samples_loss(seed, name):
    loss = loss_by_name(name)
    w, X, y = samples(seed, name)
    step = 1e-6
    slopes = [
        (loss.loss(w + step * e, X, y) - loss.loss(w - step * e, X, y)) / (2 * step)
        for e in np.eye(3)
    ]
    np.testing.assert_allclose(loss.gradients(w, X, y), np.transpose(slopes), atol=1e-7)


@pytest.mark.parametrize("name", ["logistic", "least-squares"])
def test_the_hessian_is_the_slope_of_the_weighted_gradient(name):
    loss = loss_by_name(name)
    w, X, y = samples(5, name)
    weights = np.random.default_rng(1).random(7)
    step = 1e-6
    slopes = [
        weights @ (loss.gradients(w + step * e, X, y) - loss.gradients(w - step * e, X, y))
        for e in np.eye(3)
    ]
    np.testing.assert_allclose(
        loss.hessian(w, X, y, weights), np.array(slopes) / (2 * step), atol=1e-7
    )


def test_the_logistic_loss_is_scikit_learns():
    w, X, y = samples(3, "logistic", n=40)
    chance = 1.0 / (1.0 + np.exp(-X @ w))
    assert Logistic().loss(w, X, y).mean() == pytest.approx(log_loss(y, chance), rel=1e-12)


def test_the_logistic_loss_does_not_overflow_far_from_the_boundary():
    X, y = np.array([[1e4], [1e4]]), np.array([1.0, -1.0])
    with np.errstate(all="raise", under="ignore"):
        loss, slopes = Logistic().loss(np.ones(1), X, y), Logistic().gradients(np.ones(1), X, y)
    np.testing.assert_array_equal(loss, [0.0, 1e4])
    np.testing.assert_array_equal(slopes, [[-0.0], [1e4]])


def test_predictions_are_targets():
    X, w = np.array([[2.0], [-1.0], [0.0]]), np.array([3.0])
    np.testing.assert_array_equal(Logistic().predict(w, X), [1.0, -1.0, 1.0])
    np.testing.assert_array_equal(LeastSquares().predict(w, X), [6.0, -3.0, 0.0])


def test_labels_0_and_1_are_read_as_minus_and_plus_1_and_that_is_said(caplog):
    caplog.set_level(logging.INFO, "trellis.server_graph")
    y = Logistic().check_targets(np.array([0.0, 1.0, 0.0]), "ward.csv")
    np.testing.assert_array_equal(y, [-1.0, 1.0, -1.0])
    assert "ward.csv: label 0 is read as -1 (2 of 3 rows)" in caplog.text
    caplog.clear()
    for labels in ([1.0, -1.0], [1.0, 1.0]):
        np.testing.assert_array_equal(Logistic().check_targets(np.array(labels), "f"), labels)
    assert not caplog.text


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ([1.0, 2.0, 2.0], r"ward.csv: row 2, y is 2 \(2 such rows\).*labels -1 and 1, or 0 and 1"),
        ([1.0, 0.5], "row 2, y is 0.5"),
        ([1.0, 0.0, -1.0], "labels 0 and -1 both"),
    ],
)
def test_other_labels_are_refused_by_name(labels, message):
    with pytest.raises(DataError, match=message):
        Logistic().check_targets(np.array(labels), "ward.csv")


def test_any_number_is_a_target_of_least_squares():
    y = np.array([0.0, -3.5, 1e9])
    np.testing.assert_array_equal(LeastSquares().check_targets(y, "f"), y)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("hinge", "loss='hinge': use one of logistic, least-squares, small-mlp.*entry point 'hing"),
        (f"{HERE}.Half", "needs an entry point"),  # a run config names a part and never code
        ("half", "Half lacks gradients, predict, check_targets; a loss needs size, loss"),
        ("demanding", "cannot be made without arguments.*width"),
    ],
)
def test_a_name_that_is_no_loss_is_refused_with_what_is_missing(name, message):
    with pytest.raises(ConfigError, match=message):
        loss_by_name(name)
    assert Half.made == 0


def test_learning_starts_at_zero_unless_the_loss_says_otherwise():
    np.testing.assert_array_equal(start(Logistic(), 4), np.zeros(4))
    with pytest.raises(ConfigError, match=r"WrongStart.start\(2\) has shape \(3,\); 2 finite"):
        start(loss_by_name("wrong-start"), 2)
