"""What a run has learned is used on new data: later, elsewhere, from a file or from memory."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pandas as pd
import pytest

from apps.command import main
from apps.common.runner import run
from apps.common.settings import ConfigError
from apps.common.tables import DataError
from apps.gromov_wasserstein.files.npz import write_graphs
from apps.gromov_wasserstein.synthetic import synthetic_graphs
from apps.runs.using import load_model, predict
from tests.apps.test_held_out import STUDIES, own_data


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Return a small run of a study on own data, made once."""
    made = {}

    def of(study):
        if study not in made:
            place = tmp_path_factory.mktemp(study)
            own_data(study, place / "data")
            out, settings = place / "out", STUDIES[study][1]
            made[study] = run(study, settings, data=place / "data", out=out, report=False)
        return made[study]

    return of


def in_units_of_the_data(result, name):
    """Return coefficients and intercept of models that are in standardised coordinates."""
    w, scale, offset = result.arrays[name], result.arrays["scale"], result.arrays["offset"]
    middle, spread = result.arrays["target"]
    slopes = spread * w[..., :-1] / scale
    return slopes, spread * w[..., -1] + middle - slopes @ offset


@pytest.mark.parametrize("study", STUDIES)
def test_every_run_says_what_it_has_learned(runs, study):
    result = runs(study)
    about = json.loads((result.folder / "model.json").read_text())
    model = about["model"]
    assert model["array"] in result.arrays
    assert about["variables"] == result.variables
    assert about["versions"]["numpy"] == np.__version__
    assert about["scores"]
    if study == "server-graph":
        assert (model["classes"], model["loss"]) == ([-1, 1], "logistic")


def test_the_two_files_are_enough_elsewhere(runs, tmp_path, capsys):
    result = runs("server-graph")
    for name in ("model.json", "result.npz"):
        shutil.copy(result.folder / name, tmp_path / name)
    rng = np.random.default_rng(5)
    X = rng.normal(size=(30, 5))
    np.savez(tmp_path / "new.npz", X=X, y=np.sign(X[:, 0]))
    here = predict(result, tmp_path / "new.npz")
    there = predict(load_model(tmp_path), tmp_path / "new.npz")
    assert here == there
    w, intercept = in_units_of_the_data(result, "centroid")
    margin = X @ w + intercept
    assert [row[0] for row in here.rows] == np.where(margin >= 0, 1, -1).tolist()
    assert here.score == pytest.approx(np.mean(np.sign(margin) == np.sign(X[:, 0])))
    assert main(["predict", str(tmp_path), str(tmp_path / "new.npz")]) == 0
    assert "share of right labels on these rows" in capsys.readouterr().out
    (tmp_path / "result.npz").unlink()
    (tmp_path / "model.json").unlink()
    with pytest.raises(FileNotFoundError, match=r"neither run\.json nor model\.json"):
        load_model(tmp_path)


def test_data_may_be_in_memory_with_columns_in_any_order(runs):
    result = runs("server-graph")
    X = np.random.default_rng(6).normal(size=(10, 5))
    y = np.sign(X[:, 1])
    frame = pd.DataFrame(X, columns=result.variables)
    plain = predict(result, X)
    assert plain.score is None
    assert predict(result, frame[frame.columns[::-1]]).rows == plain.rows
    assert predict(result, frame.assign(y=y)).score == predict(result, (X, y)).score
    assert any("not used" in note for note in predict(result, frame.assign(odd=1.0)).notes)
    for bad, words in (
        (X[:, :3], "has 3 columns, the result was learned from 5"),
        (frame.drop(columns=result.variables[2]), f"lacks '{result.variables[2]}'"),
        (np.full((2, 5), np.nan), "missing or infinite"),
        ((X, y[:4]), "there are 10 records"),
        (frame.astype(object).assign(**{result.variables[0]: "x"}), "not a table of numbers"),
    ):
        with pytest.raises(DataError, match=words):
            predict(result, bad)


def test_a_client_s_own_model_must_be_named(runs):
    result = runs("cluster-admm")
    X = np.random.default_rng(7).normal(size=(6, 5))
    with pytest.raises(ConfigError, match="say whose, of ward-1, ward-2"):
        predict(result, X)
    with pytest.raises(ConfigError, match="the clients are ward-1"):
        predict(result, X, "nobody")
    found = predict(result, X, "ward-2")
    w, intercept = in_units_of_the_data(result, "clients")
    np.testing.assert_allclose([row[0] for row in found.rows], X @ w[1] + intercept[1])


@pytest.mark.parametrize("study", ["consensus-graph", "joint-precision"])
def test_graphs_tell_how_likely_new_records_are(runs, study):
    result = runs(study)
    with np.load(result.folder.parent / "data" / "ward-1.npz") as file:
        X = file["X"]
    like = predict(result, X, "ward-1").score
    unlike = predict(result, np.random.default_rng(8).permuted(X, axis=0), "ward-1").score
    assert like > unlike  # columns that no longer belong together


def test_classes_of_new_graphs(runs, tmp_path):
    result = runs("gromov-wasserstein")
    graphs = synthetic_graphs(9, np.random.default_rng(9))
    write_graphs(tmp_path / "new.npz", graphs)
    found = predict(result, tmp_path / "new.npz")
    assert len(found.rows) == 9
    assert found == predict(result, graphs)
    assert 0.0 <= found.score <= 1.0
