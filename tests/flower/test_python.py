"""Data given in Python gives the same bits in Flower's simulation."""

from __future__ import annotations

import pytest

import trellis

from ..apps.python.wards import SETTINGS, assert_same, wards

pytestmark = [pytest.mark.flower, pytest.mark.timeout(600)]


@pytest.mark.usefixtures("one_superlink")
def test_data_in_memory_in_flower_s_simulation(tmp_path):
    study = "cluster-admm"
    data = wards(study)
    # Not in the order of their names, which is that of files.
    names = ["ward-3", "ward-1", "ward-4", "ward-2"]
    turned = {name: data[name] for name in names}
    options = {"data": turned, "assignment": data.assignment, "seed": 3}
    here = trellis.run(study, SETTINGS[study], **options)
    there = trellis.run(
        study, SETTINGS[study], **options, engine="flower", out=tmp_path / "out", report=False
    )
    assert there.engine == "flower"
    assert [client["name"] for client in there.clients] == names
    assert_same(here, there)
    assert not list((tmp_path / "out").glob("in-memory-*"))
