"""From what was released to distances between nodes, and between graphs."""

from __future__ import annotations

import numpy as np
import ot
import pytest
from scipy.spatial.distance import cdist

from apps.gromov_wasserstein.config import GromovWassersteinConfig
from apps.gromov_wasserstein.distances import between, costs, distances, points, split
from apps.gromov_wasserstein.release import code_of, encode_rows, half_of
from privacy.mechanisms.multibit import double_squared_distances, simplex_squared_distances


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


@pytest.mark.parametrize("estimator", ["double", "simplex"])
def test_the_estimators_of_squared_distances_have_no_bias(estimator):
    config = settings(privacy="sound", epsilon=60.0, budget_per="node", estimator=estimator, bits=3)
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


@pytest.mark.parametrize("mode", ["sound", "paper"])
def test_rectified_points_have_no_bias(mode):
    config = settings(privacy=mode, epsilon=8.0, budget_per="node", estimator="rectified")
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
    config = settings(privacy="sound", epsilon=50.0, budget_per="node", estimator=estimator)
    sent = encode_rows(config, embedding(9), np.random.default_rng(3))
    second = [sent["second"].astype(float)] if "second" in sent else None
    (found,) = costs(config, [sent["codes"].astype(float)], second)
    np.testing.assert_array_equal(found, found.T)
    assert np.all(np.diag(found) == 0.0)
    assert np.all(found >= 0.0)
    assert np.any(found > 0.0)


def test_double_needs_the_second_encoding():
    config = settings(privacy="sound", epsilon=50.0, estimator="double")
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
