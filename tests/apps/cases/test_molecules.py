"""The molecules: what the nearest one is worth, by hand, and the case made small."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from trellis.apps.cases.case import run_case
from trellis.apps.cases.molecules import CASE
from trellis.apps.cases.molecules.alike import agreeing, by_chance, by_company
from trellis.apps.cases.molecules.owners import dealt, formula
from trellis.apps.common.results import RunResult
from trellis.apps.common.tables import DataError
from trellis.apps.experiments.datasets import dataset

OWNER, LABELS = np.array([0, 0, 1, 1]), np.array([0, 1, 0, 1])


def _run(distances):
    arrays = {
        "distances": np.array(distances, dtype=float),
        "owner": OWNER,
        "labels": LABELS,
        "sizes": np.array([5, 9, 5, 5]),
    }
    return RunResult("gromov-wasserstein", 1, "local", {}, arrays=arrays)


NEAR = [[0, 1, 2, 3], [1, 0, 5, 4], [2, 5, 0, 1], [3, 4, 1, 0]]


@pytest.fixture
def mutag():
    try:
        return dataset("MUTAG")
    except DataError as error:
        pytest.skip(str(error))


def test_the_nearest_elsewhere_and_at_home():
    distances = np.array(NEAR, dtype=float)
    # 0 finds 2, 1 finds 3, 2 finds 0, 3 finds 0 elsewhere; at home everybody the other one.
    assert agreeing(distances, OWNER, LABELS, own=False).tolist() == [1.0, 1.0, 1.0, 0.0]
    assert agreeing(distances, OWNER, LABELS, own=True).tolist() == [0.0] * 4
    assert by_company([_run(NEAR)]).tolist() == [1.0, 0.5]


def test_equally_near_ones_share_their_say():
    # By atoms 0 (5) is as near to 2 as to 3, and only 2 has its label; 1 (9) as well.
    assert by_company([_run(NEAR)], sizes=True).tolist() == [0.5, 0.5]
    assert by_chance(_run(NEAR)) == 0.5


def test_every_molecule_has_one_owner(mutag):
    owned = dealt()
    assert [len(own) for own in owned.values()] == [24] * 4 + [23] * 4
    assert len({molecule.source for own in owned.values() for molecule in own}) == 188
    # The first molecule of the file is C14 N1 O2.
    first = [m for own in owned.values() for m in own if m.source.endswith("graph 1")]
    assert [formula(m) for m in first] == ["C14 N1 O2"]


def _small(quick):
    return [
        dataclasses.replace(one, settings={**one.settings, "clients": 3, "rounds": 1})
        for one in CASE.planned(quick)
    ]


def test_the_case_tells_its_story(mutag, tmp_path):
    pytest.importorskip("torch_geometric")
    pytest.importorskip("ot")
    story = run_case(dataclasses.replace(CASE, planned=_small), tmp_path, seeds=1, quick=True)
    page = (tmp_path / "index.html").read_text()
    assert story.numbers["molecules"] == 72
    # Numbers of atoms alone tell more than chance, and no run is needed to know them.
    assert float(str(story.numbers["elsewhere, by numbers of atoms alone"]).split()[0]) > 60.0
    for words in (
        "What is told in the open all the same",
        "numbers of atoms alone",
        "Molecules that are alike",
        "Spent per run, at most",
    ):
        assert words in page
    assert str(tmp_path) not in page
