"""A device's own model: against independent solvers, and never far from what is right."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import minimize

from trellis.apps.cluster_admm.private.own import _fitted, _left_out, own_model


def data(count, size=6, noise=0.5, seed=0):
    rng = np.random.default_rng(seed)
    X, w = rng.standard_normal((count, size)), rng.standard_normal(size)
    return X, X @ w + noise * rng.standard_normal(count), w


def objective(loss, X, y, centre, pull):
    def value(w):
        fit = X @ w
        losses = (y - fit) ** 2 if loss == "ridge" else np.logaddexp(0.0, -np.sign(y) * fit)
        return float(losses.sum() + pull * np.sum((w - centre) ** 2))

    return value


@pytest.mark.parametrize("loss", ["ridge", "logistic"])
@pytest.mark.parametrize("count", [3, 30])
def test_the_fit_is_the_minimiser(loss, count):
    X, y, w = data(count)
    found = _fitted(loss, X, y, 0.5 * w, 0.7)
    other = minimize(objective(loss, X, y, 0.5 * w, 0.7), np.zeros(6), tol=1e-12).x
    np.testing.assert_allclose(found, other, atol=1e-5)


def test_losses_left_out_are_those_of_fits_without_the_sample():
    X, y, w = data(8)
    found = _left_out("ridge", X, y, w, 0.3)
    for i in range(8):
        rest = np.arange(8) != i
        model = _fitted("ridge", X[rest], y[rest], w, 0.3)
        assert found[i] == pytest.approx((y[i] - X[i] @ model) ** 2)


def test_a_model_that_is_right_is_used_and_one_that_is_wrong_is_not():
    X, y, w = data(40)
    models = np.stack([w, -3.0 * w])
    pulls = np.full(2, 10.0)
    near, far = (own_model("ridge", X, y, models, pulls, q, 0.1) for q in (0, 1))
    assert np.linalg.norm(near.model - w) < 0.5 * np.linalg.norm(far.model - w)
    assert near.scale > 0.0
    # it goes where its samples say, whatever it was told
    by_itself = _fitted("ridge", X, y, np.zeros(6), 4.0)
    assert np.linalg.norm(far.model - w) < 1.5 * np.linalg.norm(by_itself - w)


def test_without_a_cluster_the_device_takes_the_one_that_fits():
    X, y, w = data(20)
    found = own_model("ridge", X, y, np.stack([-w, w, 3.0 * w]), np.full(3, 10.0), None, 0.1)
    assert found.cluster == 1


@pytest.mark.parametrize("count", [0, 1])
@pytest.mark.parametrize("loss", ["ridge", "logistic"])
def test_with_one_sample_or_none_it_leans_on_its_cluster(loss, count):
    X, y, w = data(count)
    found = own_model(loss, X, y, w[None], np.array([1e9]), 0, 0.1)
    np.testing.assert_allclose(found.model, w, atol=1e-6)


def test_models_of_zero_leave_a_client_alone():
    X, y, _ = data(4)
    found = own_model("ridge", X, y, np.zeros((1, 6)), np.zeros(1), 0, 1e-9)
    np.testing.assert_allclose(found.model, np.linalg.lstsq(X, y, rcond=None)[0], atol=1e-6)
