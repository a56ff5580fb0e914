"""The strategies of joint-precision are Flower strategies: both loops, and plain ClientApps."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import ServerApp

from trellis.apps.joint_precision.config import JointPrecisionConfig
from trellis.apps.joint_precision.correlation import correlation, to_positive_semidefinite
from trellis.apps.joint_precision.data import synthetic_table
from trellis.apps.joint_precision.gathered import read_matrices, stack
from trellis.apps.joint_precision.private.concordance import summands
from trellis.apps.joint_precision.private.consensus import estimate
from trellis.apps.joint_precision.problem import LocalProblem
from trellis.apps.joint_precision.solver import glasso_alone, solve_joint
from trellis.privacy.secagg.client import Summands, register
from trellis.sim.grid import run_local
from trellis.strategies.core.declared import Client
from trellis.strategies.core.enrolment import StudyError
from trellis.strategies.core.secure import SecureSum
from trellis.strategies.enrolled_grid import EnrolledGrid
from trellis.strategies.joint_precision.baselines import GatheredPrecision
from trellis.strategies.joint_precision.blocks import Blocks
from trellis.strategies.joint_precision.messages import (
    Stepped,
    read_step_order,
    screening_reply,
    step_reply,
)
from trellis.strategies.joint_precision.private import PooledPrecision, layout
from trellis.strategies.joint_precision.strategy import JointPrecision
from trellis.strategies.rounds import RoundPlan, Rounds
from trellis.strategies.secure_grid import SecureGrid

P, NODES, COUNT = 6, 4, 40
CONFIG = JointPrecisionConfig(variables=P, blocks=2, clients=NODES, samples=str(COUNT))
POINTS = np.array([[0.3, 0.0], [0.1, 0.0]])


def samples(context):
    return synthetic_table(CONFIG, 1, int(context.node_config["partition-id"])).values


def matrix_of(values):
    return to_positive_semidefinite(correlation(values, "kendall"))


def plain_app() -> ClientApp:
    """A ClientApp that follows the schema of `JointPrecision`, and knows no enrolment."""
    app = ClientApp()

    @app.train("screen")
    def screen(message, context):
        matrix, smallest = matrix_of(samples(context))
        cut = message.content["config"]["cut"]
        return Message(screening_reply(matrix, cut, smallest, COUNT, "float64"), reply_to=message)

    @app.train()
    def train(message, context):
        matrix, smallest = matrix_of(samples(context))
        asked = read_step_order(message.content, P)
        found = LocalProblem(matrix, asked.blocks).step(asked.psi, asked.point, asked.ratio)
        step = Stepped(found.omega, found.loss, found.log_det, smallest, 0.0)
        return Message(step_reply(step, COUNT, "float64"), reply_to=message)

    return app


def alone_app() -> ClientApp:
    app = ClientApp()

    @app.train()
    def train(message, context):
        matrix, smallest = matrix_of(samples(context))
        lambdas = message.content["arrays"]["points"].numpy()[:, 0]
        found = glasso_alone(CONFIG, matrix, lambdas) | {"smallest": np.array(smallest)}
        return reply(message, found)

    return app


def pooled_app() -> ClientApp:
    app = ClientApp()

    @app.train()
    def train(message, context):
        return reply(message, summands(samples(context)))

    def terms(message, context):
        clear = RecordDict({"metrics": MetricRecord({"num-examples": COUNT})})
        return Summands(summands(samples(context)), clear)

    register(app, terms)
    return app


def reply(message, arrays):
    content = RecordDict({"arrays": ArrayRecord({k: Array(a) for k, a in arrays.items()})})
    content["metrics"] = MetricRecord({"num-examples": COUNT})
    return Message(content, reply_to=message)


def on_server(act, app, nodes=NODES):
    """Run ``act`` as a ServerApp on a grid in this process; return what it returns."""
    found = []
    server = ServerApp()

    @server.main()
    def main(grid, context):
        found.append(act(grid))

    run_local(server, app, [{"partition-id": i, "num-partitions": nodes} for i in range(nodes)], {})
    return found[0]


def clients_of(grid):
    """The grid's nodes as enrolled clients, in the order of their partitions."""
    order = sorted(grid._nodes.values(), key=lambda node: node.node_config["partition-id"])
    return [Client(f"client-{i + 1}", i, COUNT, list("abcdef"), n.id) for i, n in enumerate(order)]


def joint(penalty, **more):
    return JointPrecision(penalty, 0.1, 0.05, rounds=30, **more)


def gathered():
    clients = [Client(f"c{i}", i, COUNT, list("abcdef"), i) for i in range(NODES)]
    read = partial(read_matrices, variables=P, points=len(POINTS))
    return GatheredPrecision(POINTS, read, partial(stack, POINTS, clients))


def pooled():
    make = partial(estimate, variables=P, points=POINTS[:, 0], tolerance=1e-4)
    return PooledPrecision(make, layout(P))


STRATEGIES = {
    "group": (partial(joint, "group"), plain_app),
    "fused": (partial(joint, "fused"), plain_app),
    "no screening": (partial(joint, "group", screening=False), plain_app),
    "path": (partial(joint, "fused", path=3), plain_app),
    "gathered": (gathered, alone_app),
    "pooled": (pooled, pooled_app),
}


@pytest.mark.parametrize("name", STRATEGIES)
def test_both_loops_agree_to_the_bit(name, monkeypatch):
    build, app = STRATEGIES[name]

    def flowers(grid):
        strategy = build()
        enrolled = EnrolledGrid(grid, clients_of(grid))
        return strategy.start(enrolled, ArrayRecord(), 12), strategy

    def ours(grid):
        strategy = build()
        rounds = Rounds(strategy, lambda clients: ArrayRecord(), RoundPlan(12, 1e-6, NODES))

        def enrol(grid, snapshot):
            rounds.clients = clients_of(grid)
            rounds.grid = EnrolledGrid(grid, rounds.clients)

        monkeypatch.setattr(rounds, "_enrol", enrol)
        return rounds.run(grid), strategy

    (plain, one), (own, other) = on_server(flowers, app()), on_server(ours, app())
    assert plain.arrays.keys() == own.arrays.keys()
    assert len(plain.arrays)
    for key, array in plain.arrays.items():
        assert array.data == own.arrays[key].data, key
    for kept, again in zip(one.state_dict().values(), other.state_dict().values(), strict=True):
        assert kept.tobytes() == again.tobytes()
    numbers = plain.train_metrics_clientapp.keys() & own.train_metrics_clientapp.keys()
    assert numbers
    for number in numbers:
        here, there = (dict(r.train_metrics_clientapp[number]) for r in (plain, own))
        here.pop("server-seconds", None), there.pop("server-seconds", None)
        np.testing.assert_equal(here, there)


@pytest.mark.parametrize("penalty", ["group", "fused"])
def test_flowers_own_start_reaches_the_certified_solution_without_enrolment(penalty):
    """Node ids are Flower's, numbers of samples are in the nodes' first replies."""
    strategy = joint(penalty)
    result = on_server(lambda grid: strategy.start(grid, ArrayRecord(), 40), plain_app())
    assert strategy.converged
    nodes = [int(node) for node in result.arrays["nodes"].numpy()]
    assert nodes == sorted(nodes) == strategy.members
    blocks = Blocks(result.arrays["labels"].numpy())
    found = blocks.unpack(result.arrays["sparse"].numpy())
    matrices = np.array([matrix_of(synthetic_table(CONFIG, 1, k).values)[0] for k in range(NODES)])
    expected = solve_joint(matrices, 0.1, 0.05, penalty, tolerance=1e-9).sparse
    # In the order of node ids, which is any.
    for matrix in expected:
        assert min(np.abs(matrix - other).max() for other in found) < 2e-3


def test_a_fraction_of_the_nodes_trains_between_certificates():
    asked = []

    class Watched(JointPrecision):
        def aggregate_train(self, server_round, replies):
            replies = list(replies)
            asked.append(len(replies))
            return super().aggregate_train(server_round, replies)

    strategy = Watched("group", 0.1, 0.05, tolerance=0.0, fraction_train=0.5)
    on_server(lambda grid: strategy.start(grid, ArrayRecord(), 11), plain_app())
    assert asked == [4, 2, 2, 2, 2, 2, 2, 2, 2, 4, 2]


def test_train_config_goes_with_every_message():
    seen = []

    class Listening(type(plain_app())):
        def __call__(self, message, context):
            seen.append((message.metadata.message_type, message.content["config"]["alpha"]))
            return super().__call__(message, context)

    app = plain_app()
    app.__class__ = Listening
    config = ConfigRecord({"alpha": 0.5})
    on_server(lambda grid: joint("group").start(grid, ArrayRecord(), 2, train_config=config), app)
    assert set(seen) == {("train.screen", 0.5), ("train", 0.5)}


def test_the_pooled_strategy_is_the_same_on_secure_sums_within_the_fixed_point():
    def run(wrap):
        strategy = pooled()
        return on_server(lambda grid: strategy.start(wrap(grid), ArrayRecord(), 1), pooled_app())

    plain = run(lambda grid: grid)
    secure = run(lambda grid: SecureGrid(grid, SecureSum(24)))
    for name in ("tau", "consensus"):
        a, b = (r.arrays[name].numpy() for r in (plain, secure))
        np.testing.assert_allclose(a, b, atol=1e-5)


def test_a_secure_grid_refuses_rounds_that_need_every_clients_matrix():
    def act(grid):
        with pytest.raises(StudyError, match="no secure sum"):
            joint("group").start(SecureGrid(grid), ArrayRecord(), 2)
        return True

    assert on_server(act, plain_app())
