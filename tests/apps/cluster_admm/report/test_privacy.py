"""What the rounds cost in privacy, as the report tells it."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from tests.apps.cluster_admm.report.reading import PRIVACY, ROUNDS, by_title, page, shown
from trellis.apps.cluster_admm.config import ClusterAdmmConfig
from trellis.apps.cluster_admm.data import synthetic_table
from trellis.apps.cluster_admm.report import privacy as report_privacy
from trellis.privacy.accounting.zcdp import zcdp_epsilon


def test_the_zcdp_over_the_rounds_is_of_the_rounds_a_client_took_part_in(paper):
    spent = {}
    for entry in paper.ledger["clients"]:
        rounds = [event["round"] for event in entry["events"]]
        spent[entry["name"]] = math.fsum(0.01 / 0.9**n for n in rounds)
        by_round = report_privacy.spent_by_round(entry, 8)
        assert by_round.shape == (9,)
        assert by_round[-1] == pytest.approx(spent[entry["name"]])
        assert by_round[3] == pytest.approx(math.fsum(0.01 / 0.9**n for n in rounds if n <= 3))
    assert len(set(spent.values())) > 1
    who, most = max(spent.items(), key=lambda item: item[1])
    text = shown(paper, PRIVACY)
    assert f"{who}, " in text
    assert f"{most:.4g}-zCDP" in text
    assert f"{min(spent.values()):.4g}-zCDP" in text
    assert f"{zcdp_epsilon(most, 1e-5):.4g} by zCDP" in text


def test_the_paper_s_total_stands_beside_the_corrected_one(paper):
    text = shown(paper, PRIVACY)
    printed = math.fsum(0.01 * 0.9**n for n in range(8))
    corrected = math.fsum(0.01 / 0.9**n for n in range(1, 9))
    assert f"{printed:.4g}-zCDP, which bounds nothing" in text
    assert f"all 8 rounds are {corrected:.4g}-zCDP" in text


def test_a_bound_taken_as_given_is_warned_of_with_the_gradients_there_are(paper):
    text = shown(paper, PRIVACY)
    assert "is not a bound" in text
    config = ClusterAdmmConfig.from_settings(paper.config)
    longest = 0.0
    for k, w in enumerate(paper.arrays["clients"]):
        samples = synthetic_table(config, 1, k)
        for x, y in zip(samples.X, samples.y, strict=True):
            gradient = 2.0 * (x @ w - y) * x
            longest = max(longest, math.sqrt(float(gradient @ gradient)))
    assert f"the longest is {longest:.4g}" in text


def test_a_run_without_privacy_claims_nothing(pgfl):
    text = shown(pgfl, PRIVACY)
    assert "Nothing was noised" in text
    assert "zCDP" not in text


def test_an_interrupted_run_tells_what_at_most_was_spent(paper, tmp_path):
    stopped = replace(paper, arrays={}, ledger={}, status="interrupted")
    found = by_title(stopped)
    assert "no ledger" in found[PRIVACY]
    corrected = math.fsum(0.01 / 0.9**n for n in range(1, 9))
    assert f"{corrected:.4g}-zCDP" in found[PRIVACY]
    assert "NOT PRIVATE" in found[PRIVACY]
    assert ROUNDS in found
    page(stopped, tmp_path)
