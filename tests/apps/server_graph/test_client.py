"""The client: one message, one step; masks where promised; data of this run only."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from flwr.app import ConfigRecord, Message, RecordDict

from tests.apps.device_logs import reasons
from trellis.apps.common.seeds import generator
from trellis.apps.server_graph import client_app
from trellis.apps.server_graph.config import ServerGraphConfig
from trellis.apps.server_graph.data import synthetic_table
from trellis.apps.server_graph.losses import Logistic
from trellis.apps.server_graph.problem import draw_batches, gradient, local_steps
from trellis.sim.grid import LocalGrid
from trellis.strategies.core import wire
from trellis.strategies.core.enrolment import enrol
from trellis.strategies.core.secure import SecureSum

OPEN = {"clients": 4, "servers": 2, "method": "none", "samples": "30"}


def simulated(count):
    return [{"partition-id": k, "num-partitions": count, "simulation": True} for k in range(count)]


def grid_of(settings, nodes=None, seed=1, **options):
    config = ServerGraphConfig(**settings)
    run_config = {"study": "server-graph", "seed": seed, "out": "", **config.run_config()}
    return LocalGrid(client_app.app, nodes or simulated(config.clients), run_config, **options)


def order(w, server_round=1) -> RecordDict:
    arrays = wire.record({"model": np.asarray(w)})
    return RecordDict({"arrays": arrays, "config": ConfigRecord({"server-round": server_round})})


def ask(grid, partition, w, server_round=1):
    node = list(grid._nodes)[partition]
    (reply,) = grid.send_and_receive([Message(order(w, server_round), node, "train")])
    if reply.has_error():
        raise RuntimeError(reply.error.reason)
    return wire.arrays(reply.content["arrays"])["model"]


@pytest.fixture
def devices(tmp_path):
    rng = np.random.default_rng(0)
    nodes = []
    for k in range(3):
        path = tmp_path / f"site{k}.npz"
        np.savez(path, X=rng.normal(size=(50, 2)), y=rng.choice([-1.0, 1.0], 50))
        nodes.append({"data-path": str(path), "server": k % 2})
    return nodes


def test_enrolment_tells_the_server_and_the_features():
    with grid_of(OPEN) as grid:
        clients = enrol(grid, 4, 5.0, 5.0).clients
    assert [c.server for c in clients] == [0, 0, 1, 1]
    assert [c.count for c in clients] == [30] * 4
    assert clients[0].variables == ["h1", "h2"]
    assert all(c.synthetic for c in clients)


def test_a_reply_is_the_model_after_the_steps_of_the_round():
    settings = {**OPEN, "batch": 5, "local_steps": 3, "clip": 0.7, "ridge": 0.2, "step": 0.3}
    w = np.array([0.4, -0.1])
    with grid_of(settings, seed=7) as grid:
        found = [ask(grid, 2, w, i) for i in (1, 2, 1)]
    table = synthetic_table(ServerGraphConfig(**settings), 7, 2)
    for i, model in zip((1, 2, 1), found, strict=True):
        batches = draw_batches(30, 5, 3, generator(7, "batch", 2, i))
        expected = local_steps(Logistic(), w, table.X, table.y, 0.3, 0.2, 0.7, batches)
        np.testing.assert_array_equal(model, expected)
    assert not np.any(found[0] == found[1])


def test_other_settings_another_seed_and_another_run_are_read_anew():
    w = np.zeros(2)

    def full_batch(settings, seed):
        table = synthetic_table(ServerGraphConfig(**settings), seed, 1)
        return w - 0.1 * gradient(Logistic(), w, table.X, table.y, 0.01, 0.0)

    first = {**OPEN, "batch": 0}
    # The run's number is the same: it is not what tells these runs apart.
    for settings, seed in ((first, 1), ({**first, "spread": 2.0}, 1), (first, 2), (first, 1)):
        with grid_of(settings, seed=seed, run_id=5) as grid:
            np.testing.assert_array_equal(ask(grid, 1, w), full_batch(settings, seed))
            assert len(client_app._memory.kept.clients) == 1
    with grid_of(first, run_id=6) as grid:
        ask(grid, 0, w)
        assert len(client_app._memory.kept.clients) == 1  # nothing of run 5 is left


def test_data_is_made_once_a_run(monkeypatch):
    calls = []
    real = client_app.client_table
    monkeypatch.setattr(client_app, "client_table", lambda *a: calls.append(1) or real(*a))
    with grid_of(OPEN) as grid:
        enrol(grid, 4, 5.0, 5.0)
        for i in range(3):
            ask(grid, 0, np.zeros(2), i)
    assert len(calls) == 4


def test_a_file_that_changes_is_read_again(devices, tmp_path):
    with grid_of({**OPEN, "clients": 3, "batch": 0}, devices) as grid:
        before = ask(grid, 0, np.zeros(2))
        np.testing.assert_array_equal(ask(grid, 0, np.zeros(2)), before)
        np.savez(tmp_path / "site0.npz", X=np.ones((9, 2)), y=np.ones(9))
        np.testing.assert_allclose(ask(grid, 0, np.zeros(2)), [0.05, 0.05], rtol=1e-12)


def test_on_a_device_the_server_does_not_know_the_batches(devices):
    with grid_of({**OPEN, "clients": 3, "batch": 10}, devices) as grid:
        clients = enrol(grid, 3, 5.0, 5.0).clients
        first, second = (ask(grid, 0, np.zeros(2), 1) for _ in range(2))
    assert [(c.name, c.server) for c in clients] == [("site0", 0), ("site1", 1), ("site2", 0)]
    assert not np.any(first == second)


@pytest.mark.parametrize(
    ("w", "message"),
    [
        (
            np.zeros(3),
            r"model is float64 of shape \(3,\), not float64 of shape \(2,\)",
        ),
        (np.array([0.0, np.nan]), "1 entries that are not finite"),
        (np.array([0.0, 1e120]), "an entry of size 1e"),
        (np.zeros(2, dtype=np.float32), "model is float32"),
    ],
)
def test_a_model_that_cannot_be_used_is_refused(w, message):
    with grid_of(OPEN) as grid, pytest.raises(RuntimeError, match=message):
        ask(grid, 0, w)


def test_under_masks_nothing_is_answered_in_the_clear():
    for settings in ({"method": "hybrid"}, {"method": "masked"}, {"secure_aggregation": "on"}):
        with (
            grid_of({**OPEN, **settings}) as grid,
            pytest.raises(RuntimeError, match="this reply would be in the clear"),
        ):
            ask(grid, 0, np.zeros(2))
    with grid_of({**OPEN, "method": "hybrid", "secure_aggregation": "off"}) as grid:
        assert ask(grid, 0, np.zeros(2)).shape == (2,)


def test_the_secure_sum_is_the_sum_of_the_models():
    w = np.array([0.2, 0.3])
    with grid_of(OPEN) as grid:
        models = [ask(grid, k, w, 3) for k in range(4)]
    with grid_of({**OPEN, "secure_aggregation": "on"}) as grid:
        clients = enrol(grid, 4, 5.0, 5.0).clients
        answers = SecureSum().gather(grid, {k: order(w, 3) for k in range(4)}, clients, 3, 5.0)
    assert not answers.failures
    np.testing.assert_allclose(answers.total["model"], np.sum(models, axis=0), atol=4 * 2.0**-32)
    np.testing.assert_array_equal(answers.total["num-examples"], [4.0])


def test_a_device_that_requires_privacy_refuses_at_enrolment_and_after(devices):
    devices[1]["require-privacy"] = True
    devices[2]["max-epsilon"] = 3.0
    private = {"method": "fedavg", "privacy": "dp", "servers": 10, "clip": 1.0, "epsilon": 2.0}
    lax = {**private, "clip": 1e9}
    with grid_of({**OPEN, "clients": 3}, devices) as grid:
        enrolled = enrol(grid, 3, 5.0, 5.0)
        assert [c.name for c in enrolled.clients] == ["site0"]
        assert "site1: refused by the owner's policy (E4)" in enrolled.refusals[0]
        state = Path(str(devices[1]["data-path"])).parent
        assert "this device requires privacy='dp'" in reasons(state / ".site1-trellis")[0]
        # A server that leaves enrolment out gets nothing either.
        with pytest.raises(RuntimeError, match="this device requires privacy='dp'"):
            ask(grid, 1, np.zeros(2))
    with grid_of({**OPEN, "clients": 3, **private}, devices) as grid:
        enrolled = enrol(grid, 3, 5.0, 5.0)
        assert [c.name for c in enrolled.clients] == ["site0", "site1", "site2"]
        with pytest.raises(RuntimeError, match="this reply would be in the clear"):
            ask(grid, 1, np.zeros(2))
    with grid_of({**OPEN, "clients": 3, **lax}, devices) as grid:
        enrolled = enrol(grid, 3, 5.0, 5.0)
        assert [c.name for c in enrolled.clients] == ["site0"]
        assert "takes clip from 1e-06 to 1e+06" in reasons(state / ".site1-trellis")[-1]
    paper = {"method": "iid", "privacy": "paper", "clip": 1.0, "secure_aggregation": "on"}
    with grid_of({**OPEN, "clients": 3, **paper}, devices) as grid:
        assert [c.name for c in enrol(grid, 3, 5.0, 5.0).clients] == ["site0"]
        assert "this device requires privacy='dp'" in reasons(state / ".site2-trellis")[-1]


def test_threads_of_one_run_answer_as_one_does():
    settings = {**OPEN, "clients": 12}
    models = []
    for workers in (0, 3):
        with grid_of(settings, workers=workers) as grid:
            nodes = list(grid._nodes)
            replies = grid.send_and_receive(
                [Message(order(np.zeros(2)), node, "train") for node in nodes], timeout=20
            )
            by_node = {r.metadata.src_node_id: wire.arrays(r.content["arrays"]) for r in replies}
            models.append([by_node[node]["model"] for node in nodes])
    np.testing.assert_array_equal(models[0], models[1])
