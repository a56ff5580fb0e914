"""The attack on DP noise: as strong as can be, and never above the claim."""

from __future__ import annotations

import numpy as np
import pytest

from trellis.apps.common.settings import ConfigError
from trellis.apps.joint_precision import audit as study_audit
from trellis.apps.joint_precision.kendall import kendall


def test_the_neighbours_are_as_far_apart_as_any():
    data, neighbour = study_audit.neighbours(40, 10, np.random.default_rng(0))
    assert np.sum(np.any(data != neighbour, axis=1)) == 1
    upper = np.triu_indices(10, 1)
    moved = (kendall(data, variant="a") - kendall(neighbour, variant="a"))[upper]
    # The most that replacing one of n samples can move tau: 2 p / n.
    assert np.linalg.norm(moved) == pytest.approx(2.0 * 10 / 40, rel=1e-12)


SUMMED = {"epsilon": 2.0, "samples": "60", "clients": 10, "variables": 12}


def test_the_noisy_sum_keeps_its_claim_and_the_attack_comes_near():
    (finding,) = study_audit.audits(SUMMED, trials=100_000)
    assert finding.mechanism == "dp, one noisy sum"
    assert not finding.refuted
    assert 0.6 < finding.result.epsilon_lower <= finding.claimed <= 2.0


def test_noise_that_counts_on_half_a_sensitivity_is_found_out(monkeypatch):
    original = study_audit.sensitivity
    monkeypatch.setattr(study_audit, "sensitivity", lambda p: 0.5 * original(p))
    (finding,) = study_audit.audits(SUMMED, trials=400_000)  # fewer see too little
    assert finding.refuted


def test_what_claims_nothing_is_not_audited():
    for settings in ({"privacy": "none"}, {"privacy": "paper"}):
        with pytest.raises(ConfigError, match="audit"):
            study_audit.audits(settings)
    with pytest.raises(ConfigError, match="releases nothing"):
        study_audit.audits({"method": "glasso"})
