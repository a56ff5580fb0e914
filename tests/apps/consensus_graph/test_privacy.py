"""What leaves a client, and that it is what the ledger says."""

from __future__ import annotations

import json

import numpy as np
import pytest
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, RecordDict

from trellis.apps import client_app, run
from trellis.apps.common import release as shared
from trellis.apps.common.node import Node
from trellis.apps.common.release import Statistic
from trellis.apps.common.runner import make_run_config
from trellis.apps.common.tables import Table, read_table
from trellis.apps.consensus_graph import client_app as study_client
from trellis.apps.consensus_graph import release
from trellis.apps.consensus_graph.config import ConsensusGraphConfig
from trellis.apps.consensus_graph.problem import sensitivity, statistic
from trellis.privacy.mechanisms.gaussian import gaussian_sigma
from trellis.privacy.mechanisms.noise import device_secret, release_noise
from trellis.sim.grid import LocalGrid
from trellis.strategies.core import wire

STUDY = "consensus-graph"
SOUND = {
    "privacy": "sound", "release": "each", "epsilon": 2.0, "delta": 1e-6, "nodes": 6, "clients": 3,
}  # fmt: skip
# By default the released statistic itself is all that is ever sent.
BY_ROUNDS = {"one-exchange": "off"}


@pytest.mark.parametrize("extra", [{}, {"local-steps": 7, "rounds": 30}, {"rounds": 2}])
def test_one_noise_draw_a_client_whatever_the_rounds_and_steps(monkeypatch, extra):
    drawn = []
    original = shared.generator

    def counting(seed, purpose, partition=0, server_round=0):
        if purpose in ("release", "gradient noise"):
            drawn.append((purpose, partition))
        return original(seed, purpose, partition, server_round)

    monkeypatch.setattr(shared, "generator", counting)
    monkeypatch.setattr(release, "generator", counting)
    result = run(STUDY, {**SOUND, "tolerance": 0.0, **extra})
    assert sorted(drawn) == [("release", 0), ("release", 1), ("release", 2)]
    assert all(len(entry["events"]) == 1 for entry in result.ledger["clients"])


def test_the_reported_epsilon_is_the_calibration():
    for epsilon in (0.1, 1.0, 5.0):
        result = run(STUDY, {**SOUND, "epsilon": epsilon, "signals": "20,50,90"})
        assert result.ledger["mode"] == "sound"
        for entry, count in zip(result.ledger["clients"], (20, 50, 90), strict=True):
            assert entry["epsilon"] == pytest.approx(epsilon, abs=1e-6)
            event = entry["events"][0]
            assert event["sensitivity"] == pytest.approx(np.sqrt(2) * 25.0 / count)
            expected = gaussian_sigma(epsilon, 1e-6, event["sensitivity"])
            assert event["sigma"] == pytest.approx(expected, rel=1e-12)


def test_the_noise_has_the_deviation_the_ledger_claims(tmp_path):
    config = ConsensusGraphConfig.from_settings({**SOUND, "nodes": 40})
    values = np.random.default_rng(0).normal(size=(25, 40))
    table = Table(values, tuple(f"x{i}" for i in range(40)), "test")
    clean = statistic(values, config.bound)
    sigma = gaussian_sigma(2.0, 1e-6, sensitivity(config.bound, 25))
    for node in (
        Node("a", 0, None, None, True),
        Node("b", 0, tmp_path / "b.csv", tmp_path, False),
    ):
        noisy = release.release_statistic(config, 1, node, table)
        # On a device the noise is discrete, and up to a tenth more of it for the same epsilon.
        (event,) = noisy.events
        assert sigma <= event.sigma <= (1.0 if node.simulated else 1.1) * sigma
        noise = (noisy.values - clean) / event.sigma
        assert abs(noise.mean()) < 0.15
        assert noise.std() == pytest.approx(1.0, abs=0.08)


def _grid_run(tmp_path, spoil: bool):
    """Run five rounds by hand on one data file; ``spoil`` replaces it after the first message."""
    folder = tmp_path / str(spoil)
    folder.mkdir()
    rng = np.random.default_rng(0)
    np.savez(folder / "a.npz", X=rng.normal(size=(30, 5)))
    run_config = make_run_config(STUDY, {**SOUND, **BY_ROUNDS, "clients": 1}, data=folder)
    node = {"partition-id": 0, "num-partitions": 1, "simulation": True}
    replies = []
    with LocalGrid(client_app, [node], run_config) as grid:
        for server_round in range(1, 6):
            content = RecordDict(
                {
                    "arrays": wire.record({"consensus": np.full(10, 0.25)}),
                    "order": ConfigRecord({"round": server_round, "pull": 0.1 * server_round}),
                }
            )
            message = Message(content, next(iter(grid.get_node_ids())), "train")
            (reply,) = grid.send_and_receive([message], timeout=10)
            replies.append(wire.unpack(reply.content["arrays"]["weights"]).copy())
            if spoil and server_round == 1:
                np.savez(folder / "a.npz", X=rng.normal(size=(30, 5)) * 100)
    return replies


def test_data_changed_after_the_release_changes_no_message(tmp_path):
    for kept, spoilt in zip(_grid_run(tmp_path, False), _grid_run(tmp_path, True), strict=True):
        assert kept.tobytes() == spoilt.tobytes()


def test_every_message_is_a_function_of_the_release_alone():
    # Two clients with different data but the same released statistic answer alike.
    config = make_run_config(STUDY, {**SOUND, **BY_ROUNDS})
    z = np.random.default_rng(0).random(15)
    answers = []
    for partition in (0, 1):
        state = RecordDict()
        Statistic(z, 50, ()).keep(state)
        context = Context(
            1,
            2,
            {"partition-id": partition, "num-partitions": 3, "simulation": True},
            state,
            config,
        )
        content = RecordDict(
            {
                "arrays": wire.record({"consensus": np.full(15, 0.2)}),
                "order": ConfigRecord({"round": 1, "pull": 0.3}),
            }
        )
        with LocalGrid(client_app, [], {}) as grid:
            message = grid.create_message(content, "train", 2, "1")
        answers.append(study_client.app(message, context).content)
    assert answers[0] == answers[1]


def test_on_a_device_the_release_survives_a_restart_and_differs_between_devices(tmp_path):
    config = ConsensusGraphConfig.from_settings(SOUND)
    values = np.random.default_rng(0).normal(size=(30, 6))
    table = Table(values, tuple("abcdef"), "test")
    here = Node("a", 0, tmp_path / "a.csv", tmp_path / "here", False)
    there = Node("a", 0, tmp_path / "a.csv", tmp_path / "there", False)
    first = release.release_statistic(config, 1, here, table).values
    # The server's seed has no part in it.
    again = release.release_statistic(config, 99, here, table).values
    assert first.tobytes() == again.tobytes()
    assert not np.allclose(first, release.release_statistic(config, 1, there, table).values)
    other = ConsensusGraphConfig.from_settings({**SOUND, "epsilon": 2.5})
    scaled = release.release_statistic(other, 1, here, table)
    clean = statistic(values, 25.0)
    ratio = (scaled.values - clean) / (first - clean)
    assert np.std(ratio) > 0.1  # independent noise, not the same noise on another scale


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
    settings = {"privacy": "paper", "local-steps": 5, "rounds": 8, "step": 0.01, "tolerance": 0.0}
    result = run(STUDY, {**SOUND, **settings}, out=tmp_path)
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
    settings = {**SOUND, "privacy": "paper", "local-steps": 6, "rounds": 2, "step": 0.01}
    run_config = make_run_config(STUDY, settings)
    node = {"partition-id": 0, "num-partitions": 3, "simulation": True}
    with LocalGrid(client_app, [node], run_config) as grid:
        own = np.full(15, 0.2)
        second = []
        for first_round in (1, 7):  # 7: no momentum of round 1 is known in round 2
            for server_round in (first_round, 2):
                content = RecordDict(
                    {
                        "arrays": wire.record({"consensus": own, "own": own}),
                        "order": ConfigRecord({"round": server_round, "pull": 0.1}),
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
    run_config = {**make_run_config(STUDY, SOUND), "data": str(tmp_path)}
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
    event = release.PrivacyEvent("statistic", "x", 0, 1.0, 1e-5, 1.5, 0.5)
    Statistic(np.arange(3.0), 7, (event,)).keep(state)
    back = Statistic.from_records(state)
    assert isinstance(state["statistic"], ArrayRecord)
    np.testing.assert_array_equal(back.values, np.arange(3.0))
    assert back.count == 7
    assert back.events == (event,)
