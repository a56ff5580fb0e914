"""server-graph on Flower's own runtime gives the in-process engine's numbers, bit for bit."""

from __future__ import annotations

import pytest

from trellis.apps import run

from .bits import assert_same_bits

STUDY = "server-graph"
pytestmark = [
    pytest.mark.flower,
    pytest.mark.timeout(600),
    pytest.mark.usefixtures("one_superlink"),
]


def test_ten_servers_of_five_clients_in_flowers_simulation_give_the_same_bits(tmp_path):
    settings = {
        "servers": 10, "clients": 50, "samples": "30", "rounds": 3, "clip": 1.0, "sample": 4,
        "method": "hybrid", "privacy": "paper", "secure-aggregation": "off", "failures": "3:2-2",
    }  # fmt: skip
    here = run(STUDY, settings, seed=11, out=tmp_path / "local", report=False)
    there = run(STUDY, settings, seed=11, out=tmp_path / "flower", engine="flower")
    assert (here.engine, there.engine) == ("local", "flower")
    assert [row["clients"] for row in there.metrics] == [40.0, 36.0, 40.0]
    assert_same_bits(here, there)
    assert here.ledger == there.ledger
    assert here.notes == there.notes
    assert (tmp_path / "flower" / "report.html").is_file()


def test_masks_of_clients_and_of_servers_leave_no_trace_there_either(tmp_path):
    settings = {
        "servers": 3, "topology": "ring", "clients": 9, "samples": "10", "rounds": 2,
        "method": "masked",
    }  # fmt: skip
    here = run(STUDY, settings, out=tmp_path / "local", report=False)
    there = run(STUDY, settings, out=tmp_path / "flower", engine="flower", report=False)
    assert_same_bits(here, there)


def test_noise_in_sums_and_models_of_clients_own_are_the_same_there(tmp_path):
    settings = {
        "servers": 3, "topology": "ring", "clients": 12, "samples": "20", "rounds": 2,
        "privacy": "dp", "held-out": 0.2,
    }  # fmt: skip
    here = run(STUDY, settings, out=tmp_path / "local", report=False)
    there = run(STUDY, settings, out=tmp_path / "flower", engine="flower", report=False)
    assert here.ledger["epsilon"] > 0.0
    assert here.arrays["personal"].shape == (12, 2)
    assert_same_bits(here, there)
    assert here.ledger == there.ledger
    assert here.headline == there.headline
