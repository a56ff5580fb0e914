"""Models from noisy moments: the right answer without noise, nothing from noise alone."""

from __future__ import annotations

import math

import numpy as np
import pytest

from trellis.apps.cluster_admm.private.moments import Question, layout, moments
from trellis.strategies.cluster_admm.posterior import observed, posterior, spectrum
from trellis.strategies.cluster_admm.releases import Bounds, Releases, clip_in_deviations, mixture


def clusters(count, size=5, apart=0.3, seed=0, noise=0.3, skew=1.0):
    """Two clusters' samples; ``skew`` makes features of different size, and correlated."""
    rng = np.random.default_rng(seed)
    base = rng.standard_normal(size)
    truth = np.stack([base, base + apart * rng.standard_normal(size)])
    mix = np.linalg.qr(rng.standard_normal((size, size)))[0] * np.geomspace(1.0, skew, size)
    X = [rng.standard_normal((count, size)) @ mix.T for _ in truth]
    y = [x @ w + noise * rng.standard_normal(count) for x, w in zip(X, truth, strict=True)]
    return list(zip(X, y, strict=True)), truth


def learned(tables, sigma, exchanges, bounds=None, loss="ridge", seed=1):
    size, rng = tables[0][0].shape[1], np.random.default_rng(seed)
    releases = Releases(len(tables), size, bounds or Bounds(3.0, 3.0, loss == "logistic"))
    counts = np.array([float(len(y)) for _, y in tables])
    for _ in range(exchanges):
        whole = releases.taken == 0
        question = Question(
            releases.models, releases.bounds.length, releases.width, releases.weight, whole
        )
        parts = [moments(loss, X, y, q, question) for q, (X, y) in enumerate(tables)]
        total = {
            name: sum(part[name] for part in parts) + sigma * rng.standard_normal(shape)
            for name, shape in layout(len(tables), size, whole).items()
        }
        releases.take(total, counts, sigma)
    return releases


def off(models, truth):
    return float(np.linalg.norm(models - truth) / np.linalg.norm(truth))


@pytest.mark.parametrize("skew", [1.0, 4.0])
def test_without_noise_the_models_are_least_squares_of_each_cluster(skew):
    tables, _ = clusters(20_000, skew=skew)
    best = np.stack([np.linalg.lstsq(X, y, rcond=None)[0] for X, y in tables])
    found = learned(tables, 1e-6, 6, Bounds(50.0, 50.0, False))
    assert off(found.models, best) < 2e-3


def test_exchanges_take_the_errors_of_one_away():
    tables, truth = clusters(3000)
    one, four = (learned(tables, 20.0, count) for count in (1, 4))
    assert off(four.models, truth) < 0.7 * off(one.models, truth)
    assert four.width < 0.6 * one.bounds.width


def test_noise_alone_gives_nothing():
    rng = np.random.default_rng(3)
    tables = [(rng.standard_normal((50, 5)), rng.standard_normal(50)) for _ in range(2)]
    found = learned(tables, 1000.0, 2)
    assert np.linalg.norm(found.models) < 0.5


def test_clusters_that_are_the_same_get_the_same_model_and_others_do_not():
    same, truth = clusters(2000, apart=0.0)
    found = learned(same, 10.0, 3)
    assert off(found.models[0], found.models[1]) < 0.05
    other, truth = clusters(2000, apart=1.0)
    found = learned(other, 10.0, 3)
    assert off(found.models, truth) < 0.1


def test_labels_are_learned_too():
    rng = np.random.default_rng(5)
    w = np.array([2.0, -1.0, 0.5, 0.0, 1.0])
    X = rng.standard_normal((4000, 5))
    y = np.where(rng.random(4000) < 1.0 / (1.0 + np.exp(-X @ w)), 1.0, -1.0)
    for exchanges in (1, 4):
        (model,) = learned([(X, y)], 10.0, exchanges, Bounds(2.5, 0.5, True), "logistic").models
        assert model @ w / np.linalg.norm(model) / np.linalg.norm(w) > 0.99
    assert np.linalg.norm(model - w) < 0.5 * np.linalg.norm(w)


def test_the_spectrum_shrinks_to_a_multiple_of_one_where_noise_is_all():
    rng = np.random.default_rng(6)
    noise = rng.standard_normal((30, 30)) * 100.0 / math.sqrt(2.0)
    noise = np.triu(noise, 1) + np.triu(noise, 1).T + np.diag(100.0 * rng.standard_normal(30))
    found = spectrum(50.0 * np.eye(30) + noise, 50.0, 100.0)
    assert np.ptp(found.values) < 1.5
    clear = np.diag(np.linspace(1.0, 3.0, 30))
    np.testing.assert_allclose(np.sort(spectrum(50.0 * clear, 50.0, 1e-9).values), np.diag(clear))


def test_the_posterior_is_ridge_regression_where_the_prior_is_plain():
    rng = np.random.default_rng(7)
    X, w = rng.standard_normal((400, 4)), rng.standard_normal(4)
    y = X @ w + rng.standard_normal(400)
    known = spectrum(X.T @ X, 400.0, 1e-9)
    found = posterior(
        (X.T @ y)[None], np.zeros((1, 1)), np.array([400.0]), np.mean(y**2), known, 1.0
    )
    ridge = np.linalg.solve(X.T @ X + np.eye(4) / found.common, X.T @ y)
    np.testing.assert_allclose(found.models[0], ridge, rtol=1e-6)


def test_observations_are_weighted_by_their_covariances():
    rows = np.array([[[1.0], [0.0]], [[3.0], [0.0]]])
    mean, own = observed(rows, np.array([np.eye(2), np.diag([3.0, 1.0])]))
    np.testing.assert_allclose(mean[:, 0], [1.5, 0.0])
    np.testing.assert_allclose(np.diag(own), [0.75, 0.5])


def test_slots_are_as_long_as_one_and_clips_are_found_again():
    np.testing.assert_allclose(np.linalg.norm(mixture(3, 0.3), axis=0), 1.0)
    rng = np.random.default_rng(8)
    for k in (0.5, 1.0, 2.5):
        power = np.mean(np.minimum(rng.standard_normal(400_000) ** 2, k**2)) / k**2
        assert clip_in_deviations(float(power)) == pytest.approx(k, rel=0.02)
