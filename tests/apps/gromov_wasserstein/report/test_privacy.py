"""What a release hides: bits, flips, budgets, and who learns what."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from trellis.apps.gromov_wasserstein.config import GromovWassersteinConfig
from trellis.apps.gromov_wasserstein.release import encode_rows, spent, statement
from trellis.apps.gromov_wasserstein.report import privacy as report_privacy

from .runs import PRIVACY, SIZE, H, run, shown, table

CASES = [
    {},
    {"epsilon": 100.0},
    {"epsilon": 100.0, "bits": 3},
    {"budget_per": "node", "epsilon": 5.0},
    {"estimator": "double", "epsilon": 80.0},
    {"estimator": "double", "bits": 2},
    {"estimator": "simplex", "bits": 2},
    {"privacy": "paper"},
    {"privacy": "paper", "bits": 3},
]


@pytest.mark.parametrize("settings", CASES)
def test_bits_are_those_that_a_client_sends(settings):
    result = run(**settings)
    config = GromovWassersteinConfig.from_settings(result.config)
    rows = table(result, PRIVACY, "flip probability")
    assert list(rows) == [5, 9, 20]
    for nodes, row in rows.items():
        sent = encode_rows(config, np.full((nodes, H), 0.5), np.random.default_rng(1))
        bits = sum(np.count_nonzero(codes) for codes in sent.values())
        assert row["bits of the graph"] == bits
        assert row["of entries"] == nodes * H
        whole = config.epsilon / nodes if config.privacy == "paper" else spent(config, [nodes])
        assert row["epsilon of the graph"] == pytest.approx(whole)
        assert row["epsilon of a bit"] == pytest.approx(whole / bits)
        flip = 1.0 / (math.exp(whole / bits) + 1.0)
        assert row["flip probability"] == pytest.approx(flip)
        assert row["wrong bits, expected"] == pytest.approx(bits * flip)


def test_flips_are_as_frequent_as_the_report_says():
    config = GromovWassersteinConfig.from_settings(run().config)
    cost = report_privacy.cost_of(config, H, 9)
    rng, ones = np.random.default_rng(1), np.ones((9, H))
    sent = np.concatenate([encode_rows(config, ones, rng)["codes"] for _ in range(2000)])
    wrong = np.count_nonzero(sent == -1) / np.count_nonzero(sent)
    assert wrong == pytest.approx(cost.flip, abs=4.0 * math.sqrt(0.25 / (2000 * cost.bits)))


def test_the_share_of_wrong_bits_is_over_all_graphs_and_warns_of_coin_flips():
    text = shown(run(), PRIVACY)
    # One bit a row: two are better from 2 * 2.18 on, and the smallest graph's rows have 20 / 5.
    wrong = sum(n / (math.exp(20.0 / n) + 1.0) for n in SIZE)
    assert f"send {sum(SIZE)} bits for {sum(SIZE) * H} entries" in text
    assert f"wrong bits: {100 * wrong / sum(SIZE):.1f} %" in text
    assert "nearly coin flips" not in text
    assert "nearly coin flips" in shown(run(epsilon=1.0), PRIVACY)


def test_budgets_are_told_per_graph_and_per_node():
    assert "20 / n in a graph with n nodes" in shown(run(), PRIVACY)
    text = shown(run(budget_per="node", epsilon=5.0), PRIVACY)
    assert "n times 5 a release; the largest has n = 20: 100" in text
    assert "does not bound what is told about a node" in text
    assert "fraction 1/n" in shown(run(privacy="paper"), PRIVACY)


def test_who_learns_what_follows_the_settings():
    paper = run(privacy="paper", estimator="raw")
    off = {row["what"]: row for row in table(paper, PRIVACY, "who learns it").values()}
    updates = "updates of training, with loss, hits and numbers of items"
    assert "every client's (secure aggregation is off)" in off[updates]["who learns it"]
    assert off["labels of graphs"]["who learns it"] == "the server, in the clear"
    assert off["embeddings, encoded"]["covered by epsilon"] == "yes"
    masked = run(privacy="paper", estimator="raw", secure_aggregation=True, share_labels=False)
    on = table(masked, PRIVACY, "who learns it")
    assert "mean only (secure aggregation is on)" in on[updates]["who learns it"]
    assert on["labels of graphs"]["who learns it"] == "nobody: they are not sent"
    for rows in (off, on):  # no more is covered than the encoded embeddings and what comes of them
        yes = [what for what, row in rows.items() if str(row["covered by epsilon"])[:3] == "yes"]
        assert yes == ["embeddings, encoded", "distances, and what is learned from them"]
    still = table(run(), PRIVACY, "who learns it")
    assert "weights from the seed; nothing is trained" in still
    noisy = table(run(method="fedavg"), PRIVACY, "who learns it")
    for what in ("clipped gradients of graphs", "the model that comes of them"):
        assert noisy[what]["covered by epsilon"] == "yes"
    for rows in (still, noisy):
        own = rows["a client's own model and raw embeddings"]
        assert own["who learns it"] == "nobody but the client"
    plain = table(run(privacy="none"), PRIVACY, "who learns it")
    assert {row["covered by epsilon"] for row in plain.values()} == {"no"}


def test_a_simulation_is_said_to_protect_nobody_and_a_deployment_is_not():
    word = "protect nobody"
    assert word in shown(run(), PRIVACY)
    assert word not in shown(replace(run(), engine="deployment"), PRIVACY)


def test_no_privacy_claims_nothing():
    text = shown(run(privacy="none"), PRIVACY)
    assert statement(GromovWassersteinConfig())["claim"] in text
    assert "flip" not in text
    assert "LDP" not in text


def test_settings_without_an_encoder_for_a_graph_are_told():
    text = shown(run(estimator="simplex"), PRIVACY)
    assert "are not told: estimator=" in text
