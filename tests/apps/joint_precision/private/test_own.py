"""A device's own graph: the weighted problem's optimality, and how far it trusts the consensus."""

from __future__ import annotations

import numpy as np
import pytest

from tests.apps.joint_precision.federations import correlations
from trellis.apps.common.metrics import matthews
from trellis.apps.joint_precision.config import JointPrecisionConfig
from trellis.apps.joint_precision.data import synthetic_table, synthetic_truth
from trellis.apps.joint_precision.private.consensus import consensus, rule, sampling_error
from trellis.apps.joint_precision.private.federation import private_consensus, summed
from trellis.apps.joint_precision.private.own import (
    ALONE,
    own_precision,
    pair_weights,
    raw_correlation,
    reference_correlation,
    trusts_of,
)
from trellis.apps.joint_precision.problem import partial_correlations
from trellis.apps.joint_precision.solver import solve_path, solve_weighted_path

CONFIG = JointPrecisionConfig(variables=18, blocks=3, samples="120", clients=30)
UPPER = np.triu_indices(18, 1)


def tables(config=CONFIG, seed=1):
    return [synthetic_table(config, seed, k).values for k in range(config.clients)]


def test_equal_weights_are_the_graphical_lasso():
    (s,) = correlations(variables=18, blocks=2, clients=1)
    plain = solve_path(s[None], [(0.3, 0.0), (0.1, 0.0)], tolerance=1e-9)
    weighted = solve_weighted_path(s, np.ones((18, 18)), [0.3, 0.1], tolerance=1e-9)
    for one, other in zip(plain, weighted, strict=True):
        np.testing.assert_allclose(one.sparse[0], other.sparse[0], atol=1e-4)
        assert other.objective == pytest.approx(one.objective, abs=1e-8)


def test_weighted_penalties_are_solved_to_optimality():
    """The conditions of optimality, pair by pair: no solver's word is taken."""
    (s,) = correlations(variables=18, blocks=2, clients=1)
    rng = np.random.default_rng(0)
    weights = rng.uniform(0.05, 1.0, size=(18, 18))
    weights = (weights + weights.T) / 2.0
    for lambda_, point in zip(
        (0.4, 0.1), solve_weighted_path(s, weights, [0.4, 0.1], tolerance=1e-10), strict=True
    ):
        psi = point.sparse[0]
        slope = (np.linalg.inv(psi) - s)[UPPER]
        bound, entries = lambda_ * weights[UPPER], psi[UPPER]
        edges = entries != 0.0
        assert 0 < np.count_nonzero(edges) < edges.size
        np.testing.assert_allclose(slope[edges], (bound * np.sign(entries))[edges], atol=1e-4)
        assert np.all(np.abs(slope[~edges]) <= bound[~edges] + 1e-4)
        np.testing.assert_allclose(np.diagonal(np.linalg.inv(psi)), 1.0, atol=1e-4)
        assert point.gap <= 1e-10


def test_a_consensus_of_nothing_but_noise_is_not_used():
    values = tables()[0]
    rng = np.random.default_rng(0)
    noise = rng.normal(size=(18, 18)) * 0.25
    wrong = np.linalg.inv(noise @ noise.T + 0.2 * np.eye(18))
    found = own_precision(values, wrong, [0.3, 0.2, 0.1])
    assert found.alone
    assert (found.blend, found.scale, found.gain) == (*ALONE, 0.0)
    alone = own_precision(values, np.eye(18), [0.3, 0.2, 0.1], trusts=[ALONE])
    np.testing.assert_array_equal(found.sparse, alone.sparse)


def test_a_good_consensus_is_used_and_helps():
    all_tables, truth = tables(), synthetic_truth(CONFIG, 1)
    shared = private_consensus(
        *summed(all_tables), 30, 30 * 120, 18, np.random.default_rng(0), epsilon=None
    )
    lambdas = np.geomspace(0.6, 0.03, 12).tolist()
    scores: dict[str, list[float]] = {"alone": [], "device": []}
    used = 0
    for k in range(6):
        for name, trusts in (("alone", [ALONE]), ("device", None)):
            found = own_precision(all_tables[k], shared.sparse, lambdas, trusts=trusts)
            assert found.alone or name == "device"
            used += not found.alone
            assert np.max(found.gaps) <= 1e-6
            graph = np.abs(found.sparse[found.chosen][UPPER])
            scores[name].append(matthews(graph, truth.edges()[k], 0.0))
    assert np.mean(scores["device"]) > np.mean(scores["alone"]) + 0.05
    assert used >= 4


def test_too_few_samples_to_try_anything_go_alone():
    values = tables()[0][:11]
    assert own_precision(values, np.eye(18), [0.3]).alone


def test_a_constant_column_stops_nothing():
    values = tables()[0].copy()
    values[:, 3] = 1.0
    found = own_precision(values, np.eye(18), [0.3, 0.2])
    assert not np.any(found.sparse[:, 3, np.arange(18) != 3])


def test_fused_tries_the_values_of_the_consensus_only():
    assert all(np.isinf(scale) for _, scale in trusts_of("fused"))
    assert len(trusts_of("group")) > len(trusts_of("fused"))
    assert ALONE in trusts_of("fused")


def test_weights_fall_with_the_strength_of_the_consensus():
    strength = np.array([[1.0, 0.3, 0.0], [0.3, 1.0, 0.1], [0.0, 0.1, 1.0]])
    weights = pair_weights(strength, 0.1)
    assert weights[0, 2] == 1.0
    assert weights[0, 1] == pytest.approx(0.25)
    assert np.all(pair_weights(strength, np.inf) == 1.0)


def test_the_consensus_without_noise_is_the_graph_of_all_samples():
    total, weight = summed(tables())
    found = consensus(total, weight, 30 * 120, 18, 0.0)
    mean = np.mean([raw_correlation(values)[UPPER] for values in tables()], axis=0)
    assert np.corrcoef(mean, found.correlation[UPPER])[0, 1] > 0.99
    assert found.penalty == pytest.approx(1.5 * np.pi / 2 * sampling_error(3600))
    assert found.gap <= 1e-6
    reference = reference_correlation(found.sparse)
    np.testing.assert_allclose(np.diagonal(reference), 1.0)
    assert np.all(np.abs(partial_correlations(found.sparse)) <= 1.0)


def test_noise_above_the_signal_leaves_an_empty_graph_and_no_error():
    total, weight = summed(tables())
    rng = np.random.default_rng(0)
    found = consensus(total + 1e6 * rng.normal(size=total.size), weight, 3600, 18, 1e6)
    assert found.penalty == 0.99
    assert found.weight == 1.0  # the sum of weights is as noisy: it is not believed
    assert np.all(np.isfinite(found.sparse))
    assert rule(0.0, 100) < rule(0.05, 100) < rule(0.2, 100)
