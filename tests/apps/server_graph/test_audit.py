"""DP noise keeps its claims under attack; Theorem 2 as printed does not."""

from __future__ import annotations

import math

import numpy as np
import pytest

from trellis.apps.command import main
from trellis.apps.common.settings import ConfigError
from trellis.apps.server_graph import audit as study_audit
from trellis.apps.server_graph.config import ServerGraphConfig
from trellis.apps.server_graph.private import Terms
from trellis.apps.server_graph.spending import corrected_epsilon, paper_epsilon, settled

SUMS = {"privacy": "dp"}
PAPER = {**study_audit.BETWEEN, "privacy": "paper"}


def test_the_two_records_move_the_sum_as_far_as_any():
    config = ServerGraphConfig.from_settings({**SUMS, "batch": 0})
    one, other = study_audit.summands(config)
    assert np.linalg.norm(one - other) == pytest.approx(Terms.of(config).sensitivity(100))


@pytest.mark.parametrize(
    ("settings", "least"),
    [({"batch": 0, "rounds": 5}, 0.3), ({"batch": 0, "rounds": 5, "epsilon": 3.0}, 1.0), ({}, 0.2)],
    ids=str,
)
def test_noisy_sums_keep_their_claim_and_the_attack_on_all_rounds_comes_near(settings, least):
    single, whole = study_audit.audits({**SUMS, **settings}, trials=40_000)
    assert not single.refuted
    assert not whole.refuted
    assert single.claimed < whole.claimed <= settings.get("epsilon", 1.0) + 1e-9
    assert least < whole.result.epsilon_lower


def test_sums_with_a_quarter_of_the_noise_are_found_out(monkeypatch):
    original = Terms.sensitivity
    monkeypatch.setattr(Terms, "sensitivity", lambda self, n: 0.25 * original(self, n))
    _, whole = study_audit.audits({**SUMS, "batch": 0, "rounds": 5}, trials=40_000)
    assert whole.refuted


def test_models_part_by_what_theorem_2_counts_in_l2_and_by_root_m_more_in_l1():
    config = ServerGraphConfig.from_settings({**PAPER, "rounds": 6, "features": 4})
    found = study_audit.apart(config)
    bound = 2.0 * config.step * config.clip * np.arange(1, 7)  # (26)
    np.testing.assert_allclose(np.linalg.norm(found, axis=1), bound, rtol=1e-9)
    np.testing.assert_allclose(np.abs(found).sum(axis=1), 2.0 * bound, rtol=1e-9)


@pytest.mark.parametrize(
    "settings",
    [{"clients": 50}, {"ridge": 0.5}, {"local-steps": 3}, {"clients": 40, "sample": 2}],
    ids=str,
)
def test_nothing_parts_models_further_than_the_corrected_claim_counts(settings):
    given = {**PAPER, "rounds": 5, **settings}
    config = settled(ServerGraphConfig.from_settings(given), 2)
    exact = np.abs(study_audit.apart(config)).sum() / (config.sigma / math.sqrt(2.0))
    assert exact <= corrected_epsilon(config, 5, 2) * (1.0 + 1e-12)


@pytest.mark.parametrize("size", [2, 4])
def test_theorem_2_is_false_by_root_m_and_the_corrected_epsilon_is_not(size):
    given = {"features": size, "privacy": "paper"}
    paper, client = study_audit.audits(given, trials=200_000)
    assert paper.claimed == pytest.approx(1.0)
    config = settled(ServerGraphConfig.from_settings({**PAPER, **given}), size)
    assert paper.result.epsilon_lower <= corrected_epsilon(config, 1, size)
    assert paper.refuted
    assert 1.2 < paper.result.epsilon_lower <= math.sqrt(size) + 1e-9
    assert client.refuted
    assert client.result.epsilon_lower > 4.0


def test_the_corrected_epsilon_holds_over_rounds_and_theorem_2_does_not():
    given = {"privacy": "paper", "rounds": 3}
    paper, _ = study_audit.audits(given, trials=200_000)
    config = settled(ServerGraphConfig.from_settings({**PAPER, **given}), 2)
    assert paper.result.epsilon_lower <= corrected_epsilon(config, 3, 2)
    assert paper.refuted


def test_where_a_server_asks_several_clients_their_mean_hides_one_of_them():
    paper, client = study_audit.audits({"privacy": "paper", "clients": 50}, trials=100_000)
    assert not paper.refuted  # 5 clients: a fifth of what the theorem counts
    assert client.refuted


def test_a_client_takes_the_noise_off_to_the_last_bits():
    config = ServerGraphConfig.from_settings({**PAPER, "sigma": 1.0, "epsilon": 100.0})
    finding = study_audit.audit_by_a_client(config, 100, 1)
    assert finding.result.true_positive == finding.result.held_out == 50
    assert finding.result.false_positive == 0
    assert finding.claimed == pytest.approx(paper_epsilon(config, 1))


def test_what_claims_nothing_or_cannot_be_attacked_is_said():
    with pytest.raises(ConfigError, match="claims nothing to audit"):
        study_audit.audits({"privacy": "none"})
    with pytest.raises(ConfigError, match="use loss=least-squares or rounds=1"):
        study_audit.audits({"privacy": "paper", "loss": "logistic", "rounds": 2})


def test_the_command_prints_claims_and_findings(capsys):
    assert main(["audit", "server-graph", "--trials", "20000", "--set", "rounds=2"]) == 0
    shown = capsys.readouterr().out
    for words in ("dp, one", "paper, Theorem", "the claim is false"):
        assert words in shown
