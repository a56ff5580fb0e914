"""pairs=needed: the answers of all pairs from some of them, in a run, its page and its files."""

from __future__ import annotations

import csv

import numpy as np
import pytest

from tests.strategies.gromov_wasserstein.pruning.test_queries import families
from trellis.apps import run
from trellis.apps.common.settings import ConfigError
from trellis.apps.gromov_wasserstein.config import GromovWassersteinConfig
from trellis.apps.gromov_wasserstein.downstream.needed import (
    NEIGHBOURS,
    solve_for_votes,
    solve_needed,
)
from trellis.apps.gromov_wasserstein.downstream.tasks import knn_accuracy, outlier_scores
from trellis.apps.gromov_wasserstein.report import main_table, named_graphs
from trellis.strategies.gromov_wasserstein.pairwise import pairwise
from trellis.strategies.gromov_wasserstein.pruning.partial import PartialDistances

STUDY = "gromov-wasserstein"
SETTINGS = {
    "clients": 4, "graphs": 48, "rounds": 1, "local-epochs": 1,
    "downstream": "knn,outliers,medoids",
}  # fmt: skip


@pytest.fixture(scope="module")
def whole():
    return run(STUDY, SETTINGS, report=False)


@pytest.fixture(scope="module")
def needed(tmp_path_factory):
    out = tmp_path_factory.mktemp("needed") / "run"
    return run(STUDY, {**SETTINGS, "pairs": "needed"}, out=out)


def test_a_run_gives_the_same_answers_from_fewer_pairs(whole, needed):
    for name in ("outliers", "medoids", "medoids-clusters", "codes"):
        assert (needed.arrays[name] == whole.arrays[name]).all(), name
    share = needed.headline["pairs-solved"]
    assert {k: v for k, v in needed.headline.items() if k != "pairs-solved"} == whole.headline
    assert 0.0 < share < 0.95
    values, all_ = needed.arrays["distances"], whole.arrays["distances"]
    open_ = np.isnan(values)
    assert (values[~open_] == all_[~open_]).all()
    assert (needed.arrays["bounds"] <= all_).all()
    assert any(f"{100 * share:.1f} % of the pairs" in note for note in needed.notes)


def test_its_page_and_files_say_what_was_solved(needed):
    page = (needed.folder / "report.html").read_text()
    assert "were solved" in page
    assert "5 nearest graphs" in page
    assert "Outliers" in page
    assert "pairs=all" in page
    with (needed.folder / "distances.csv").open() as file:
        rows = list(csv.reader(file))[1:]
    empty = np.array([[cell == "" for cell in row[1:]] for row in rows])
    assert (empty == np.isnan(needed.arrays["distances"])).all()
    near = named_graphs(needed)["neighbours"]()
    assert np.isfinite(near.weights).all()
    assert main_table(needed) is None


def test_encoded_graphs_have_their_controls_too():
    settings = {
        "clients": 4, "graphs": 24, "rounds": 1, "downstream": "knn", "draws": 2, "classes": 3,
        "privacy": "dp", "epsilon": 100.0,
    }  # fmt: skip
    whole = run(STUDY, settings, report=False)
    needed = run(STUDY, {**settings, "pairs": "needed"}, report=False)
    del needed.headline["pairs-solved"]
    assert needed.headline == whole.headline
    for name, found in whole.arrays.items():
        if name.endswith("from-constant"):
            assert (needed.arrays[name] == found).all()


def test_an_interrupted_run_goes_on_with_what_was_solved(tmp_path, monkeypatch):
    from trellis.apps.gromov_wasserstein import server_app

    def stop(*_):
        raise KeyboardInterrupt

    settings = {**SETTINGS, "pairs": "needed", "downstream": "none"}
    with monkeypatch.context() as patched:
        patched.setattr(server_app, "_keep_partial", stop)
        with pytest.raises(KeyboardInterrupt):
            run(STUDY, settings, out=tmp_path / "run", report=False)
    assert list((tmp_path / "run").glob("**/distances.npz"))
    solved = []
    solve = PartialDistances.solve

    def counting(self, pairs, limits):
        before = self.share
        solve(self, pairs, limits)
        solved.append(self.share - before)

    monkeypatch.setattr(PartialDistances, "solve", counting)
    again = run(STUDY, settings, out=tmp_path / "run", resume=True, report=False)
    assert again.headline["pairs-solved"] > 0.0
    assert sum(solved) == 0.0


def test_votes_and_scores_are_those_of_the_whole_matrix():
    matrices = families(56)
    whole = pairwise(matrices, workers=1)
    labels = np.random.default_rng(0).integers(-1, 3, size=len(whole))
    config = GromovWassersteinConfig(downstream="knn,outliers", pairs="needed")
    known = PartialDistances.of(matrices, workers=1)
    solve_needed(config, 3, known, labels, near=10)
    for k in NEIGHBOURS:
        ours = knn_accuracy(known.bounds, labels, k, seed=3)
        assert (ours.predicted == knn_accuracy(whole, labels, k, seed=3).predicted).all()
    assert (outlier_scores(known.bounds) == outlier_scores(whole)).all()
    assert known.share < 0.9


def test_too_few_labels_ask_for_nothing():
    known = PartialDistances.of(families(8), workers=1)
    solve_for_votes(known, np.full(12, -1), 5, 0)
    assert known.share == 0.0


@pytest.mark.parametrize("name", ["svm", "spectral", "anomaly", "all"])
def test_what_needs_all_pairs_is_refused(name):
    with pytest.raises(ConfigError, match="cannot do without any pair; set pairs='all'"):
        GromovWassersteinConfig(pairs="needed", downstream=name)
    GromovWassersteinConfig(pairs="all", downstream=name)


def test_a_word_that_is_none_is_refused():
    with pytest.raises(ConfigError, match="pairs"):
        GromovWassersteinConfig(pairs="some")
