"""ClusterAdmm under Flower's own loop, driven by a plain ClientApp, and under ours: equal bits."""

from __future__ import annotations

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import ServerApp

from trellis.sim.grid import run_local
from trellis.strategies.cluster_admm.finding import ClusterFinding
from trellis.strategies.cluster_admm.local import LocalModels
from trellis.strategies.cluster_admm.strategy import ClusterAdmm, ExactMixing
from trellis.strategies.core.declared import Client
from trellis.strategies.enrolled_grid import EnrolledGrid
from trellis.strategies.rounds import RoundPlan, Rounds
from trellis.strategies.topology.graph import topology

SERVERS, CLUSTERS, D, NODES = 3, 2, 4, 9
RING = topology("ring", SERVERS).adjacency


def data(context):
    k = int(context.node_config["partition-id"])
    rng = np.random.default_rng(k)
    X, w = rng.normal(size=(12, D)), np.arange(D) * (1.0 if k % CLUSTERS else -1.0)
    return X, X @ w + 0.1 * rng.normal(size=12), k


def plain_app(*, places: bool = True) -> ClientApp:
    """A ClientApp that follows the schema in the docstring, and knows nothing else of Trellis."""
    app = ClientApp()

    def reply(message, arrays, count):
        record = ArrayRecord({name: Array(a) for name, a in arrays.items()})
        metrics = MetricRecord({"num-examples": count})
        return Message(RecordDict({"arrays": record, "metrics": metrics}), reply_to=message)

    def place(message, context):
        k = data(context)[2]
        config = ConfigRecord({"server": k % SERVERS, "cluster": k % CLUSTERS})
        return Message(RecordDict({"config": config}), reply_to=message)

    if places:
        app.query("place")(place)

    @app.train()
    def train(message, context):
        X, y, _ = data(context)
        config, v = message.content["config"], message.content["arrays"]["v"].numpy()
        c = 2.0 * 0.1 * config["share"] + config["rho"]
        H = 2.0 * X.T @ X / len(y) + c * np.eye(D)
        return reply(message, {"model": np.linalg.solve(H, 2.0 * X.T @ y / len(y) + v)}, len(y))

    @app.evaluate("losses")
    def losses(message, context):
        X, y, _ = data(context)
        models = message.content["arrays"]["models"].numpy()
        return reply(message, {"losses": np.mean((X @ models.T - y[:, None]) ** 2, axis=0)}, len(y))

    @app.evaluate()
    def evaluate(message, context):
        X, y, _ = data(context)
        w = message.content["arrays"]["model"].numpy()
        metrics = MetricRecord({"num-examples": len(y), "loss": float(np.mean((X @ w - y) ** 2))})
        return Message(RecordDict({"metrics": metrics}), reply_to=message)

    return app


def on_server(act, app):
    found, server = [], ServerApp()

    @server.main()
    def main(grid, context):
        found.append(act(grid))

    nodes = [{"partition-id": k, "num-partitions": NODES, "simulation": True} for k in range(NODES)]
    run_local(server, app, nodes, {})
    return found[0]


def zeros(rows=SERVERS, clusters=CLUSTERS):
    return ArrayRecord({"models": Array(np.zeros((rows, clusters, D)))})


def test_a_plain_client_app_drives_it_under_flowers_own_start():
    def act(grid):
        strategy = ClusterAdmm(RING, CLUSTERS, 3.0, fraction_evaluate=1.0)
        return strategy.start(grid, zeros(), num_rounds=60), strategy

    result, strategy = on_server(act, plain_app())
    assert sorted(set(strategy.places.values())) == [(s, q) for s in range(3) for q in range(2)]
    models = result.arrays["models"].numpy()
    for cluster, sign in ((0, -1.0), (1, 1.0)):
        np.testing.assert_allclose(models[:, cluster], [sign * np.arange(D)] * 3, atol=0.3)
    assert list(result.train_metrics_clientapp) == list(range(1, 61))
    scores = [m["loss"] for m in result.evaluate_metrics_clientapp.values()]
    assert scores[-1] < 0.1 * scores[0]


def test_nodes_that_do_not_say_where_they_belong_get_a_place():
    def act(grid):
        strategy = ClusterAdmm(RING, 1, 3.0)
        strategy.start(grid, zeros(clusters=1), num_rounds=1)
        return strategy

    strategy = on_server(act, plain_app(places=False))
    servers = [server for server, _ in strategy.places.values()]
    assert np.bincount(servers).sum() == NODES


STRATEGIES = {
    "admm": (lambda: ClusterAdmm(RING, CLUSTERS, 3.0, 0.3, tau_decay=0.9), zeros),
    "exact": (lambda: ClusterAdmm(RING, CLUSTERS, 3.0, mixing=ExactMixing()), zeros),
    "finding": (lambda: ClusterFinding(RING, CLUSTERS, 3.0, every=2), zeros),
    "local": (LocalModels, lambda: zeros(NODES, 1)),
}


@pytest.mark.parametrize("name", STRATEGIES)
def test_both_loops_agree_to_the_bit(name, monkeypatch):
    build, first = STRATEGIES[name]

    def clients_of(grid):
        return [
            Client(f"c{k}", k, 12, ["a"] * D, node, server=k % SERVERS, cluster=k % CLUSTERS)
            for k, node in enumerate(sorted(grid.get_node_ids()))
        ]

    def flowers(grid):
        strategy = build()
        return strategy.start(EnrolledGrid(grid, clients_of(grid)), first(), 9), strategy

    def ours(grid):
        strategy = build()
        rounds = Rounds(strategy, lambda clients: first(), RoundPlan(9, 0.0, NODES))

        def enrol(grid, snapshot):
            rounds.clients = clients_of(grid)
            rounds.grid = EnrolledGrid(grid, rounds.clients)

        monkeypatch.setattr(rounds, "_enrol", enrol)
        return rounds.run(grid), strategy

    (plain, one), (own, other) = on_server(flowers, plain_app()), on_server(ours, plain_app())
    for array in own.arrays:
        here, there = plain.arrays[array], own.arrays[array]
        assert here.data == there.data
        assert np.any(here.numpy())
    for kept, again in zip(one.state_dict().items(), other.state_dict().items(), strict=True):
        if name != "local" or kept[0] != "rounds":  # Flower's own goes on to the last round
            assert kept[1].tobytes() == again[1].tobytes(), kept[0]
