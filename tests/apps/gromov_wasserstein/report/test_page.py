"""The whole page and the files beside it, also of runs that ended early or hold nonsense."""

from __future__ import annotations

import csv
import sys
from dataclasses import replace

import numpy as np
import pytest

from trellis.apps.common.results import RunResult
from trellis.apps.gromov_wasserstein.report import page as report
from trellis.apps.gromov_wasserstein.report.outcome import Outcome
from trellis.apps.gromov_wasserstein.report.words import WORDING

from .runs import (
    DISTANCES,
    LABEL,
    LEARNING,
    OWNER,
    PICTURE,
    PRIVACY,
    SIZE,
    TRAINING,
    changed,
    page,
    run,
    shown,
    without,
)


def test_a_whole_page_has_all_sections_escapes_names_and_has_the_same_bytes_twice(tmp_path, drawn):
    result = run()
    html = page(result, tmp_path)
    for title in (DISTANCES, PICTURE, LEARNING, TRAINING, PRIVACY):
        assert f"<h2>{title}</h2>" in html
    assert "<rome>" not in html
    assert html == page(result, tmp_path)
    assert html.count('<svg role="img" aria-label=""') == 0
    assert "control: numbers of nodes alone, SVM" in html


def test_a_run_that_ended_before_its_first_round_is_a_report(tmp_path):
    for settings in ({}, {"privacy": "dp"}, {"privacy": "paper"}, {"nonsense": 1}):
        empty = RunResult("gromov-wasserstein", 1, "local", settings, status="interrupted")
        titles = [section.title for section in report.sections(empty)]
        assert titles == [DISTANCES, PRIVACY]
        assert "ended before embeddings were released" in page(empty, tmp_path)
        assert report.export_graphs(empty, tmp_path) == []


def test_a_run_that_ended_before_its_distances_shows_the_rest(tmp_path):
    kept = ("owner", "sizes", "labels", "codes")
    stopped = run()
    stopped.arrays = {name: stopped.arrays[name] for name in kept}
    stopped.headline, stopped.ledger = {}, {}
    titles = [section.title for section in report.sections(stopped)]
    assert titles == [DISTANCES, TRAINING, PRIVACY]
    assert "ended before the distances" in shown(stopped, DISTANCES)
    assert "has no ledger" in shown(stopped, PRIVACY)
    assert [path.name for path in report.export_graphs(stopped, tmp_path)] == ["graphs.csv"]
    page(stopped, tmp_path)


ARRAYS = ["distances", "owner", "sizes", "labels", "codes", "anomaly", "spectral-clusters"]


@pytest.mark.parametrize("name", [*ARRAYS, "svm-from-constant"])
def test_missing_and_bad_arrays_leave_out_what_they_would_show(name, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "sklearn.manifold", None)  # t-SNE takes most of the time
    result = run()
    bad = [np.zeros((2, 2)), np.full(result.arrays[name].shape, np.nan), np.array(["text"])]
    bad += [np.zeros(0), np.full(12, -7), np.array(3.0), np.full((12, 12), -1.0)]
    for one in (without(result, name), *(changed(result, **{name: array}) for array in bad)):
        titles = {section.title for section in report.sections(one)}
        assert {DISTANCES, TRAINING, PRIVACY} <= titles
        written = report.export_graphs(one, tmp_path)
        assert (LEARNING in titles) == (name not in ("distances", "owner", "sizes"))
        assert len(written) == {"distances": 1, "owner": 0, "sizes": 0}.get(name, 2)


@pytest.mark.parametrize("count", [1, 2, 3])
def test_few_graphs_are_a_report_too(count, tmp_path, drawn):
    result = run()
    result.arrays = {name: array[:count] for name, array in result.arrays.items()}
    result.arrays["distances"] = result.arrays["distances"][:, :count]
    page(result, tmp_path)
    assert len(report.export_graphs(result, tmp_path)) == 2


def test_graphs_that_are_all_the_same_are_a_report_too(tmp_path, drawn):
    zero = np.zeros((12, 12))
    html = page(changed(run(), distances=zero, anomaly=zero[0]), tmp_path)
    assert "all at one distance" in html


def test_graphs_and_distances_are_files(tmp_path):
    result = run()
    distances, graphs = report.export_graphs(result, tmp_path)
    assert (distances.name, graphs.name) == ("distances.csv", "graphs.csv")
    with graphs.open() as file:
        rows = list(csv.DictReader(file))
    assert [row["owner"] for row in rows] == [["oslo", "<rome>", "bern"][k] for k in OWNER]
    assert [int(row["number"]) for row in rows] == [1, 2, 3, 1, 2, 3, 4, 1, 2, 3, 4, 5]
    assert [int(row["nodes"]) for row in rows] == SIZE
    assert [int(row["label"]) for row in rows] == LABEL
    assert [float(row["anomaly"]) for row in rows] == result.arrays["anomaly"].tolist()
    clusters = result.arrays["spectral-clusters"].tolist()
    assert [int(row["spectral_cluster"]) for row in rows] == clusters
    with distances.open() as file:
        table = list(csv.reader(file))
    assert table[0][1:] == [row[0] for row in table[1:]] == [row["graph"] for row in rows]
    assert table[0][1] == "oslo-1"
    found = np.array([row[1:] for row in table[1:]], dtype=float)
    np.testing.assert_array_equal(found, result.arrays["distances"])


def test_clients_without_names_of_their_own_are_numbered():
    for clients in ([], [{"name": "a"}] * 3):
        outcome = Outcome.of(replace(run(), clients=clients))
        assert outcome is not None
        assert outcome.names[0] == "client-0-1"


def test_no_accuracy_is_in_the_index_without_its_controls():
    names = WORDING.headline
    assert {"svm-accuracy", "svm-from-sizes", "svm-from-constant", "majority"} <= set(names)
    labels = [WORDING.label(name) for name in run().headline]
    assert len(set(labels)) == len(labels)
