"""joint-precision on Flower's own runtime gives the in-process engine's numbers, bit for bit."""

from __future__ import annotations

import pytest

from trellis.apps import run

from .bits import assert_same_bits

STUDY = "joint-precision"
pytestmark = [
    pytest.mark.flower,
    pytest.mark.timeout(600),
    pytest.mark.usefixtures("one_superlink"),
]


def test_flowers_simulation_gives_the_same_bits(tmp_path):
    settings = {
        "variables": 18, "blocks": 3, "samples": "60,80,100", "clients": 3, "method": "fused",
        "path": 3, "sample": 2,
    }  # fmt: skip
    here = run(STUDY, settings, seed=11, out=tmp_path / "local", report=False)
    there = run(STUDY, settings, seed=11, out=tmp_path / "flower", engine="flower")
    assert (here.engine, there.engine) == ("local", "flower")
    assert_same_bits(here, there)
    assert (tmp_path / "local" / "result.npz").read_bytes() == (
        tmp_path / "flower" / "result.npz"
    ).read_bytes()
    assert here.ledger == there.ledger
    assert here.notes == there.notes
    assert (tmp_path / "flower" / "report.html").is_file()


def test_one_noisy_sum_in_flowers_simulation_gives_the_same_bits(tmp_path):
    settings = {
        "variables": 9, "blocks": 3, "samples": "40", "clients": 4, "privacy": "dp",
        "epsilon": 20.0, "path": 3, "lambda1": 0.05, "held-out": 0.25,
    }  # fmt: skip
    here = run(STUDY, settings, seed=5, out=tmp_path / "local", report=False)
    there = run(STUDY, settings, seed=5, out=tmp_path / "flower", engine="flower", report=False)
    assert_same_bits(here, there)
    assert here.ledger == there.ledger
    assert here.notes == there.notes
    assert here.headline["held-out-accuracy"] == there.headline["held-out-accuracy"]


def test_subsamples_in_flowers_simulation_give_the_same_bits(tmp_path):
    settings = {
        "variables": 9, "blocks": 3, "samples": "50", "clients": 3, "wire": "float32",
        "path": 3, "subsamples": 2, "choose": "stability",
    }  # fmt: skip
    here = run(STUDY, settings, out=tmp_path / "local", report=False)
    there = run(STUDY, settings, out=tmp_path / "flower", engine="flower", report=False)
    assert_same_bits(here, there)
