"""The private release keeps its claim under attack; Theorem 3 as printed does not."""

from __future__ import annotations

import numpy as np
import pytest

from trellis.apps.command import main
from trellis.apps.common.tables import Table, require_variation
from trellis.apps.consensus_graph.audit import (
    PAPER_SETTINGS,
    Noisy,
    audits,
    last_step,
    neighbours,
)
from trellis.apps.consensus_graph.config import ConsensusGraphConfig
from trellis.apps.consensus_graph.problem import sensitivity, statistic
from trellis.apps.consensus_graph.solver import accelerated_steps
from trellis.privacy.audit import gaussian_audit
from trellis.privacy.mechanisms.gaussian import classic_gaussian_sigma

STUDY = "consensus-graph"


def paper_config(**settings) -> ConsensusGraphConfig:
    given = {key.replace("_", "-"): value for key, value in settings.items()}
    return ConsensusGraphConfig.from_settings({**PAPER_SETTINGS, "privacy": "paper", **given})


def test_the_neighbours_are_legal_and_as_far_apart_as_spikes_get():
    config = paper_config()
    data, neighbour = neighbours(config, 1)
    assert np.flatnonzero(np.any(data != neighbour, axis=1)).tolist() == [49]
    for signals in (data, neighbour):
        require_variation(Table(signals, tuple(map(str, range(20))), "audit"))
    shift = statistic(data, config.bound) - statistic(neighbour, config.bound)
    expected = sensitivity(config.bound, 50) * np.sqrt(1.0 - 1.0 / 19.0)
    assert np.linalg.norm(shift) == pytest.approx(expected)
    a, b = np.triu_indices(20, 1)
    watched = Noisy(shift, 1.0, False).watched().centre
    assert watched.size == 36 == np.count_nonzero((a <= 1) != (b <= 1))
    assert np.linalg.norm(watched) == pytest.approx(expected)  # the rest tells nothing


# A clipped spike is shorter than the bound allows for: less to see.
@pytest.mark.parametrize(
    ("settings", "least"),
    [({}, 0.4), ({"clip": 3.0}, 0.1), ({"clients": 12, "nodes": 6}, 0.4)],
)
def test_the_noisy_sum_keeps_its_claim_with_colluders_helping(settings, least):
    given = {"privacy": "dp", "epsilon": 2.0, **settings}
    (finding,) = audits(given, trials=40_000, seed=2)
    assert finding.claimed <= 2.0 + 1e-9
    assert least < finding.result.epsilon_lower <= finding.claimed


@pytest.mark.parametrize("settings", [{}, {"step": 0.0}, {"beta": 1.5, "step": 5e-4}])
def test_the_last_step_is_the_solvers(settings):
    config = paper_config(nodes=8, **settings)
    data, _ = neighbours(config, 1)
    z = statistic(data, config.bound)
    point, length = last_step(config, z)
    start = np.full(z.size, 1.0 / 7.0)
    rng = np.random.default_rng(0)
    for scale in (0.0, 1.0, 100.0):
        noise = scale * rng.standard_normal(z.size)
        w, _ = accelerated_steps(
            start,
            z,
            config.alpha,
            config.beta,
            config.rho / config.clients,
            start,
            config.local_steps,
            last_gradient_noise=noise,
            step=config.step,
        )
        np.testing.assert_allclose(w, np.maximum(point - length * noise, 0.0), atol=1e-8)


def test_one_round_of_theorem_3_claims_an_eighth_and_leaks_more_than_ten():
    (finding,) = audits({"privacy": "paper"})
    assert finding.claimed == pytest.approx(0.125)
    assert finding.result.delta == pytest.approx(1.25e-6)
    assert finding.result.epsilon_lower > 10.0
    assert finding.result.epsilon_lower <= finding.result.ceiling
    assert finding.verdict == "the claim is false"
    assert "N = 50, d = 20, C = 25, T = 8, K = 25" in finding.setting


def test_the_sampled_bound_is_below_the_exact_leak_before_projection():
    config = paper_config()
    points = [last_step(config, statistic(s, config.bound)) for s in neighbours(config, 1)]
    (one, length), (other, same) = points
    assert length == pytest.approx(same)
    sigma = classic_gaussian_sigma(0.125, 1.25e-6, 2.0 * 25.0 / 50.0)
    exact = gaussian_audit(one - other, length * sigma, 1.25e-6)
    assert 25.0 < exact < 40.0
    (finding,) = audits({"privacy": "paper"}, trials=100_000)
    assert finding.result.epsilon_lower < exact


def test_theorem_3_is_false_at_the_studys_own_beta_and_rho_too():
    (finding,) = audits({"privacy": "paper", "beta": 0.05, "rho": 1.0}, trials=200_000)
    assert finding.result.epsilon_lower > 40 * finding.claimed


def test_a_single_noised_step_is_all_the_theorem_covers():
    # With K = 1 there is no un-noised step: the attack finds nothing beyond the claim.
    (finding,) = audits({"privacy": "paper", "local-steps": 1}, trials=400_000)
    assert not finding.refuted


def test_the_command_prints_claim_and_finding(capsys):
    assert main(["audit", STUDY, "--trials", "100000", "--seed", "2", "--set", "nodes=8"]) == 0
    shown = capsys.readouterr().out
    for words in (
        "dp, one noisy sum of 5 clients",
        "consistent with the claim",
        "0.125 (1.25e-06)",
        "the claim is false",
        "N = 50, d = 8, C = 25, T = 8",
    ):
        assert words in shown


def test_the_command_names_what_is_wrong(capsys, monkeypatch):
    assert main(["audit", STUDY, "--set", "privacy=none"]) == 1
    assert "claims nothing to audit" in capsys.readouterr().out
    assert main(["audit", STUDY, "--set", "nods=8"]) == 1
    assert "did you mean 'nodes'" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        main(["audit", "no-such-study"])
    assert "invalid choice" in capsys.readouterr().err
    monkeypatch.setattr("trellis.apps.STUDIES", {"other": "trellis.sim"})
    assert main(["audit", "other"]) == 1
    assert "other has no audits" in capsys.readouterr().out
