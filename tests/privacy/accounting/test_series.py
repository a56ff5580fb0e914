"""Releases that are alike take the room of one, and count as many."""

from __future__ import annotations

import json
import sys
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trellis.privacy.accounting.events import PrivacyEvent
from trellis.privacy.accounting.ledger import Ledger
from trellis.privacy.accounting.series import Series, every, releases, split
from trellis.privacy.accounting.totals import total_epsilon, total_rho

ONE = PrivacyEvent(
    "round 1, sum-gradients-1-1", "gradients", 1, 0.1, 1e-5, 3.7, 0.3, "summed-gaussian", 4, 0.2
)


def at(number, **changes):
    """Return the release of one round."""
    return replace(ONE, name=f"round {number}, sum-gradients-{number}-1", round=number, **changes)


def test_numbers_are_told_from_tokens():
    assert split("round 17, sum-x-18-1") == (("round ", ", sum-x-", "-", ""), (17, 18, 1))
    for name in ("statistic", "007", "embedding-1f2e", "a1", "9" * 16):
        assert split(name) == ((name,), ())


def test_ten_thousand_alike_take_the_room_of_one():
    ledger = Ledger("dp")
    for number in range(1, 10_001):
        ledger.commit("a", at(number))
    (one,) = ledger.series("a")
    assert one.times == 10_000
    assert len(json.dumps(ledger.state_dict())) < 600
    assert ledger.events("a") == [at(number) for number in range(1, 10_001)]
    (entry,) = ledger.report(["a"], {})["clients"]
    assert len(entry["events"]) == 1
    assert releases(entry["events"]) == 10_000
    assert list(every(entry["events"]))[4321] == at(4322)
    # To the bit what every release by itself adds up to.
    assert entry["epsilon"] == total_epsilon([at(n) for n in range(1, 10_001)], ledger.delta)
    assert entry["rho"] == total_rho([at(n) for n in range(1, 10_001)])


def test_a_release_of_a_series_is_known_by_its_name():
    ledger = Ledger("dp")
    for number in (3, 4, 5, 9, 11, 13, 7):
        ledger.commit("a", at(number))
    for number in (3, 4, 5, 9, 11, 13, 7):
        ledger.commit("a", at(number))  # again: counts once
        with pytest.raises(ValueError, match="before with other numbers"):
            ledger.commit("a", at(number, sigma=9.0))
        with pytest.raises(ValueError, match="before with other numbers"):
            ledger.commit("a", replace(at(number), round=number + 1))
    assert [event.round for event in ledger.events("a")] == [3, 4, 5, 9, 11, 13, 7]
    assert [one.times for one in ledger.series("a")] == [3, 3, 1]


@given(
    st.lists(
        st.tuples(st.integers(0, 12), st.integers(1, 3), st.sampled_from(["x", "y"])), max_size=40
    ),
    st.integers(0, 40),
)
def test_a_ledger_is_a_list_without_repetition(drawn, cut):
    """In whatever order names come, and with a checkpoint anywhere between."""
    ledger, plain = Ledger("dp"), dict[str, PrivacyEvent]()
    for place, (number, sigma, what) in enumerate(drawn):
        if place == cut:
            state = json.loads(json.dumps(ledger.state_dict()))
            ledger = Ledger("dp")
            ledger.load_state_dict(state)
        event = replace(at(number, sigma=float(sigma)), name=f"{what} {number}", what=what)
        if plain.setdefault(event.name, event) == event:
            ledger.commit("a", event)
        else:
            with pytest.raises(ValueError, match="other numbers"):
                ledger.commit("a", event)
    assert ledger.events("a") == list(plain.values())


def test_a_short_series_is_listed_one_by_one():
    ledger = Ledger("dp")
    for number in range(1, 101):
        ledger.commit("a", at(number))
    (entry,) = ledger.report(["a"], {})["clients"]
    assert entry["events"] == [at(number).as_record() for number in range(1, 101)]


def test_a_checkpoint_of_the_version_before_is_read():
    events = {"a": [at(number).as_record() for number in range(1, 6)]}
    ledger = Ledger("dp")
    ledger.load_state_dict({"version": 2, "mode": "dp", "events": events})
    assert ledger.events("a") == [at(number) for number in range(1, 6)]
    assert len(ledger.series("a")) == 1


@pytest.mark.parametrize("steps", [[1, 1], [0, 0, 0, 1], [1, -1, 0, 1], []])
def test_a_series_of_nonsense_is_refused(steps):
    with pytest.raises(ValueError, match="not a series"):
        Series.from_record({**ONE.as_record(), "times": 3, "steps": steps})


def test_an_event_has_no_dictionary():
    assert sys.getsizeof(ONE) < 160
    assert not hasattr(ONE, "__dict__")
