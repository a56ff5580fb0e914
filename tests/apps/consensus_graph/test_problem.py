from __future__ import annotations

import itertools
import subprocess
import sys
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from trellis.apps.consensus_graph import problem
from trellis.apps.consensus_graph.private import pooled


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


ANY_FLOAT = st.floats(allow_nan=False, allow_infinity=False, allow_subnormal=True)


@st.composite
def signals_of_any_kind(draw, d):
    """Draw a signal (d,): mixed sizes, constant, a few last bits from constant, or one far off."""
    level = draw(ANY_FLOAT)
    near = np.full(d, level)
    kind = draw(st.sampled_from(["any", "constant", "last bits", "one off"]))
    if kind == "any":
        return np.array(draw(st.lists(ANY_FLOAT, min_size=d, max_size=d)))
    if kind == "last bits":
        steps = np.array(draw(st.lists(st.integers(-3, 3), min_size=d, max_size=d)))
        with np.errstate(over="ignore"):
            near = near + steps * np.spacing(level)
    elif kind == "one off":
        near[draw(st.integers(0, d - 1))] = draw(ANY_FLOAT)
    return np.clip(near, -np.finfo(np.float64).max, np.finfo(np.float64).max)


def exact_norms(signal, clip):
    """Return |z| / clip and 2 |x|^2 / clip of one signal, both squared, in exact arithmetic."""
    x, unit = [Fraction(value) for value in signal.tolist()], Fraction(clip)
    z = [(a - b) ** 2 / unit for a, b in itertools.combinations(x, 2)]
    return sum(v * v for v in z), (2 * sum(v * v for v in x) / unit) ** 2


CONSTANT = np.full((1, 6), 7.3e29)  # of which a mean in floats is another number


@settings(max_examples=500, deadline=None)
@given(st.integers(2, 8).flatmap(signals_of_any_kind), st.floats(-100.0, 100.0))
@example(CONSTANT[0], 0.0)
@example(np.full(10, 98.7), -30.0)
@example(np.full(3, 5.79670053e38), -93.1)
@example(np.array([1.7e308, 1.7e308, np.nextafter(1.7e308, 0.0)]), 0.0)
@example(np.array([5e-324, 0.0, 0.0]), -100.0)
@example(np.array([1e300, 1e-300, -1e300, 5e-324]), 100.0)
def test_no_signal_escapes_the_clip(signal, log_clip):
    """Of whatever size and shape: its squared differences, its length, and what is computed."""
    clip, bound = 10.0**log_clip, (1.0 + 1e-9) ** 2  # a millionth is counted for rounding
    kept = problem.clipped_signals(signal[None], clip)
    assert np.all(np.isfinite(kept))
    differences, length = exact_norms(kept[0], clip)
    assert differences <= bound
    assert length <= bound
    assert np.linalg.norm(problem.statistic(signal[None], clip) / clip) <= 1.0 + 1e-9
    assert np.linalg.norm(pooled.summands(signal[None], clip)["shape"]) <= 1.0 + 1e-9
    units, _ = pooled.directions(signal[None])
    assert np.linalg.norm(units) <= 1.0 + 1e-9


@settings(max_examples=200, deadline=None)
@given(st.data(), st.integers(2, 6), st.integers(1, 5), st.floats(-100.0, 100.0))
def test_one_signal_of_any_kind_moves_no_statistic_by_more_than_claimed(data, d, count, log_clip):
    clip = 10.0**log_clip
    rows = [data.draw(signals_of_any_kind(d)) for _ in range(count + 1)]
    one, other = np.array(rows[:-1]), np.array([*rows[:-2], rows[-1]])
    moved = (problem.statistic(one, clip) - problem.statistic(other, clip)) / clip
    assert np.linalg.norm(moved) <= problem.sensitivity(1.0, count) * (1.0 + 1e-9)
    for each in (0.0, clip):
        found = [pooled.summands(signals, each) for signals in (one, other)]
        gap = [found[0][name] - found[1][name] for name in found[0]]
        assert np.linalg.norm(np.concatenate(gap)) <= pooled.sensitivity(each) * (1.0 + 1e-9)


@pytest.mark.parametrize("level", [1e-300, 36.6, 7.3e29, 1.7e308])
def test_a_signal_that_is_constant_but_for_rounding_has_no_differences(level):
    assert not problem.clipped_signals(np.full((3, 6), level), 25.0).any()
    assert not pooled.directions(np.full((3, 6), level))[0].any()


def test_a_signal_that_is_no_number_adds_nothing():
    signals = np.random.default_rng(0).normal(size=(3, 4))
    signals[1, 2] = np.nan
    signals[2, 0] = np.inf
    found = problem.clipped_signals(signals, 1.0)
    np.testing.assert_array_equal(found[:1], problem.clipped_signals(signals[:1], 1.0))
    assert not found[1:].any()


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
