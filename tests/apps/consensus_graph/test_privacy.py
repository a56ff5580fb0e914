"""What leaves a client, and that it is what the ledger says."""

from __future__ import annotations

import json

import numpy as np
import pytest
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, RecordDict

from trellis.apps import client_app, run
from trellis.apps.common.node import Node
from trellis.apps.common.runner import make_run_config
from trellis.apps.common.tables import read_table
from trellis.apps.consensus_graph.local import Statistic
from trellis.privacy.mechanisms.noise import device_secret, release_noise
from trellis.sim.grid import LocalGrid
from trellis.strategies.core import wire

STUDY = "consensus-graph"
PAPER = {
    "privacy": "paper", "local-steps": 5, "rounds": 8, "step": 0.01, "epsilon": 2.0, "delta": 1e-6,
    "nodes": 6, "clients": 3,
}  # fmt: skip


def test_a_devices_secret_is_its_own(tmp_path):
    secret = device_secret(tmp_path / "x")
    assert device_secret(tmp_path / "x") == secret
    assert device_secret(tmp_path / "y") != secret
    assert (tmp_path / "x" / "secret").stat().st_mode & 0o077 == 0
    (tmp_path / "x" / "secret").write_bytes(b"short")
    with pytest.raises(ValueError, match="damaged"):
        device_secret(tmp_path / "x")


def test_a_description_cannot_be_mistaken_for_another():
    secret = bytes(32)
    one = release_noise(secret, "ab", "c").standard_normal(4)
    two = release_noise(secret, "a", "bc").standard_normal(4)
    assert not np.allclose(one, two)


def test_paper_mode_says_that_it_is_not_private(tmp_path, caplog):
    result = run(STUDY, {**PAPER, "tolerance": 0.0}, out=tmp_path)
    assert any("NOT PRIVATE" in note for note in result.notes)
    assert "NOT PRIVATE" in caplog.text
    assert "NOT PRIVATE" in (tmp_path / "report.html").read_text()
    ledger = json.loads((tmp_path / "run.json").read_text())["ledger"]
    assert ledger["claim"].startswith("NOT PRIVATE")
    assert all(len(entry["events"]) == 8 for entry in ledger["clients"])
    event = ledger["clients"][0]["events"][0]
    epsilon, delta = 2.0 / 8, 1e-6 / 8
    expected = 2 * np.sqrt(2 * np.log(1.25 / delta)) * 25.0 / (50 * epsilon)  # Theorem 3
    assert event["sigma"] == pytest.approx(expected)
    assert ledger["epsilon"] <= 2.0 + 1e-9
    assert "objective" not in result.metrics[0]


def test_paper_mode_carries_unnoised_momentum_which_is_why_it_leaks():
    run_config = make_run_config(STUDY, {**PAPER, "local-steps": 6, "rounds": 2})
    node = {"partition-id": 0, "num-partitions": 3, "simulation": True}
    with LocalGrid(client_app, [node], run_config) as grid:
        own = np.full(15, 0.2)
        second = []
        for first_round in (1, 7):  # 7: no momentum of round 1 is known in round 2
            for server_round in (first_round, 2):
                content = RecordDict(
                    {
                        "arrays": wire.record({"consensus": own, "own": own}),
                        "config": ConfigRecord({"server-round": server_round, "pull": 0.1}),
                    }
                )
                message = Message(content, next(iter(grid.get_node_ids())), "train")
                (reply,) = grid.send_and_receive([message], timeout=10)
            second.append(wire.unpack(reply.content["arrays"]["weights"]))
    assert not np.array_equal(second[0], second[1])


def test_without_privacy_the_ledger_claims_nothing():
    result = run(STUDY, {"nodes": 6, "clients": 2})
    assert result.ledger["mode"] == "none"
    assert result.ledger["claim"].startswith("None")
    assert result.ledger["epsilon"] == 0.0


def test_a_device_never_takes_data_or_noise_from_the_server(tmp_path):
    run_config = {**make_run_config(STUDY, {"privacy": "dp"}), "data": str(tmp_path)}
    np.savez(tmp_path / "private.npz", X=np.random.default_rng(0).normal(size=(9, 4)))
    context = Context(1, 2, {"partition-id": 0}, RecordDict(), run_config)
    with pytest.raises(ValueError, match="names no data"):
        Node.of(context)
    context.node_config["data-path"] = str(tmp_path / "private.npz")
    node = Node.of(context)
    assert not node.simulated
    assert read_table(node.data_path).values.shape == (9, 4)


def test_records_survive_the_state():
    state = RecordDict()
    Statistic(np.arange(3.0), 7).keep(state)
    back = Statistic.from_records(state)
    assert isinstance(state["statistic"], ArrayRecord)
    np.testing.assert_array_equal(back.values, np.arange(3.0))
    assert back.count == 7
