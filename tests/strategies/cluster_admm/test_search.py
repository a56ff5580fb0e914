"""Finding clusters: where clients differ, the best split, the best fit, whatever the names."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trellis.strategies.cluster_admm.search import (
    Quadratics,
    agreement,
    best_split,
    directions,
    fitting,
    probes,
    quadratics,
)


def crowd(rank: int, noise: float, clients: int = 90, size: int = 40):
    """Gradients of three clusters whose means, less their mean, span ``rank`` directions."""
    rng = np.random.default_rng(rank)
    basis = np.linalg.qr(rng.normal(size=(size, 2)))[0].T
    places = {1: [[-1.0, 0.0], [0.2, 0.0], [0.8, 0.0]], 2: [[1.0, 0.0], [-0.5, 0.8], [-0.5, -0.8]]}
    means = 10.0 * np.array(places[rank]) @ basis
    truth = np.arange(clients) % 3
    return means[truth] + noise * rng.normal(size=(clients, size)), truth, basis[:rank]


@pytest.mark.parametrize("rank", [1, 2])
def test_as_many_directions_as_the_clusters_span(rank):
    gradients, _, basis = crowd(rank, 1.0)
    U = directions(gradients, np.ones(len(gradients)), 3)
    assert U.shape == (40, rank)
    np.testing.assert_allclose(U.T @ U, np.eye(rank), atol=1e-12)
    assert np.linalg.norm(basis @ U) ** 2 > 0.9 * rank


def test_clients_that_are_alike_differ_in_no_direction():
    assert directions(np.ones((5, 4)), np.ones(5), 3).shape == (4, 0)
    assert directions(np.zeros((5, 4)), np.ones(5), 3).shape == (4, 0)
    assert directions(np.eye(4), np.ones(4), 1).shape == (4, 0)


def test_one_parameter_has_one_direction():
    U = directions(np.array([[0.0], [1.0], [5.0]]), np.ones(3), 3)
    np.testing.assert_allclose(np.abs(U), [[1.0]])


def test_clients_with_few_samples_count_less_where_noise_is():
    rng = np.random.default_rng(0)
    gradients, _, basis = crowd(1, 1.0)
    counts = np.where(np.arange(90) < 60, 100.0, 1.0)
    gradients[60:] += 30.0 * rng.normal(size=(30, 40))
    assert abs((basis @ directions(gradients, counts, 3)[:, :1]).item()) > 0.95
    assert abs((basis @ directions(gradients, np.ones(90), 3)[:, :1]).item()) < 0.9


@pytest.mark.parametrize("size", [1, 2, 4])
def test_squared_errors_are_known_from_their_values_at_a_few_points(size):
    rng = np.random.default_rng(size)
    X, y = rng.normal(size=(6, 3, size)), rng.normal(size=(6, 3))

    def losses(points):
        return np.mean((y[:, :, None] - X @ points.T) ** 2, axis=1)

    scale = rng.uniform(0.1, 2.0, size)
    points = probes(scale)
    assert len(points) == (size + 1) * (size + 2) // 2
    found = quadratics(losses(points), scale)
    anywhere = rng.normal(size=(7, size))
    np.testing.assert_allclose(found.at(anywhere), losses(anywhere), rtol=1e-8, atol=1e-10)
    assert np.all(np.linalg.eigvalsh(found.curvature) >= -1e-10)


def test_losses_without_a_minimum_are_made_convex():
    found = quadratics(np.array([[1.0, 0.0, 0.0]]), np.ones(1))
    np.testing.assert_array_equal(found.curvature, [[[0.0]]])
    np.testing.assert_array_equal(found.best(np.ones(1)), [0.0])


def around(centres):
    """Losses |a - c_k|^2 / 2 of clients with these minima (K, r)."""
    count, size = centres.shape
    curvature = np.tile(np.eye(size), (count, 1, 1))
    return Quadratics(0.5 * np.sum(centres**2, axis=1), -centres, curvature)


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 1000))
def test_the_split_is_the_best_of_all_splits(seed):
    rng = np.random.default_rng(seed)
    centres, counts = rng.normal(size=(8, 1)), rng.integers(1, 5, 8).astype(float)
    groups, points = best_split(around(centres), counts, 3, rng)

    def cost(groups):
        total = 0.0
        for group in set(groups):
            mine = np.array(groups) == group
            mean = np.average(centres[mine], axis=0, weights=counts[mine])
            total += counts[mine] @ np.sum((centres[mine] - mean) ** 2, axis=1)
        return total

    # On a line the best groups are neighbours.
    order = np.argsort(centres[:, 0])
    best = np.inf
    for a, b in itertools.combinations(range(1, 8), 2):
        by_rank = np.repeat([0, 1, 2], [a, b - a, 8 - b])
        best = min(best, cost(by_rank[np.argsort(order)].tolist()))
    assert cost(groups.tolist()) == pytest.approx(best, rel=1e-6)
    assert points.shape == (3, 1)
    assert set(groups.tolist()) == {0, 1, 2}


def test_clients_alike_are_split_all_the_same():
    groups, points = best_split(around(np.ones((6, 2))), np.ones(6), 3, np.random.default_rng(0))
    assert sorted(np.bincount(groups).tolist()) == [2, 2, 2]
    np.testing.assert_allclose(points, np.ones((3, 2)))


def test_a_client_joins_the_cluster_with_the_smallest_loss():
    losses = np.array([[3.0, 1.0], [0.5, 2.0], [np.nan, 1.0]])
    np.testing.assert_array_equal(fitting(losses, np.array([0, 1, 0])), [1, 0, 0])


def test_clusters_may_be_called_anything():
    truth = np.array([0, 0, 1, 1, 2, 2])
    assert agreement(np.array([2, 2, 0, 0, 1, 1]), truth, 3) == 1.0
    assert agreement(np.array([2, 0, 0, 0, 1, 1]), truth, 3) == 5.0 / 6.0


def test_clusters_may_be_more_or_fewer_than_there_are():
    truth = np.array([0, 0, 1, 1, 2, 2])
    assert agreement(np.array([0, 3, 1, 1, 2, 2]), truth, 4) == 5.0 / 6.0
    assert agreement(np.array([0, 0, 1, 1, 1, 1]), truth, 3) == 4.0 / 6.0
