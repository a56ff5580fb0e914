from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trellis.apps.consensus_graph import problem


def naive_statistic(signals: np.ndarray, clip: float | None) -> np.ndarray:
    a, b = np.triu_indices(signals.shape[1], 1)
    z = (signals[:, a] - signals[:, b]) ** 2
    if clip is not None:
        z /= np.maximum(1.0, np.linalg.norm(z, axis=1, keepdims=True) / clip)
    return z.mean(axis=0)


@pytest.mark.parametrize("clip", [None, 0.5, 5.0, 1e6])
@pytest.mark.parametrize("shape", [(2, 3), (50, 20), (7, 40)])
def test_statistic_is_the_mean_of_clipped_squared_differences(shape, clip):
    signals = np.random.default_rng(0).normal(3.0, 2.0, shape)
    np.testing.assert_allclose(
        problem.statistic(signals, clip), naive_statistic(signals, clip), rtol=1e-11, atol=1e-13
    )


def test_statistic_works_in_blocks(monkeypatch):
    signals = np.random.default_rng(0).normal(size=(101, 6))
    whole = problem.statistic(signals, 3.0)
    monkeypatch.setattr(problem, "_BLOCK_ENTRIES", 30)
    np.testing.assert_allclose(problem.statistic(signals, 3.0), whole, rtol=1e-12)


def test_statistic_survives_a_large_common_offset():
    signals = np.random.default_rng(0).normal(size=(30, 8))
    np.testing.assert_allclose(
        problem.statistic(signals + 1e6), problem.statistic(signals), rtol=1e-8
    )


def test_a_constant_signal_has_no_differences_and_is_not_clipped_to_nan():
    assert np.array_equal(problem.statistic(np.ones((4, 5)), 1.0), np.zeros(10))


@settings(max_examples=50, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    count=st.integers(2, 12),
    clip=st.floats(0.1, 50.0),
    scale=st.floats(0.1, 100.0),
)
def test_replacing_one_signal_moves_the_statistic_by_at_most_the_sensitivity(
    seed, count, clip, scale
):
    rng = np.random.default_rng(seed)
    signals = rng.normal(size=(count, 5)) * scale
    other = signals.copy()
    other[rng.integers(count)] = rng.normal(size=5) * scale * 10
    moved = np.linalg.norm(problem.statistic(signals, clip) - problem.statistic(other, clip))
    assert moved <= problem.sensitivity(clip, count) * (1 + 1e-12)


def test_the_sensitivity_is_attained():
    # z_n of orthogonal support: node 1 alone moves, then nodes 2 and 3 move as one... the squared
    # differences of (1,0,0,..) and (0,1,..) overlap in one entry only, so large d comes close.
    d, clip = 400, 1.0
    first, second = np.zeros((1, d)), np.zeros((1, d))
    first[0, 0] = second[0, 1] = 100.0
    moved = np.linalg.norm(problem.statistic(first, clip) - problem.statistic(second, clip))
    assert moved > 0.99 * problem.sensitivity(clip, 1)


def test_edge_vector_and_adjacency_are_inverse():
    w = np.random.default_rng(0).random(15)
    assert np.array_equal(problem.edge_vector(problem.adjacency(w)), w)
    assert problem.node_count(15) == 6
    with pytest.raises(ValueError, match="14 is not"):
        problem.node_count(14)


def test_degrees_and_spread_are_adjoint():
    rng = np.random.default_rng(0)
    w, v = rng.random(45), rng.normal(size=10)
    np.testing.assert_allclose(problem.degrees(w, 10) @ v, w @ problem.spread(v))
    np.testing.assert_allclose(problem.degrees(w, 10), problem.adjacency(w).sum(axis=1))


def test_gradient_is_the_derivative_of_the_objective():
    rng = np.random.default_rng(0)
    w, z = rng.random(21) + 0.1, rng.random(21)
    slope = problem.gradient(w, z, 2.0, 0.3)
    for k in range(21):
        step = np.zeros(21)
        step[k] = 1e-6
        ahead = problem.objective(w + step, z, 2.0, 0.3)
        behind = problem.objective(w - step, z, 2.0, 0.3)
        assert slope[k] == pytest.approx((ahead - behind) / 2e-6, rel=1e-6)


def test_an_isolated_node_has_an_infinite_objective():
    assert problem.objective(np.array([1.0, 0.0, 0.0]), np.ones(3), 1.0, 1.0) == np.inf


def test_five_hundred_nodes_and_ten_thousand_signals_fit_in_a_gigabyte():
    # Not getrusage on Linux: a process begins with the peak of the one that started it, this one.
    code = (
        "import numpy as np, resource, sys\n"
        "from pathlib import Path\n"
        "from trellis.apps.consensus_graph.problem import statistic\n"
        "x = np.random.default_rng(0).normal(size=(10_000, 500))\n"
        "z = statistic(x, 25.0)\n"
        "assert z.shape == (124750,) and np.isfinite(z).all()\n"
        "if sys.platform == 'linux':\n"
        "    print(Path('/proc/self/status').read_text().partition('VmHWM:')[2].split()[0])\n"
        "else:\n"
        "    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    kilobytes = int(done.stdout) if sys.platform != "darwin" else int(done.stdout) // 1024
    assert kilobytes < 1_000_000
