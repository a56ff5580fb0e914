"""The brains: names of regions, what is foretold of new people, and the case made small."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from trellis.apps.cases.brains import CASE
from trellis.apps.cases.brains.people import foretold
from trellis.apps.cases.brains.pictures import in_words
from trellis.apps.cases.brains.scans import LEARNED, NEW, OTHERS, agreement, read_scans
from trellis.apps.cases.brains.story import _of_a_person
from trellis.apps.cases.case import RUNS, run_case
from trellis.apps.common.results import RunResult
from trellis.apps.common.tables import DataError
from trellis.apps.experiments.datasets import dataset


@pytest.fixture(scope="module")
def scans():
    try:
        dataset("ABIDE")
    except DataError as error:
        pytest.skip(str(error))
    return read_scans()


def test_what_is_foretold_is_what_regression_leaves():
    draw = np.random.default_rng(3)
    values = draw.normal(size=(400, 4)) @ draw.normal(size=(4, 4))
    values = (values - values.mean(axis=0)) / values.std(axis=0)
    correlation = values.T @ values / len(values)
    shares = []
    for j in range(4):
        others = np.delete(values, j, axis=1)
        left = values[:, j] - others @ np.linalg.lstsq(others, values[:, j], rcond=None)[0]
        shares.append(1.0 - np.mean(left**2))
    assert foretold(np.linalg.inv(correlation), correlation) == pytest.approx(np.mean(shares))
    assert foretold(np.eye(4), correlation) == pytest.approx(0.0)


def test_regions_are_matched_at_the_ends_of_scans_by_the_persons_in_both():
    draw = np.random.default_rng(4)
    whole, other = draw.normal(size=(50, 3)), draw.normal(size=(50, 3))
    found = agreement({"a": whole[20:], "b": other}, {"a": whole[:, [2, 0, 1]], "c": other})
    assert found.argmax(axis=1).tolist() == [1, 2, 0]
    assert np.diag(found[:, [1, 2, 0]]) == pytest.approx([1.0, 1.0, 1.0])


def test_all_records_of_a_person_cost_far_more_than_one():
    run = RunResult(
        "joint-precision", 1, "local", {}, ledger={"delta": 1e-5, "clients": [{"rho": 0.02}]}
    )
    one, many = _of_a_person(run, 1), _of_a_person(run, 200)
    assert one < 1.0
    # k^2 rho = 800, and epsilon is rho + 2 sqrt(rho log(1 / delta)) at most.
    assert 800.0 < many < 800.0 + 2.0 * np.sqrt(800.0 * np.log(1e5))


def test_names_are_words():
    assert in_words("Thalamus_L") == "left thalamus"


def test_no_person_is_in_two_parts_and_groups_are_even(scans):
    assert len(scans.people) == 240
    parts = {use: [p for own in scans.dealt[use].values() for p in own] for use in scans.dealt}
    assert {use: len(part) for use, part in parts.items()} == {LEARNED: 40, OTHERS: 40, NEW: 160}
    assert len({id(p) for part in parts.values() for p in part}) == 240
    for part in parts.values():
        assert sum(p.autism for p in part) == len(part) / 2


def test_regions_come_in_pairs_on_their_own_side(scans):
    names = set(scans.names)
    assert len(names) == 50
    for region in scans.regions:
        assert region.mirror in names
        assert (region.place[0] < 0.0) == region.name.endswith("_L")
    assert len({region.column for region in scans.regions}) == 50


def _small(quick):
    return [
        dataclasses.replace(one, settings={**one.settings, "clients": 3, "path": 3})
        for one in CASE.planned(quick)
    ]


def test_the_case_tells_its_story(scans, tmp_path):
    story = run_case(dataclasses.replace(CASE, planned=_small), tmp_path, seeds=1, quick=True)
    page = (tmp_path / "index.html").read_text()
    assert story.numbers["new people to judge by"] == 48
    assert "in people whom nobody had learned from" in story.answer
    # Even small, graphs foretell a good part of new people.
    reached = [float(str(story.numbers[name]).split()[0]) for name in list(story.numbers)[2:4]]
    assert all(30.0 < value < 80.0 for value in reached)
    for words in (
        "A record here is one time point of a scan, not a person",
        "left thalamus",
        "This is no diagnosis",
        "Spent per run, at most",
    ):
        assert words in page
    assert str(tmp_path) not in page
    people = sorted((tmp_path / "data" / NEW).glob("*.csv"))
    assert len(people) == 160
    import trellis

    ran = trellis.load(tmp_path / RUNS / "together" / "seed-1")
    assert ran.score(people[0], client="Ann Arbor") > -25.0  # no edges: half of 50 regions
