"""Servers of cluster-admm with SuperLinks of their own: in step, at their own pace, and gone."""

from __future__ import annotations

import time

import numpy as np
import pytest

from tests.graphs import Graph, own_rows
from trellis import apps
from trellis.apps.common.settings import ConfigError
from trellis.strategies.network.member import GraphMember

LINE = {"servers": 3, "topology": "path", "clients": 6, "features": 3, "samples": "30"}
EXACT = {**LINE, "clusters": "2", "mixing": "exact", "rho": 3.0}
SEED = 3


def graph(chosen, root, **options):
    named = {key.replace("_", "-"): value for key, value in options.items()}
    return Graph("cluster-admm", chosen, root, seed=SEED, options={"report": False, **named})


@pytest.mark.parametrize(
    "more",
    [
        {"mixing": "paper"},
        {"mixing": "exact"},
        {"mixing": "paper", "privacy": "paper"},
    ],
    ids=lambda more: "-".join(more.values()),
)
def test_in_step_they_learn_to_the_bit_what_servers_in_one_process_learn(more, tmp_path):
    chosen = {**EXACT, **more, "tau": 0.2, "rounds": 8}
    here = apps.run("cluster-admm", chosen, seed=SEED)
    results = graph(chosen, tmp_path).run()
    assert own_rows(results).tobytes() == here.arrays["models"].tobytes()
    assert [row["links"] for row in results[1].metrics] == [2.0] * 8


def test_at_their_own_pace_they_come_to_the_same_optimum(tmp_path, monkeypatch):
    pace, expect = {0: 0.0, 1: 0.02, 2: 0.04}, GraphMember.expect

    def slowly(self, grid, server_round):
        time.sleep(pace[self.mail.place.server])
        expect(self, grid, server_round)

    monkeypatch.setattr(GraphMember, "expect", slowly)
    chosen = {**EXACT, "tau": 0.0, "rounds": 110}
    here = apps.run("cluster-admm", {**chosen, "rounds": 1500}, seed=SEED)
    results = graph(chosen, tmp_path, max_staleness=3).run()
    np.testing.assert_allclose(own_rows(results), here.arrays["models"], atol=1e-6, rtol=0.0)
    for result in results:
        rounds = np.array([row["round"] for row in result.metrics])[:, None]
        ages = rounds - result.arrays["link_rounds"]
        assert ages.max() <= 3
    assert max(row["oldest"] for row in results[0].metrics) > 0.0  # the fast one did not wait


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"method": "clusterfl"}, "servers that do not talk"),
        ({"clusters": "auto:2"}, "are found in one process"),
    ],
)
def test_what_needs_all_servers_in_one_process_is_refused_by_name(more, words, tmp_path):
    apart = graph({**EXACT, "rounds": 30, **more}, tmp_path)
    with pytest.raises(ConfigError, match=words):
        apart.run()
