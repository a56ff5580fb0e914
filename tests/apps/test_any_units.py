"""Studies on a person's own tables, in any units, with nothing set: what they choose fits.

Breast cancer and diabetes are scikit-learn's; accuracies are of records that no client has.
"""

from __future__ import annotations

import csv
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from trellis.apps.common.metrics import edges
from trellis.apps.common.own_data.scaling import Scaling
from trellis.apps.common.runner import make_run_config, run
from trellis.apps.gromov_wasserstein.files.npz import write_graphs
from trellis.apps.gromov_wasserstein.synthetic import synthetic_graphs
from trellis.apps.runs.using import predict

datasets = pytest.importorskip("sklearn.datasets")

Array = NDArray[np.float64]


def deal(folder: Path, X: Array, y: Array | None, clients: int) -> None:
    """Write one csv a client, in the order of the rows."""
    folder.mkdir()
    names = [f"f{i}" for i in range(X.shape[1])]
    table = X if y is None else np.column_stack([X, y])
    for k, rows in enumerate(np.array_split(table, clients)):
        with (folder / f"site-{k:02d}.csv").open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(names if y is None else [*names, "y"])
            writer.writerows(rows.tolist())


def split(X: Array, y: Array, test: int) -> tuple[Array, Array, Array, Array]:
    order = np.random.default_rng(5).permutation(len(y))
    X, y = X[order], y[order].astype(float)
    return X[test:], y[test:], X[:test], y[:test]


def cancer() -> tuple[Array, Array, Array, Array]:
    return split(*datasets.load_breast_cancer(return_X_y=True), 150)


def diabetes() -> tuple[Array, Array, Array, Array]:
    return split(*datasets.load_diabetes(return_X_y=True, scaled=False), 110)


@pytest.mark.parametrize(
    ("study", "settings"),
    [
        ("server-graph", {}),
        ("server-graph", {"method": "none"}),
        ("cluster-admm", {"loss": "logistic"}),
    ],
    ids=str,
)
def test_labels_are_learned_from_raw_features(study, settings, tmp_path):
    X, y, new, truth = cancer()
    deal(tmp_path / "data", X, y, 12)
    result = run(study, settings, data=tmp_path / "data")
    named = None if study == "server-graph" else "site-00"
    told = predict(result, (new, truth), named)
    assert told.score >= 0.93
    assert result.config["standardise"] == "auto"
    notes = " ".join(result.notes)
    assert "servers=4 (3 clients at least for each), topology=complete" in notes
    assert "standardise=shared (auto: " in notes
    assert ("step=0.129 (auto: 31 parameters" if study == "server-graph" else "rho=0.375") in notes


@pytest.mark.parametrize(
    ("study", "settings"),
    [("server-graph", {"loss": "least-squares", "method": "none"}), ("cluster-admm", {})],
    ids=str,
)
def test_numbers_are_learned_and_told_in_their_own_units(study, settings, tmp_path):
    X, y, new, truth = diabetes()
    deal(tmp_path / "data", X, y, 8)
    result = run(study, settings, data=tmp_path / "data")
    one = np.column_stack([X, np.ones(len(X))])
    pooled = np.linalg.lstsq(one, y, rcond=None)[0]
    errors = truth - new @ pooled[:-1] - pooled[-1]
    best = 1.0 - np.sum(errors**2) / np.sum((truth - truth.mean()) ** 2)
    named = None if study == "server-graph" else "site-00"
    told = predict(result, (new, truth), named)
    assert told.score >= best - 0.03
    scaling = Scaling.from_arrays(result.arrays)
    array = "centroid" if study == "server-graph" else "clients"
    slopes, intercept = scaling.raw_coefficients(np.atleast_2d(result.arrays[array])[0])
    by_hand = new @ slopes + intercept
    np.testing.assert_allclose([row[0] for row in told.rows], by_hand, rtol=1e-8)


@pytest.mark.parametrize(
    ("study", "settings"),
    [
        ("server-graph", {"rounds": 20}),
        ("server-graph", {"rounds": 20, "loss": "least-squares", "method": "none"}),
        ("cluster-admm", {"rounds": 20}),
    ],
    ids=str,
)
def test_other_units_make_no_other_model(study, settings, tmp_path):
    X, y, _, _ = diabetes()
    if settings.get("loss", "logistic" if study == "server-graph" else "") == "logistic":
        y = np.where(y > 140.0, 1.0, -1.0)
        other = y
    else:
        other = 1000.0 * y - 5.0
    deal(tmp_path / "as-it-is", X, y, 8)
    deal(tmp_path / "other", 1000.0 * X + 5.0, other, 8)
    first, second = (run(study, settings, data=tmp_path / name) for name in ("as-it-is", "other"))
    np.testing.assert_allclose(second.arrays["models"], first.arrays["models"], atol=1e-6)
    np.testing.assert_allclose(second.arrays["scale"], 1000.0 * first.arrays["scale"], rtol=1e-6)


@pytest.mark.parametrize("factor", [1e-3, 1e3])
def test_other_units_make_no_other_graph(factor, tmp_path):
    X = cancer()[0]
    deal(tmp_path / "as-it-is", X, None, 5)
    deal(tmp_path / "other", factor * X + 5.0, None, 5)
    first, second = (run("consensus-graph", data=tmp_path / n) for n in ("as-it-is", "other"))
    assert np.array_equal(edges(first.arrays["consensus"]), edges(second.arrays["consensus"]))
    np.testing.assert_allclose(second.arrays["weights"], first.arrays["weights"], atol=1e-6)
    pairs = X.shape[1] * (X.shape[1] - 1) // 2
    found = int(np.count_nonzero(edges(first.arrays["consensus"])))
    assert 0.02 * pairs < found < 0.5 * pairs
    assert "alpha=2, beta=0.03, rho=1.5, lambda=0.3 (auto: 30 nodes, 5 clients)" in first.notes


def test_labels_where_numbers_are_expected_are_hinted_at(tmp_path):
    X, y, _, _ = cancer()
    deal(tmp_path / "data", X, y, 4)
    labels = run("cluster-admm", {"rounds": 2}, data=tmp_path / "data")
    assert any("loss=logistic" in note for note in labels.notes)
    deal(tmp_path / "numbers", X, (y - y.mean()) / y.std(), 4)
    numbers = run("cluster-admm", {"rounds": 2}, data=tmp_path / "numbers")
    assert not any("loss=logistic" in note for note in numbers.notes)


@pytest.mark.parametrize("factor", [1e-3, 1e3])
def test_other_units_of_nodes_make_no_other_network(factor, tmp_path):
    found = []
    for name, unit in (("as-it-is", 1.0), ("other", factor)):
        (tmp_path / name).mkdir()
        graphs = synthetic_graphs(24, np.random.default_rng(3))
        graphs = [replace(g, features=(unit * g.features).astype(np.float32)) for g in graphs]
        for k in range(3):
            write_graphs(tmp_path / name / f"ward-{k}.npz", graphs[k::3])
        settings = {"classes": 3, "rounds": 3, "downstream": "none"}
        found.append(run("gromov-wasserstein", settings, data=tmp_path / name))
    np.testing.assert_allclose(found[1].arrays["weights"], found[0].arrays["weights"], atol=1e-4)
    assert any("standardise=graph (auto" in note for note in found[0].notes)


def test_a_precision_matrix_of_own_data_is_neither_empty_nor_full(tmp_path):
    X = cancer()[0]
    deal(tmp_path / "data", X, None, 5)
    result = run("joint-precision", data=tmp_path / "data")
    assert result.config["lambda1"] == "auto"
    count = 30 * 29 / 2
    assert 0.05 * count < result.headline["edges"] < 0.8 * count
    noise = np.sqrt(np.log(30) / np.mean([c["count"] for c in result.clients]))
    # The criterion chooses a point of a path that ends at a tenth of the noise.
    assert result.config["path"] == 8
    assert 0.0999 * noise < result.headline["lambda1"] < 1.0
    assert result.headline["lambda2"] == pytest.approx(0.75 * result.headline["lambda1"])
    assert result.headline["held-out-likelihood"] > result.headline["alone-held-out-likelihood"]
    fixed = run("joint-precision", {"path": 0}, data=tmp_path / "data")
    assert 0.05 * count < fixed.headline["edges"] < 0.5 * count
    assert fixed.headline["lambda1"] == pytest.approx(0.8 * noise)
    assert fixed.headline["lambda2"] == pytest.approx(0.6 * noise)


@pytest.mark.parametrize("study", ["server-graph", "cluster-admm"])
def test_a_private_scale_is_within_epsilon_and_worth_it(study, tmp_path):
    X, y, new, truth = cancer()
    deal(tmp_path / "data", np.tile(X, (8, 1)), np.tile(y, 8), 12)
    settings = {"privacy": "dp", "epsilon": 4.0, "rounds": 60, "held-out": 0.2}
    settings |= {"loss": "logistic"}
    result = run(study, settings, data=tmp_path / "data")
    assert 0.9 * 4.0 < result.ledger["epsilon"] <= 4.0
    events = result.ledger["clients"][0]["events"]
    assert any("sizes of features" in str(event) for event in events)
    scaling = Scaling.from_arrays(result.arrays)
    octaves = np.log2(scaling.scale / np.abs(X).mean(axis=0))
    assert np.all(np.abs(octaves) < 2.0)
    w = result.arrays["models"].reshape(-1, 31).mean(axis=0)
    right = np.mean((scaling.apply(new) @ w >= 0.0) == (truth > 0.0))
    assert right >= 0.85


@pytest.mark.parametrize("study", ["server-graph", "cluster-admm"])
def test_learning_alone_is_not_spoiled_by_a_scale_that_noise_hides(study, tmp_path):
    X, y, _, _ = cancer()
    deal(tmp_path / "data", X, y, 4)
    settings = {"privacy": "dp", "epsilon": 0.1, "rounds": 5, "loss": "logistic"}
    result = run(study, settings, data=tmp_path / "data")
    assert any("hides" in note for note in result.notes)
    assert result.headline["alone-held-out-accuracy"] > 0.85


def test_public_scales_cost_nothing_and_are_used(tmp_path):
    X, y, _, _ = cancer()
    deal(tmp_path / "data", X, y, 12)
    rows = [f"f{i},{m},{s}" for i, (m, s) in enumerate(zip(X.mean(0), X.std(0), strict=True))]
    (tmp_path / "scales.csv").write_text("name,offset,scale\n" + "\n".join(rows))
    settings = {"scales": str(tmp_path / "scales.csv"), "rounds": 3, "privacy": "dp"}
    result = run("server-graph", settings, data=tmp_path / "data")
    np.testing.assert_allclose(result.arrays["scale"], X.std(axis=0))
    events = result.ledger["clients"][0]["events"]
    assert not any("sizes of features" in str(event) for event in events)


def test_a_run_goes_on_with_the_scale_it_began_with(tmp_path):
    X, y, _, _ = cancer()
    deal(tmp_path / "data", X, y, 6)
    whole = run("server-graph", {"rounds": 6}, data=tmp_path / "data", out=tmp_path / "whole")
    run("server-graph", {"rounds": 3}, data=tmp_path / "data", out=tmp_path / "part", report=False)
    settings = {"rounds": 6}
    part = run(
        *("server-graph", settings), data=tmp_path / "data", out=tmp_path / "part", resume=True
    )
    for name in ("models", "offset", "scale"):
        np.testing.assert_array_equal(part.arrays[name], whole.arrays[name])


def test_assignment_csv_says_how_many_servers_and_clusters_there_are(tmp_path):
    X, y, _, _ = diabetes()
    deal(tmp_path / "data", X, y, 4)
    lines = [f"site-{k:02d},{k // 2},{k % 2}" for k in range(4)]
    (tmp_path / "data" / "assignment.csv").write_text("client,server,cluster\n" + "\n".join(lines))
    config = make_run_config("cluster-admm", data=tmp_path / "data")
    assert config["cluster-admm.servers"] == 2
    assert config["cluster-admm.clusters"] == "2"
    assert config["cluster-admm.topology"] == "complete"
    assert "servers=2 (as assignment.csv says)" in config["chosen"]
    given = make_run_config("cluster-admm", {"servers": 1}, data=tmp_path / "data")
    assert given["cluster-admm.servers"] == 1
    # Synthetic data keeps its defaults.
    synthetic = make_run_config("cluster-admm")
    assert synthetic["cluster-admm.standardise"] == "none"
    assert synthetic["cluster-admm.rho"] == 3.0
