"""What a client adds to a noisy sum, how much noise that needs, and what a device makes of it."""

from __future__ import annotations

import math
from dataclasses import replace

import dp_accounting
import numpy as np
import pytest
from dp_accounting.pld import privacy_loss_distribution as pld
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize

from trellis.apps.server_graph.config import DEFAULT_CLIP, ServerGraphConfig
from trellis.apps.server_graph.losses import LeastSquares, Logistic
from trellis.apps.server_graph.owner.personal import PULLS, personal_model, pulled
from trellis.apps.server_graph.private import (
    SCORE_RELEASES,
    Rates,
    Terms,
    clipped_mean,
    draw_batch,
    score_terms,
)
from trellis.privacy.accounting.sampled import spent, spent_by

TERMS = Terms(epsilon=1.0, delta=1e-5, rounds=200, batch=10, clip=0.5, held_out=0.0)


def samples(n=12, d=3, seed=0):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, d)), rng.choice([-1.0, 1.0], n)


# --- the summand ---------------------------------------------------------------------------------


def test_the_summand_is_the_sum_of_clipped_gradients_over_the_expected_batch():
    X, y = samples()
    w, taken = np.array([0.3, -1.0, 2.0]), np.arange(12) % 3 == 0
    found = clipped_mean(Logistic(), w, X, y, 0.4, taken, 5.0)
    by_hand = np.zeros(3)
    for h, label in zip(X[taken], y[taken], strict=True):
        g = -label * h / (1.0 + math.exp(label * float(h @ w)))
        by_hand += g * min(1.0, 0.4 / np.linalg.norm(g))
    np.testing.assert_allclose(found, by_hand / 5.0, rtol=1e-12)


def test_many_clients_at_once_are_as_one_by_one():
    X, y = samples(24)
    X, y = X.reshape(2, 12, 3), y.reshape(2, 12)
    w, taken = np.random.default_rng(1).normal(size=(2, 3)), np.arange(24).reshape(2, 12) % 2 == 0
    both = clipped_mean(Logistic(), w, X, y, 0.4, taken, np.array([5.0, 7.0]))
    for k, expected in enumerate((5.0, 7.0)):
        one = clipped_mean(Logistic(), w[k], X[k], y[k], 0.4, taken[k], expected)
        np.testing.assert_allclose(both[k], one, rtol=1e-13)


@settings(deadline=None, max_examples=60)
@given(
    st.sampled_from([Logistic(), LeastSquares()]),
    st.integers(0, 2**20),
    st.sampled_from([1.0, 1e9, 1e160, 1e300, math.inf, math.nan]),
    st.floats(-6.0, 6.0),
)
def test_one_record_moves_the_summand_by_its_sensitivity_at_most(loss, seed, scale, log_clip):
    rng = np.random.default_rng(seed)
    X, y = samples(seed=seed)
    terms = replace(TERMS, clip=10.0**log_clip, batch=4)
    w, row = 3.0 * rng.normal(size=3), int(rng.integers(12))
    taken = draw_batch(12, terms.rates(12).sampling, rng)
    taken[row] = True
    other, label = X.copy(), y.copy()
    other[row], label[row] = scale * rng.normal(size=3), -y[row]
    one, two = (
        clipped_mean(loss, w, A, b, terms.clip, taken, terms.rates(12).expected)
        for A, b in ((X, y), (other, label))
    )
    assert np.linalg.norm(one - two) <= terms.sensitivity(12) * (1.0 + 1e-9)


def test_opposite_records_reach_the_sensitivity():
    X, y = np.array([[50.0]]), np.array([1.0])
    one, two = (
        clipped_mean(Logistic(), np.zeros(1), sign * X, y, 0.5, np.ones(1, dtype=bool), 1.0)
        for sign in (1.0, -1.0)
    )
    terms = replace(TERMS, batch=0)
    assert np.linalg.norm(one - two) == pytest.approx(terms.sensitivity(1))


def test_batches_come_by_a_coin_a_row_and_sizes_vary():
    rng = np.random.default_rng(2)
    sizes = [draw_batch(100, 0.1, rng).sum() for _ in range(2000)]
    assert np.mean(sizes) == pytest.approx(10.0, abs=0.3)
    assert np.var(sizes) == pytest.approx(9.0, rel=0.15)
    assert draw_batch(7, 1.0, rng).all()


def test_held_out_rows_go_by_places_and_leave_some_to_learn_from():
    assert replace(TERMS, held_out=0.2).kept_back(50) == 10
    assert replace(TERMS, held_out=0.99).kept_back(1) == 0


# --- how much noise ------------------------------------------------------------------------------


@pytest.mark.parametrize("batch", [0, 10])
@pytest.mark.parametrize("held_out", [0.0, 0.2])
@pytest.mark.parametrize("epsilon", [0.02, 0.3, 1.0, 8.0])
def test_all_releases_together_spend_epsilon_at_most_and_nearly_that(batch, held_out, epsilon):
    terms = replace(TERMS, batch=batch, held_out=held_out, epsilon=epsilon)
    rates = terms.rates(100)
    rho = SCORE_RELEASES * terms.score_ratio**2 / 2.0 if held_out else 0.0
    counted = {(terms.ratio(100), rates.sampling): terms.releases}
    whole = 0.5 * terms.releases * terms.ratio(100) ** 2
    total = min(spent_by(counted, terms.delta, rho), spent_by({}, terms.delta, rho + whole))
    assert 0.95 * epsilon < total <= epsilon * (1.0 + 1e-6)


@pytest.mark.parametrize("batch", [0, 10])
def test_another_accountant_finds_no_more(batch):
    """dp-accounting's loss distributions, one record of twice the length put in or taken out."""
    terms = replace(TERMS, batch=batch)
    sampling = terms.rates(100).sampling
    one = pld.from_gaussian_mechanism(1.0 / terms.ratio(100), sampling_prob=sampling)
    found = one.self_compose(terms.releases).get_epsilon_for_delta(terms.delta)
    assert 0.6 < found <= 1.0
    accountant = dp_accounting.rdp.RdpAccountant([*range(2, 65), 128, 256])
    event = dp_accounting.GaussianDpEvent(1.0 / terms.ratio(100))
    if sampling < 1.0:
        event = dp_accounting.PoissonSampledDpEvent(sampling, event)
    accountant.compose(dp_accounting.SelfComposedDpEvent(event, terms.releases))
    assert accountant.get_epsilon(terms.delta) <= 1.03  # near: twice the length is no exact account


def test_epsilon_grows_as_the_root_of_the_rounds():
    ratio = TERMS.ratio(100)
    quarter, half, whole = (spent(ratio, n, 1e-5, 0.1) for n in (50, 100, 200))
    assert 1.35 < whole / half < 1.5
    assert 1.35 < half / quarter < 1.6


def test_noise_is_for_rounds_that_have_to_be_made_again_too():
    assert TERMS.releases == 210
    assert replace(TERMS, rounds=3).releases == 5


def test_small_clients_need_more_noise_and_the_same_batch_is_a_larger_rate():
    need = [TERMS.needed_deviation(n) for n in (10, 20, 100, 1000)]
    assert np.all(np.diff(need) < 0.0)
    assert TERMS.rates(10) == Rates(1.0, 10.0)
    assert TERMS.rates(40) == Rates(0.25, 10.0)
    every = replace(TERMS, batch=0)
    assert every.needed_deviation(50) == pytest.approx(2.0 * every.needed_deviation(100))


# --- the score -----------------------------------------------------------------------------------


def test_terms_of_the_score_are_hits_and_between_zero_and_one_whatever_comes():
    X, y = samples(40)
    w = np.array([1.0, -2.0, 0.5])
    hits = score_terms(Logistic(), w, X, y)
    np.testing.assert_array_equal(hits, (np.sign(X @ w) == y).astype(float))
    wild = np.array([[1e300], [np.inf], [np.nan], [0.5]])
    terms = score_terms(LeastSquares(), np.array([1e300]), wild, np.zeros(4))
    assert np.all((terms >= 0.0) & (terms <= 1.0))
    near = score_terms(LeastSquares(), np.ones(1), np.array([[0.5]]), np.array([0.0]))
    assert near == pytest.approx([0.75])


# --- on the device -------------------------------------------------------------------------------


@pytest.mark.parametrize("pull", PULLS[:-1])
@pytest.mark.parametrize("loss", [Logistic(), LeastSquares()])
def test_the_pulled_model_is_the_minimiser(pull, loss):
    X, y = samples(60)
    c = np.array([1.0, 0.0, -1.0])

    def objective(w):
        value = np.mean(loss.loss(w, X, y)) + 0.05 * w @ w
        return value + 0.5 * pull * (w - c) @ (w - c)

    found = minimize(objective, np.zeros(3), method="Nelder-Mead", tol=1e-12)
    np.testing.assert_allclose(pulled(loss, c, X, y, 0.1, pull), found.x, atol=1e-4)


def test_a_good_private_model_is_taken_and_a_bad_one_is_not():
    rng = np.random.default_rng(5)
    w = np.array([2.0, -1.0, 1.0])
    X = rng.normal(size=(9, 3))
    y = np.where(rng.random(9) < 1.0 / (1.0 + np.exp(-X @ w)), 1.0, -1.0)
    few = personal_model(Logistic(), w, X, y, 0.01)
    assert few.pull > 0.0
    assert few.loss <= min(few.private_loss, few.alone_loss)
    X = rng.normal(size=(500, 3))
    y = np.where(rng.random(500) < 1.0 / (1.0 + np.exp(-X @ w)), 1.0, -1.0)
    many = personal_model(Logistic(), -3.0 * w, X, y, 0.01)
    assert many.pull < math.inf
    assert np.linalg.norm(many.model - w) < 1.0
    single = personal_model(Logistic(), w, X[:1], y[:1], 0.01)
    np.testing.assert_array_equal(single.model, w)


# --- settings ------------------------------------------------------------------------------------


def config(**more):
    return ServerGraphConfig(privacy="dp", **more)


def test_private_is_noise_in_sums_where_it_can_be():
    assert config().sums
    assert config().bound == DEFAULT_CLIP
    assert config(clip=2.0).bound == 2.0
    assert config().masked
    assert config().at_home
    assert config().method == "hybrid"
    assert not ServerGraphConfig().sums
    assert ServerGraphConfig().bound == 0.0


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"local_steps": 2}, "local-steps has no effect"),
        ({"secure_aggregation": "off"}, "secure-aggregation has no effect"),
        ({"sigma": 1.0}, "sigma has no effect"),
        ({"servers": 25}, "asks 2 of its clients"),
        ({"sample": 2}, "asks 2 of its clients"),
        ({"clients": 2, "servers": 1}, "three at least"),
    ],
)
def test_what_sums_cannot_do_is_refused(more, words):
    with pytest.raises(ValueError, match=words):
        config(**more)


def test_a_share_of_the_rounds_is_one_at_most():
    with pytest.raises(ValueError, match="average=2"):
        config(average=2.0)
