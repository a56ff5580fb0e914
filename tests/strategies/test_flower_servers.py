"""Strategies over a graph of servers are Flower strategies: both loops, plain ClientApps, sums."""

from __future__ import annotations

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from tests.strategies.test_flower import on_server, reply
from trellis.apps.server_graph.config import ServerGraphConfig
from trellis.apps.server_graph.data import synthetic_table
from trellis.apps.server_graph.losses import Logistic
from trellis.apps.server_graph.problem import gradient
from trellis.privacy.secagg.client import COUNT, Summands, register
from trellis.strategies.core.declared import Client
from trellis.strategies.core.secure import SecureSum
from trellis.strategies.enrolled_grid import EnrolledGrid
from trellis.strategies.rounds import RoundPlan, Rounds
from trellis.strategies.secure_grid import SecureGrid
from trellis.strategies.server_graph.exchange import servers
from trellis.strategies.server_graph.failures import parse_failures
from trellis.strategies.server_graph.strategy import ServerGraph
from trellis.strategies.server_graph.sums import GradientSums
from trellis.strategies.topology.graph import topology

CONFIG = ServerGraphConfig(features=3, samples="20", clients=9, servers=3)
NODES, SERVERS, SIZE = 9, 3, 3
PATH = topology("path", SERVERS)


def slope(message, context):
    """Return a client's model, and its mean gradient there, with the ridge's."""
    table = synthetic_table(CONFIG, 1, int(context.node_config["partition-id"]))
    w = message.content["arrays"]["model"].numpy()
    return w, gradient(Logistic(), w, table.X, table.y, 0.0, 0.0)


def plain_app() -> ClientApp:
    """A ClientApp that follows the schema, and knows nothing else of Trellis."""
    app = ClientApp()

    @app.train()
    def train(message, context):
        w, g = slope(message, context)
        step = message.content["config"].get("step", 0.1)
        if message.content["config"].get("gradients"):
            return reply(message, {"gradient": Array(g)}, {"num-examples": 20})
        return reply(message, {"model": Array(w - step * g)}, {"num-examples": 20})

    @app.query("place")
    def place(message, context):
        server = int(context.node_config["partition-id"]) * SERVERS // NODES
        return Message(RecordDict({"config": ConfigRecord({"server": server})}), reply_to=message)

    @app.evaluate()
    def evaluate(message, context):
        w, _ = slope(message, context)
        return reply(message, {}, {"num-examples": 20, "first": float(w[0])})

    def summands(message, context):
        w, g = slope(message, context)
        if message.content["config"].get("gradients"):
            return Summands({"gradient": g})
        return Summands({"model": w - 0.1 * g, COUNT: np.ones(1)})

    register(app, summands)
    return app


def first():
    return ArrayRecord({"model": Array(np.zeros(SIZE))})


def noise(server, server_round):
    return np.random.default_rng([server, server_round])


def draws(server_round):
    return np.random.default_rng([7, server_round])


def graph(method="hybrid", **options):
    return ServerGraph(PATH, servers(method, SERVERS, 0.3, noise, b"run"), **options)


BUILDS = {
    "hybrid": (graph, {}),
    "iid": (lambda: graph("iid"), {}),
    "masked": (lambda: graph("masked"), {}),
    "sampled": (lambda: graph("none", sample=2, draws=draws), {}),
    "failures": (lambda: graph("none", outages=parse_failures("1:2-3", 3), rehome=True), {}),
    "fedavg": (lambda: ServerGraph(topology("complete", 1)), {}),
    "sums": (
        lambda: GradientSums(PATH, step=0.1, ridge=0.01, rounds=4, average=0.5),
        {"gradients": True},
    ),
}


def clients_of(grid):
    order = sorted(grid._nodes.values(), key=lambda node: node.node_config["partition-id"])
    return [
        Client(f"client-{i + 1}", i, 20, list("abc"), n.id, server=i * SERVERS // NODES)
        for i, n in enumerate(order)
    ]


def by_rounds(build, monkeypatch, config, middleware=lambda grid: grid):
    """Return what runs a strategy under `Rounds`."""

    def act(grid):
        strategy = build()
        rounds = Rounds(
            *(strategy, lambda clients: first(), RoundPlan(4, 0.0, NODES)),
            middleware=middleware,
            train_config=config,
        )

        def enrol(grid, snapshot):
            rounds.clients = clients_of(grid)
            rounds.grid = EnrolledGrid(grid, rounds.clients)

        monkeypatch.setattr(rounds, "_enrol", enrol)
        return rounds.run(grid), strategy

    return act


@pytest.mark.parametrize("secure", [False, True], ids=["clear", "sums"])
@pytest.mark.parametrize("name", BUILDS)
def test_both_loops_agree_to_the_bit(name, secure, monkeypatch):
    build, config = BUILDS[name]
    if secure and name == "sampled":
        pytest.skip("a sum needs three")
    wrap = SecureGrid if secure else lambda grid: grid

    def flowers(grid):
        strategy = build()
        enrolled = wrap(EnrolledGrid(grid, clients_of(grid)))
        result = strategy.start(enrolled, first(), 4, train_config=ConfigRecord(config))
        return result, strategy

    plain, one = on_server(flowers, plain_app(), NODES)
    own, other = on_server(by_rounds(build, monkeypatch, config, wrap), plain_app(), NODES)
    assert plain.arrays["model"].data == own.arrays["model"].data
    assert np.any(plain.arrays["model"].numpy() != 0.0)
    kept, again = one.state_dict(), other.state_dict()
    assert {name: a.tobytes() for name, a in kept.items()} == {
        name: a.tobytes() for name, a in again.items()
    }
    for number in range(1, 5):
        here, there = (r.train_metrics_clientapp[number] for r in (plain, own))
        assert dict(here) == dict(there)


@pytest.mark.parametrize("name", BUILDS)
def test_a_plain_client_app_without_enrolment_drives_it(name):
    """Nodes say which server they belong to, by ``query.place``; ids are Flower's."""
    build, config = BUILDS[name]

    def act(grid):
        strategy = build()
        strategy.start(grid, first(), 2, train_config=ConfigRecord(config))
        partition = {n.id: n.node_config["partition-id"] for n in grid._nodes.values()}
        return {partition[node]: server for node, server in strategy.server_of.items()}, strategy

    homes, strategy = on_server(act, plain_app(), NODES)
    if strategy.topology.servers == 1:
        assert set(homes.values()) == {0}
    else:
        assert [homes[k] for k in range(NODES)] == [0, 0, 0, 1, 1, 1, 2, 2, 2]
    assert np.all(np.isfinite(strategy.models))


@pytest.mark.parametrize("name", ["hybrid", "fedavg", "sums"])
def test_sums_give_the_same_to_the_grid_of_fixed_point(name, monkeypatch):
    build, config = BUILDS[name]
    found = [
        on_server(by_rounds(build, monkeypatch, config, wrap), plain_app(), NODES)[1].models
        for wrap in (lambda grid: grid, SecureGrid)
    ]
    np.testing.assert_allclose(found[0], found[1], rtol=0, atol=1e-8)


def test_start_honours_every_argument():
    seen = []

    def act(grid):
        strategy = graph("none", fraction_evaluate=1.0)
        result = strategy.start(
            grid,
            ArrayRecord({"model": Array(np.array([1.0, 2.0, 3.0]))}),
            num_rounds=2,
            timeout=60.0,
            train_config=ConfigRecord({"step": 0.0}),
            evaluate_config=ConfigRecord({"more": 1}),
            evaluate_fn=lambda number, arrays: seen.append(arrays["model"].numpy().copy()),
        )
        return result, strategy

    result, strategy = on_server(act, plain_app(), NODES)
    assert list(result.train_metrics_clientapp) == [1, 2]
    assert len(seen) == 3
    for model in seen:  # steps of length 0: all stay where they began
        np.testing.assert_allclose(model, [1.0, 2.0, 3.0])
    np.testing.assert_array_equal(seen[-1], result.arrays["model"].numpy())
    assert result.evaluate_metrics_clientapp[2]["first"] == pytest.approx(1.0)
    np.testing.assert_allclose(strategy.models, np.tile([1.0, 2.0, 3.0], (3, 1)))


def test_a_fraction_of_the_nodes_trains():
    def act(grid):
        strategy = graph("none", fraction_train=0.4)
        strategy.start(grid, first(), num_rounds=1)
        return strategy.asked

    assert len(on_server(act, plain_app(), NODES)) == 3


def test_one_server_s_few_nodes_cost_it_its_sum_and_nobody_else_s():
    """Two nodes of a server have no sum: it keeps its model, and passes it on."""

    def act(grid):
        enrolled = EnrolledGrid(grid, clients_of(grid))
        enrolled.clients[0].node_id = 0
        strategy = graph("none")
        enrolled.begin_round()
        secure = SecureGrid(enrolled, SecureSum())
        asked = strategy.configure_train(1, first(), ConfigRecord(), secure)
        replies = list(secure.send_and_receive(asked))
        strategy.aggregate_train(1, replies)
        return len(replies), enrolled.failures, strategy.models

    count, failures, models = on_server(act, plain_app(), NODES)
    assert count == 2
    assert set(failures) == {1, 2, 3}
    assert "no secure sum" in failures[2]
    assert np.all(models[1] != 0.0)


def test_a_sum_of_an_action_of_its_own_is_over_what_the_client_registers_for_it():
    register(
        app := ClientApp(), lambda message, context: Summands({"a": np.ones(2)}),
        units=lambda message, context: Summands({"b": np.full(3, 2.0)}),
    )  # fmt: skip

    def act(grid):
        messages = [
            Message(RecordDict({"config": ConfigRecord({"x": 1})}), node, "train.units")
            for node in grid.get_node_ids()
        ]
        (found,) = SecureGrid(grid).send_and_receive(messages)
        return found.content

    content = on_server(act, app, 4)
    np.testing.assert_array_equal(content["arrays"]["b"].numpy(), np.full(3, 8.0))
    assert isinstance(content["metrics"], MetricRecord)
