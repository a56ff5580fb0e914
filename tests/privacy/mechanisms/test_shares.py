"""Shares of noise: their exact law in small cases, the bound that is claimed, an audit."""

from __future__ import annotations

import math
from fractions import Fraction
from functools import reduce

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trellis.privacy.mechanisms.discrete import discrete_gaussian_pmf
from trellis.privacy.mechanisms.noise import fresh_noise
from trellis.privacy.mechanisms.shares import (
    LEAST_STEPS,
    MOST_STEPS,
    Together,
    plan_share,
    simulated_sum_noise,
    summed_ratio,
)

FAR = 400


def law_of_sum(steps: float, shares: int) -> np.ndarray:
    """Return P[Z = z], z = -FAR..FAR, of a sum of shares, by enumeration."""
    one = discrete_gaussian_pmf(np.arange(-FAR, FAR + 1), Fraction(steps))
    return reduce(lambda a, b: np.convolve(a, b, mode="same"), [one] * shares)


def renyi(p: np.ndarray, q: np.ndarray, order: float) -> float:
    known = (p > 1e-290) & (q > 1e-290)
    terms = order * np.log(p[known]) + (1.0 - order) * np.log(q[known])
    top = terms.max()
    return float(top + np.log(np.exp(terms - top).sum())) / (order - 1.0)


@pytest.mark.parametrize("steps", [0.5, 0.7, 1.0, 2.5, 4.0])
@pytest.mark.parametrize("shares", [1, 2, 3, 5])
@pytest.mark.parametrize("shift", [1, 3, 8])
def test_no_renyi_divergence_of_the_enumerated_sum_exceeds_the_bound(steps, shares, shift):
    law = law_of_sum(steps, shares)
    moved = np.roll(law, shift)
    ratio = summed_ratio(steps, float(shift), shares, 1)
    for order in (1.25, 2.0, 4.0, 10.0):
        # Far tails are beyond floats: look where both laws are known.
        assert renyi(moved, law, order) <= 0.5 * order * ratio**2 * (1.0 + 1e-9) + 1e-12


@pytest.mark.parametrize("steps", [0.5, 0.8])
def test_a_plain_gaussian_would_not_bound_narrow_shares(steps):
    """The term tau is needed: without it the claim is wrong for shares below a grid step."""
    law = law_of_sum(steps, 2)
    worst = max(
        renyi(np.roll(law, shift), law, 1.5) / (0.75 * (shift / (math.sqrt(2) * steps)) ** 2)
        for shift in (1, 2, 3)
    )
    assert worst > 1.0 + 1e-6


def test_wider_shares_of_others_only_help():
    narrow, wide = law_of_sum(2.0, 1), law_of_sum(3.5, 1)
    same = np.convolve(narrow, narrow, mode="same")
    mixed = np.convolve(narrow, wide, mode="same")
    for order in (1.5, 3.0, 8.0):
        assert renyi(np.roll(mixed, 4), mixed, order) < renyi(np.roll(same, 4), same, order)


@given(
    bits=st.integers(0, 40),
    ratio=st.floats(1e-3, 100.0),
    sensitivity=st.floats(1e-3, 1e3),
    size=st.integers(1, 10_000),
    noisers=st.integers(1, 1000),
)
@settings(max_examples=200, deadline=None)
def test_a_plan_keeps_its_ratio_after_rounding(bits, ratio, sensitivity, size, noisers):
    try:
        share = plan_share(bits, ratio, sensitivity, size, noisers)
    except ValueError:
        assert sensitivity * 2.0**bits / (math.sqrt(noisers) * ratio) > MOST_STEPS / 4.0
        return
    assert share.ratio <= ratio * (1.0 + 1e-9)
    assert share.steps >= LEAST_STEPS
    # What the caller states, in steps, and half a step of rounding on either side per entry.
    assert share.bound >= sensitivity * 2.0**bits + math.sqrt(size)
    assert share.sigma == pytest.approx(math.sqrt(noisers) * share.width)
    assert share.sensitivity / share.sigma == pytest.approx(share.ratio)


def test_rounding_is_counted_twice_where_the_ratio_is_halved():
    one, two = (plan_share(4, 0.5, 1.0, 100, 3, sampled=s) for s in (False, True))
    assert two.bound - one.bound == pytest.approx(10.0, rel=1e-6)


@pytest.mark.parametrize(
    "wrong",
    [
        {"ratio": 0.0},
        {"ratio": math.inf},
        {"sensitivity": math.nan},
        {"noisers": 0},
        {"size": 0},
        {"sensitivity": 1e40},
    ],
)
def test_what_cannot_be_planned_is_refused(wrong):
    given = {"ratio": 1.0, "sensitivity": 1.0, "size": 3, "noisers": 2} | wrong
    with pytest.raises(ValueError, match=r"must be|grid steps"):
        plan_share(32, **given)


def test_shares_add_up_to_the_noise_that_is_claimed():
    share = plan_share(8, 0.5, 1.0, 4000, 16)
    total = sum(share.draw(np.random.default_rng(i)) for i in range(16)) * share.grid
    assert np.std(total) == pytest.approx(share.sigma, rel=0.05)
    at_once = simulated_sum_noise(np.random.default_rng(5), share, 16)
    assert np.std(at_once) == pytest.approx(share.sigma, rel=0.05)
    assert np.all(at_once / share.grid == np.rint(at_once / share.grid))


def test_more_clients_than_counted_on_are_excess():
    share = plan_share(8, 0.5, 1.0, 4000, 16)
    found = simulated_sum_noise(np.random.default_rng(2), share, 64)
    assert np.std(found) == pytest.approx(2.0 * share.sigma, rel=0.05)


def test_audit_of_the_sum_with_colluders_taken_out():
    """One record changed, all inputs known, the colluders' noise subtracted: epsilon holds.

    And the audit can fail: with the noise of half the honest clients only, it does.
    """
    from trellis.privacy.accounting.sampled import ratio_for, spent

    delta, draws, colluding = 1e-2, 40_000, 2
    ratio = ratio_for(1.0, delta)

    def audited(honest: int, planned: int) -> float:
        share = plan_share(6, ratio, 1.0, 1, planned)
        source = fresh_noise()
        noise = sum(share_of(share, draws, source) for _ in range(honest)) * share.grid
        with_record, without = noise + 1.0, noise
        # The best test of two shifted bells is a threshold.
        best = 0.0
        for cut in np.linspace(-1.0, 4.0, 26) * share.sigma:
            a, b = np.mean(with_record > cut), np.mean(without > cut)
            low, high = a - 3.5 * math.sqrt(a / draws), b + 3.5 * math.sqrt(max(b, 1e-4) / draws)
            if low > delta:
                best = max(best, math.log((low - delta) / high))
        return best

    honest = 8
    assert audited(honest, honest) <= spent(ratio, 1, delta) + 1e-9
    assert audited(honest, honest + colluding) > 0.0
    assert audited(1, 40) > 1.0


def share_of(share, draws, source):
    from dataclasses import replace

    return replace(share, size=draws).draw(source)


@pytest.mark.parametrize("few", [1, 2, 6, 9, 10])
def test_a_wider_share_makes_up_for_those_that_are_not_counted_on(few):
    share = plan_share(20, 0.3, 1.0, 4, 10)
    own = share.counting_on(few)
    whole = float(own.steps) ** 2 + (few - 1) * float(share.steps) ** 2
    assert whole >= 10 * float(share.steps) ** 2
    assert whole == pytest.approx(10 * float(share.steps) ** 2, rel=1e-3)
    with pytest.raises(ValueError, match="few=11"):
        share.counting_on(11)


@pytest.mark.parametrize("bits", [8, 20, 32])
@pytest.mark.parametrize("size", [1, 1000])
def test_clients_with_needs_of_their_own_plan_one_share(bits, size):
    """Sensitivities and ratios differ: the share is the same, and enough for each."""
    needs = [(0.5, 0.3, True), (0.2, 0.1, False), (0.05, 0.1, False), (0.01, 2.0, True)]
    most = max(sensitivity / ratio for sensitivity, ratio, _ in needs) * (1.0 + 1e-9)
    together = Together(most, min(ratio for _, ratio, _ in needs))
    steps = set()
    for sensitivity, ratio, sampled in needs:
        own = plan_share(bits, ratio, sensitivity, size, 5, sampled=sampled)
        share = together.plan(bits, ratio, sensitivity, size, 5, sampled=sampled)
        steps.add(share.steps)
        assert share.steps >= own.steps
        assert share.bound == own.bound
        assert share.ratio <= own.ratio <= ratio * (1.0 + 1e-9)
    assert len(steps) == 1
    with pytest.raises(ValueError, match="where this client needs"):
        Together(0.99 * most, together.ratio).plan(32, *needs[1][1::-1], 1, 5)
