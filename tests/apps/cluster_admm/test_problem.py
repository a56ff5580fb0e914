"""A client's step and the optima agree with solvers that know nothing of them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize
from sklearn.linear_model import LogisticRegression, Ridge

from trellis.apps.cluster_admm.problem import (
    mean_losses,
    nmsd,
    optimum,
    server_uniform_optimum,
)
from trellis.apps.cluster_admm.steps import LogisticStep, primal_step
from trellis.strategies.cluster_admm.mixing import aggregate, over_servers

SHAPES = [(1, 6), (5, 6), (6, 6), (9, 6), (40, 3)]


def samples(count, features, seed=0, labels=False):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(count, features))
    y = rng.choice([-1.0, 1.0], count) if labels else X.sum(axis=1) + rng.normal(size=count)
    return X, y


def primal_objective(loss, X, y, ridge, share, rho, v):
    def value(w):
        quadratic = share * ridge * w @ w - v @ w + 0.5 * rho * w @ w
        if loss == "ridge":
            return np.mean((y - X @ w) ** 2) + quadratic
        return np.mean(np.log1p(np.exp(-y * (X @ w)))) + quadratic

    return value


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("loss", ["ridge", "logistic"])
def test_the_step_minimises_what_4_says(loss, shape):
    X, y = samples(*shape, labels=loss == "logistic")
    v = np.random.default_rng(1).normal(size=shape[1])
    w = primal_step(loss, X, y, 0.3, 0.25, 2.0).solve(v)
    value = primal_objective(loss, X, y, 0.3, 0.25, 2.0, v)
    found = minimize(value, np.zeros(shape[1]), method="BFGS", options={"gtol": 1e-9})
    np.testing.assert_allclose(w, found.x, atol=1e-6)
    assert value(w) <= found.fun + 1e-14


@pytest.mark.parametrize("shape", SHAPES)
def test_the_ridge_step_solves_its_normal_equations_by_either_factor(shape):
    X, y = samples(*shape)
    count, features = shape
    step = primal_step("ridge", X, y, 0.1, 0.2, 3.0)
    for seed in range(3):
        v = np.random.default_rng(seed).normal(size=features)
        A = 2.0 / count * X.T @ X + (2 * 0.2 * 0.1 + 3.0) * np.eye(features)
        expected = np.linalg.solve(A, 2.0 / count * X.T @ y + v)
        np.testing.assert_allclose(step.solve(v), expected, atol=1e-13)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("scale", [1.0, 30.0, 1e4])
def test_the_logistic_step_ends_where_the_gradient_is_1e_8(shape, scale):
    X, y = samples(*shape, labels=True)
    X = scale * X
    v = 10.0 * np.random.default_rng(2).normal(size=shape[1])
    step = LogisticStep(X, y, 0.1, 0.5, 0.7)
    for start in (None, np.zeros(shape[1]), 100.0 * np.ones(shape[1])):
        w = step.solve(v, start)
        margin = np.clip(y * (X @ w), -700, 700)
        g = 0.8 * w - v - ((y / (1.0 + np.exp(margin))) @ X) / len(y)
        assert np.linalg.norm(g) < 2e-8 * max(1.0, scale / 100)


@settings(max_examples=60, deadline=None)
@given(
    st.integers(0, 2**20), st.integers(1, 12), st.integers(1, 12),
    st.floats(-3, 3), st.floats(-2, 3), st.floats(-2, 7),
)  # fmt: skip
def test_the_logistic_step_always_converges(seed, count, features, data, rho, size):
    X, y = samples(count, features, seed, labels=True)
    v = 10.0**size * np.random.default_rng(seed).normal(size=features)
    w = LogisticStep(10.0**data * X, y, 0.1, 1.0, 10.0**rho).solve(v)
    assert np.all(np.isfinite(w))


def test_the_logistic_step_converges_where_plain_newton_creeps():
    # Large features and a small rho: the loss has kinks. Some of these need the falling t.
    for seed in range(300):
        rng = np.random.default_rng(seed)
        X, y = samples(int(rng.integers(2, 13)), int(rng.integers(2, 13)), seed, labels=True)
        X, v = 1000.0 * X, rng.normal(size=X.shape[1])
        w = LogisticStep(X, y, 0.0, 1.0, 0.01).solve(v)
        margin = np.clip(y * (X @ w), -700, 700)
        g = 0.01 * w - v - ((y / (1.0 + np.exp(margin))) @ X) / len(y)
        assert np.linalg.norm(g) < 1e-6  # rounding of margins, of features of 1000


def test_labels_may_be_0_and_1():
    X, y = samples(8, 3, labels=True)
    v, zero_one = np.ones(3), (y + 1.0) / 2.0
    np.testing.assert_array_equal(
        LogisticStep(X, zero_one, 0.1, 1.0, 2.0).solve(v),
        LogisticStep(X, y, 0.1, 1.0, 2.0).solve(v),
    )
    models = np.eye(3)
    np.testing.assert_array_equal(
        mean_losses("logistic", models, X, zero_one), mean_losses("logistic", models, X, y)
    )


def cluster(labels=False, counts=(2, 9, 30), features=4):
    return [samples(n, features, seed, labels) for seed, n in enumerate(counts)]


def test_the_ridge_optimum_is_scikit_learns():
    tables = cluster()
    X, y = np.concatenate([X for X, _ in tables]), np.concatenate([y for _, y in tables])
    weights = np.concatenate([np.full(len(y), 1.0 / len(y)) for _, y in tables])
    model = Ridge(alpha=0.3, fit_intercept=False, solver="cholesky")
    model.fit(X, y, sample_weight=weights)
    np.testing.assert_allclose(optimum("ridge", tables, 0.3), model.coef_, atol=1e-10)


def test_the_logistic_optimum_is_scikit_learns():
    tables = cluster(labels=True)
    X, y = np.concatenate([X for X, _ in tables]), np.concatenate([y for _, y in tables])
    weights = np.concatenate([np.full(len(y), 1.0 / len(y)) for _, y in tables])
    # scikit-learn has |w|^2 / 2 + C sum
    model = LogisticRegression(C=1.0 / 0.6, fit_intercept=False, tol=1e-12, max_iter=10_000)
    model.fit(X, y, sample_weight=weights)
    np.testing.assert_allclose(optimum("logistic", tables, 0.3), model.coef_[0], atol=1e-6)


@pytest.mark.parametrize("loss", ["ridge", "logistic"])
def test_the_ridge_is_counted_once_by_shares_that_sum_to_one(loss):
    tables = cluster(loss == "logistic")
    w = optimum(loss, tables, 0.3)
    # At the optimum the clients' gradients, share 1/3 of the ridge each, sum to zero. A client
    # whose v is its own gradient + rho w has w for its solution.
    total = np.zeros(4)
    for X, y in tables:
        if loss == "ridge":
            g = 2.0 / len(y) * X.T @ (X @ w - y)
        else:
            g = -(X.T @ (y / (1.0 + np.exp(y * (X @ w))))) / len(y)
        g = g + 2.0 * 0.3 / 3 * w
        total += g
        np.testing.assert_allclose(
            primal_step(loss, X, y, 0.3, 1 / 3, 2.0).solve(g + 2.0 * w), w, atol=1e-7
        )
    np.testing.assert_allclose(total, 0.0, atol=1e-9)


@pytest.mark.parametrize("loss", ["ridge", "logistic"])
def test_paper_mixing_on_a_complete_graph_reaches_the_server_uniform_optimum(loss):
    rng = np.random.default_rng(0)
    # Two clusters; server 2 has no client of cluster 0.
    servers = np.array([0, 0, 0, 1, 1, 1, 1, 2, 2])
    clusters = np.array([0, 0, 1, 0, 1, 1, 1, 1, 1])
    tables = [samples(int(rng.integers(2, 9)), 5, k, loss == "logistic") for k in range(9)]
    sizes = np.bincount(servers)
    rho = 3.0
    steps = [primal_step(loss, *tables[k], 0.4, 1 / sizes[servers[k]], rho) for k in range(9)]
    models, duals = np.zeros((3, 2, 5)), np.zeros((9, 5))
    for _ in range(300):
        mine = models[servers, clusters]
        w = np.array([steps[k].solve(duals[k] + rho * mine[k]) for k in range(9)])
        sent = w - duals / rho
        told = [aggregate(sent[servers == s], clusters[servers == s], models[s]) for s in range(3)]
        models = np.array([over_servers(told[s], told[:s] + told[s + 1 :]) for s in range(3)])
        duals += rho * (models[servers, clusters] - w)
    for q in range(2):
        by_server = [
            [tables[k] for k in range(9) if servers[k] == s and clusters[k] == q] for s in range(3)
        ]
        expected = server_uniform_optimum(loss, by_server, 0.4, sizes.tolist())
        np.testing.assert_allclose(models[:, q], np.tile(expected, (3, 1)), atol=1e-7)
        everyone = [table for group in by_server for table in group]
        assert np.max(np.abs(expected - optimum(loss, everyone, 0.4))) > 1e-3


def test_one_client_a_server_makes_both_optima_one():
    tables = cluster()
    uniform = server_uniform_optimum("ridge", [[t] for t in tables], 0.3)
    # mean over 3 servers of loss + ridge: three times that is the sum with three times the ridge
    np.testing.assert_allclose(uniform, optimum("ridge", tables, 0.9), atol=1e-12)


def test_what_has_no_unique_minimiser_is_refused():
    with pytest.raises(ValueError, match="set ridge > 0"):
        optimum("ridge", [samples(2, 5)], 0.0)
    with pytest.raises(ValueError, match="the cluster has no client"):
        optimum("ridge", [], 0.1)
    with pytest.raises(ValueError, match="the cluster has no client"):
        server_uniform_optimum("ridge", [[], []], 0.1, [3, 3])
    with pytest.raises(ValueError, match="ridge > 0"):
        optimum("logistic", [(np.array([[1.0], [-1.0]]), np.array([1.0, -1.0]))], 0.0)
    with pytest.raises(ValueError, match="rho=0"):
        primal_step("ridge", *samples(2, 5), 0.1, 1.0, 0.0)
    with pytest.raises(ValueError, match="one row at least"):
        primal_step("ridge", np.zeros((0, 5)), np.zeros(0), 0.1, 1.0, 1.0)


def test_nmsd_is_the_mean_of_relative_squares_in_decibel():
    truth = np.array([[3.0, 4.0], [0.0, 2.0]])
    models = np.array([[3.0, 4.5], [0.2, 2.0]])  # 0.25 / 25 and 0.04 / 4
    assert nmsd(models, truth) == pytest.approx(-20.0)
    assert nmsd(1.1 * truth, truth) == pytest.approx(-20.0)
    assert nmsd(np.zeros((7, 2)), np.array([1.0, 1.0])) == pytest.approx(0.0)
    assert nmsd(truth, truth) == -np.inf


def test_losses_are_means_under_each_model():
    X, y = samples(7, 3)
    models = np.random.default_rng(5).normal(size=(4, 3))
    expected = [np.mean([(t - x @ w) ** 2 for x, t in zip(X, y, strict=True)]) for w in models]
    np.testing.assert_allclose(mean_losses("ridge", models, X, y), expected)
