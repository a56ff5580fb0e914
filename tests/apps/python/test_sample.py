"""Example data: what is written runs as printed, and is the study's own."""

from __future__ import annotations

import csv
import shlex

import numpy as np
import pytest

import trellis
from tests.studies import told
from trellis.apps.command import main
from trellis.apps.common.settings import ConfigError, config_class

from .wards import SETTINGS, STUDIES

FEW = {"gromov-wasserstein": ["--set", "graphs=12"]}


@pytest.mark.parametrize("study", STUDIES)
def test_the_printed_command_runs_on_the_files(study, tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "500")
    folder = tmp_path / "wards"
    more = FEW.get(study, [])
    assert main(["sample", study, str(folder), "--clients", "6", "--seed", "4", *more]) == 0
    told = capsys.readouterr().out
    assert "6 files, one per client" in told
    suffix = "npz" if study == "gromov-wasserstein" else "csv"
    names = [path.name for path in sorted(folder.glob("ward-*"))]
    assert names == [f"ward-{k}.{suffix}" for k in range(1, 7)]
    assert (folder / "assignment.csv").is_file() == (study in ("server-graph", "cluster-admm"))
    command = shlex.split(told[told.index("trellis run") :])
    assert command[:5] == ["trellis", "run", study, "--data", str(folder)]
    quick = ["--set", "rounds=1", "--out", str(tmp_path / "out")]
    assert main([*command[1:], *quick]) == 0
    result = trellis.load(tmp_path / "out")
    assert [client["name"] for client in result.clients] == [f"ward-{k}" for k in range(1, 7)]


@pytest.mark.parametrize("study", STUDIES)
def test_a_run_on_the_files_is_the_run_on_synthetic_data(study, tmp_path):
    folder = trellis.sample(study, tmp_path / "wards", seed=9, settings=SETTINGS[study])
    settings = config_class(study).as_defaults(SETTINGS[study])
    there = trellis.run(study, settings, data=folder, seed=9)
    here = trellis.run(study, SETTINGS[study], seed=9)
    mains = {"consensus-graph": "weights", "joint-precision": "sparse",
             "gromov-wasserstein": "distances", **told("MAIN_ARRAY")}  # fmt: skip
    main = mains.get(study, "models")
    assert here.arrays[main].tobytes() == there.arrays[main].tobytes()


def test_as_many_files_as_the_study_has_clients_and_names_in_order(tmp_path):
    folder = trellis.sample("cluster-admm", tmp_path / "new" / "wards", features=2)
    files = sorted(path.stem for path in folder.glob("ward*.csv"))
    assert (len(files), files[0], files[-1]) == (150, "ward-001", "ward-150")
    with (folder / "assignment.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert {row["server"] for row in rows} == {str(k) for k in range(10)}
    assert {row["cluster"] for row in rows} == {"0", "1", "2"}


@pytest.mark.parametrize("study", ["server-graph", "cluster-admm"])
def test_three_clients_have_one_server(study, tmp_path):
    data = trellis.sample(study, clients=3)
    assert {row["server"] for row in data.assignment.values()} == {0}
    settings = {name: value for name, value in data.settings.items() if name != "clients"}
    result = trellis.run(study, settings, data=data, assignment=data.assignment, rounds=1)
    assert result.status == "completed"


def test_clusters_that_are_to_be_found_are_not_told(tmp_path):
    folder = trellis.sample("cluster-admm", tmp_path / "a", clients=9, clusters="auto:2")
    assert (folder / "assignment.csv").read_text().startswith("client,server\n")


def test_files_of_somebody_s_own_are_left_alone(tmp_path):
    (tmp_path / "mine.csv").write_text("a,b\n1,2\n")
    with pytest.raises(ConfigError, match="is not an empty folder; name a new one"):
        trellis.sample("consensus-graph", tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["mine.csv"]


def test_in_hand_the_same_numbers_as_in_files(tmp_path):
    data = trellis.sample("server-graph", clients=6, seed=2)
    assert data.settings == {"clients": 6, "servers": 2, "topology": "ring"}
    folder = trellis.sample("server-graph", tmp_path / "w", clients=6, seed=2)
    values = np.loadtxt(folder / "ward-3.csv", delimiter=",", skiprows=1)
    assert np.array_equal(values, data["ward-3"].to_numpy())
    assert list(data["ward-3"].columns) == ["h1", "h2", "y"]
