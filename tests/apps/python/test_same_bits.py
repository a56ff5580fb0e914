"""Data in memory gives the bits that the same data gives in files."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import trellis
from trellis.apps.common.settings import ConfigError
from trellis.apps.common.tables import DataError, client_files
from trellis.strategies.core.checkpoint import Checkpoint

from .wards import SETTINGS, STUDIES, as_files, assert_same, wards


@pytest.mark.parametrize("study", STUDIES)
def test_data_frames_and_graphs_are_as_good_as_files(study, tmp_path):
    data = wards(study)
    folder = as_files(study, data, tmp_path / "files")
    if data.assignment is not None:
        with (folder / "assignment.csv").open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(["client", *data.assignment["ward-1"]])
            writer.writerows([name, *row.values()] for name, row in data.assignment.items())
    here = trellis.run(study, SETTINGS[study], data=folder, seed=3)
    there = trellis.run(study, SETTINGS[study], data=data, assignment=data.assignment, seed=3)
    assert_same(here, there)


@pytest.mark.parametrize("study", ["consensus-graph", "server-graph"])
def test_arrays_and_pairs_are_as_good_as_files_of_arrays(study, tmp_path):
    data = wards(study)
    given = {}
    for name, frame in data.items():
        if study == "consensus-graph":
            # Columns one after the other, as pandas has them: other last bits in a product.
            given[name] = np.asfortranarray(frame.to_numpy())
            np.savez(tmp_path / f"{name}.npz", X=np.ascontiguousarray(given[name]))
        else:
            X, y = frame.drop(columns="y").to_numpy(), frame["y"].to_numpy()
            given[name] = (np.asfortranarray(X), y)
            np.savez(tmp_path / f"{name}.npz", X=np.ascontiguousarray(X), y=y)
    here = trellis.run(study, SETTINGS[study], data=tmp_path)
    assert_same(here, trellis.run(study, SETTINGS[study], data=given))
    there = trellis.run(study, SETTINGS[study], data=list(given.values()))
    assert [client["name"] for client in there.clients][:2] == ["client-1", "client-2"]
    assert here.arrays.keys() == there.arrays.keys()
    assert all(np.array_equal(here.arrays[k], there.arrays[k]) for k in here.arrays)


def test_clients_keep_their_names_and_their_order():
    data = wards("consensus-graph")
    turned = {
        "zebra 2": data["ward-2"], "Ärzte, alle": data["ward-1"], "a.b": data["ward-3"],
    }  # fmt: skip
    result = trellis.run("consensus-graph", SETTINGS["consensus-graph"], data=turned)
    assert [client["name"] for client in result.clients] == list(turned)
    straight = trellis.run("consensus-graph", SETTINGS["consensus-graph"], data=data)
    assert result.graphs == ["consensus", *turned]
    order = [1, 0, 2]
    np.testing.assert_allclose(
        result.arrays["weights"], straight.arrays["weights"][order], atol=1e-6
    )


def test_three_things_for_one_client_columns_named_by_hand():
    data = wards("server-graph")
    given = {
        name: (frame.drop(columns="y").to_numpy(), frame["y"], ["age", "dose"])
        for name, frame in data.items()
    }
    result = trellis.run("server-graph", SETTINGS["server-graph"], data=given)
    assert result.variables == ["age", "dose"]


def test_nullable_columns_and_whole_numbers_are_numbers():
    frame = pd.DataFrame({"a": pd.array([1, 2, 4, 3], dtype="Int64"), "b": [True, False, True, 1]})
    frame["c"] = [0.5, 0.25, 4, 1]
    same = pd.DataFrame({name: frame[name].astype(float) for name in frame})
    settings = {"rounds": 2}
    one = trellis.run("consensus-graph", settings, data={"x": frame, "y": frame})
    other = trellis.run("consensus-graph", settings, data={"x": same, "y": same})
    assert_same(one, other)


def test_which_server_and_cluster_is_told_by_a_mapping_or_a_table():
    data = wards("cluster-admm")
    told = {name: {"server": 1, "cluster": k % 2} for k, name in enumerate(data)}
    told["ward-1"]["server"] = 0
    result = trellis.run("cluster-admm", SETTINGS["cluster-admm"], data=data, assignment=told)
    assert result.arrays["homes"].tolist() == [0, 1, 1, 1]
    assert result.arrays["clusters"].tolist() == [0, 1, 0, 1]
    frame = pd.DataFrame({"client": list(told), **pd.DataFrame(told).T})
    again = trellis.run("cluster-admm", SETTINGS["cluster-admm"], data=data, assignment=frame)
    assert_same(result, again)
    indexed = frame.set_index("client")[["cluster", "server"]]
    third = trellis.run("cluster-admm", SETTINGS["cluster-admm"], data=data, assignment=indexed)
    assert_same(result, third)


class Stopped(BaseException):
    pass


def test_a_stopped_run_goes_on_when_the_same_data_is_given_again(tmp_path, monkeypatch):
    study, out = "server-graph", tmp_path / "out"
    data, settings = wards(study), {**SETTINGS[study], "rounds": 6}
    unbroken = trellis.run(study, settings, data=data, seed=5)
    original = Checkpoint.save

    def save_and_stop(self, snapshot):
        original(self, snapshot)
        if snapshot.server_round == 3:
            raise Stopped

    monkeypatch.setattr(Checkpoint, "save", save_and_stop)
    monkeypatch.setattr(Checkpoint, "due", lambda self: True)
    with pytest.raises(Stopped):
        trellis.run(study, settings, data=data, seed=5, out=out, report=False)
    monkeypatch.undo()
    assert not list(out.glob("in-memory-*"))
    with pytest.raises(ConfigError, match="given in Python and is not kept; give the same data"):
        trellis.run(study, out=out, resume=True)
    with pytest.raises(DataError, match="given in Python and is not kept; go on with"):
        client_files(Path(trellis.load(out).data))
    other = {name: frame + 1.0 for name, frame in data.items()}
    with pytest.raises(ConfigError, match="other data than the run was started with"):
        trellis.run(study, data=other, out=out, resume=True)
    # Settings and seed are those of the run.
    resumed = trellis.run(study, data=data, out=out, resume=True, report=False)
    assert len(resumed.metrics) == 6
    assert resumed.seed == 5
    assert_same(unbroken, resumed)


def test_nothing_of_the_data_is_left_beside_the_result(tmp_path):
    out = tmp_path / "out"
    data = wards("consensus-graph")
    result = trellis.run("consensus-graph", SETTINGS["consensus-graph"], data=data, out=out)
    assert result.folder == out
    assert not [path for path in out.rglob("*") if path.name.startswith(("in-memory", "ward"))
                and path.suffix in (".npz", ".csv")]  # fmt: skip
    assert "given in Python and is not kept" in (out / "report.html").read_text()


def test_a_run_that_is_refused_leaves_no_folder(tmp_path):
    data = wards("consensus-graph")
    with pytest.raises(ConfigError):
        trellis.run("consensus-graph", data=data, rho=-1.0, out=tmp_path / "out")
    assert not (tmp_path / "out").exists()
    (tmp_path / "mine").mkdir()
    with pytest.raises(ConfigError):
        trellis.run("consensus-graph", data=data, rho=-1.0, out=tmp_path / "mine")
    assert (tmp_path / "mine").is_dir()
