"""The hospitals' case: the files that it deals, and all of it at a reduced size."""

from __future__ import annotations

import copy
import csv
import sys

import numpy as np
import pytest
from sklearn.datasets import load_breast_cancer

from trellis.apps.cases import load
from trellis.apps.cases.case import run_case
from trellis.apps.cases.hospitals.data import HOSPITALS, PROPERTIES, deal, prepare
from trellis.apps.cases.hospitals.story import gains, tell
from trellis.apps.cases.hospitals.ways import ALIKE, HELPED, OPEN, STRONG, WEAK
from trellis.apps.command import main
from trellis.apps.common.evaluation.measures import ALONE, THIS
from trellis.apps.common.results import RunResult


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    out = tmp_path_factory.mktemp("hospitals") / "case"
    run_case(load("hospitals"), out, seeds=1, quick=True)
    return out


@pytest.fixture(scope="module")
def runs(folder):
    return {place.name: [RunResult.load(place / "seed-1")] for place in (folder / "runs").iterdir()}


def rows_of(path):
    with path.open() as file:
        return list(csv.DictReader(file))


def test_every_patient_is_dealt_once_and_to_the_same_hospital_every_time():
    first, second = deal(569), deal(569)
    assert len(first) == HOSPITALS
    np.testing.assert_array_equal(np.sort(np.concatenate(first)), np.arange(569))
    assert all(np.array_equal(a, b) for a, b in zip(first, second, strict=True))
    sizes = [len(patients) for patients in first]
    assert min(sizes) >= 24
    assert max(sizes) > 2 * min(sizes)


def test_the_files_are_the_patients_in_their_own_units(folder):
    found = load_breast_cancer()
    files = sorted((folder / "data" / "outcomes").iterdir())
    rows = [row for path in files for row in rows_of(path)]
    assert [path.name for path in files] == [f"hospital-{k:02d}.csv" for k in range(1, 13)]
    assert list(rows[0]) == [*found.feature_names, "y"]
    assert sum(row["y"] == "1" for row in rows) == 212  # malignant, as the source says
    radius = sorted(float(row["mean radius"]) for row in rows)
    np.testing.assert_array_equal(radius, np.sort(found.data[:, 0]))
    malignant = [float(row["mean radius"]) for row in rows if row["y"] == "1"]
    assert np.mean(malignant) == pytest.approx(found.data[found.target == 0, 0].mean())
    nuclei = rows_of(folder / "data" / "nuclei" / "hospital-03.csv")
    assert tuple(nuclei[0]) == PROPERTIES
    both = zip(nuclei, rows_of(folder / "data" / "outcomes" / "hospital-03.csv"), strict=True)
    assert all(one["mean texture"] == other["mean texture"] for one, other in both)


def test_together_and_open_is_better_than_alone(runs):
    model, graph = gains(runs, "model"), gains(runs, "graph")
    assert model[OPEN].mean > 0.0
    assert graph[ALIKE].mean > graph[OPEN].mean > 0.0
    assert model[OPEN].mean > model[STRONG].mean


def test_private_runs_spend_no_more_than_they_may(runs):
    for name, epsilon in ((WEAK, 3.0), (STRONG, 1.0), (HELPED, 1.0)):
        for run in runs[f"model-{name}"]:
            assert run.ledger["mode"] == "dp"
            assert 0.0 < run.ledger["epsilon"] <= epsilon
    assert runs[f"model-{HELPED}"][0].config["servers"] == 1


def test_the_page(folder, runs):
    page = (folder / "index.html").read_text()
    reached = np.mean([run.headline["held-out-accuracy"] for run in runs["model-open"]])
    alone = np.mean([run.headline["alone-held-out-accuracy"] for run in runs["model-open"]])
    assert f"Together they tell {100 * reached:.1f} % of new tumours right, each by itself" in page
    assert f"{100 * alone:.1f} %" in page
    for text in (
        "Is it worth it for twelve small hospitals",
        "mean concave points",
        "hospital-12",
        "in its own words",
        "The hospitals are made up.",
        "CC BY 4.0",
        "trellis case hospitals --data-only hospitals-data",
        "--set scales=hospitals-data/scales.csv",
        'href="runs/graph-epsilon-1000/seed-1/report.html"',
    ):
        assert text in page
    assert str(folder) not in page


def test_words_follow_the_numbers(runs):
    # The same split twice has no spread: every difference is beyond chance.
    several = {name: [*found, *found] for name, found in runs.items()}
    assert tell(runs).answer.startswith("One split cannot say.")
    assert tell(several).answer.startswith("Yes, if they trust those who run the servers.")
    swapped = {**several, "model-open": [_turned(run) for run in several["model-open"]]}
    assert tell(swapped).answer.startswith("No, not even if they trust")


def _turned(run):
    """Return a run with its result and learning alone the other way round."""
    turned = copy.deepcopy(run)
    for rows in (turned.scores["mean"], *(c["rows"] for c in turned.scores["clients"])):
        rows[THIS], rows[ALONE] = rows[ALONE], rows[THIS]
    return turned


def test_without_scikit_learn_it_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "sklearn.datasets", None)
    with pytest.raises(ImportError, match=r"part of scikit-learn: pip install '\.\[laptop\]'"):
        prepare(tmp_path)


def test_the_files_run_by_the_command_that_is_printed(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["case", "hospitals", "--data-only", "files"]) == 0
    printed = capsys.readouterr().out
    line = next(line for line in printed.splitlines() if "model-open" in line)
    words = line.split()[1:]
    assert main([*words, "--set", "rounds=3"]) == 0
    assert main(["predict", "results/model-open", "files/outcomes/hospital-01.csv"]) == 0
