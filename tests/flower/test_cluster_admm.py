"""cluster-admm on Flower's own runtime gives the in-process engine's numbers, bit for bit."""

from __future__ import annotations

import pytest

from trellis.apps import run

from .bits import assert_same_bits

STUDY = "cluster-admm"
pytestmark = [
    pytest.mark.flower,
    pytest.mark.timeout(600),
    pytest.mark.usefixtures("one_superlink"),
]


def test_two_clusters_on_three_servers_in_flowers_simulation_give_the_same_bits(tmp_path):
    settings = {
        "servers": 3, "topology": "path", "clients": 6, "clusters": "2", "features": 5,
        "samples": "3-9", "rounds": 4, "sample": 1, "tau-decay": 0.9, "privacy": "paper",
    }  # fmt: skip
    here = run(STUDY, settings, seed=11, out=tmp_path / "local", report=False)
    there = run(STUDY, settings, seed=11, out=tmp_path / "flower", engine="flower", report=False)
    assert (here.engine, there.engine) == ("local", "flower")
    assert [row["clients"] for row in there.metrics] == [3.0] * 4
    assert_same_bits(here, there)
    assert here.ledger == there.ledger
    assert here.notes == there.notes


def test_noisy_sums_in_flowers_simulation_give_the_same_bits(tmp_path):
    settings = {
        "clients": 4, "clusters": "2", "features": 3, "samples": "20", "privacy": "dp",
        "held-out": 0.2, "exchanges": 2,
    }  # fmt: skip
    here = run(STUDY, settings, seed=12, out=tmp_path / "local", report=False)
    there = run(STUDY, settings, seed=12, out=tmp_path / "flower", engine="flower", report=False)
    assert len(here.metrics) == 4
    assert_same_bits(here, there)
    assert here.ledger == there.ledger
    assert here.notes == there.notes
