"""Every study scores its result on held-out records of a person's own data, on every runtime."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest

from tests.studies import told
from trellis import apps
from trellis.apps.common.evaluation.measures import ALONE, THIS
from trellis.apps.common.results import RunResult
from trellis.apps.common.runner import make_run_config, run
from trellis.apps.gromov_wasserstein.files.npz import write_graphs
from trellis.apps.gromov_wasserstein.synthetic import synthetic_graphs
from trellis.sim.grid import run_local


def tables(folder: Path, targets: str | None) -> None:
    rng = np.random.default_rng(3)
    mixing = rng.normal(size=(5, 5))
    for k in range(4):
        X = rng.normal(size=(40, 5)) @ mixing
        more = {}
        if targets:
            y = X @ [1.0, -1.0, 0.5, 0.0, 0.2] + rng.normal(size=40)
            more["y"] = np.sign(y) if targets == "labels" else y
        np.savez(folder / f"ward-{k + 1}.npz", X=X, **more)


FEW = {"servers": 2, "topology": "complete", "rounds": 20}
# What is measured, and the settings of a small run on own data.
STUDIES = {
    "consensus-graph": (None, {}, ["mean log likelihood of a signal"]),
    "joint-precision": (None, {}, ["mean log likelihood of a sample"]),
    "server-graph": (
        "labels",
        {**FEW, "method": "none"},
        ["mean loss", "share of right labels", "area under the ROC curve"],
    ),
    "cluster-admm": ("numbers", {**FEW, "clusters": "1"}, ["mean loss", "R squared"]),
    "gromov-wasserstein": (
        None,
        {"task": "graph", "model": "gin", "rounds": 2, "downstream": "", "classes": 3},
        ["share of right labels"],
    ),
    **told("OWN_DATA"),
}


def own_data(study: str, folder: Path) -> None:
    folder.mkdir()
    if study == "gromov-wasserstein":
        graphs = synthetic_graphs(40, np.random.default_rng(3))
        for k in range(4):
            write_graphs(folder / f"ward-{k + 1}.npz", graphs[k::4])
    else:
        tables(folder, STUDIES[study][0])


def test_every_study_is_here():
    assert set(STUDIES) == set(apps.STUDIES)


@pytest.mark.parametrize("privacy", ["none", "dp"])
@pytest.mark.parametrize("study", STUDIES)
def test_a_run_on_own_data_tells_held_out_scores_beside_alone(study, privacy, tmp_path):
    own_data(study, tmp_path / "data")
    settings = {**STUDIES[study][1], "privacy": privacy}
    if privacy == "dp" and "servers" in settings:
        del settings["servers"], settings["topology"]
        settings |= {"method": "fedavg"} if study == "server-graph" else {}
    if privacy == "dp" and study == "gromov-wasserstein":
        settings["method"] = "fedavg"  # where nothing is trained there is no model to score
    result = run(study, settings, data=tmp_path / "data", out=tmp_path / "out")
    assert result.config["held-out"] == 0.2
    scores = result.scores
    assert scores["measures"] == STUDIES[study][2]
    assert len(scores["clients"]) == 4
    for client in scores["clients"]:
        assert client["count"] == (2 if study == "gromov-wasserstein" else 8)
        assert {THIS, ALONE} <= set(client["rows"])
    key = {"mean log": "likelihood", "mean los": "loss", "share of": "accuracy"}
    name = key[scores["measures"][0][:8]]
    mean = scores["mean"][THIS][0]
    assert result.headline[f"held-out-{name}"] == pytest.approx(mean) or privacy == "dp"
    assert f"alone-held-out-{name}" in result.headline
    with (tmp_path / "out" / "metrics.csv").open() as file:
        assert float(list(csv.DictReader(file))[-1][f"alone-held-out-{name}"]) == pytest.approx(
            scores["mean"][ALONE][0]
        )
    assert (tmp_path / "out" / "scores.csv").is_file()
    assert RunResult.load(tmp_path / "out").scores == scores
    page = (tmp_path / "out" / "report.html").read_text()
    assert "How good it is on data it has not seen" in page
    assert any("as this is a simulation" in note for note in result.notes) is (privacy == "dp")


@pytest.mark.parametrize("study", STUDIES)
def test_devices_tell_the_same_numbers_without_privacy(study, tmp_path):
    own_data(study, tmp_path / "data")
    settings = STUDIES[study][1] | {"held-out": 0.2, "clients": 4, "batch": 0}
    if study not in ("server-graph", "gromov-wasserstein"):
        del settings["batch"]  # drawn by the operating system on devices
    if study == "gromov-wasserstein":
        settings["method"] = "untrained"  # the order of batches is a device's own
    simulated = run(study, settings, data=tmp_path / "data")
    nodes = [
        {"data-path": str(path), "state-path": str(tmp_path / path.stem), "partition-id": k}
        for k, path in enumerate(sorted((tmp_path / "data").iterdir()))
    ]
    # What was chosen for the files is told to the devices.
    config = make_run_config(study, simulated.config) | {"out": str(tmp_path / "out")}
    run_local(apps.server_app, apps.client_app, nodes, config)
    assert RunResult.load(tmp_path / "out").scores == simulated.scores


def test_under_privacy_devices_keep_their_scores(tmp_path):
    own_data("consensus-graph", tmp_path / "data")
    nodes = [
        {
            "data-path": str(path),
            "state-path": str(tmp_path / path.stem),
            "partition-id": k,
            "count-noise-of": "anyone",
        }
        for k, path in enumerate(sorted((tmp_path / "data").iterdir()))
    ]
    settings = {"held-out": 0.2, "clients": 4, "privacy": "dp"}
    config = make_run_config("consensus-graph", settings) | {"out": str(tmp_path / "out")}
    run_local(apps.server_app, apps.client_app, nodes, config)
    result = RunResult.load(tmp_path / "out")
    assert result.scores == {}
    assert any("stay on the devices" in note for note in result.notes)
    assert "held-out" in result.headline  # the noisy sum's


def test_nothing_is_held_out_of_synthetic_data_unless_asked():
    plain = run("consensus-graph", {"nodes": 6, "clients": 3})
    assert plain.scores == {}
    asked = run("consensus-graph", {"nodes": 6, "clients": 3, "held-out": 0.2})
    assert asked.scores["clients"][0]["count"] == 10


def test_where_nothing_is_trained_nothing_is_held_out(tmp_path):
    own_data("gromov-wasserstein", tmp_path / "data")
    settings = {**STUDIES["gromov-wasserstein"][1], "privacy": "dp"}
    result = run("gromov-wasserstein", settings, data=tmp_path / "data")
    assert result.config["held-out"] == 0.0
    assert result.scores == {}


def test_another_seed_holds_other_records_out(tmp_path):
    own_data("server-graph", tmp_path / "data")
    settings = STUDIES["server-graph"][1]
    one, other = (run("server-graph", settings, data=tmp_path / "data", seed=s) for s in (1, 2))
    assert one.scores["mean"][THIS] != other.scores["mean"][THIS]
