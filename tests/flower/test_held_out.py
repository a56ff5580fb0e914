"""Held-out scores of every study on own data: Flower's simulation tells what one process tells."""

from __future__ import annotations

import pytest

from tests.apps.test_held_out import STUDIES, own_data
from trellis.apps import run

from .bits import assert_same_bits

pytestmark = [
    pytest.mark.flower,
    pytest.mark.timeout(600),
    pytest.mark.usefixtures("one_superlink"),
]


@pytest.mark.parametrize("study", STUDIES)
def test_a_study_on_own_data_has_the_same_held_out_scores_in_flowers_simulation(study, tmp_path):
    own_data(study, tmp_path / "data")
    settings = STUDIES[study][1] | {"rounds": 2}
    here = run(study, settings, data=tmp_path / "data", out=tmp_path / "local", report=False)
    there = run(
        study,
        settings,
        data=tmp_path / "data",
        out=tmp_path / "flower",
        engine="flower",
        report=False,
    )
    assert (here.engine, there.engine) == ("local", "flower")
    assert len(here.scores["clients"]) == 4
    assert here.scores == there.scores
    assert here.headline == there.headline
    assert_same_bits(here, there)
