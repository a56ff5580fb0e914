"""The attack on sound noise: as strong as can be, and never above the claim."""

from __future__ import annotations

import numpy as np
import pytest

from trellis.apps.common.settings import ConfigError
from trellis.apps.joint_precision import audit as study_audit
from trellis.apps.joint_precision import release
from trellis.apps.joint_precision.kendall import kendall


def test_the_neighbours_are_as_far_apart_as_any():
    data, neighbour = study_audit.neighbours(40, 10, np.random.default_rng(0))
    assert np.sum(np.any(data != neighbour, axis=1)) == 1
    upper = np.triu_indices(10, 1)
    moved = (kendall(data, variant="a") - kendall(neighbour, variant="a"))[upper]
    assert np.linalg.norm(moved) == pytest.approx(release.sensitivity(10, 40), rel=1e-12)


def test_the_observer_loses_nothing():
    pair = study_audit.neighbours(40, 10, np.random.default_rng(0))
    one, other = (study_audit._watched(kendall(x, variant="a"), 1.0) for x in pair)
    distance = np.linalg.norm(one.centre - other.centre) / one.deviation
    assert distance == pytest.approx(release.sensitivity(10, 40), rel=1e-12)


def test_sound_keeps_its_claim_and_the_attack_comes_near():
    settings = {"epsilon": 2.0, "samples": "60", "release": "each"}
    (finding,) = study_audit.audits(settings, trials=100_000)
    assert not finding.refuted
    assert 0.8 < finding.result.epsilon_lower <= 2.0


def test_half_the_noise_is_found_out(monkeypatch):
    original = release.sensitivity
    monkeypatch.setattr(release, "sensitivity", lambda p, n: 0.5 * original(p, n))
    settings = {"epsilon": 1.0, "samples": "60", "release": "each"}
    (finding,) = study_audit.audits(settings, trials=100_000)
    assert finding.refuted


SUMMED = {"epsilon": 2.0, "samples": "60", "clients": 10, "variables": 12}


def test_the_noisy_sum_keeps_its_claim_and_the_attack_comes_near():
    (finding,) = study_audit.audits(SUMMED, trials=100_000)
    assert finding.mechanism == "sound, one noisy sum"
    assert not finding.refuted
    assert 0.6 < finding.result.epsilon_lower <= finding.claimed <= 2.0


def test_noise_that_counts_on_half_a_sensitivity_is_found_out(monkeypatch):
    original = study_audit.sensitivity
    monkeypatch.setattr(study_audit, "sensitivity", lambda p: 0.5 * original(p))
    (finding,) = study_audit.audits(SUMMED, trials=100_000)
    assert finding.refuted


def test_what_claims_nothing_is_not_audited():
    for settings in (
        {"privacy": "none"},
        {"privacy": "paper"},
        {"noise": "discrete", "release": "each"},
    ):
        with pytest.raises(ConfigError, match="audit"):
            study_audit.audits(settings)
