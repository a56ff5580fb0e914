from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from trellis.privacy.accounting.zcdp import zcdp_epsilon, zcdp_rho
from trellis.privacy.mechanisms.discrete import (
    _bernoulli_exp_of,
    _next_digits,
    below,
    discrete_gaussian,
    discrete_gaussian_pmf,
    discrete_laplace,
    discrete_laplace_pmf,
    release_on_grid,
)


class Words:
    """A source of given 64-bit words."""

    def __init__(self, *words: int) -> None:
        self._bytes = b"".join(word.to_bytes(8, "little") for word in words)

    def bytes(self, length):
        out, self._bytes = self._bytes[:length], self._bytes[length:]
        assert len(out) == length, "more words were asked for than expected"
        return out


def fit(draws, pmf) -> float:
    """The p-value of integer draws under a law, with tails pooled to at least 20 a bin."""
    reach = int(np.abs(draws).max()) + 1
    z = np.arange(-reach, reach + 1)
    expected = pmf(z) * draws.size
    core = np.abs(z) <= np.abs(z[expected >= 20]).max()
    counts = np.array([np.sum(draws == k) for k in z[core]])
    tail = draws.size - expected[core].sum()
    observed, wanted = np.append(counts, draws.size - counts.sum()), np.append(expected[core], tail)
    return stats.chisquare(observed, wanted).pvalue


@pytest.mark.parametrize("scale", [1, 3, Fraction(1, 2), Fraction(7, 3), Fraction(22, 5)])
def test_discrete_laplace_has_its_law(scale):
    draws = discrete_laplace(np.random.default_rng(2), 60_000, scale)
    assert draws.dtype == np.int64
    assert fit(draws, lambda z: discrete_laplace_pmf(z, scale)) > 1e-4


@pytest.mark.parametrize("sigma", [1, 5, Fraction(1, 3), Fraction(5, 2), Fraction(12345, 1024)])
def test_discrete_gaussian_has_its_law(sigma):
    draws = discrete_gaussian(np.random.default_rng(4), 60_000, sigma)
    assert draws.dtype == np.int64
    assert fit(draws, lambda z: discrete_gaussian_pmf(z, sigma)) > 1e-4


@pytest.mark.parametrize("sigma", [10**6, Fraction(10**12 + 7, 1024)])
def test_a_wide_discrete_gaussian_is_nearly_normal(sigma):
    draws = discrete_gaussian(np.random.default_rng(6), 50_000, sigma)
    assert stats.kstest(draws / float(sigma), "norm").pvalue > 1e-4


@pytest.mark.parametrize("scale", [Fraction(3, 2), Fraction(5, 1), Fraction(4, 7)])
def test_the_rejection_scheme_of_discrete_laplace_gives_its_law(scale):
    """The law of Algorithm 2 from the laws of its coins: X = U + t V, Y = X // s, a fair sign."""
    t, s = scale.numerator, scale.denominator
    x = np.arange(60 * t)
    weight = np.exp(-(x % t) / t) * np.exp(-(x // t))  # U kept with exp(-U / t), V geometric
    magnitude = np.bincount(x // s, weights=weight)
    both = np.concatenate([magnitude[:0:-1], magnitude]) / (2 * magnitude.sum() - magnitude[0])
    z = np.arange(1 - magnitude.size, magnitude.size)
    np.testing.assert_allclose(both, discrete_laplace_pmf(z, scale), rtol=1e-10, atol=1e-16)


@given(st.integers(1, 50), st.integers(1, 50), st.integers(0, 20), st.integers(-200, 200))
def test_discrete_laplace_is_epsilon_private_exactly(top, bottom, distance, z):
    """Log probabilities are rational, -|z| / scale + constant: the loss in exact arithmetic."""
    scale = Fraction(top, bottom)
    loss = (abs(Fraction(z - distance)) - abs(Fraction(z))) / scale
    assert abs(loss) <= distance / scale
    ratio = discrete_laplace_pmf(z % 7, scale) / discrete_laplace_pmf(z % 7 + 1, scale)
    assert ratio <= math.exp(1 / scale) * (1 + 1e-12)


@pytest.mark.parametrize("sigma", [Fraction(1, 2), 1, 3])
@pytest.mark.parametrize("order", [1.5, 2.0, 10.0])
@pytest.mark.parametrize("distance", [1, 2, 5])
def test_the_renyi_divergence_of_discrete_gaussians_is_that_of_gaussians(sigma, order, distance):
    z = np.arange(-200, 201)
    log_q = -(z**2) / (2 * float(sigma) ** 2)
    log_p = -((z - distance) ** 2) / (2 * float(sigma) ** 2)  # the same normaliser: integers
    total = np.logaddexp.reduce(log_q)
    divergence = np.logaddexp.reduce(order * log_p + (1 - order) * log_q) - total
    bound = order * distance**2 / (2 * float(sigma) ** 2)
    assert divergence / (order - 1) <= bound * (1 + 1e-12)


def test_uniform_integers_are_exact():
    # 2^64 = 6148914691236517205 * 3 + 1: the last word is redrawn, the one before it is kept.
    assert below(Words(2**64 - 1, 5), 3, 1)[0] == 2
    assert below(Words(2**64 - 2), 3, 1)[0] == 2
    assert below(Words(2**64 - 1), 2, 1)[0] == 1
    counts = np.bincount(below(np.random.default_rng(0), 7, 70_000), minlength=7)
    assert stats.chisquare(counts).pvalue > 1e-4


def test_a_tie_of_64_digits_is_decided_by_the_next():
    third = 2**64 // 3  # 1/3 = 0.0101...: every digit is the same, the remainder is always 1
    assert _next_digits(Words(third, third, third - 1), 1, 3)
    assert not _next_digits(Words(third, third, third + 1), 1, 3)
    assert not _next_digits(Words(0, 1), 0, 3)  # a probability that ends: nothing is below it
    which = np.zeros(1, dtype=np.int64)
    # gamma = 1/3, first toss: tie, then below: heads. Second toss above: tails at K = 2, even.
    assert not _bernoulli_exp_of(Words(third, third - 1, 2**64 - 1, 0), [1], 3, which)[0]
    # Tails at K = 1, odd.
    assert _bernoulli_exp_of(Words(third + 1), [1], 3, which)[0]


@pytest.mark.parametrize("gamma", [Fraction(0), Fraction(1, 3), Fraction(1), Fraction(5, 2)])
def test_the_exponential_coin(gamma):
    which = np.zeros(50_000, dtype=np.int64)
    source = np.random.default_rng(8)
    heads = _bernoulli_exp_of(source, [gamma.numerator], gamma.denominator, which).sum()
    assert stats.binomtest(int(heads), 50_000, math.exp(-gamma)).pvalue > 1e-4


@settings(deadline=None, max_examples=40)
@given(
    st.fractions(Fraction(1, 100), 10**9, max_denominator=2000),
    st.integers(0, 50),
    st.integers(0, 10**6),
)
def test_samplers_are_reproducible_and_sized(width, size, seed):
    for sampler in (discrete_gaussian, discrete_laplace):
        one = sampler(np.random.default_rng(seed), size, width)
        assert one.shape == (size,)
        np.testing.assert_array_equal(one, sampler(np.random.default_rng(seed), size, width))
        assert np.all(np.abs(one) <= 60 * float(width) + 60)


@settings(deadline=None, max_examples=40)
@given(
    st.lists(st.floats(-100.0, 100.0), max_size=30),
    st.integers(-20, 3),
    st.floats(0.05, 10.0),
    st.floats(1e-3, 10.0),
)
def test_a_release_is_on_the_grid_and_within_the_budget(values, power, epsilon, sensitivity):
    grid = 2.0**power
    release = release_on_grid(
        values, np.random.default_rng(0), grid=grid, epsilon=epsilon, delta=1e-5,
        sensitivity=sensitivity,
    )  # fmt: skip
    steps = release.values / grid
    np.testing.assert_array_equal(steps, np.rint(steps))
    assert release.rho <= zcdp_rho(epsilon, 1e-5)
    assert zcdp_epsilon(release.rho, 1e-5) <= epsilon * (1 + 1e-9)
    expected = sensitivity + grid * math.sqrt(max(1, len(values)))
    assert release.sensitivity == pytest.approx(expected)
    assert release.rho == pytest.approx(release.sensitivity**2 / (2 * release.sigma**2))


@given(
    st.lists(st.tuples(st.floats(-9, 9), st.floats(-9, 9)), min_size=1, max_size=20),
    st.integers(-6, 2),
)
def test_rounding_adds_no_more_than_was_proved(pairs, power):
    x, y = np.array(pairs).T
    grid = 2.0**power
    moved = np.linalg.norm(np.rint(x / grid) - np.rint(y / grid)) * grid
    assert moved <= np.linalg.norm(x - y) + grid * math.sqrt(x.size) + 1e-12


def test_the_noise_of_a_release_is_what_it_says():
    values = np.full((100, 200), 0.3)
    release = release_on_grid(
        values, np.random.default_rng(1), grid=2.0**-10, epsilon=1.0, delta=1e-5, sensitivity=0.5
    )
    assert release.values.shape == values.shape
    assert release.values.std() == pytest.approx(release.sigma, rel=0.02)
    assert release.values.mean() == pytest.approx(0.3, abs=5 * release.sigma / math.sqrt(20_000))


@pytest.mark.parametrize(
    ("changes", "match"),
    [({"grid": 0.1}, "grid=0.1: must be a power of two, e.g. 0.125"), ({"grid": 0.0}, "grid=0.0"),
     ({"grid": 2.0**-60}, "coarser grid"), ({"values": [math.nan]}, "not finite"),
     ({"values": [0.0], "grid": 2.0**-60}, "coarser grid"), ({"epsilon": 0.0}, "epsilon=0.0"),
     ({"delta": 0.0}, "delta=0.0"), ({"sensitivity": -1.0}, "sensitivity=-1.0")],
)  # fmt: skip
def test_a_release_out_of_range_is_refused(changes, match):
    arguments = {"values": [1.0], "grid": 0.125, "epsilon": 1.0, "delta": 1e-5, "sensitivity": 1.0}
    arguments |= changes
    with pytest.raises(ValueError, match=match):
        release_on_grid(arguments.pop("values"), np.random.default_rng(0), **arguments)


@pytest.mark.parametrize("sampler", [discrete_gaussian, discrete_laplace])
def test_a_width_that_is_not_exact_is_refused(sampler):
    source = np.random.default_rng(0)
    with pytest.raises(TypeError, match=r"=1\.5: must be an int or a Fraction"):
        sampler(source, 1, 1.5)
    with pytest.raises(ValueError, match="=0: must be > 0"):
        sampler(source, 1, 0)
    with pytest.raises(ValueError, match="size=-1"):
        sampler(source, -1, 1)
