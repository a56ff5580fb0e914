from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trellis.apps.consensus_graph.config import ConsensusGraphConfig
from trellis.apps.consensus_graph.data import synthetic_table
from trellis.apps.consensus_graph.problem import (
    degrees,
    local_objective,
    node_count,
    objective,
    statistic,
)
from trellis.apps.consensus_graph.solver import accelerated_steps, solve

from . import oracle

CASES = [
    # d, alpha, beta, pull, scale of z: raw and trace-normalised weights, weak and strong pull
    (5, 2.0, 0.05, 0.0, 1.0),
    (12, 2.0, 0.01, 0.5, 1.0),
    (12, 2.0, 1.5, 0.0, 30.0),
    (20, 1.0, 0.05, 20.0, 1.0),
    (20, 2.0, 1e-3, 0.0, 1.0),
]


def example(d: int, scale: float, seed: int = 0):
    config = ConsensusGraphConfig(nodes=d, signals="30")
    z = statistic(synthetic_table(config, seed, 0).values) * scale
    rng = np.random.default_rng(seed)
    consensus = rng.random(z.size) * (rng.random(z.size) < 0.3)
    return z, consensus


@pytest.mark.parametrize(("d", "alpha", "beta", "pull", "scale"), CASES)
def test_solve_agrees_with_a_general_convex_solver(d, alpha, beta, pull, scale):
    z, consensus = example(d, scale)
    reference, value = oracle.local(z, alpha, beta, pull, consensus)
    found = solve(z, alpha, beta, pull, consensus)
    ours = local_objective(found.w, z, alpha, beta, pull, consensus)
    assert ours <= value + 1e-6 * abs(value)
    assert ours >= value - 1e-6 * abs(value)
    np.testing.assert_allclose(found.w, reference, atol=1e-5)


def hardness(z: np.ndarray, beta: float, pull: float) -> float:
    return float(np.mean(2 * np.abs(z)) ** 2 / (2.0 * (4 * beta + pull)))


@pytest.mark.parametrize(
    ("seed", "d", "beta", "pull", "scale"),
    [(3, 7, 0.001, 0.001953125, 951.0), (1, 3, 0.001953125, 0.0, 545.0), (5, 20, 1e-3, 0.0, 3e4)],
)
def test_data_in_large_units_still_gives_a_connected_graph(seed, d, beta, pull, scale):
    z, consensus = example(d, scale, seed)
    assert hardness(z, beta, pull) > 1e10
    found = solve(z, 2.0, beta, pull, consensus)
    assert degrees(found.w, d).min() > 0.0
    value = local_objective(found.w, z, 2.0, beta, pull, consensus)
    assert found.gap <= 1e-4 * abs(value)


def test_signals_that_are_too_large_are_named():
    z, _ = example(8, 1e160)
    with pytest.raises(FloatingPointError, match=r"too large for a ridge of .*rescale the data"):
        solve(z, 2.0, 0.05)


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 1000),
    d=st.integers(3, 15),
    beta=st.floats(1e-3, 10.0),
    pull=st.floats(0.0, 1e4),
    scale=st.floats(1e-3, 1e3),
)
def test_the_gap_is_a_certificate_at_any_scale(seed, d, beta, pull, scale):
    z, consensus = example(d, scale, seed)
    found = solve(z, 2.0, beta, pull, consensus)
    assert np.all(found.w >= 0.0)
    assert degrees(found.w, d).min() > 0.0
    ours = local_objective(found.w, z, 2.0, beta, pull, consensus)
    assert np.isfinite(ours)
    # Beyond this the difference of large numbers in w(y) has few digits left.
    if hardness(z, beta, pull) < 1e10:
        assert found.gap <= 1e-8 * max(1.0, abs(ours))
    # No random neighbour is better than the certificate allows.
    rng = np.random.default_rng(seed)
    for size in (1e-4, 1e-2):
        other = np.maximum(found.w * (1 + size * rng.normal(size=z.size)), 0.0)
        if degrees(other, d).min() > 0.0:
            value = local_objective(other, z, 2.0, beta, pull, consensus)
            assert value >= ours - found.gap - 1e-9 * abs(ours)


@pytest.mark.parametrize("factor", [1e-3, 0.1, 7.0, 1e3])
def test_scale_law(factor):
    # w*(c z, alpha, c^2 beta) = w*(z, alpha, beta) / c
    z, _ = example(20, 1.0)
    base = solve(z, 2.0, 0.05).w
    scaled = solve(factor * z, 2.0, factor**2 * 0.05).w
    np.testing.assert_allclose(scaled * factor, base, atol=1e-8)


def test_noise_far_below_zero_still_gives_a_graph():
    z, consensus = example(20, 1.0)
    noisy = z + 50.0 * np.random.default_rng(0).normal(size=z.size)
    for pull in (0.0, 3.0):
        found = solve(noisy, 2.0, 0.05, pull, consensus)
        assert np.all(np.isfinite(found.w))
        assert degrees(found.w, 20).min() > 0.0
        assert found.gap < 1e-6


@pytest.mark.parametrize(("d", "alpha", "beta", "pull", "scale"), CASES)
def test_gradient_steps_reach_the_same_optimum_without_a_step_to_tune(d, alpha, beta, pull, scale):
    z, consensus = example(d, scale)
    best = solve(z, alpha, beta, pull, consensus)
    target = local_objective(best.w, z, alpha, beta, pull, consensus)
    w, before = np.full(z.size, 1.0 / (d - 1)), None
    for _ in range(60):
        w, before = accelerated_steps(w, z, alpha, beta, pull, consensus, 25, previous=before)
    reached = local_objective(w, z, alpha, beta, pull, consensus)
    assert reached == pytest.approx(target, rel=1e-6)


@pytest.mark.parametrize("step", [0.0, 5e-4, 0.01, 10.0])
def test_no_step_ever_leaves_a_node_without_edges(step):
    for seed in range(20):
        z, consensus = example(20, 1.0, seed)
        w, before = np.full(z.size, 1.0 / 19), None
        last = np.inf
        for _ in range(8):
            w, before = accelerated_steps(
                w, z, 2.0, 0.05, 0.2, consensus, 25, previous=before, step=step
            )
            assert np.all(np.isfinite(w))
            assert np.all(w >= 0.0)
            assert degrees(w, node_count(w.size)).min() > 0.0
            value = local_objective(w, z, 2.0, 0.05, 0.2, consensus)
            assert value <= last + 1e-6 * abs(value)
            last = value


def test_a_fixed_step_is_an_upper_bound():
    z, consensus = example(20, 1.0)
    start = np.full(z.size, 1.0 / 19)
    slow, _ = accelerated_steps(start, z, 2.0, 0.05, 0.0, consensus, 25, step=5e-4)
    fast, _ = accelerated_steps(start, z, 2.0, 0.05, 0.0, consensus, 25)
    best = objective(solve(z, 2.0, 0.05).w, z, 2.0, 0.05)
    assert objective(slow, z, 2.0, 0.05) - best > 100 * (objective(fast, z, 2.0, 0.05) - best)


def test_gradient_noise_enters_the_last_step_only():
    z, consensus = example(12, 1.0)
    start = np.full(z.size, 1.0 / 11)
    noise = np.random.default_rng(0).normal(size=z.size)
    clean, _ = accelerated_steps(start, z, 2.0, 0.05, 0.3, consensus, 4)
    noisy, before = accelerated_steps(
        start, z, 2.0, 0.05, 0.3, consensus, 5, last_gradient_noise=noise
    )
    np.testing.assert_array_equal(before, clean)
    silent, _ = accelerated_steps(
        start, z, 2.0, 0.05, 0.3, consensus, 5, last_gradient_noise=0 * noise
    )
    moved = noisy - silent
    free = (noisy > 0) & (silent > 0)
    ratio = moved[free] / noise[free]
    np.testing.assert_allclose(ratio, ratio[0], rtol=1e-6)
    assert ratio[0] < 0.0


def test_beta_zero_alone_is_refused_with_a_reason():
    with pytest.raises(ValueError, match="beta=0"):
        solve(np.ones(3), 1.0, 0.0)


@pytest.mark.parametrize("cut", [(0,), (0, 3), (0, 1, 2, 3, 4, 5)])
def test_a_start_with_nodes_cut_off_is_joined_up_and_goes_down(cut):
    # The noisy last step (27) of a round may leave such a graph to the next one.
    rng = np.random.default_rng(4)
    z, d = rng.uniform(0.1, 1.0, 15), 6
    rows, columns = np.triu_indices(d, 1)
    start = rng.uniform(0.5, 1.0, 15)
    start[np.isin(rows, cut) | np.isin(columns, cut)] = 0.0
    assert degrees(start, d).min() == 0.0
    found, _ = accelerated_steps(start, z, 2.0, 0.05, 0.5, np.zeros(15), 400)
    best = solve(z, 2.0, 0.05, 0.5, np.zeros(15))
    value, least = (local_objective(w, z, 2.0, 0.05, 0.5, np.zeros(15)) for w in (found, best.w))
    assert value == pytest.approx(least, rel=1e-8)
