from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import norm

from trellis.privacy.accounting.composition import kairouz_composition
from trellis.privacy.mechanisms.gaussian import (
    classic_gaussian_sigma,
    gaussian_delta,
    gaussian_epsilon,
    gaussian_sigma,
)


def delta_by_integration(sigma: float, epsilon: float, sensitivity: float) -> float:
    """The hockey-stick divergence of the definition, by quadrature."""
    x = np.linspace(-40 * sigma, 40 * sigma + sensitivity, 2_000_001)
    density, shifted = norm.pdf(x, sensitivity, sigma), norm.pdf(x, 0.0, sigma)
    return float(np.trapezoid(np.maximum(density - np.exp(epsilon) * shifted, 0.0), x))


@pytest.mark.parametrize(("epsilon", "delta"), [(0.1, 1e-3), (1.0, 1e-5), (4.0, 1e-2), (8.0, 1e-5)])
def test_sigma_meets_the_definition(epsilon, delta):
    sigma = gaussian_sigma(epsilon, delta, 2.5)
    assert delta_by_integration(sigma, epsilon, 2.5) == pytest.approx(delta, rel=1e-5)


@settings(deadline=None)
@given(st.floats(1e-3, 50.0), st.floats(1e-12, 0.5), st.floats(1e-6, 1e6))
def test_sigma_and_epsilon_are_inverse(epsilon, delta, sensitivity):
    sigma = gaussian_sigma(epsilon, delta, sensitivity)
    assert gaussian_delta(sigma, epsilon, sensitivity) <= delta
    assert gaussian_epsilon(sigma, delta, sensitivity) == pytest.approx(epsilon, abs=1e-9, rel=1e-9)
    # The smallest such sigma: a billionth less is not enough.
    assert gaussian_delta(sigma * (1 - 1e-8), epsilon, sensitivity) > delta


def test_the_known_value():
    assert gaussian_sigma(1.0, 1e-5, 1.0) == pytest.approx(3.7306, abs=5e-5)
    assert gaussian_sigma(1.0, 1e-5, 7.0) == pytest.approx(7 * 3.730631634816, abs=1e-9)


def test_it_needs_less_noise_than_the_classic_formula():
    for epsilon in (0.1, 0.5, 1.0):
        assert gaussian_sigma(epsilon, 1e-5, 1.0) < classic_gaussian_sigma(epsilon, 1e-5, 1.0)
    # and the classic one is not private for large epsilon
    assert gaussian_delta(classic_gaussian_sigma(50.0, 1e-10, 1.0), 50.0, 1.0) > 1e-10


def test_no_noise_is_no_privacy_and_much_noise_is_all():
    assert gaussian_epsilon(0.0, 1e-5, 1.0) == math.inf
    assert gaussian_epsilon(1e9, 1e-5, 1.0) == 0.0


@pytest.mark.parametrize(
    ("arguments", "key"),
    [((0.0, 0.1, 1.0), "epsilon"), ((1.0, 0.0, 1.0), "delta"), ((1.0, 1.0, 1.0), "delta"),
     ((1.0, 0.1, 0.0), "sensitivity"), ((1.0, 0.1, math.inf), "sensitivity"),
     ((math.nan, 0.1, 1.0), "epsilon")],
)  # fmt: skip
def test_out_of_range_is_named(arguments, key):
    with pytest.raises(ValueError, match=key):
        gaussian_sigma(*arguments)


def test_composition_32():
    epsilon, delta = kairouz_composition([0.1] * 8, [1e-6] * 8, 0.0)
    assert epsilon == pytest.approx(0.8)
    assert delta == pytest.approx(8e-6, rel=1e-3)
    # For many releases the slack pays: O(sqrt(T)) instead of T.
    many, _ = kairouz_composition([0.01] * 10_000, [0.0] * 10_000, 1e-5)
    drift = 10_000 * 0.01 * math.expm1(0.01) / (math.exp(0.01) + 1)
    square = 10_000 * 0.01**2
    assert many == pytest.approx(
        min(drift + math.sqrt(2 * square * math.log(1e5)),
            drift + math.sqrt(2 * square * math.log(math.e + math.sqrt(square) / 1e-5)))
    )  # fmt: skip
    assert many < 100
