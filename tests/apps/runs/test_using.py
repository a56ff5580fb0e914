"""What a run has learned is used on new data: later, elsewhere, from a file or from memory."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pandas as pd
import pytest

from tests.apps.test_held_out import STUDIES, own_data
from trellis.apps.command import main
from trellis.apps.common.runner import run
from trellis.apps.common.settings import ConfigError
from trellis.apps.common.tables import DataError
from trellis.apps.gromov_wasserstein.files.npz import write_graphs
from trellis.apps.gromov_wasserstein.synthetic import synthetic_graphs
from trellis.apps.runs.using import load_model, predict


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
        (frame.astype(object).assign(**{result.variables[0]: "x"}), "could not convert string"),
        (pd.concat([frame, frame], axis=1), "stands more than once"),
    ):
        with pytest.raises(DataError, match=words):
            predict(result, bad)


def test_a_client_s_own_model_must_be_named(runs):
    result = runs("cluster-admm")
    X = np.random.default_rng(7).normal(size=(6, 5))
    with pytest.raises(ConfigError, match=r"say whose with --client NAME, .* of ward-1, ward-2"):
        predict(result, X)
    with pytest.raises(ConfigError, match="the clients are ward-1"):
        predict(result, X, "nobody")
    found = predict(result, X, "ward-2")
    w, intercept = in_units_of_the_data(result, "clients")
    np.testing.assert_allclose([row[0] for row in found.rows], X @ w[1] + intercept[1])


def test_what_else_stands_in_a_table_of_new_records_is_not_looked_at(runs, tmp_path):
    result = runs("server-graph")
    X = np.random.default_rng(6).normal(size=(10, 5)).round(3)
    frame = pd.DataFrame(X, columns=result.variables)
    plain = predict(result, frame)
    more = frame.assign(y=1, patient="Smith, J.", born="1.2.1990", ward=np.nan)
    more = more[["patient", *frame.columns[::-1], "born", "ward", "y"]]
    more.to_csv(tmp_path / "new.csv", index=False)
    more.to_csv(tmp_path / "decimal.csv", index=False, sep=";", decimal=",")
    for data in (more, tmp_path / "new.csv", tmp_path / "decimal.csv"):
        found = predict(result, data)
        assert found.rows == plain.rows
        assert found.score == np.mean([row[0] == 1 for row in plain.rows])
        assert "'patient', 'born', 'ward'" in found.notes[0]
    text = (tmp_path / "new.csv").read_text().splitlines()
    for row, words in ((text[1].replace("0.", "low", 1), "not a number"), ("a,1", "has 2 cells")):
        (tmp_path / "bad.csv").write_text("\n".join([text[0], row, *text[2:]]))
        with pytest.raises(DataError, match=f"row 1.*{words}"):
            predict(result, tmp_path / "bad.csv")


@pytest.mark.parametrize("study", ["server-graph", "cluster-admm"])
@pytest.mark.parametrize("lower", [0, -1])
def test_labels_come_back_as_they_were_given(tmp_path, study, lower):
    rng = np.random.default_rng(2)
    X = rng.normal(size=(80, 2))
    labels = np.where(X[:, 0] + 0.3 * rng.normal(size=80) > 0, 1, lower)
    for k in range(4):
        np.savez(tmp_path / f"ward-{k}.npz", X=X[k::4], y=labels[k::4])
    settings = {"rounds": 40, "loss": "logistic"}
    result = run(study, settings, data=tmp_path, out=tmp_path / "out", report=False)
    found = predict(result, (X, labels), None if study == "server-graph" else "ward-1")
    told = np.array([row[0] for row in found.rows])
    assert set(told.tolist()) == {lower, 1}
    assert np.mean(told == labels) == found.score > 0.8
    assert json.loads((tmp_path / "out" / "model.json").read_text())["model"]["classes"] == [
        lower,
        1,
    ]


def test_labels_are_not_told_apart_where_no_scales_are_told(tmp_path):
    X = np.random.default_rng(2).normal(size=(80, 2))
    for k in range(4):
        np.savez(tmp_path / f"ward-{k}.npz", X=X[k::4], y=(X[k::4, 0] > 0).astype(int))
    for more in ({"privacy": "dp", "epsilon": 5.0, "servers": 1}, {"secure-aggregation": "on"}):
        result = run("server-graph", {"rounds": 3, **more}, data=tmp_path)
        assert "classes" not in result.arrays


def test_a_graph_in_its_clients_own_units_needs_some_rows(runs):
    result = runs("consensus-graph")
    X = np.random.default_rng(6).normal(size=(3, len(result.variables)))
    assert len(predict(result, X).rows) == 3
    with pytest.raises(DataError, match=r"too few rows \(2\)"):
        predict(result, X[:2])


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
