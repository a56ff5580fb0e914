"""gromov-wasserstein on Flower's own runtime gives the in-process engine's numbers, bit for bit."""

from __future__ import annotations

import pytest

from trellis.apps import run

from .bits import assert_same_bits

STUDY = "gromov-wasserstein"
pytestmark = [
    pytest.mark.flower,
    pytest.mark.timeout(600),
    pytest.mark.usefixtures("one_superlink"),
]


@pytest.mark.parametrize("method", ["untrained", "fedavg"])
def test_ten_nodes_in_flowers_simulation_give_the_same_bits(method, tmp_path):
    settings = {
        "clients": 10, "graphs": 40, "rounds": 2, "privacy": "dp", "method": method,
        "epsilon": 40.0, "estimator": "double", "downstream": "anomaly",
    }  # fmt: skip
    settings |= {"held-out": 0.3} if method == "fedavg" else {}
    here = run(STUDY, settings, seed=5, out=tmp_path / "local", report=False)
    there = run(STUDY, settings, seed=5, out=tmp_path / "flower", engine="flower")
    assert (here.engine, there.engine) == ("local", "flower")
    assert [row["clients"] for row in there.metrics] == [10.0] * (2 if method == "fedavg" else 1)
    assert_same_bits(here, there)
    assert here.ledger == there.ledger
    assert (tmp_path / "flower" / "report.html").is_file()
