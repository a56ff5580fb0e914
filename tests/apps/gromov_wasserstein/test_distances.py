"""From what was released to distances between nodes, and between graphs."""

from __future__ import annotations

import numpy as np
import ot
import pytest
from scipy.spatial.distance import cdist

from trellis.apps.common.settings import ConfigError
from trellis.apps.gromov_wasserstein.config import GromovWassersteinConfig
from trellis.apps.gromov_wasserstein.distances import (
    between,
    costs,
    distances,
    partial_distances,
    points,
    split,
)
from trellis.apps.gromov_wasserstein.release import code_of, encode_rows, half_of
from trellis.privacy.mechanisms.multibit import double_squared_distances, simplex_squared_distances


def settings(**changes) -> GromovWassersteinConfig:
    named = {name.replace("_", "-"): value for name, value in changes.items()}
    return GromovWassersteinConfig.from_settings(named)


def embedding(n: int, h: int = 5, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).dirichlet(np.ones(h), n)


def test_rows_are_split_by_the_sizes_of_their_graphs():
    parts = split(np.arange(12).reshape(6, 2), np.array([1, 3, 2]))
    assert [part.tolist() for part in parts] == [
        [[0, 1]],
        [[2, 3], [4, 5], [6, 7]],
        [[8, 9], [10, 11]],
    ]


def test_plain_rows_have_euclidean_or_cosine_distances():
    rows = embedding(7)
    np.testing.assert_allclose(costs(settings(), [rows])[0], cdist(rows, rows), atol=1e-15)
    found = costs(settings(distance="cosine"), [rows])[0]
    np.testing.assert_allclose(found, cdist(rows, rows, "cosine"), atol=1e-12)
    assert between(np.zeros((2, 3)), "cosine")[0, 1] == 1.0


def test_the_correlation_distance_is_scipy_s():
    rows = np.vstack([embedding(7), np.random.default_rng(1).normal(size=(4, 5))])
    found = costs(settings(distance="correlation"), [rows])[0]
    np.testing.assert_allclose(found, cdist(rows, rows, "correlation"), atol=1e-12)
    # Rows of equal entries have no direction: scipy has nan, we have 1.
    flat = between(np.vstack([np.full((2, 5), 0.2), rows[:1]]), "correlation")
    np.testing.assert_array_equal(flat, 1.0 - np.eye(3))


def test_gw_on_correlation_distances_is_pot_s():
    graphs = [embedding(n, seed=n) for n in (6, 8)]
    found = distances(settings(distance="correlation"), graphs, workers=1)[0, 1]
    c = [cdist(g, g, "correlation") for g in graphs]
    for one in c:
        np.fill_diagonal(one, 0.0)
    wanted = ot.gromov.gromov_wasserstein2(c[0], c[1], loss_fun="square_loss")
    assert found == pytest.approx(float(wanted), rel=1e-6)


def test_the_loss_of_the_settings_is_pot_s_both_ways():
    graphs = [embedding(n, seed=n) for n in (4, 6)]
    found = distances(settings(gw_loss="kl"), graphs, workers=1)[0, 1]
    c = [cdist(g, g) for g in graphs]
    both = [ot.gromov.gromov_wasserstein2(*pair, loss_fun="kl_loss") for pair in (c, c[::-1])]
    assert found == pytest.approx(float(np.mean(both)), rel=1e-6)


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"gw_loss": "kl", "metric": "wasserstein"}, "metric='wasserstein'"),
        ({"gw_loss": "kl", "pairs": "needed", "downstream": "knn"}, "pairs='all'"),
        ({"gw_loss": "kl", "downstream": "knn,kmeans"}, "kmeans"),
        ({"gw_loss": "cube"}, "square, kl"),
        ({"distance": "jaccard"}, "correlation"),
        ({"distance": "correlation", "privacy": "dp", "estimator": "double"}, "euclidean"),
    ],
)
def test_what_the_mathematics_does_not_cover_is_refused_by_name(changes, named):
    with pytest.raises(ConfigError, match=named):
        settings(**changes)


def test_lower_bounds_are_of_the_square_loss():
    with pytest.raises(ValueError, match="gw-loss"):
        partial_distances(settings(gw_loss="kl"), [embedding(4), embedding(5)])


@pytest.mark.parametrize("distance", ["cosine", "correlation"])
def test_bounds_hold_for_every_distance_between_rows(distance):
    graphs = [embedding(n, seed=n) for n in range(4, 12)]
    config = settings(distance=distance)
    solved = distances(config, graphs, workers=1)
    assert np.all(partial_distances(config, graphs, workers=1).bounds <= solved + 1e-12)


@pytest.mark.parametrize("estimator", ["double", "simplex"])
def test_the_estimators_of_squared_distances_have_no_bias(estimator):
    config = settings(privacy="dp", epsilon=60.0, budget_per="node", estimator=estimator, bits=3)
    rows, draws = embedding(3), 4000
    rng = np.random.default_rng(1)
    code = code_of(config, 5, 3)
    samples = np.empty((draws, 3, 3))
    for draw in range(draws):
        sent = encode_rows(config, rows, rng)
        if estimator == "double":
            samples[draw] = double_squared_distances(
                sent["codes"], sent["second"], half_of(config, code)
            )
        else:
            samples[draw] = simplex_squared_distances(sent["codes"], code)
    total = samples.mean(axis=0)
    error = samples.std(axis=0) / np.sqrt(draws)
    assert np.all(np.abs(total - cdist(rows, rows) ** 2) <= 4.0 * error + 1e-12)


@pytest.mark.parametrize("mode", ["dp", "paper"])
def test_rectified_points_have_no_bias(mode):
    per = {"budget_per": "node"} if mode == "dp" else {}
    config = settings(privacy=mode, epsilon=8.0, estimator="rectified", **per)
    rows, draws, rng = embedding(3), 4000, np.random.default_rng(2)
    found = np.array(
        [
            points(config, [encode_rows(config, rows, rng)["codes"].astype(float)])[0]
            for _ in range(draws)
        ]
    )
    error = found.std(axis=0) / np.sqrt(draws)
    assert np.all(np.abs(found.mean(axis=0) - rows) <= 4.5 * error + 1e-12)


@pytest.mark.parametrize("estimator", ["raw", "rectified", "double", "simplex"])
def test_costs_of_encoded_rows_are_distances(estimator):
    config = settings(privacy="dp", epsilon=50.0, budget_per="node", estimator=estimator)
    sent = encode_rows(config, embedding(9), np.random.default_rng(3))
    second = [sent["second"].astype(float)] if "second" in sent else None
    (found,) = costs(config, [sent["codes"].astype(float)], second)
    np.testing.assert_array_equal(found, found.T)
    assert np.all(np.diag(found) == 0.0)
    assert np.all(found >= 0.0)
    assert np.any(found > 0.0)


def test_double_needs_the_second_encoding():
    config = settings(privacy="dp", epsilon=50.0, estimator="double")
    with pytest.raises(ValueError, match="needs two encodings"):
        costs(config, [np.zeros((2, 3))])


def test_every_metric_is_pot_s():
    graphs = [embedding(n, seed=n) for n in (4, 6, 5)]
    gw = distances(settings(), graphs, workers=1)
    weights = [np.full(len(g), 1.0 / len(g)) for g in graphs]
    c = [cdist(g, g) for g in graphs]
    expected = ot.gromov.gromov_wasserstein2(c[0], c[1], weights[0], weights[1], "square_loss")
    assert gw[0, 1] == pytest.approx(float(expected), rel=1e-4)
    w2 = distances(settings(metric="wasserstein"), graphs, workers=1)
    plain = ot.emd2(weights[0], weights[2], cdist(graphs[0], graphs[2], "sqeuclidean"))
    assert w2[0, 2] == pytest.approx(np.sqrt(plain), rel=1e-9)
    fgw = distances(settings(metric="fgw", alpha=0.3), graphs, workers=1)
    M = cdist(graphs[1], graphs[2], "sqeuclidean")
    value = ot.gromov.fused_gromov_wasserstein2(
        M, c[1], c[2], weights[1], weights[2], "square_loss", alpha=0.3
    )
    assert fgw[1, 2] == pytest.approx(float(value), rel=1e-3)
