"""The client: one message, one step, no memory; noise where promised, losses where allowed."""

from __future__ import annotations

import numpy as np
import pytest
from flwr.app import ConfigRecord, Message, RecordDict

from trellis.apps.cluster_admm import client_app, local
from trellis.apps.cluster_admm.as_printed import round_event
from trellis.apps.cluster_admm.config import ClusterAdmmConfig
from trellis.apps.cluster_admm.data import synthetic_table, synthetic_truth
from trellis.apps.cluster_admm.steps import primal_step
from trellis.apps.common.seeds import generator
from trellis.privacy.accounting.events import PrivacyEvent
from trellis.sim.grid import LocalGrid
from trellis.strategies.core import wire
from trellis.strategies.core.enrolment import enrol

FEW = {"clients": 6, "servers": 2, "features": 5, "samples": "3-8", "topology": "complete"}
V = np.array([0.5, -1.0, 2.0, 0.0, 1.0])


def simulated(count):
    return [{"partition-id": k, "num-partitions": count, "simulation": True} for k in range(count)]


def grid_of(settings=None, nodes=None, seed=1, **options):
    config = ClusterAdmmConfig(**FEW | (settings or {}))
    run_config = {"study": "cluster-admm", "seed": seed, "out": "", **config.run_config()}
    return LocalGrid(client_app.app, nodes or simulated(config.clients), run_config, **options)


def send(grid, partition, kind, arrays, **order):
    content = RecordDict({"arrays": wire.record(arrays), "config": ConfigRecord(order)})
    node = list(grid._nodes)[partition]
    (reply,) = grid.send_and_receive([Message(content, node, kind)])
    if reply.has_error():
        raise RuntimeError(reply.error.reason)
    return reply.content


def train(grid, partition, v=V, n=1, rho=3.0, share=0.25, **order):
    content = send(
        grid,
        partition,
        "train",
        {"v": v},
        **{"server-round": n, "rho": rho, "share": share, **order},
    )
    return wire.arrays(content["arrays"])["model"]


def losses(grid, partition, models, **order):
    content = send(grid, partition, "evaluate.losses", {"models": models}, **order)
    return wire.arrays(content["arrays"])["losses"], content["metrics"]["num-examples"]


def solution(settings, seed, partition, v=V, rho=3.0, share=0.25):
    config = ClusterAdmmConfig(**FEW | settings)
    table = synthetic_table(config, seed, partition)
    return primal_step(config.loss, table.X, table.y, config.ridge, share, rho).solve(v)


@pytest.fixture
def devices(tmp_path):
    rng = np.random.default_rng(0)
    nodes = []
    for k in range(3):
        path = tmp_path / f"site{k}.npz"
        np.savez(path, X=rng.normal(size=(9, 5)), y=rng.normal(size=9))
        nodes.append({"data-path": str(path), "server": k % 2, "cluster": k})
    return nodes


def enrolled(grid):
    """Return the clusters that clients tell; the rest of the reply is every study's."""
    nodes = list(grid._nodes)
    replies = grid.send_and_receive([Message(RecordDict(), n, "query.enrol") for n in nodes])
    by_node = {r.metadata.src_node_id: r.content["client"]["cluster"] for r in replies}
    return [by_node[n] for n in nodes]


def test_enrolment_tells_the_server_the_cluster_and_the_features():
    with grid_of() as grid:
        clients = enrol(grid, 6, 5.0, 5.0).clients
        clusters = enrolled(grid)
    assert [c.server for c in clients] == [0, 0, 0, 1, 1, 1]
    assert clients[0].variables == ["x1", "x2", "x3", "x4", "x5"]
    truth = synthetic_truth(ClusterAdmmConfig(**FEW), 1)
    assert clusters == truth.clusters.tolist()
    with grid_of({"clusters": "auto:2"}) as grid:
        assert enrolled(grid) == [-1] * 6


@pytest.mark.parametrize("loss", ["ridge", "logistic"])
def test_a_reply_is_the_solution_of_the_primal_step(loss):
    with grid_of({"loss": loss}, seed=7) as grid:
        for rho, share in ((3.0, 0.25), (5.0, 0.25), (3.0, 1.0), (3.0, 0.25)):
            np.testing.assert_array_equal(
                train(grid, 2, rho=rho, share=share),
                solution({"loss": loss}, 7, 2, rho=rho, share=share),
            )


def test_a_client_remembers_nothing_that_changes_an_answer():
    for loss in ("ridge", "logistic"):
        with grid_of({"loss": loss}) as grid:
            first = train(grid, 1)
            train(grid, 1, v=-7 * V, n=2)
            np.testing.assert_array_equal(train(grid, 1, n=3), first)


def test_data_is_factorised_once_for_each_rho_and_share(monkeypatch):
    calls = []
    real = local.primal_step
    monkeypatch.setattr(local, "primal_step", lambda *a: calls.append(1) or real(*a))
    with grid_of() as grid:
        for n in range(1, 5):
            train(grid, 0, n=n)
        assert len(calls) == 1
        train(grid, 0, rho=4.0)
        train(grid, 1)
        assert len(calls) == 3
        for n in range(30):
            train(grid, 0, rho=5.0 + n)
    assert all(len(client.client.steps) <= 8 for client in local.memory.kept.clients.values())


def test_other_settings_another_seed_and_another_run_are_read_anew():
    for settings, seed in (({}, 1), ({"ridge": 2.0}, 1), ({}, 2), ({}, 1)):
        with grid_of(settings, seed=seed, run_id=5) as grid:
            np.testing.assert_array_equal(train(grid, 1), solution(settings, seed, 1))
            assert len(local.memory.kept.clients) == 1


def test_a_file_that_changes_is_read_and_factorised_again(devices, tmp_path):
    with grid_of({"clients": 3}, devices) as grid:
        train(grid, 0)
        X, y = np.ones((2, 5)), np.array([1.0, 2.0])
        np.savez(tmp_path / "site0.npz", X=X, y=y)
        expected = primal_step("ridge", X, y, 0.1, 0.25, 3.0).solve(V)
        np.testing.assert_array_equal(train(grid, 0), expected)


def test_losses_are_of_this_client_s_samples_under_each_model():
    models = np.random.default_rng(0).normal(size=(3, 5))
    table = synthetic_table(ClusterAdmmConfig(**FEW), 1, 4)
    with grid_of({"clusters": "auto:3"}) as grid:
        found, count = losses(grid, 4, models)
    expected = [np.mean((table.y - table.X @ w) ** 2) for w in models]
    np.testing.assert_allclose(found, expected)
    assert count == len(table.y)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"v": np.zeros(3)}, r"v is float64 of shape \(3,\)"),
        ({"v": np.array([0.0, np.nan, 0, 0, 0])}, "1 entries that are not finite"),
        ({"v": np.full(5, 1e120)}, "an entry of size 1e"),
        ({"rho": 0.0}, "rho=0.0 in the message"),
        ({"rho": float("nan")}, "rho=nan in the message"),
        ({"rho": "3"}, "rho='3' in the message: a number"),
        ({"share": -0.1}, "share=-0.1 in the message"),
    ],
)
def test_an_order_that_cannot_be_used_is_refused(changes, message):
    with grid_of() as grid, pytest.raises(RuntimeError, match=message):
        train(grid, 0, **changes)


def test_models_that_do_not_fit_are_refused():
    for models in (np.ones(5), np.ones((3, 4)), np.full((3, 5), np.inf)):
        auto = {"clusters": "auto:3"}
        with grid_of(auto) as grid, pytest.raises(RuntimeError, match=r"models (is|has)"):
            losses(grid, 0, models)


def test_a_reply_of_the_paper_has_the_round_s_noise_and_its_event():
    settings = {"privacy": "paper"}
    config = ClusterAdmmConfig(**FEW | settings)
    w, count = solution(settings, 1, 3), len(synthetic_table(config, 1, 3).y)
    event = round_event(config, 2, count, 3.0)
    with grid_of(settings) as grid:
        order = {"server-round": 2, "rho": 3.0, "share": 0.25, "sigma": 0.0}
        reply = send(grid, 3, "train", {"v": V}, **order)
    expected = w + event.sigma * generator(1, "noise", 3, 2).standard_normal(5)
    np.testing.assert_allclose(wire.arrays(reply["arrays"])["model"], expected, rtol=1e-12)
    assert PrivacyEvent.from_record(dict(reply["privacy.round-2"])) == event


@pytest.mark.parametrize(
    "settings", [{"privacy": "paper"}, {}, {"method": "gfl", "clusters": "auto:3"}]
)
def test_no_losses_are_sent_in_a_run_that_finds_no_clusters(settings):
    with grid_of(settings) as grid, pytest.raises(RuntimeError, match="losses have no noise"):
        losses(grid, 0, np.ones((3, 5)))


@pytest.mark.parametrize("method", ["moments", "local"])
def test_a_private_run_answers_no_message_in_the_clear(method):
    few = {k: v for k, v in FEW.items() if k not in ("servers", "topology")}
    config = ClusterAdmmConfig(**few, privacy="dp", method=method)
    run_config = {"study": "cluster-admm", "seed": 1, "out": "", **config.run_config()}
    with LocalGrid(client_app.app, simulated(6), run_config) as grid:
        with pytest.raises(RuntimeError, match="would be in the clear"):
            train(grid, 0)
        with pytest.raises(RuntimeError, match="losses have no noise"):
            losses(grid, 0, np.ones((3, 5)))


def test_a_device_that_requires_privacy_answers_no_message_without(devices):
    devices[2]["require-privacy"] = True
    with grid_of({"clients": 3}, devices) as grid:  # enrolment left out
        train(grid, 0)
        with pytest.raises(RuntimeError, match="requires privacy='dp'"):
            train(grid, 2)
