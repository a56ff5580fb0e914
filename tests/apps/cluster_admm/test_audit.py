"""Private releases keep their claims under attack; the paper's noise and its total do not."""

from __future__ import annotations

import math

import numpy as np
import pytest

from trellis.apps.cluster_admm.audit import PAPER_SETTINGS, audits, ordinary
from trellis.apps.cluster_admm.config import ClusterAdmmConfig
from trellis.apps.cluster_admm.private.moments import SENSITIVITY
from trellis.apps.command import main
from trellis.apps.common.settings import ConfigError
from trellis.privacy.accounting.zcdp import decaying_total
from trellis.privacy.audit import gaussian_audit


@pytest.mark.parametrize("epsilon", [4.0, 8.0])
@pytest.mark.parametrize("loss", ["ridge", "logistic"])
def test_noisy_sums_keep_their_claim_and_the_attack_comes_close(epsilon, loss):
    settings = {"privacy": "dp", "clients": 12, "features": 6, "loss": loss}
    moments, counts = audits({**settings, "epsilon": epsilon}, trials=40_000, seed=2)
    for finding, least in ((moments, 0.3), (counts, 0.25)):
        assert finding.claimed < epsilon
        assert least * finding.claimed < finding.result.epsilon_lower <= finding.claimed
        assert finding.verdict == "consistent with the claim"


def test_the_two_samples_of_a_sum_are_as_far_apart_as_can_be():
    (moments, counts) = audits({"privacy": "dp", "features": 4}, trials=2_000)
    assert f"moves the sum by {SENSITIVITY:.3g}" in moments.setting
    assert "moves the sum by 2 " in counts.setting


def test_the_paper_s_noise_is_refuted_by_ordinary_samples():
    one_round, total = audits({"privacy": "paper"}, trials=100_000)
    assert one_round.refuted
    assert one_round.result.epsilon_lower > 10.0 * one_round.claimed
    assert total.refuted
    config = ClusterAdmmConfig.from_settings({**PAPER_SETTINGS, "privacy": "paper"})
    _, models = ordinary(config, 1)
    assert np.linalg.norm(models[0] - models[1]) > 0.0


def test_the_total_s_attack_is_below_what_the_right_total_allows():
    _, total = audits({"privacy": "paper"}, trials=200_000)
    exact = gaussian_audit(math.sqrt(2.0 * decaying_total(0.001, 0.99, 300)), 1.0, 1e-5)
    assert total.claimed < total.result.epsilon_lower <= exact


def test_with_a_bound_that_holds_the_paper_s_round_keeps_its_claim():
    one_round, _ = audits({"privacy": "paper", "bound": 1000.0}, trials=20_000)
    assert not one_round.refuted


def test_modes_are_chosen_and_none_claims_nothing():
    with pytest.raises(ConfigError, match="claims nothing to audit"):
        audits({"privacy": "none"})
    small = {"clients": 6, "features": 3}
    names = [finding.mechanism for finding in audits(small, trials=2_000)]
    assert [name.split(",")[0] for name in names] == ["dp"] * 2 + ["paper"] * 2


def test_the_command_prints_every_finding(capsys):
    arguments = ["audit", "cluster-admm", "--trials", "2000", "--set", "features=3"]
    assert main([*arguments, "--set", "clients=6"]) == 0
    told = capsys.readouterr().out
    assert "the claim is false" in told
    assert "consistent with the claim" in told
