"""Anderson acceleration: the least residual, a way back, and a memory that can be stored."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trellis.strategies.core import anderson
from trellis.strategies.core.anderson import Anderson


def linear_map(size: int, seed: int, norm: float = 0.9):
    """Return a non-expansive affine map, its matrix and its fixed point."""
    rng = np.random.default_rng(seed)
    matrix = rng.normal(size=(size, size))
    matrix *= norm / np.linalg.norm(matrix, 2)
    shift = rng.normal(size=size)
    return (lambda x: matrix @ x + shift), np.linalg.solve(np.eye(size) - matrix, shift)


def iterate(memory: Anderson, step, x, rounds: int) -> list[np.ndarray]:
    points = [x]
    for _ in range(rounds):
        points.append(memory.next(points[-1], step(points[-1]) - points[-1]))
    return points


def test_the_first_step_is_the_plain_one():
    x, g = np.array([[1.0, 2.0]]), np.array([[0.5, -0.25]])
    np.testing.assert_array_equal(Anderson(x.shape).next(x, g), x + g)


def combined(xs: np.ndarray, gs: np.ndarray) -> np.ndarray:
    """Return the affine combination of points whose residual is least, from scratch."""
    # min |sum a_j g_j| with sum a_j = 1: eliminate the last.
    a, *_ = np.linalg.lstsq((gs[:-1] - gs[-1]).T, -gs[-1], rcond=None)
    return np.append(a, 1.0 - a.sum()) @ (xs + gs)


@given(seed=st.integers(0, 1000), rounds=st.integers(2, 5))
@settings(max_examples=30, deadline=None)
def test_a_step_is_the_affine_combination_of_least_residual(seed, rounds):
    step, _ = linear_map(12, seed)
    start = np.random.default_rng(seed).normal(size=12)
    points = iterate(Anderson((12,)), step, start, rounds)
    xs = np.array(points[:-1])
    expected = combined(xs, np.array([step(x) - x for x in xs]))
    np.testing.assert_allclose(points[-1], expected, rtol=1e-4, atol=1e-4)


def test_a_linear_map_of_few_dimensions_is_solved_in_as_many_steps():
    step, fixed = linear_map(4, 1)
    points = iterate(Anderson((4,)), step, np.zeros(4), 7)
    assert np.abs(points[-1] - fixed).max() < 1e-6
    plain = np.zeros(4)
    for _ in range(7):
        plain = step(plain)
    assert np.abs(plain - fixed).max() > 1e-3


def test_it_is_never_far_behind_the_plain_iteration_where_that_converges():
    # A map that is not linear: the minimisation of a smooth function with a kink in its gradient.
    def step(x):
        return x - 0.4 * (np.maximum(x, 0.0) * np.array([1.0, 0.05, 2.0]) + 0.1 * (x - 1.0))

    fixed = np.zeros(3)
    for _ in range(5000):
        fixed = step(fixed)
    found = iterate(Anderson((3,)), step, np.full(3, -5.0), 60)[-1]
    np.testing.assert_allclose(found, fixed, atol=1e-8)


def test_a_residual_that_rises_drops_the_memory():
    memory, fresh = Anderson((2,)), Anderson((2,))
    for number in range(3):
        memory.next(np.full(2, float(number)), np.array([1.0, 0.1 * number]))
    x, g = np.array([5.0, 5.0]), np.array([2.5, 0.0])  # more than twice the smallest, 1
    np.testing.assert_array_equal(memory.next(x, g), x + g)
    assert memory.restarts == 1
    # From here on it is as if nothing had been before.
    fresh.next(x, g)
    for number in range(3):
        x, g = np.array([1.0, number]), np.array([0.5 / (1 + number), 0.1 * number])
        np.testing.assert_array_equal(memory.next(x, g), fresh.next(x, g))


def test_a_residual_that_rises_a_little_keeps_it():
    memory = Anderson((2,))
    memory.next(np.zeros(2), np.array([1.0, 0.0]))
    x, g = np.ones(2), np.array([1.5, 0.0])
    assert np.abs(memory.next(x, g) - (x + g)).max() > 0.1
    assert memory.restarts == 0


def test_after_ten_restarts_every_step_is_plain():
    memory = Anderson((1,))
    rng = np.random.default_rng(0)
    size = 1.0
    for _ in range(10):
        memory.next(rng.normal(size=1), np.array([size]))
        size *= 3.0
        memory.next(rng.normal(size=1), np.array([size]))
        size *= 3.0
    assert memory.restarts >= 10
    for _ in range(5):
        x, g = rng.normal(size=1), rng.normal(size=1)
        np.testing.assert_array_equal(memory.next(x, g), x + g)


def test_forgetting_starts_again_and_is_no_restart():
    memory = Anderson((3,))
    step, _ = linear_map(3, 2)
    iterate(memory, step, np.zeros(3), 3)
    memory.forget()
    x, g = np.ones(3), np.full(3, 1e6)
    np.testing.assert_array_equal(memory.next(x, g), x + g)
    assert memory.restarts == 0


@pytest.mark.parametrize("scarce", [False, True])
def test_the_memory_is_bounded_in_steps_and_in_bytes(scarce, monkeypatch):
    if scarce:
        monkeypatch.setattr(anderson, "_MOST_BYTES", 1)
    kept = 1 + (2 if scarce else anderson._MEMORY)
    xs, gs = np.random.default_rng(0).normal(size=(2, 15, 30))
    gs /= np.linalg.norm(gs, axis=1, keepdims=True)  # none rises
    memory = Anderson((30,))
    for x, g in zip(xs, gs, strict=True):
        found = memory.next(x, g)
    np.testing.assert_allclose(found, combined(xs[-kept:], gs[-kept:]), rtol=1e-6, atol=1e-6)
    for other in (kept - 1, kept + 1):
        assert np.abs(found - combined(xs[-other:], gs[-other:])).max() > 1e-3


def test_nothing_to_move_is_no_error():
    memory = Anderson((2, 0))
    for _ in range(3):
        assert memory.next(np.zeros((2, 0)), np.zeros((2, 0))).shape == (2, 0)
    still = Anderson((2,))
    for _ in range(4):
        np.testing.assert_array_equal(still.next(np.ones(2), np.zeros(2)), np.ones(2))


@pytest.mark.parametrize("stop", [1, 4, 12])
def test_a_stored_memory_goes_on_with_the_same_bits(stop):
    step, _ = linear_map(6, 4)
    unbroken = iterate(Anderson((6,)), step, np.zeros(6), 20)
    first = Anderson((6,))
    x = iterate(first, step, np.zeros(6), stop)[-1]
    stored = {name: array.copy() for name, array in first.state().items()}
    second = Anderson((6,))
    second.restore(stored)
    again = iterate(second, step, x, 20 - stop)
    assert again[-1].tobytes() == unbroken[-1].tobytes()
    for name, array in first.state().items():  # copied, not shared
        np.testing.assert_array_equal(stored[name], array)
