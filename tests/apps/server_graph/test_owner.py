"""What owners of devices get from server-graph and what they can do with it."""

from __future__ import annotations

import csv

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression, Ridge

from tests.apps.owner_runs import devices, held_out_places, kept_by, run_on, score_of
from trellis.apps.command import main
from trellis.apps.common.evaluation.measures import ALONE, MEAN, MOST_FREQUENT, THIS

STUDY = "server-graph"
NAMES = np.array(["age", "<b>dose</b>", "weight"])


def tables(targets="labels"):
    rng = np.random.default_rng(0)
    found = []
    for _ in range(4):
        X = rng.normal(size=(40, 3))
        y = X @ [1.0, -2.0, 0.5] + rng.normal(size=40)
        found.append({"X": X, "y": np.sign(y) if targets == "labels" else y, "columns": NAMES})
    return found


OPEN = {"servers": 2, "topology": "complete", "method": "none", "rounds": 5, "held-out": 0.25}
WAYS = {
    "none": OPEN,
    "fedavg": {"method": "fedavg", "rounds": 5, "held-out": 0.25},
    "paper": {**OPEN, "method": "iid", "privacy": "paper", "clip": 1.0},
}


@pytest.mark.parametrize("way", WAYS)
def test_every_device_gets_its_server_s_model_in_every_mode(way, tmp_path):
    data = tables()
    nodes = devices(tmp_path, data)
    record = run_on(nodes, STUDY, tmp_path / "out", WAYS[way])
    assert not any(client["failures"] for client in record["clients"])
    with np.load(tmp_path / "out" / "result.npz") as arrays:
        models, homes, centroid = arrays["models"], arrays["homes"], arrays["centroid"]
    for k, node in enumerate(nodes):
        kept = kept_by(node)
        np.testing.assert_array_equal(kept.arrays["model"], models[homes[k]])
        # Where servers noise what they tell each other, nobody is told what cancels the noise.
        assert ("centroid" in kept.arrays) == (way != "paper")
        if way != "paper":
            np.testing.assert_array_equal(kept.arrays["centroid"], centroid)
        assert kept.about["made"] == "by the server"
        assert kept.variables == NAMES.tolist()
        assert kept.about["model"]["loss"] == "logistic"


def test_scores_are_of_rows_that_were_held_out(tmp_path):
    data = tables()
    nodes = devices(tmp_path, data)
    run_on(nodes, STUDY, tmp_path / "out", OPEN)
    for node, arrays in zip(nodes, data, strict=True):
        kept = kept_by(node)
        held = held_out_places(40, 10)
        X, y, w = arrays["X"][held], arrays["y"][held], kept.arrays["model"]
        assert kept.about["scores"]["count"] == 10
        this = score_of(kept, THIS)
        assert this["mean loss"] == pytest.approx(np.mean(np.log1p(np.exp(-y * (X @ w)))))
        assert this["share of right labels"] == pytest.approx(np.mean(np.sign(X @ w) == y))
        rest, labels = arrays["X"][~held], arrays["y"][~held]
        # Mean loss and ridge / 2 |w|^2, as scikit-learn has it: C = 1 / (n ridge).
        alone = LogisticRegression(C=1 / (30 * 0.01), fit_intercept=False, tol=1e-10)
        v = alone.fit(rest, labels).coef_[0]
        told = score_of(kept, ALONE)
        assert told["mean loss"] == pytest.approx(np.mean(np.log1p(np.exp(-y * (X @ v)))), rel=1e-3)
        often = 1.0 if np.mean(labels > 0) >= 0.5 else -1.0
        assert score_of(kept, MOST_FREQUENT)["share of right labels"] == np.mean(y == often)


def test_held_out_rows_teach_nothing(tmp_path):
    data = tables()
    models = []
    for place, poison in enumerate((0.0, 1e3)):
        folder = tmp_path / str(place)
        folder.mkdir()
        nodes = devices(folder, data)
        changed = []
        for arrays in data:
            X = arrays["X"].copy()
            X[held_out_places(40, 10)] += poison
            changed.append({**arrays, "X": X})
        devices(folder, changed)
        run_on(nodes, STUDY, folder / "out", {**OPEN, "batch": 0})
        models.append(kept_by(nodes[0]).arrays["model"])
    np.testing.assert_allclose(models[0], models[1], rtol=1e-12)


def test_the_page_says_what_who_how_good_and_at_what_price(tmp_path):
    nodes = devices(tmp_path, tables(), **{"server-name": "<i>City</i> clinic"})
    run_on(nodes, STUDY, tmp_path / "out", OPEN)
    kept = kept_by(nodes[0])
    page = kept.page.read_text()
    assert "Made by the server" in page
    assert "10 of your records took no part in learning" in page
    assert "&lt;i&gt;City&lt;/i&gt; clinic" in page
    assert "&lt;b&gt;dose&lt;/b&gt;" in page
    assert "<b>dose" not in page
    assert f"<td>{kept.about['run']}</td>" in page
    assert "held-out=0.25" in page
    assert "privacy='none'" in page
    assert "no limit over all runs" in page
    assert "<svg" in page
    assert "<script" not in page


def test_without_held_out_rows_the_page_says_so(tmp_path):
    nodes = devices(tmp_path, tables())
    run_on(nodes, STUDY, tmp_path / "out", {**OPEN, "held-out": 0})
    assert "held no data out" in kept_by(nodes[0]).page.read_text()


def test_models_made_at_home_are_scored_and_their_price_is_told(tmp_path):
    nodes = devices(tmp_path, tables(), **{"max-epsilon": 3.0, "count-noise-of": "anyone"})
    settings = {"method": "fedavg", "rounds": 3, "privacy": "dp", "held-out": 0.25}
    run_on(nodes, STUDY, tmp_path / "out", settings)
    kept = kept_by(nodes[1])
    assert kept.about["made"] == "here"
    assert score_of(kept, THIS)["mean loss"] > 0.0
    spent = kept.about["spent"]
    assert spent["run-releases"] == spent["all-releases"] == 4  # three rounds and the score
    assert 0.0 < spent["run-epsilon"] <= 1.0
    page = kept.page.read_text()
    assert "Your limit over all runs is epsilon 3." in page
    assert "4 counted releases" in page


def test_predictions_are_the_model_s_and_wrong_columns_are_named(tmp_path, capsys):
    nodes = devices(tmp_path, tables())
    run_on(nodes, STUDY, tmp_path / "out", OPEN)
    w, state = kept_by(nodes[0]).arrays["model"], nodes[0]["state-path"]
    X = np.random.default_rng(5).normal(size=(30, 3))
    y = np.where(X[:, 0] > 0, 1, 0)
    new = tmp_path / "new.csv"
    with new.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["weight", "y", "<b>dose</b>", "age", "extra"])  # in another order
        writer.writerows([x[2], label, x[1], x[0], 9] for x, label in zip(X, y, strict=True))
    out = tmp_path / "predicted.csv"
    assert main(["device", "predict", state, str(new), "--out", str(out)]) == 0
    said = capsys.readouterr().out
    right = np.mean(np.where(X @ w >= 0, 1, 0) == y)
    assert f"share of right labels on these rows: {right:.4g}" in said
    assert "not used, the result does not know them: 'extra'" in said
    rows = list(csv.DictReader(out.open()))
    np.testing.assert_allclose(
        [float(row["probability of 1"]) for row in rows], 1 / (1 + np.exp(-X @ w)), rtol=1e-12
    )
    assert [int(row["predicted"]) for row in rows] == np.where(X @ w >= 0, 1, -1).tolist()
    new.write_text("age,height\n1,2\n")
    assert main(["device", "predict", state, str(new)]) == 1
    said = " ".join(capsys.readouterr().out.split())
    assert "lacks '<b>dose</b>', 'weight' of the 3 columns" in said


def test_numbers_are_predicted_and_scored_by_r_squared(tmp_path, capsys):
    data = tables("numbers")
    nodes = devices(tmp_path, data)
    run_on(nodes, STUDY, tmp_path / "out", {**OPEN, "loss": "least-squares"})
    kept = kept_by(nodes[2])
    held = held_out_places(40, 10)
    X, y = data[2]["X"][held], data[2]["y"][held]
    v = Ridge(alpha=30 * 0.01, fit_intercept=False).fit(data[2]["X"][~held], data[2]["y"][~held])
    spread = np.sum((y - y.mean()) ** 2)
    expected = 1 - np.sum((y - X @ v.coef_) ** 2) / spread
    assert score_of(kept, ALONE)["R squared"] == pytest.approx(expected, rel=1e-4)
    mean = data[2]["y"][~held].mean()
    expected = 1 - np.sum((y - mean) ** 2) / spread
    assert score_of(kept, MEAN)["R squared"] == pytest.approx(expected)
    np.savez(tmp_path / "new.npz", X=X, y=y, columns=NAMES)
    assert main(["device", "predict", nodes[2]["state-path"], str(tmp_path / "new.npz")]) == 0
    expected = score_of(kept, THIS)["R squared"]
    assert f"R squared on these rows: {expected:.4g}" in capsys.readouterr().out
