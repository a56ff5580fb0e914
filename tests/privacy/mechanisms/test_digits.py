from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from trellis.privacy.mechanisms.digits import (
    _POWERS,
    _exp_digits,
    _Uniform,
    exponential_coins,
    geometric,
    quick_discrete_gaussian,
)
from trellis.privacy.mechanisms.discrete import discrete_gaussian_pmf

from .test_discrete import Words, fit


@pytest.mark.parametrize("sigma", [1, 5, Fraction(1, 3), Fraction(5, 2), Fraction(12345, 1024)])
def test_it_has_the_law_of_the_discrete_gaussian(sigma):
    draws = quick_discrete_gaussian(np.random.default_rng(4), 60_000, sigma)
    assert draws.dtype == np.int64
    assert fit(draws, lambda z: discrete_gaussian_pmf(z, sigma)) > 1e-4


@pytest.mark.parametrize("sigma", [10**6, Fraction(10**12 + 7, 1024), 2**43])
def test_a_wide_one_is_nearly_normal(sigma):
    draws = quick_discrete_gaussian(np.random.default_rng(6), 50_000, sigma)
    assert stats.kstest(draws / float(sigma), "norm").pvalue > 1e-4


@settings(deadline=None)
@given(
    st.fractions(Fraction(1, 1024), 10**9, max_denominator=2000),
    st.integers(0, 50),
    st.integers(0, 10**6),
)
def test_it_is_reproducible_and_sized(width, size, seed):
    one = quick_discrete_gaussian(np.random.default_rng(seed), size, width)
    assert one.shape == (size,)
    np.testing.assert_array_equal(
        one, quick_discrete_gaussian(np.random.default_rng(seed), size, width)
    )


@pytest.mark.parametrize("gamma", [Fraction(0), Fraction(1, 3), Fraction(1), Fraction(5, 2)])
def test_the_exponential_coin(gamma):
    floats = np.full(50_000, float(gamma))
    heads = exponential_coins(np.random.default_rng(8), floats, lambda i: gamma).sum()
    assert stats.binomtest(int(heads), 50_000, math.exp(-gamma)).pvalue > 1e-4


@pytest.mark.parametrize("gamma", [Fraction(1, 3), Fraction(7), Fraction(200), Fraction(3000)])
def test_a_float_that_cannot_decide_asks_for_more_digits(gamma):
    """A word with the very digits of exp(-gamma): the next word decides, below or above."""
    digits = _exp_digits(gamma, 256)[0] + 1
    whole = [digits >> shift & (2**64 - 1) for shift in (192, 128, 64)]
    below, above = [*whole[:2], whole[2] - 9], [*whole[:2], whole[2] + 9]
    if not whole[2]:  # nothing is below a probability whose first 192 digits are zeros
        below = []
    for told, expected in ((below, True), (above, False)):
        if told:
            coin = exponential_coins(Words(*told), np.array([float(gamma)]), lambda i: gamma)
            assert coin[0] == expected


def test_probability_one_is_always_heads():
    assert exponential_coins(Words(2**64 - 1), np.zeros(1), lambda i: Fraction(0))[0]


@settings(deadline=None)
@given(st.fractions(0, 60, max_denominator=10**6), st.integers(0, 2**64 - 1))
def test_coins_in_floats_are_those_in_exact_arithmetic(gamma, word):
    exact = _Uniform(Words(5, 5, 5), word).is_below_exp(gamma)
    coin = exponential_coins(Words(word, 5, 5, 5), np.array([float(gamma)]), lambda i: gamma)
    assert coin[0] == exact


@settings(deadline=None)
@given(st.integers(0, 2**64 - 1))
def test_geometric_counts_in_words_are_those_in_exact_arithmetic(word):
    uniform, expected = _Uniform(Words(7, 7, 7), word), 0
    while uniform.is_below_exp(Fraction(expected + 1)):
        expected += 1
    assert geometric(Words(word, 7, 7, 7), 1)[0] == expected


def test_geometric_ties_are_decided_by_the_next_word():
    for v in (1, 2, 30, 44):
        word = int(_POWERS[-v])
        assert word == math.floor(Fraction(_exp_digits(Fraction(v), 256)[0], 2**192))
        assert geometric(Words(word, 0), 1)[0] == v
        assert geometric(Words(word, 2**64 - 1), 1)[0] == v - 1
    assert geometric(Words(0, 2**64 - 1), 1)[0] == 44


def test_the_geometric_law():
    draws = geometric(np.random.default_rng(3), 60_000)
    counts = np.bincount(np.minimum(draws, 6), minlength=7)
    law = np.array([math.exp(-v) * (1.0 - math.exp(-1.0)) for v in range(6)] + [math.exp(-6.0)])
    assert stats.chisquare(counts, law * draws.size).pvalue > 1e-4


def test_sixty_draws_take_less_than_a_millisecond():
    import timeit

    source, sigma = np.random.default_rng(0), Fraction(30_001 * 1024 + 3, 1024)
    best = min(timeit.repeat(lambda: quick_discrete_gaussian(source, 60, sigma), number=5))
    assert best / 5 < 2e-3  # 0.25 ms on a quiet core


def test_a_size_below_zero_is_refused():
    with pytest.raises(ValueError, match="size=-1"):
        quick_discrete_gaussian(np.random.default_rng(0), -1, 3)
