from __future__ import annotations

import json

import numpy as np
import pytest
from flwr.app import Context, RecordDict
from sklearn.metrics import matthews_corrcoef

from trellis.apps.common.metrics import edges, matthews, relative_error
from trellis.apps.common.node import Node
from trellis.apps.common.progress import listening, publish
from trellis.apps.common.results import RunResult, metrics_csv, read_metrics_csv, write_atomically
from trellis.apps.common.seeds import generator
from trellis.apps.common.tables import DataError


def test_matthews_agrees_with_scikit_learn():
    rng = np.random.default_rng(0)
    for _ in range(50):
        learned, truth = rng.random(40), rng.random(40) * (rng.random(40) < 0.4)
        guess = learned > 0.5 * learned.max()
        assert matthews(learned, truth, 0.5) == pytest.approx(matthews_corrcoef(truth > 0, guess))


def test_empty_graphs_have_no_correlation_and_no_edges():
    assert matthews(np.zeros(4), np.array([0, 1.0, 0, 1])) == 0.0
    assert not edges(np.zeros(4)).any()
    assert not edges(np.zeros((2, 0))).any()


def test_relative_error():
    assert relative_error(np.array([3.0, 4.0]), np.array([0.0, 4.0])) == 0.75
    assert relative_error(np.zeros(2), np.zeros(2)) == 0.0
    assert relative_error(np.ones(2), np.zeros(2)) == float("inf")


def test_generators_differ_by_every_part_of_their_name():
    draws = {
        tuple(generator(*key).random(2))
        for key in [(1, "a"), (2, "a"), (1, "b"), (1, "a", 1), (1, "a", 0, 1), (1, "a", 1, 1)]
    }
    assert len(draws) == 6
    again = [generator(1, "a", 2, 3).random(3) for _ in range(2)]
    np.testing.assert_array_equal(*again)


def test_generators_give_the_same_numbers_on_every_machine():
    # As printed by: generator(1, "signals", 2).integers(1000, size=4)
    drawn = generator(1, "signals", 2).integers(1000, size=4)
    np.testing.assert_array_equal(drawn, [482, 332, 656, 429])


def result() -> RunResult:
    return RunResult(
        study="s", seed=3, engine="local", config={"a": 1}, arrays={"w": np.arange(3.0)},
        metrics=[{"round": 1.0, "x": 0.1}, {"round": 2.0, "y": 1e-300}],
        headline={"x": 0.1}, notes=["n"], clients=[{"name": "c"}], bytes_up=5, status="completed",
    )  # fmt: skip


def test_a_result_survives_its_folder(tmp_path):
    saved = result()
    saved.save(tmp_path)
    loaded = RunResult.load(tmp_path)
    np.testing.assert_array_equal(loaded.arrays.pop("w"), saved.arrays.pop("w"))
    assert loaded == saved
    assert "x" in loaded.summary()
    assert {p.name for p in tmp_path.iterdir()} == {"run.json", "metrics.csv", "result.npz"}
    header = json.loads((tmp_path / "run.json").read_text())
    assert {"study", "config", "seed", "engine", "versions", "ledger", "bytes_up"} <= set(header)


def test_a_folder_without_a_run_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match="holds no run"):
        RunResult.load(tmp_path)
    (tmp_path / "run.json").write_text('{"format": 99}')
    with pytest.raises(ValueError, match="another version"):
        RunResult.load(tmp_path)


def test_metrics_keep_missing_values_missing():
    rows = [{"round": 1.0}, {"round": 2.0, "mcc": 0.125}]
    assert read_metrics_csv(metrics_csv(rows)) == rows


def test_a_crash_while_writing_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "f"
    write_atomically(path, b"old")
    monkeypatch.setattr("os.replace", lambda *_: (_ for _ in ()).throw(OSError("disk")))
    with pytest.raises(OSError, match="disk"):
        write_atomically(path, b"new")
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_progress_reaches_the_listener_and_nobody_else():
    heard = []
    publish("s", 5, {"round": 1.0})
    with listening(lambda *what: heard.append(what)):
        publish("s", 5, {"round": 2.0})
    publish("s", 5, {"round": 3.0})
    assert heard == [("s", 5, {"round": 2.0})]


def context(node_config, **run_config) -> Context:
    return Context(1, 2, node_config, RecordDict(), run_config)


def test_a_device_is_named_by_its_own_config(tmp_path):
    path = tmp_path / "ward.csv"
    node = Node.of(context({"data-path": str(path)}, data="/from/the/server", out="/server"))
    assert (node.name, node.partition, node.data_path, node.simulated) == ("ward", -1, path, False)
    assert node.state_path == tmp_path / ".ward-trellis"
    named = {"data-path": str(path), "name": "Ward 7", "state-path": "/var/x", "partition-id": 4}
    node = Node.of(context(named))
    assert (node.name, node.partition, str(node.state_path)) == ("Ward 7", 4, "/var/x")


@pytest.mark.parametrize(
    ("node_config", "message"),
    [
        ({"data-path": "relative.csv"}, "absolute path"),
        ({"partition-id": 1}, "names no data"),
        ({"simulation": True}, "needs partition-id"),
        ({"simulation": True, "partition-id": "x"}, "partition-id='x'"),
        ({"simulation": "yes", "partition-id": 1}, "names no data"),
    ],
)
def test_a_node_that_is_not_set_up_says_how(node_config, message):
    with pytest.raises(DataError, match=message):
        Node.of(context(node_config))


def test_a_simulated_node_takes_its_file_by_partition(tmp_path):
    for name in ("b", "a"):
        np.savez(tmp_path / f"{name}.npz", X=np.ones((2, 2)))
    simulated = {"simulation": True, "partition-id": 1}
    node = Node.of(context(simulated, data=str(tmp_path), out="/x"))
    assert node.name == "b"
    assert str(node.state_path) == "/x/nodes/1"
    with pytest.raises(DataError, match="2 files, none for partition 2"):
        Node.of(context({"simulation": True, "partition-id": 2}, data=str(tmp_path)))
    assert Node.of(context(simulated)).data_path is None
