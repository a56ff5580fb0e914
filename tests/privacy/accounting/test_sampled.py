"""The account of secretly sampled batches: against numerical divergences and dp-accounting."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trellis.privacy.accounting.events import PrivacyEvent
from trellis.privacy.accounting.sampled import (
    ORDERS,
    ratio_for,
    replace_divergence,
    second_opinions,
    spent,
    spent_by,
)
from trellis.privacy.accounting.totals import pld_epsilon, rdp_epsilon, total_epsilon
from trellis.privacy.accounting.zcdp import zcdp_epsilon


def numerical_divergence(order: float, sampling: float, a: float, b: float) -> float:
    """Return D_order of one sampled release: the record at ``a`` against the record at ``b``."""
    z = np.linspace(-60.0, 60.0, 240_001)

    def law(centre: float) -> np.ndarray:
        bells = [np.exp(-0.5 * (z - c) ** 2) for c in (0.0, centre)]
        return ((1.0 - sampling) * bells[0] + sampling * bells[1]) / math.sqrt(2.0 * math.pi)

    p, q = law(a), law(b)
    known = (p > 0.0) & (q > 0.0)
    terms = order * np.log(p[known]) + (1.0 - order) * np.log(q[known])
    top = terms.max()
    total = np.exp(terms - top).sum() * (z[1] - z[0])
    return float((top + np.log(total)) / (order - 1.0))


@pytest.mark.parametrize("sampling", [0.01, 0.1, 0.5, 0.9])
@pytest.mark.parametrize("ratio", [0.1, 0.5, 1.0, 2.0])
@pytest.mark.parametrize("ends", [(1.0, -1.0), (1.0, 0.0), (0.0, 1.0), (1.0, 0.5), (-0.3, 1.0)])
def test_replacing_a_record_costs_no_more_than_the_bound(sampling, ratio, ends):
    bound = replace_divergence(ratio, sampling)
    for place in (0, 1, 2, 6, 14):
        a, b = (0.5 * ratio * end for end in ends)
        exact = numerical_divergence(float(ORDERS[place]), sampling, a, b)
        assert exact <= bound[place] * (1.0 + 1e-6) + 1e-12


def test_the_bound_is_no_larger_than_needed():
    exact = numerical_divergence(4.0, 0.1, 0.25, -0.25)
    assert replace_divergence(0.5, 0.1)[2] <= 1.25 * exact


def test_without_sampling_it_is_zcdp():
    assert spent(0.3, 7, 1e-5) == zcdp_epsilon(0.5 * 7 * 0.09, 1e-5)
    assert np.array_equal(replace_divergence(0.3, 1.0), 0.5 * ORDERS * 0.09)


def test_epsilon_grows_as_the_root_of_rounds():
    few, many = (spent(0.02, rounds, 1e-5, 0.1) for rounds in (100, 10_000))
    assert 6.0 < many / few < 14.0


@pytest.mark.parametrize("sampling", [1.0, 0.3, 0.05])
@pytest.mark.parametrize("releases", [1, 30, 400])
@pytest.mark.parametrize("epsilon", [0.3, 1.0, 3.0])
def test_a_ratio_spends_what_was_asked_and_no_more(epsilon, releases, sampling):
    ratio = ratio_for(epsilon, 1e-5, releases, sampling)
    found = spent(ratio, releases, 1e-5, sampling)
    assert 0.98 * epsilon < found <= epsilon * (1.0 + 1e-12)
    assert ratio >= ratio_for(epsilon, 1e-5, releases) * (1.0 - 1e-12)


@pytest.mark.parametrize(("releases", "sampling"), [(1, 1.0), (400, 0.1), (50, 0.5)])
def test_other_accountants_agree(releases, sampling):
    ratio = ratio_for(1.0, 1e-5, releases, sampling)
    opinions = second_opinions(ratio, releases, 1e-5, sampling)
    assert opinions["epsilon_rdp"] == pytest.approx(1.0, rel=0.05)
    assert 0.8 < opinions["epsilon_pld"] <= 1.0


def event(name, ratio, sampling=1.0, noisers=9):
    return PrivacyEvent(
        *(name, "a sum", 1, 1.0, 1e-5, 1.0, ratio),
        mechanism="summed-gaussian",
        noisers=noisers,
        sampling=sampling,
    )


def test_totals_of_events_are_those_of_the_releases():
    events = [event(f"r{i}", 0.1, 0.1) for i in range(400)]
    assert total_epsilon(events, 1e-5) == pytest.approx(spent(0.1, 400, 1e-5, 0.1))
    assert rdp_epsilon(events, 1e-5) == pytest.approx(total_epsilon(events, 1e-5), rel=0.05)
    assert pld_epsilon(events, 1e-5) <= total_epsilon(events, 1e-5)
    mixed = [*events, event("whole", 0.2)]
    whole = spent_by({(0.1, 0.1): 400}, 1e-5, 0.5 * 0.04)
    assert total_epsilon(mixed, 1e-5) == pytest.approx(whole)
    assert total_epsilon(mixed, 1e-5) > total_epsilon(events, 1e-5)


def test_pure_releases_beside_sums_add_up_at_most():
    pure = PrivacyEvent("bits", "bits", 1, 0.2, 0.0, mechanism="multi-bit")
    sums = [event("one", ratio_for(0.8, 1e-5))]
    assert total_epsilon([pure, *sums], 1e-5) <= 1.0 + 1e-9


@given(st.floats(0.01, 3.0), st.integers(1, 500), st.floats(0.01, 1.0))
@settings(max_examples=25, deadline=None)
def test_sampling_never_costs_more(ratio, releases, sampling):
    assert spent(ratio, releases, 1e-5, sampling) <= spent(ratio, releases, 1e-5) * (1.0 + 1e-12)


@pytest.mark.parametrize("sampling", [0.0, -0.1, 1.1, math.nan])
def test_wrong_sampling_is_refused(sampling):
    with pytest.raises(ValueError, match="sampling"):
        ratio_for(1.0, 1e-5, 3, sampling)
    with pytest.raises(ValueError, match="sampling"):
        event("e", 0.1, sampling)


def test_events_of_other_mechanisms_have_no_noisers():
    with pytest.raises(ValueError, match="sums"):
        PrivacyEvent("n", "w", 1, 1.0, 1e-5, 1.0, 1.0, "gaussian", noisers=3)


def test_an_event_from_before_sums_is_still_read():
    record = event("e", 0.1, noisers=1).as_record() | {"mechanism": "gaussian"}
    del record["noisers"], record["sampling"]
    assert PrivacyEvent.from_record(record).noisers == 1
