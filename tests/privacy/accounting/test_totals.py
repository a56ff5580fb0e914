from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trellis.privacy.accounting.events import PrivacyEvent
from trellis.privacy.accounting.totals import (
    pld_epsilon,
    rdp_epsilon,
    total_epsilon,
    total_rho,
    total_zcdp_epsilon,
)
from trellis.privacy.mechanisms.gaussian import gaussian_sigma


def gaussian(ratio: float, name: str = "g", mechanism: str = "gaussian") -> PrivacyEvent:
    return PrivacyEvent(name, "x", 0, 1.0, 1e-5, 1.0 / ratio, 1.0, mechanism)


def pure(epsilon: float, name: str = "p", mechanism: str = "laplace") -> PrivacyEvent:
    return PrivacyEvent(name, "x", 0, epsilon, 0.0, mechanism=mechanism)


def test_a_hundred_events_of_a_hundredth_zcdp():
    events = [gaussian(math.sqrt(0.02), f"{i}") for i in range(100)]
    assert total_rho(events) == pytest.approx(1.0)
    assert rdp_epsilon(events, 1e-5) == pytest.approx(7.08, abs=0.01)
    assert total_zcdp_epsilon(events, 1e-5) == pytest.approx(7.08, abs=0.02)
    # Gaussians compose exactly, which is less; privacy loss distributions agree.
    assert total_epsilon(events, 1e-5) == pytest.approx(6.57297, abs=1e-4)
    assert pld_epsilon(events, 1e-5) == pytest.approx(6.57297, abs=1e-3)


def test_one_calibrated_release_totals_its_epsilon():
    for epsilon in (0.1, 1.0, 5.0):
        sigma = gaussian_sigma(epsilon, 1e-6, 3.0)
        event = PrivacyEvent("a", "x", 0, epsilon, 1e-6, sigma, 3.0)
        assert total_epsilon([event], 1e-6) == pytest.approx(epsilon, abs=1e-9)


def test_pure_releases_add_up():
    assert total_epsilon([pure(0.5), pure(0.25, "q")], 1e-5) == pytest.approx(0.75, abs=1e-6)
    # Many of them by concentration: less than the sum.
    many = [pure(0.01, f"{i}") for i in range(1000)]
    assert total_epsilon(many, 1e-5) < 2.0
    assert rdp_epsilon(many, 1e-5) < 2.0
    assert pld_epsilon(many, 1e-5) <= total_epsilon(many, 1e-5) + 1e-6


def test_nothing_released_costs_nothing():
    assert total_epsilon([], 1e-5) == rdp_epsilon([], 1e-5) == pld_epsilon([], 1e-5) == 0.0


@settings(max_examples=25, deadline=None)
@given(
    st.lists(st.floats(0.02, 0.5), min_size=1, max_size=4),
    st.lists(st.floats(0.01, 0.5), max_size=3),
)
def test_our_total_is_never_below_what_loss_distributions_allow(ratios, epsilons):
    events = [gaussian(r, f"g{i}") for i, r in enumerate(ratios)]
    events += [pure(e, f"p{i}", "multi-bit") for i, e in enumerate(epsilons)]
    ours = total_epsilon(events, 1e-5)
    # Privacy loss distributions are tight up to their discretisation: no valid bound is smaller,
    # where the worst pure mechanism is the one that was used.
    assert ours >= pld_epsilon(events, 1e-5) - 1e-3
    more = total_epsilon([*events, gaussian(0.1, "more")], 1e-5)
    assert more > ours


def test_a_discrete_gaussian_is_counted_by_zcdp():
    one = gaussian(0.3, mechanism="discrete-gaussian")
    assert total_epsilon([one], 1e-5) == pytest.approx(total_zcdp_epsilon([one], 1e-5))
    assert total_epsilon([one], 1e-5) > total_epsilon([gaussian(0.3)], 1e-5)


@pytest.mark.parametrize(
    "changes",
    [{"mechanism": "magic"}, {"delta": 0.0}, {"sigma": 0.0}, {"epsilon": math.nan},
     {"mechanism": "laplace"}, {"sensitivity": -1.0}],
)  # fmt: skip
def test_an_event_that_does_not_add_up_is_refused(changes):
    record = {**gaussian(1.0).as_record(), **changes}
    with pytest.raises(ValueError, match=r"must be|use gaussian"):
        PrivacyEvent.from_record(record)
