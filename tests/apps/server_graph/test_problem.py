"""A client's step and the minimiser, against scipy, scikit-learn and closed forms."""

from __future__ import annotations

import logging
import math
import warnings

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.optimize import minimize
from sklearn.linear_model import LogisticRegression

from trellis.apps.server_graph.losses import LeastSquares, Logistic
from trellis.apps.server_graph.problem import draw_batches, gradient, local_steps, minimiser, msd
from trellis.privacy.mechanisms.clipping import clip_rows


class PlainLogistic(Logistic):
    """The logistic loss as a user would bring it: without a Hessian."""

    hessian = None


def federation(kind, seed=0, shape=((30, 7), (12,), (5, 40, 9)), d=3):
    """Return clients' X and y, with other numbers of clients and samples at every server."""
    rng = np.random.default_rng(seed)
    tables = []
    for counts in shape:
        clients = []
        for n in counts:
            y = rng.choice([-1.0, 1.0], n)
            X = 0.5 * y[:, None] + rng.normal(size=(n, d))
            clients.append((X, y if kind == "logistic" else X @ np.arange(d) + rng.normal(size=n)))
        tables.append(clients)
    return tables


def mean_of_means(loss, tables, w, ridge):
    """(1) as it is written."""
    servers = [np.mean([loss.loss(w, X, y).mean() for X, y in clients]) for clients in tables]
    return np.mean(servers) + 0.5 * ridge * np.sum(w**2)


@settings(max_examples=100, deadline=None)
@given(
    arrays(np.float64, (4, 3), elements=st.floats(allow_nan=True, allow_infinity=True)),
    st.floats(1e-3, 1e3),
)
def test_no_row_is_longer_than_the_bound_whatever_it_holds(G, bound):
    with np.errstate(over="ignore", invalid="ignore", under="ignore"):
        clipped = clip_rows(G, bound)
    assert np.all(np.linalg.norm(clipped, axis=1) <= bound * (1 + 1e-12))


def test_short_rows_stay_long_rows_keep_their_direction():
    G = np.array([[0.3, 0.4], [3.0, 4.0], [0.0, 0.0]])
    np.testing.assert_allclose(clip_rows(G, 1.0), [[0.3, 0.4], [0.6, 0.8], [0.0, 0.0]])
    np.testing.assert_array_equal(clip_rows(G, 0.0), G)
    huge = np.array([[3e200, 4e200], [0.3, 0.4], [np.nan, 1.0]])
    np.testing.assert_allclose(clip_rows(huge, 1.0), [[0.6, 0.8], [0.3, 0.4], [0.0, 0.0]])


def test_the_ridge_is_not_clipped():
    X, y, w = np.array([[30.0, 40.0], [0.0, 0.0]]), np.array([1.0, 5.0]), np.array([100.0, 0.0])
    expected = np.array([0.6, 0.8]) / 2 + 2.0 * w
    np.testing.assert_allclose(gradient(LeastSquares(), w, X, y, 2.0, 1.0), expected)


@pytest.mark.parametrize("loss", [Logistic(), LeastSquares()])
def test_the_gradient_is_the_slope_of_the_objective(loss):
    ((X, y),) = federation("logistic", shape=((20,),))[0]
    w = np.array([0.4, -0.2, 0.1])
    slopes = [
        (
            mean_of_means(loss, [[(X, y)]], w + 1e-6 * e, 0.3)
            - mean_of_means(loss, [[(X, y)]], w - 1e-6 * e, 0.3)
        )
        / 2e-6
        for e in np.eye(3)
    ]
    np.testing.assert_allclose(gradient(loss, w, X, y, 0.3, 0.0), slopes, atol=1e-8)


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 30), st.integers(0, 40), st.integers(1, 4), st.integers(0, 1000))
def test_a_batch_has_no_sample_twice(n, batch, steps, seed):
    rows = draw_batches(n, batch, steps, np.random.default_rng(seed))
    size = n if batch == 0 else min(batch, n)
    assert rows.shape == (steps, size)
    assert all(len(set(row)) == size and set(row) <= set(range(n)) for row in rows.tolist())


def test_every_subset_is_as_likely_and_batches_differ():
    rows = np.sort(draw_batches(5, 2, 20_000, np.random.default_rng(0)), axis=1)
    _, counts = np.unique(rows, axis=0, return_counts=True)
    assert len(counts) == 10
    assert np.all(np.abs(counts - 2000) < 5 * math.sqrt(2000))


def test_local_steps_are_steps_one_after_the_other():
    ((X, y),) = federation("logistic", shape=((20,),))[0]
    batches = np.array([[0, 3], [5, 1], [2, 19]])
    w = expected = np.array([0.1, 0.2, -0.5])
    for rows in batches:
        slope = np.zeros(3)
        for n in rows:
            g = -y[n] * X[n] / (1.0 + np.exp(y[n] * X[n] @ expected))
            slope += g * min(1.0, 0.4 / np.linalg.norm(g)) / 2
        expected = expected - 0.1 * (slope + 0.01 * expected)
    found = local_steps(Logistic(), w, X, y, 0.1, 0.01, 0.4, batches)
    np.testing.assert_allclose(found, expected, rtol=1e-13)
    np.testing.assert_array_equal(w, [0.1, 0.2, -0.5])


@pytest.mark.parametrize(("loss", "kind"), [(Logistic(), "logistic"), (LeastSquares(), "numbers")])
@pytest.mark.parametrize("ridge", [0.01, 1.0])
def test_the_minimiser_is_scipys_of_the_mean_of_means(loss, kind, ridge):
    tables = federation(kind)
    found = minimiser(loss, tables, ridge)
    oracle = minimize(
        lambda w: mean_of_means(loss, tables, w, ridge),
        np.zeros(3),
        method="Nelder-Mead",
        options={"xatol": 1e-9, "fatol": 1e-15, "maxiter": 4000, "maxfev": 8000},
    )
    np.testing.assert_allclose(found, oracle.x, atol=1e-6)
    slope = np.mean(
        [
            np.mean([gradient(loss, found, X, y, ridge, 0.0) for X, y in clients], axis=0)
            for clients in tables
        ],
        axis=0,
    )
    assert np.linalg.norm(slope) < 1e-13


def test_the_logistic_minimiser_is_scikit_learns():
    tables, ridge = federation("logistic"), 0.05
    X = np.concatenate([X for clients in tables for X, _ in clients])
    y = np.concatenate([y for clients in tables for _, y in clients])
    weights = np.concatenate(
        [np.full(len(y), 1 / (3 * len(c) * len(y))) for c in tables for _, y in c]
    )
    oracle = LogisticRegression(C=1 / ridge, fit_intercept=False, tol=1e-12, max_iter=5000)
    oracle.fit(X, y, sample_weight=weights)
    np.testing.assert_allclose(minimiser(Logistic(), tables, ridge), oracle.coef_[0], atol=1e-6)


def test_the_least_squares_minimiser_is_the_closed_form():
    tables = federation("numbers")
    H = np.mean([np.mean([X.T @ X / len(y) for X, y in c], axis=0) for c in tables], axis=0)
    b = np.mean([np.mean([X.T @ y / len(y) for X, y in c], axis=0) for c in tables], axis=0)
    expected = np.linalg.solve(H + 0.2 * np.eye(3), b)
    np.testing.assert_allclose(minimiser(LeastSquares(), tables, 0.2), expected, atol=1e-12)


def test_a_loss_without_hessian_has_the_same_minimiser():
    tables = federation("logistic")
    newton, lbfgs = minimiser(Logistic(), tables, 0.01), minimiser(PlainLogistic(), tables, 0.01)
    np.testing.assert_allclose(lbfgs, newton, atol=1e-9)


def test_gradients_in_chunks_add_up(monkeypatch):
    tables = federation("logistic")
    whole = minimiser(Logistic(), tables, 0.01)
    monkeypatch.setattr("trellis.apps.server_graph.problem._CHUNK", 10)
    np.testing.assert_allclose(minimiser(Logistic(), tables, 0.01), whole, atol=1e-12)


def test_newton_converges_from_far_scales():
    tables = [[(100.0 * X, y) for X, y in clients] for clients in federation("logistic")]
    w = minimiser(Logistic(), tables, 1e-6)
    near = minimiser(Logistic(), federation("logistic"), 1e-10)
    np.testing.assert_allclose(100.0 * w, near, atol=1e-7)


def test_where_there_is_no_minimiser_that_is_said():
    separated = [[(np.array([[1.0], [-2.0]]), np.array([1.0, -1.0]))]]
    with pytest.raises(ValueError, match="ridge > 0"):
        minimiser(Logistic(), separated, 0.0)
    assert np.isfinite(minimiser(Logistic(), separated, 1e-3)).all()
    twice = [[(np.ones((5, 2)), np.arange(5.0))]]
    with pytest.raises(ValueError, match=r"no unique minimiser.*ridge > 0"):
        minimiser(LeastSquares(), twice, 0.0)
    with pytest.raises(ValueError, match="no server has a client"):
        minimiser(LeastSquares(), [[], []], 0.1)


def test_a_search_that_stops_early_says_how_far_it_is(caplog):
    class Kink(PlainLogistic):
        def gradients(self, w, X, y):
            return np.ones((len(y), w.size))  # not the slope of the loss: no search can end

    with caplog.at_level(logging.WARNING, "trellis.server_graph"):
        minimiser(Kink(), federation("logistic"), 0.0)
    assert "gradient's norm is 1.73" in caplog.text


def test_servers_without_clients_do_not_count():
    tables = federation("logistic")
    np.testing.assert_array_equal(
        minimiser(Logistic(), [*tables, []], 0.1), minimiser(Logistic(), tables, 0.1)
    )


def test_the_msd_is_in_decibels_of_the_mean_square():
    w_o = np.array([1.0, 2.0])
    models = w_o + np.array([[0.1, 0.0], [0.0, 0.3]])
    assert msd(models[0], w_o) == pytest.approx(-20.0)
    assert msd(models, w_o) == pytest.approx(10 * math.log10((0.01 + 0.09) / 2))
    assert msd(w_o, w_o) == -math.inf


ANY_FLOAT = st.floats(allow_nan=True, allow_infinity=True, allow_subnormal=True)


@settings(deadline=None)
@given(
    st.lists(st.tuples(ANY_FLOAT, ANY_FLOAT, ANY_FLOAT), min_size=1, max_size=4),
    st.floats(5e-324, 1e300, allow_subnormal=True),
)
@example([(1e-300, -1e-300, 1e-300)], 1e-305)
@example([(5e-324, 5e-324, 5e-324)], 5e-324)
@example([(1e308, 1e308, -1e308), (1e-310, 1e-310, 0.0)], 1e-3)
@example([(1e155, 1e155, 0.0), (np.nan, 1.0, np.inf)], 1.0)
@example([(1e-82, 0.0, 0.0)], 1e-100)
def test_clipped_rows_keep_their_bound_over_the_whole_range_of_floats(rows, bound):
    clipped = clip_rows(np.array(rows), bound)
    assert np.all(np.isfinite(clipped))
    for row in clipped.tolist():
        # math.hypot neither overflows nor underflows; subnormals round by 5e-324
        assert math.hypot(*row) <= bound * (1.0 + 1e-14) + 2e-323
    short = [math.hypot(*row) <= bound * (1.0 - 1e-14) for row in rows]
    for before, after, unchanged in zip(rows, clipped.tolist(), short, strict=True):
        if unchanged:
            near = 1e-14 * math.hypot(*before) + 1e-323
            np.testing.assert_allclose(after, before, rtol=0.0, atol=near)


@settings(deadline=None)
@given(
    st.integers(0, 2**20), st.floats(-320, 308), st.floats(-320, 308), st.floats(-6, 6),
    st.floats(-9, 3), st.integers(1, 4), st.sampled_from([Logistic, LeastSquares]),
)  # fmt: skip
def test_over_the_whole_range_of_floats_two_clients_are_no_further_apart_than_claimed(
    seed, scale, target, log_clip, log_step, count, loss
):
    """What `release` rests on: E clipped steps move two models apart by 2 mu B E at most."""
    rng = np.random.default_rng(seed)
    clip, step, w = 10.0**log_clip, 10.0**log_step, rng.standard_normal(3)
    ends = []
    for sign, power in ((1.0, scale), (-1.0, -scale)):
        with np.errstate(all="ignore"):
            X = np.nan_to_num(sign * 10.0 ** min(power, 308.0) * rng.standard_normal((5, 3)))
            y = np.nan_to_num(rng.standard_normal(5) * 10.0**target)
            y = np.where(y > 0.0, 1.0, -1.0) if loss is Logistic else y
            batches = np.tile(np.arange(5), (count, 1))
            ends.append(local_steps(loss(), w, X, y, step, 0.0, clip, batches))
    assert np.all(np.isfinite(ends))
    claimed = 2.0 * step * clip * count
    rounding = 1e-15 * (np.linalg.norm(ends[0]) + np.linalg.norm(ends[1])) * count
    assert np.linalg.norm(ends[0] - ends[1]) <= claimed * (1.0 + 1e-13) + rounding


@pytest.mark.parametrize("loss", [LeastSquares(), Logistic()])
def test_a_sample_that_overflows_gives_no_warning_where_gradients_are_clipped(loss):
    X = np.ones((3, 4))
    X[1] = 1e300
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = gradient(loss, np.full(4, 1e3), X, np.array([1.0, -1e300, 1.0]), 0.0, 1.0)
    assert np.linalg.norm(found) <= 1.0
