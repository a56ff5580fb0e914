"""joint-precision on Flower's own runtime gives the in-process engine's numbers, bit for bit."""

from __future__ import annotations

import pytest

from apps import run
from sim.record import RunResult

STUDY = "joint-precision"
pytestmark = [pytest.mark.flower, pytest.mark.timeout(600)]

VOLATILE = ("seconds", "slowest-client-seconds", "server-seconds")


def assert_same_bits(one: RunResult, other: RunResult) -> None:
    assert set(one.arrays) == set(other.arrays)
    for name, array in one.arrays.items():
        assert array.dtype == other.arrays[name].dtype
        assert array.tobytes() == other.arrays[name].tobytes(), name
    for mine, theirs in zip(one.metrics, other.metrics, strict=True):
        lasting = [{k: v for k, v in row.items() if k not in VOLATILE} for row in (mine, theirs)]
        assert str(lasting[0]) == str(lasting[1])  # nan equals nan


def test_flowers_simulation_gives_the_same_bits(tmp_path):
    settings = {
        "variables": 18, "blocks": 3, "samples": "60,80,100", "clients": 3, "method": "fused",
        "path": 3, "privacy": "sound", "epsilon": 5.0, "sample": 2,
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


def test_subsamples_in_flowers_simulation_give_the_same_bits(tmp_path):
    settings = {
        "variables": 9, "blocks": 3, "samples": "50", "clients": 3, "wire": "float32",
        "path": 3, "subsamples": 2, "choose": "stability",
    }  # fmt: skip
    here = run(STUDY, settings, out=tmp_path / "local", report=False)
    there = run(STUDY, settings, out=tmp_path / "flower", engine="flower", report=False)
    assert_same_bits(here, there)
