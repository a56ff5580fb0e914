from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trellis.privacy.accounting.zcdp import (
    decaying_rho,
    decaying_sigma,
    decaying_start,
    decaying_total,
    decaying_total_of,
    gaussian_rho,
    gaussian_sigma_for_rho,
    paper_decaying_total,
    zcdp_delta,
    zcdp_epsilon,
    zcdp_rho,
)
from trellis.privacy.mechanisms.gaussian import gaussian_epsilon


def renyi_by_integration(order: float, mean: float, sigma: float) -> float:
    """The divergence of the definition between N(mean, sigma^2) and N(0, sigma^2)."""
    x = np.linspace(-30 * sigma, 30 * sigma + order * mean, 400_001)
    log_p, log_q = -0.5 * ((x - mean) / sigma) ** 2, -0.5 * (x / sigma) ** 2
    density = np.exp(order * log_p + (1 - order) * log_q) / (sigma * math.sqrt(2 * math.pi))
    return math.log(np.trapezoid(density, x)) / (order - 1)


def epsilon_by_grid(rho: float, delta: float) -> float:
    """The least over orders, by brute force."""
    a = 1.0 + np.logspace(-6, 8, 400_001)
    return float(np.min(rho * a + np.log1p(-1 / a) + (-math.log(delta) - np.log(a)) / (a - 1)))


@pytest.mark.parametrize("order", [1.5, 2.0, 8.0])
def test_the_rho_of_a_gaussian_meets_the_definition(order):
    rho = gaussian_rho(1.3, 0.4)
    assert renyi_by_integration(order, 0.4, 1.3) == pytest.approx(rho * order, rel=1e-8)


@given(st.floats(1e-6, 1e3), st.floats(1e-6, 1e6))
def test_sigma_and_rho_are_inverse(rho, sensitivity):
    sigma = gaussian_sigma_for_rho(rho, sensitivity)
    assert gaussian_rho(sigma, sensitivity) == pytest.approx(rho, rel=1e-12)


def test_the_total_of_the_paper_and_the_right_one():
    assert decaying_total(0.001, 0.99, 300) == pytest.approx(1.939, abs=1e-3)
    assert paper_decaying_total(0.001, 0.99, 300) == pytest.approx(0.095, abs=5e-4)


@given(st.floats(1e-6, 1.0), st.floats(0.8, 1.0), st.integers(1, 300), st.floats(0.1, 10.0))
def test_the_total_is_the_sum_of_what_the_noise_costs(phi0, zeta, rounds, sensitivity):
    costs = [
        gaussian_rho(decaying_sigma(phi0, zeta, sensitivity, n), sensitivity)
        for n in range(1, rounds + 1)
    ]
    assert costs == pytest.approx([decaying_rho(phi0, zeta, n) for n in range(1, rounds + 1)])
    total = decaying_total(phi0, zeta, rounds)
    assert total == pytest.approx(math.fsum(costs), rel=1e-9)
    assert decaying_total_of(phi0, zeta, range(1, rounds + 1)) == pytest.approx(total, rel=1e-9)
    assert decaying_start(total, zeta, rounds) == pytest.approx(phi0, rel=1e-9)
    assert paper_decaying_total(phi0, zeta, rounds) <= total * (1 + 1e-9)


def test_the_variance_falls_by_zeta_a_round():
    sigmas = [decaying_sigma(0.001, 0.99, 1.0, n) for n in range(3)]
    assert sigmas[1] ** 2 / sigmas[0] ** 2 == pytest.approx(0.99)
    assert sigmas[2] ** 2 / sigmas[1] ** 2 == pytest.approx(0.99)


def test_only_the_rounds_a_client_took_part_in_count():
    expected = 0.001 * (0.99**-3 + 0.99**-200)
    assert decaying_total_of(0.001, 0.99, [200, 3]) == pytest.approx(expected)
    assert decaying_total_of(0.001, 0.99, [3, 200, 3]) == pytest.approx(expected)
    assert decaying_total_of(0.001, 0.99, []) == 0.0
    assert decaying_total(0.001, 0.5, 10_000) == math.inf


@pytest.mark.parametrize("zeta", [1.0, 1 - 1e-16, 1 - 1e-12, 1 - 1e-9])
def test_almost_constant_noise(zeta):
    assert decaying_total(0.01, zeta, 100) == pytest.approx(1.0, rel=1e-6)
    assert paper_decaying_total(0.01, zeta, 100) == pytest.approx(1.0, rel=1e-6)


@pytest.mark.parametrize(("rho", "delta"), [(1.0, 1e-5), (0.01, 1e-6), (20.0, 1e-10), (0.3, 0.1)])
def test_epsilon_is_the_least_over_all_orders(rho, delta):
    assert zcdp_epsilon(rho, delta) == pytest.approx(epsilon_by_grid(rho, delta), rel=1e-6)
    # Bun and Steinke's first conversion is never below
    assert zcdp_epsilon(rho, delta) < rho + 2 * math.sqrt(rho * math.log(1 / delta))
    # what is only Gaussian has a tighter, exact epsilon
    assert gaussian_epsilon(1.0, delta, math.sqrt(2 * rho)) <= zcdp_epsilon(rho, delta)


def test_epsilon_agrees_with_dp_accounting():
    dp_accounting = pytest.importorskip("dp_accounting")
    from dp_accounting.rdp import RdpAccountant

    accountant = RdpAccountant()
    accountant.compose(dp_accounting.SelfComposedDpEvent(dp_accounting.ZCDpEvent(0.01), 100))
    theirs = accountant.get_epsilon(1e-5)
    assert theirs == pytest.approx(7.08, abs=0.01)
    assert zcdp_epsilon(100 * 0.01, 1e-5) == pytest.approx(theirs, rel=0.01)
    assert zcdp_epsilon(1.0, 1e-5) <= theirs  # it looks at some orders only


@settings(deadline=None, max_examples=60)
@given(st.floats(1e-3, 50.0), st.floats(1e-12, 0.5))
def test_rho_and_epsilon_are_inverse_on_the_private_side(epsilon, delta):
    rho = zcdp_rho(epsilon, delta)
    assert zcdp_delta(rho, epsilon) <= delta
    assert zcdp_epsilon(rho, delta) == pytest.approx(epsilon, rel=1e-8)
    assert zcdp_delta(rho * (1 + 1e-6), epsilon) > delta


@settings(deadline=None, max_examples=60)
@given(st.floats(1e-9, 1e3), st.floats(0.0, 1e3), st.floats(0.0, 1.0))
def test_delta_falls_with_epsilon_and_grows_with_rho(rho, epsilon, more):
    delta = zcdp_delta(rho, epsilon)
    assert 0.0 <= delta <= 1.0
    assert zcdp_delta(rho, epsilon + more) <= delta * (1 + 1e-9)
    assert zcdp_delta(rho * (1 + more), epsilon) >= delta * (1 - 1e-9)


def test_the_ends():
    assert zcdp_epsilon(0.0, 1e-5) == 0.0
    assert zcdp_epsilon(math.inf, 1e-5) == math.inf
    assert zcdp_delta(0.0, 0.0) == 0.0
    assert zcdp_delta(math.inf, 1.0) == 1.0
    assert gaussian_rho(0.0, 1.0) == math.inf


@pytest.mark.parametrize(
    ("call", "match"),
    [(lambda: gaussian_rho(-1.0, 1.0), "sigma=-1.0"), (lambda: gaussian_rho(1.0, 0.0), "sensit"),
     (lambda: gaussian_sigma_for_rho(0.0, 1.0), "rho=0.0"),
     (lambda: decaying_sigma(0.0, 0.9, 1.0, 1), "phi0=0.0"),
     (lambda: decaying_total(0.1, 1.5, 1), "zeta=1.5"), (lambda: decaying_rho(0.1, 0.9, -1), "-1"),
     (lambda: decaying_start(1.0, 0.9, 0), "rounds=0"), (lambda: zcdp_rho(0.0, 0.1), "epsilon=0"),
     (lambda: zcdp_epsilon(1.0, 1.0), "delta=1.0"),
     (lambda: zcdp_epsilon(math.nan, 0.1), "rho=nan"),
     (lambda: zcdp_delta(1.0, -1.0), "epsilon=-1.0")],
)  # fmt: skip
def test_out_of_range_is_named(call, match):
    with pytest.raises(ValueError, match=match):
        call()
