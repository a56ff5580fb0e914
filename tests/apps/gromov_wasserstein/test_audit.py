"""Attacks on the encoder and on noisy sums: as strong as can be, and never above the claim."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest

from trellis.apps.common.settings import ConfigError
from trellis.apps.gromov_wasserstein import audit as study_audit
from trellis.apps.gromov_wasserstein.config import GromovWassersteinConfig
from trellis.apps.gromov_wasserstein.release import encode_rows

TRIALS = 20_000


def found(settings, trials=TRIALS):
    return {one.mechanism: one for one in study_audit.audits(settings, trials=trials)}


@pytest.mark.parametrize("epsilon", [0.5, 1.0, 3.0])
def test_of_one_node_the_attack_comes_up_to_the_claim(epsilon):
    one = found({"epsilon": epsilon, "privacy": "dp"})["dp, encoded graph of one node"]
    assert not one.refuted
    assert one.claimed == epsilon
    # A single bit has the whole budget, or two where that is better: nothing but chance is lost.
    assert 0.75 * epsilon < one.result.epsilon_lower <= epsilon
    assert one.result.delta == 0.0


def test_a_whole_graph_keeps_the_claim_of_its_budget():
    name = f"dp, encoded graph of {study_audit.NODES} nodes"
    whole = found({"epsilon": 2.0, "privacy": "dp"})[name]
    assert not whole.refuted
    assert whole.claimed == 2.0
    # Independent bits, a sum of 18 of them: found is what it tells at a threshold that is reached.
    assert 0.3 < whole.result.epsilon_lower < 2.0
    rows = found({"epsilon": 2.0, "privacy": "dp", "budget-per": "node"})[name]
    assert rows.claimed == 2.0 * study_audit.NODES
    assert rows.result.epsilon_lower > 2.0  # a row's budget does not cover a graph


def test_the_paper_s_encoder_leaks_the_nth_part_of_what_it_claims():
    (one,) = found({"epsilon": 20.0, "privacy": "paper"}, trials=100_000).values()
    assert one.claimed == 20.0
    assert not one.refuted
    assert one.result.epsilon_lower <= 20.0 / study_audit.NODES


@pytest.mark.parametrize(("mode", "estimator"), [("dp", "raw"), ("dp", "double"), ("paper", "raw")])
def test_what_is_attacked_is_what_is_released(mode, estimator):
    config = GromovWassersteinConfig(privacy=mode, epsilon=9.0, estimator=estimator)
    rows = np.random.default_rng(1).dirichlet(np.ones(5), 4)
    sent = encode_rows(config, rows, np.random.default_rng(7))
    flat = study_audit.releases(config, rows, 1, np.random.default_rng(7))
    np.testing.assert_array_equal(flat[0], np.concatenate([c.ravel() for c in sent.values()]))


def test_many_releases_have_the_budget_of_one():
    config = GromovWassersteinConfig(privacy="dp", epsilon=200.0)
    codes = study_audit.releases(config, np.ones((3, 5)), 50, np.random.default_rng(0))
    assert codes.shape == (50, 15)
    # 200 a graph of three nodes: 66.7 a row, m = 5 bits of 13.3 each, hardly ever flipped.
    assert (codes == 1.0).mean() > 0.999


def test_an_encoder_with_twice_the_budget_is_found_out(monkeypatch):
    real = study_audit.code_of
    monkeypatch.setattr(
        study_audit,
        "code_of",
        lambda config, h, n: replace(real(config, h, n), eps_row=2.0 * real(config, h, n).eps_row),
    )
    one = found({"privacy": "dp"})["dp, encoded graph of one node"]
    assert one.refuted


SUMMED = {"epsilon": 4.0, "method": "fedavg", "clients": 10, "rounds": 1, "privacy": "dp"}


def test_a_noisy_sum_of_gradients_keeps_its_claim_and_the_attack_comes_near():
    one = found(SUMMED)["dp, one noisy sum of gradients of 10 clients"]
    assert not one.refuted
    assert 0.3 * one.claimed < one.result.epsilon_lower <= one.claimed <= 2.0


def test_noise_for_half_a_gradient_is_found_out(monkeypatch):
    real = study_audit.plan_share
    monkeypatch.setattr(
        study_audit,
        "plan_share",
        lambda bits, ratio, sensitivity, size, noisers: real(
            bits, ratio, 0.25 * sensitivity, size, noisers
        ),
    )
    assert found(SUMMED)["dp, one noisy sum of gradients of 10 clients"].refuted


def test_what_claims_nothing_or_cannot_be_is_refused():
    with pytest.raises(ConfigError, match="nothing to audit"):
        study_audit.audits({"privacy": "none"})
    with pytest.raises(ConfigError, match="simplex"):
        study_audit.audits({"privacy": "dp", "estimator": "simplex"}, trials=200)


def test_the_command_shows_it_and_loads_no_torch():
    code = (
        "import sys; from trellis.apps.command import main\n"
        "main(['audit', 'gromov-wasserstein', '--trials', '2000'])\n"
        "print('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "False"
    assert "paper, encoded graph of 18" in " ".join(done.stdout.split())
    assert "the claim is false" not in done.stdout
