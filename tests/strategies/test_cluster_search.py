"""Finding clusters: models far apart, the best fit, and names that do not matter."""

from __future__ import annotations

import numpy as np

from strategies.cluster_search import agreement, fitting, spread_models


def test_models_to_start_from_are_one_of_every_crowd():
    rng = np.random.default_rng(0)
    centres = np.array([[0.0, 0.0], [10.0, 0.0], [0.0, 10.0]])
    crowd = np.repeat(centres, 20, axis=0) + 0.1 * rng.normal(size=(60, 2))
    for seed in range(5):
        found = spread_models(crowd, 3, np.random.default_rng(seed))
        nearest = np.argmin(np.linalg.norm(found[:, None] - centres, axis=2), axis=1)
        assert sorted(nearest.tolist()) == [0, 1, 2]


def test_no_more_models_than_clients():
    assert spread_models(np.eye(2), 5, np.random.default_rng(0)).shape == (2, 2)


def test_a_client_joins_the_cluster_with_the_smallest_loss():
    losses = np.array([[3.0, 1.0], [0.5, 2.0], [np.nan, 1.0]])
    np.testing.assert_array_equal(fitting(losses, np.array([0, 1, 0])), [1, 0, 0])


def test_clusters_may_be_called_anything():
    truth = np.array([0, 0, 1, 1, 2, 2])
    assert agreement(np.array([2, 2, 0, 0, 1, 1]), truth, 3) == 1.0
    assert agreement(np.array([2, 0, 0, 0, 1, 1]), truth, 3) == 5.0 / 6.0
