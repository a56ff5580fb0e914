"""The study as a whole, in one process."""

from __future__ import annotations

import numpy as np
import pytest

from trellis.apps import run
from trellis.apps.common.node import Node
from trellis.apps.consensus_graph.config import ConsensusGraphConfig
from trellis.apps.consensus_graph.data import client_table, synthetic_table, synthetic_truth
from trellis.apps.consensus_graph.problem import degrees, statistic
from trellis.apps.consensus_graph.solver import solve
from trellis.strategies.consensus_graph.strategy import consensus_update

from . import oracle

STUDY = "consensus-graph"
NODES = 20
SMALL = {"nodes": 8, "clients": 3, "signals": "30"}


def statistics(settings: dict, seed: int = 1) -> list[np.ndarray]:
    config = ConsensusGraphConfig.from_settings(settings)
    return [statistic(synthetic_table(config, seed, i).values) for i in range(config.clients)]


def test_alternating_updates_with_gamma_fixed_solve_12():
    zs = statistics(SMALL)
    gamma, rho, lambda_ = np.array([0.7, 1.5, 3.0]), 0.8, 0.3
    weights, consensus, _ = oracle.joint(zs, 2.0, 0.05, rho, lambda_, gamma)
    found = np.full(zs[0].size, 0.1)
    for _ in range(300):
        ours = np.array(
            [solve(z, 2.0, 0.05, rho * g, found).w for z, g in zip(zs, gamma, strict=True)]
        )
        found = consensus_update(ours, gamma, rho, lambda_)
    np.testing.assert_allclose(ours, weights, atol=1e-5)
    np.testing.assert_allclose(found, consensus, atol=1e-5)


@pytest.mark.parametrize("steps", [0, 25])
def test_the_study_solves_8(steps):
    settings = {**SMALL, "rho": 0.5, "lambda": 0.2, "rounds": 60, "tolerance": 0.0}
    weights, consensus, value = oracle.joint(statistics(settings), 2.0, 0.05, 0.5, 0.2)
    result = run(STUDY, {**settings, "local-steps": steps})
    np.testing.assert_allclose(result.arrays["weights"], weights, atol=1e-3)
    np.testing.assert_allclose(result.arrays["consensus"], consensus, atol=1e-3)
    assert result.metrics[-1]["objective"] == pytest.approx(value, abs=1e-3 * abs(value))


def algorithm_1(zs, alpha, beta, rho, lambda_, *, steps, eta, rounds):
    """Algorithm 1 as it is printed, written down once more."""
    S = oracle.incidence(NODES)
    consensus = np.full(S.shape[1], 1.0 / (NODES - 1))
    now, before = [consensus] * len(zs), [consensus] * len(zs)
    gamma = np.full(len(zs), 1.0 / len(zs))
    for _ in range(rounds):
        for i, z in enumerate(zs):
            w, last = now[i], before[i]  # line 5
            for _ in range(steps):
                ahead = w + 0.9 * (w - last)  # (14)
                assert np.all(S @ ahead > 0.0)
                slope = 2.0 * z - alpha * S.T @ (1.0 / (S @ ahead)) + 4.0 * beta * ahead
                slope += rho * gamma[i] * (ahead - consensus)
                w, last = np.maximum(ahead - eta * slope, 0.0), w  # (15), (16)
            now[i], before[i] = w, last
        mean = gamma @ np.array(now) / gamma.sum()
        cut = lambda_ / (gamma.sum() * rho)
        consensus = np.sign(mean) * np.maximum(np.abs(mean) - cut, 0.0)  # (19)
        gamma = np.array([1.0 / (np.linalg.norm(w - consensus) + 1e-6) for w in now])  # (20)
    return np.array(now), consensus


@pytest.mark.parametrize("eta", [5e-4, 1e-2])
def test_gradient_steps_of_a_given_length_are_algorithm_1_as_printed(eta):
    """Momentum goes from round to round (line 5) and nothing else happens in the domain."""
    settings = {"nodes": NODES, "clients": 4, "signals": "40", "rho": 1.0, "lambda": 0.1}
    settings |= {"local-steps": 25, "step": eta, "rounds": 6, "tolerance": 0.0}
    weights, consensus = algorithm_1(
        statistics(settings, seed=3), 2.0, 0.05, 1.0, 0.1, steps=25, eta=eta, rounds=6
    )
    result = run(STUDY, settings, seed=3)
    np.testing.assert_allclose(result.arrays["weights"], weights, rtol=0, atol=1e-13)
    np.testing.assert_allclose(result.arrays["consensus"], consensus, rtol=0, atol=1e-13)


def test_the_objective_falls():
    values = [row["objective"] for row in run(STUDY, {"tolerance": 0.0}).metrics]
    assert np.all(np.diff(values[1:]) <= 1e-6)


def test_igl_is_every_client_alone_in_one_round():
    result = run(STUDY, {**SMALL, "method": "igl"})
    assert len(result.metrics) == 1
    for z, w in zip(statistics(SMALL), result.arrays["weights"], strict=True):
        np.testing.assert_allclose(w, solve(z, 2.0, 0.05).w, atol=1e-9)
    assert not np.any(result.arrays["consensus"])


@pytest.mark.parametrize("steps", [0, 25])
def test_fedavg_minimises_36(steps):
    settings = {**SMALL, "signals": "10,20,40", "method": "fedavg"}
    counts = np.array([10, 20, 40])
    pooled = np.average(statistics(settings), axis=0, weights=counts)
    best = solve(pooled, 2.0, 0.05).w
    more = {"rounds": 400, "tolerance": 1e-9}
    result = run(STUDY, {**settings, **more, "local-steps": steps})
    np.testing.assert_allclose(result.arrays["consensus"], best, atol=1e-6)
    np.testing.assert_allclose(result.arrays["weights"], np.tile(best, (3, 1)), atol=1e-6)
    np.testing.assert_allclose(result.arrays["gamma"], counts / 70)


@pytest.mark.parametrize("overlap", [0.2, 0.5, 0.8])
def test_graphs_are_finite_with_positive_degrees_on_twenty_seeds(overlap):
    for seed in range(20):
        settings = {"overlap": overlap, "signals": "10", "rounds": 8}
        for steps in (0, 5):
            result = run(STUDY, {**settings, "local-steps": steps}, seed=seed)
            weights = result.arrays["weights"]
            assert np.all(np.isfinite(weights))
            assert min(degrees(w, 20).min() for w in weights) > 0.0


def test_more_signals_weigh_more():
    gammas = [
        run(STUDY, {"signals": "20,40,60,80,100", "rounds": 20}, seed=seed).arrays["gamma"]
        for seed in range(10)
    ]
    mean = np.mean(gammas, axis=0)
    assert np.all(np.diff(mean) > 0.0)


def test_joint_learning_beats_learning_alone():
    alone, joint = [], []
    for seed in range(8):
        alone.append(run(STUDY, {"method": "igl"}, seed=seed).headline["mcc"])
        joint.append(run(STUDY, seed=seed).headline["mcc"])
    assert np.mean(joint) > np.mean(alone) + 0.02


def test_the_same_seed_gives_the_same_bits_with_and_without_threads():
    first = run(STUDY, SMALL, seed=7)
    second = run(STUDY, SMALL, seed=7, workers=2)
    other = run(STUDY, SMALL, seed=8)
    for name in first.arrays:
        assert first.arrays[name].tobytes() == second.arrays[name].tobytes(), name
    assert not np.array_equal(first.arrays["weights"], other.arrays["weights"])


def test_partial_participation_reaches_the_same_solution():
    settings = {**SMALL, "rounds": 400, "tolerance": 1e-6}
    everyone = run(STUDY, settings)
    sampled = run(STUDY, {**settings, "sample": 1})
    assert {row["clients"] for row in sampled.metrics} == {1.0}
    assert all(client["rounds"] > 20 for client in sampled.clients)
    np.testing.assert_allclose(sampled.arrays["weights"], everyone.arrays["weights"], atol=5e-3)


def test_synthetic_graphs_are_those_of_the_paper():
    edges, shared = [], []
    for seed in range(30):
        truth = synthetic_truth(ConsensusGraphConfig(), seed)
        present = truth.weights > 0
        edges.append(present.sum(axis=1).mean())
        assert np.all(present[:, truth.consensus > 0])
        positive = truth.weights[present]
        assert positive.min() >= 0.75
        assert positive.max() <= 1.0
        shared.append((truth.consensus > 0).sum() / edges[-1])
    assert np.mean(edges) == pytest.approx(59, abs=4)
    assert np.mean(shared) == pytest.approx(0.5, abs=0.02)


def test_synthetic_signals_have_the_covariance_of_33():
    config = ConsensusGraphConfig(nodes=6, signals="200000", clients=1)
    truth = synthetic_truth(config, 3)
    table = synthetic_table(config, 3, 0)
    weights = np.zeros((6, 6))
    weights[np.triu_indices(6, 1)] = truth.weights[0]
    weights += weights.T
    expected = np.linalg.inv(np.diag(weights.sum(1)) - weights + 0.01 * np.eye(6))
    np.testing.assert_allclose(np.cov(table.values.T, bias=True), expected, rtol=0.03)


def test_a_client_without_a_file_gets_synthetic_data():
    node = Node("client-2", 1, None, None, True)
    config = ConsensusGraphConfig()
    table = client_table(config, 5, node)
    np.testing.assert_array_equal(table.values, synthetic_table(config, 5, 1).values)
    assert table.columns[0] == "v01"
