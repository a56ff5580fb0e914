"""Iterates that run away are seen; those that settle are not taken for it."""

from __future__ import annotations

import numpy as np
import pytest

from trellis.strategies.cluster_admm.divergence import DivergenceWatch


def first_alarm(iterates) -> int:
    """Return the iteration at which the watch speaks up, 0 for never."""
    watch = DivergenceWatch()
    before = np.zeros_like(iterates[0])
    for n, now in enumerate(iterates, start=1):
        if watch.diverges(now, before, n):
            return n
        before = now
    return 0


def test_an_explosion_is_seen_at_once():
    assert first_alarm([np.full(3, 2.0**n) for n in range(100)]) == 20  # 2^19 / 2^9 = 1024


def test_what_is_not_finite_is_seen_in_any_round():
    assert first_alarm([np.ones(2), np.array([1.0, np.nan])]) == 2


@pytest.mark.parametrize("rate", [1.005, 1.02])
def test_slow_growth_is_seen_within_two_hundred_rounds(rate):
    swings = [np.array([rate**n, -(rate**n)]) * (-1) ** n for n in range(300)]
    assert 100 <= first_alarm(swings) <= 200


def test_what_settles_is_left_alone():
    rng = np.random.default_rng(1)
    falling = [np.full(4, 5.0 - 5.0 * 0.97**n) for n in range(600)]
    noisy = [np.ones(4) + rng.standard_normal(4) for _ in range(600)]
    quiet = [np.ones(4) + 1e-13 * 1.005**n * rng.standard_normal(4) for n in range(600)]
    assert [first_alarm(way) for way in (falling, noisy, quiet)] == [0, 0, 0]


def test_a_watch_goes_on_from_its_memory():
    swings = [np.array([1.01**n]) * (-1) ** n for n in range(300)]
    whole = first_alarm(swings)
    watch, before = DivergenceWatch(), np.zeros(1)
    for n in range(1, 61):
        watch.diverges(swings[n - 1], before, n)
        before = swings[n - 1]
    resumed = DivergenceWatch()
    resumed.memory = watch.memory.copy()
    for n in range(61, whole + 1):
        seen = resumed.diverges(swings[n - 1], before, n)
        before = swings[n - 1]
    assert seen


def test_very_slow_growth_is_seen_in_longer_windows():
    swings = [np.array([1.0005**n, -(1.0005**n)]) * (-1) ** n for n in range(2500)]
    assert 400 <= first_alarm(swings) <= 2400


def test_a_stir_that_comes_to_its_full_length_is_left_alone():
    # Noise that adds up and is forgotten slowly: ways and lengths grow for long, to a limit.
    rng = np.random.default_rng(2)
    stir, iterates = np.zeros(200), []
    for n in range(3000):
        stir = 0.998 * stir + (1.0 - 0.998**n) * rng.standard_normal(200)
        iterates.append(np.ones(200) + 0.3 * stir)
    lengths = [np.linalg.norm(np.concatenate(iterates[a : a + 25])) for a in (25, 125, 2900)]
    assert lengths[0] < lengths[1] < lengths[2]
    assert first_alarm(iterates) == 0
