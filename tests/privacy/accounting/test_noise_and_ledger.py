from __future__ import annotations

import numpy as np
import pytest
from flwr.app import ConfigRecord
from scipy import stats

from trellis.privacy.accounting.events import PrivacyEvent
from trellis.privacy.accounting.ledger import Ledger
from trellis.privacy.mechanisms.gaussian import gaussian_sigma
from trellis.privacy.mechanisms.noise import SecretNoise, fresh_noise


def event(name="statistic", epsilon=1.0, delta=1e-5, **changes) -> PrivacyEvent:
    sigma = gaussian_sigma(epsilon, delta, 0.5)
    return PrivacyEvent(name, "a mean", 0, epsilon, delta, sigma, 0.5, **changes)


def test_secret_noise_is_standard_normal():
    draws = SecretNoise(bytes(range(32))).standard_normal(200_001)
    assert draws.shape == (200_001,)
    assert stats.kstest(draws, "norm").pvalue > 1e-3
    half = draws.size // 2  # the two halves share their radii: they must not share more
    assert abs(np.corrcoef(draws[:half], draws[half : 2 * half])[0, 1]) < 0.01
    assert stats.kstest(draws[:1000] * draws[half : half + 1000], "norm").pvalue < 1e-3


def test_one_key_one_stream_and_the_stream_goes_on():
    one, two = SecretNoise(bytes(32)), SecretNoise(bytes(32))
    first = one.standard_normal(10)
    np.testing.assert_array_equal(first, two.standard_normal(10))
    assert not np.allclose(first, one.standard_normal(10))


def test_fresh_noise_is_never_the_same():
    assert not np.allclose(fresh_noise().standard_normal(5), fresh_noise().standard_normal(5))


def test_a_key_of_the_wrong_length_is_refused():
    with pytest.raises(ValueError, match="31 bytes"):
        SecretNoise(bytes(31))


def test_a_release_reported_twice_counts_once():
    ledger = Ledger("dp")
    ledger.commit("a", event())
    ledger.commit("a", event())
    assert len(ledger.events("a")) == 1
    assert ledger.total("a") == pytest.approx((1.0, 1e-5), abs=1e-9)
    assert ledger.total("b") == (0.0, 0.0)


def test_several_releases_compose():
    ledger = Ledger("dp")
    ledger.commit("a", event("one"))
    ledger.commit("a", event("two"))
    with pytest.raises(ValueError, match="with other numbers"):
        ledger.commit("a", event("one", epsilon=3.0))
    assert 1.4 < ledger.total("a")[0] < 2.0
    entry = ledger.report(["a"], {})["clients"][0]
    assert entry["epsilon_pld"] == pytest.approx(entry["epsilon"], abs=1e-3)
    assert entry["epsilon_rdp"] > entry["epsilon"]
    assert entry["rho"] > 0.0


def test_a_client_cannot_drown_the_account(monkeypatch):
    monkeypatch.setattr("trellis.privacy.accounting.ledger._MOST_EVENTS", 3)
    ledger = Ledger("dp")
    for number in range(3):
        ledger.commit("a", event(f"{number}"))
    with pytest.raises(ValueError, match="more than 3 releases"):
        ledger.commit("a", event("4"))
    ledger.commit("a", event("2"))


def test_a_release_without_privacy_is_refused():
    with pytest.raises(ValueError, match="in a run without privacy"):
        Ledger("none").commit("a", event())


@pytest.mark.parametrize(
    "changes",
    [{"sigma": float("nan")}, {"sigma": 0.0}, {"sensitivity": float("inf")}, {"epsilon": -1.0},
     {"delta": 2.0}, {"what": "x" * 10_000}],
)  # fmt: skip
def test_an_event_of_nonsense_is_refused(changes):
    with pytest.raises(ValueError, match=r"must be|at most"):
        PrivacyEvent.from_record({**event().as_record(), **changes})


def test_the_total_comes_from_the_noise_not_from_the_claim():
    ledger = Ledger("dp")
    honest = event()
    ledger.commit("a", PrivacyEvent("statistic", "x", 0, 1.0, 1e-5, honest.sigma / 2, 0.5))
    assert ledger.total("a")[0] > 1.9


def test_events_survive_a_config_record_and_nonsense_does_not():
    record = ConfigRecord(event().as_record())
    assert PrivacyEvent.from_record(dict(record)) == event()
    with pytest.raises(ValueError, match="not a privacy event"):
        PrivacyEvent.from_record({"name": "x"})


def test_the_ledger_survives_a_checkpoint():
    ledger = Ledger("dp")
    ledger.commit("a", event())
    again = Ledger("dp")
    again.load_state_dict(ledger.state_dict())
    assert again.report(["a"], {}) == ledger.report(["a"], {})
    with pytest.raises(ValueError, match="another version or mode"):
        Ledger("paper").load_state_dict(ledger.state_dict())


def test_the_report_names_the_worst_client():
    ledger = Ledger("dp")
    ledger.commit("a", event(epsilon=0.5))
    ledger.commit("b", event(epsilon=2.0))
    report = ledger.report(["a", "b", "c"], {"claim": "c"})
    assert report["epsilon"] == pytest.approx(2.0)
    assert [entry["epsilon"] for entry in report["clients"]] == pytest.approx([0.5, 2.0, 0.0])


def test_an_unknown_mode_is_refused():
    with pytest.raises(ValueError, match="none, paper, dp"):
        Ledger("strong")


def test_a_total_beyond_all_protection_has_no_second_opinion():
    ledger = Ledger("dp")
    ledger.commit("a", PrivacyEvent("x", "codes", 1, 3200.0, 0.0, mechanism="multi-bit"))
    (entry,) = ledger.report(["a"], {})["clients"]
    assert entry["epsilon"] == 3200.0
    assert "epsilon_pld" not in entry
