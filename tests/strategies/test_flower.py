"""Our strategies are Flower strategies: Flower's own loop, wrappers and plain ClientApps."""

from __future__ import annotations

import runpy
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import ServerApp
from flwr.serverapp.strategy import (
    DifferentialPrivacyClientSideFixedClipping,
    DifferentialPrivacyServerSideFixedClipping,
    FedAdam,
    FedAvg,
    FedMedian,
    FedTrimmedAvg,
    Krum,
)

from trellis.apps.consensus_graph.config import ConsensusGraphConfig
from trellis.apps.consensus_graph.data import synthetic_table
from trellis.apps.consensus_graph.private import pooled
from trellis.apps.consensus_graph.problem import objective, statistic
from trellis.apps.consensus_graph.solver import solve
from trellis.privacy.secagg.client import secure_aggregation
from trellis.sim.grid import run_local
from trellis.strategies.consensus_graph.baselines import (
    AveragedGraph,
    IndependentGraphs,
    OneShotConsensus,
)
from trellis.strategies.consensus_graph.private import PooledConsensus, Shared
from trellis.strategies.consensus_graph.strategy import ConsensusGraph, first_graph
from trellis.strategies.core.declared import Client
from trellis.strategies.core.enrolment import StudyError
from trellis.strategies.core.secure import SecureSum
from trellis.strategies.enrolled_grid import EnrolledGrid
from trellis.strategies.grid_wrapper import GridWrapper
from trellis.strategies.rounds import RoundPlan, Rounds
from trellis.strategies.secure_grid import SecureGrid

EXAMPLES = Path(__file__).parents[2] / "examples"
CONFIG = ConsensusGraphConfig(nodes=6, clients=4, signals="20")
ALPHA, BETA, COUNT = 2.0, 0.05, 20


def signals(context):
    return drawn(int(context.node_config["partition-id"]))


@cache
def drawn(partition):
    return synthetic_table(CONFIG, 1, partition).values


def plain_app() -> ClientApp:
    """A ClientApp that follows the schemas of the strategies, and knows nothing else of Trellis."""
    app = ClientApp()

    @app.train()
    def train(message, context):
        z = statistic(signals(context))
        told, sent = message.content["config"], message.content["arrays"]
        slope = sent["slope"].numpy() if "slope" in sent else 2.0 * z
        averages = told.get("averages", False)
        w = solve(0.5 * slope, ALPHA, BETA, told["pull"], sent["consensus"].numpy()).w
        value = objective(w, z, ALPHA, BETA)
        arrays = {"weights": Array(w)}
        if averages and "slope" not in sent:
            arrays |= {"slope": Array(slope), "objective": Array(np.array([value]))}
        metrics = {"num-examples": COUNT} | ({} if averages else {"objective": value})
        return reply(message, arrays, metrics)

    @app.train("statistic")
    def one_shot(message, context):
        return reply(message, {"statistic": Array(statistic(signals(context)))}, {})

    @app.evaluate()
    def evaluate(message, context):
        sent = message.content["arrays"]
        w = sent["weights"].numpy() if "weights" in sent else sent["consensus"].numpy()
        value = objective(w, statistic(signals(context)), ALPHA, BETA)
        factor = message.content["config"].get("factor", 1.0)
        return reply(message, {}, {"num-examples": COUNT, "loss": factor * value})

    return app


def reply(message, arrays, metrics):
    content = RecordDict({"arrays": ArrayRecord(arrays)} if arrays else {})
    content["metrics"] = MetricRecord(metrics)
    return Message(content, reply_to=message)


def pooled_app() -> ClientApp:
    """Answers with terms of the private sum, in the clear."""
    app = ClientApp()

    @app.train()
    def train(message, context):
        terms = {name: Array(a) for name, a in pooled.summands(signals(context)).items()}
        return reply(message, terms, {"num-examples": COUNT})

    return app


def local(z, pull, consensus):
    w = solve(z, ALPHA, BETA, pull, consensus).w
    return w, objective(w, z, ALPHA, BETA)


def make(total, count, noise):
    known = pooled.pool(total, count, 0.0, noise)
    return Shared(pooled.consensus_of(known, ALPHA), known.noise, count)


STRATEGIES = {
    "consensus": (lambda: ConsensusGraph(1.0, 0.3), plain_app, {}),
    "independent": (lambda: IndependentGraphs(1.0, 0.3), plain_app, {}),
    "averaged": (
        lambda: AveragedGraph(lambda w, z: objective(w, z, ALPHA, BETA)),
        plain_app,
        {"averages": True},
    ),
    "one-shot": (
        lambda: OneShotConsensus(1.0, 0.3, local=local, iterations=5, tolerance=0.0),
        plain_app,
        {},
    ),
    "pooled": (lambda: PooledConsensus(make, pooled.layout(6, 0.0)), pooled_app, {}),
}
EVERY = pytest.mark.parametrize("name", STRATEGIES)


def on_server(act, app, nodes=4):
    """Run ``act`` as a ServerApp on a grid in this process; return what it returns."""
    found = []
    server = ServerApp()

    @server.main()
    def main(grid, context):
        found.append(act(grid))

    run_local(server, app, [{"partition-id": i, "num-partitions": nodes} for i in range(nodes)], {})
    return found[0]


def first():
    return ArrayRecord({"consensus": Array(first_graph(6))})


def clients_of(grid):
    """The grid's nodes as enrolled clients, in the order of their partitions."""
    order = sorted(grid._nodes.values(), key=lambda node: node.node_config["partition-id"])
    return [Client(f"client-{i + 1}", i, COUNT, list("abcdef"), n.id) for i, n in enumerate(order)]


@EVERY
def test_both_loops_agree_to_the_bit(name, monkeypatch):
    build, app, config = STRATEGIES[name]

    def flowers(grid):
        strategy = build()
        enrolled = EnrolledGrid(grid, clients_of(grid))
        result = strategy.start(enrolled, first(), 4, train_config=ConfigRecord(config))
        return result, strategy

    def ours(grid):
        strategy = build()
        rounds = Rounds(
            strategy, lambda clients: first(), RoundPlan(4, 0.0, 4), train_config=config
        )

        def enrol(grid, snapshot):
            rounds.clients = clients_of(grid)
            rounds.grid = EnrolledGrid(grid, rounds.clients)

        monkeypatch.setattr(rounds, "_enrol", enrol)
        return rounds.run(grid), strategy

    (plain, one), (own, other) = on_server(flowers, app()), on_server(ours, app())
    assert plain.arrays["consensus"].data == own.arrays["consensus"].data
    assert np.any(plain.arrays["consensus"].numpy() > 0) or name == "independent"
    for kept, again in zip(one.state_dict().values(), other.state_dict().values(), strict=True):
        assert kept.tobytes() == again.tobytes()
    shared = plain.train_metrics_clientapp.keys() & own.train_metrics_clientapp.keys()
    assert shared
    for number in shared:
        here, there = (r.train_metrics_clientapp[number] for r in (plain, own))
        assert dict(here) == dict(there)


def test_start_honours_every_argument():
    seen = []

    def act(grid):
        return ConsensusGraph(1.0, 0.3, fraction_evaluate=1.0).start(
            grid,
            ArrayRecord({"consensus": Array(np.full(15, 0.4))}),
            num_rounds=2,
            timeout=60.0,
            train_config=ConfigRecord({"alpha": ALPHA}),
            evaluate_config=ConfigRecord({"factor": 2.0}),
            evaluate_fn=lambda number, arrays: seen.append(arrays["consensus"].numpy().copy()),
        )

    result = on_server(act, plain_app())
    assert list(result.train_metrics_clientapp) == [1, 2]  # two rounds, not one more
    np.testing.assert_array_equal(seen[0], np.full(15, 0.4))
    assert len(seen) == 3
    np.testing.assert_array_equal(seen[-1], result.arrays["consensus"].numpy())
    doubled = result.evaluate_metrics_clientapp[2]["loss"]
    plain = on_server(
        lambda grid: ConsensusGraph(1.0, 0.3, fraction_evaluate=1.0).start(
            grid, ArrayRecord({"consensus": Array(np.full(15, 0.4))}), num_rounds=2
        ),
        plain_app(),
    )
    assert doubled == pytest.approx(2.0 * plain.evaluate_metrics_clientapp[2]["loss"])


def test_a_fraction_of_the_nodes_trains():
    def act(grid):
        strategy = ConsensusGraph(1.0, 0.3, fraction_train=0.5)
        strategy.start(grid, first(), num_rounds=1)
        return len(strategy.graphs)

    assert on_server(act, plain_app()) == 2


def test_flowers_wrapper_for_privacy_runs_around_it():
    def act(grid):
        wrapped = DifferentialPrivacyServerSideFixedClipping(ConsensusGraph(1.0, 0.3), 0.0, 0.2, 4)
        return wrapped.start(grid, first(), num_rounds=1), wrapped.strategy

    result, strategy = on_server(act, plain_app())
    # Every update was clipped before (19): no graph is further than the norm from the first.
    gaps = [np.linalg.norm(w - first_graph(6)) for w in strategy.graphs.values()]
    assert max(gaps) == pytest.approx(0.2)
    assert result.arrays["consensus"].numpy().shape == (15,)


def test_fedavg_in_a_secure_grid_is_fedavg_within_the_grid_of_fixed_point():
    def run(wrap):
        def act(grid):
            arrays = ArrayRecord({"weights": Array(np.zeros(15))})
            return FedAvg(fraction_evaluate=0.0).start(wrap(grid), arrays, num_rounds=2)

        return on_server(act, fedavg_app())

    plain, secure = run(lambda grid: grid), run(SecureGrid)
    a, b = (r.arrays["weights"].numpy() for r in (plain, secure))
    # Four clients, each rounded to multiples of 2^-32 / 20 examples.
    np.testing.assert_allclose(a, b, rtol=0, atol=2.0**-32)
    assert not np.array_equal(a, np.zeros(15))


def fedavg_app() -> ClientApp:
    app = ClientApp()

    @app.train()
    def train(message, context):
        w = message.content["arrays"]["weights"].numpy()
        moved = w + statistic(signals(context))
        count = 10 + int(context.node_config["partition-id"])
        return reply(message, {"weights": Array(moved)}, {"num-examples": count})

    return secure_aggregation(app)


def test_a_secure_grid_gives_a_strategy_one_reply_and_no_single_one():
    replies = []

    class Watching(FedAvg):
        def aggregate_train(self, server_round, found):
            replies.append(list(found))
            return super().aggregate_train(server_round, replies[-1])

    def act(grid):
        arrays = ArrayRecord({"weights": Array(np.zeros(15))})
        return Watching(fraction_evaluate=0.0).start(SecureGrid(grid), arrays, num_rounds=2)

    on_server(act, fedavg_app())
    assert [len(found) for found in replies] == [1, 1]
    assert replies[0][0].content["metrics"]["num-examples"] == 10 + 11 + 12 + 13
    assert replies[0][0].content["metrics"]["clients"] == 4


def test_a_server_that_has_one_client_evaluate_while_others_train_gets_no_sum_with_it():
    class Mixing(GridWrapper):
        def push_messages(self, messages):
            messages = list(messages)
            if messages and messages[0].metadata.message_type == "train.secagg_masked":
                messages[0].metadata.message_type = "evaluate.secagg_masked"
            return super().push_messages(messages)

    def act(grid):
        arrays = ArrayRecord({"weights": Array(np.zeros(15))})
        strategy = FedAvg(fraction_evaluate=0.0)
        grid = SecureGrid(Mixing(grid))
        asked = strategy.configure_train(1, arrays, ConfigRecord(), grid)
        (found,) = grid.send_and_receive(asked)
        return found.content["metrics"]["clients"]

    app = fedavg_app()

    @app.evaluate()
    def evaluate(message, context):
        return reply(message, {"weights": Array(np.zeros(15))}, {"num-examples": 10})

    assert on_server(act, app) == 3


def test_two_nodes_are_too_few_for_a_secure_sum():
    def act(grid):
        arrays = ArrayRecord({"weights": Array(np.zeros(15))})
        with pytest.raises(StudyError, match="at least 3 clients"):
            FedAvg(fraction_evaluate=0.0).start(SecureGrid(grid), arrays, num_rounds=1)
        return True

    assert on_server(act, fedavg_app(), nodes=2)


def test_a_strategy_that_needs_single_replies_fails_loudly_on_sums():
    app = plain_app()
    secure_aggregation(app)

    def act(grid):
        strategy = ConsensusGraph(1.0, 0.3, send_own=True)
        with pytest.raises(StudyError, match="nodes are sent different messages"):
            strategy.start(SecureGrid(grid, SecureSum()), first(), num_rounds=2)
        return True

    assert on_server(act, app)


def clipped_by_the_server(**options):
    return DifferentialPrivacyServerSideFixedClipping(FedAvg(**options), 1.0, 0.2, 4)


def clipped_by_clients(**options):
    return DifferentialPrivacyClientSideFixedClipping(FedAvg(**options), 0.0, 0.2, 4)


@pytest.mark.parametrize("loop", ["flower", "ours"])
@pytest.mark.parametrize(
    ("build", "why"),
    [
        (FedMedian, "FedMedian on SecureGrid: it compares single replies"),
        (FedTrimmedAvg, "compares single replies"),
        (Krum, "compares single replies"),
        (clipped_by_the_server, "the epsilon it reports would not hold"),
        (FedAdam, ""),
        (clipped_by_clients, ""),
    ],
)
def test_a_strategy_that_would_run_on_sums_and_be_wrong_is_refused(build, why, loop, monkeypatch):
    def act(grid):
        arrays = ArrayRecord({"weights": Array(np.zeros(15))})
        strategy = build(fraction_evaluate=0.0)
        if loop == "flower":
            return strategy.start(SecureGrid(grid), arrays, num_rounds=1)
        plan = RoundPlan(1, 0.0, 4)
        rounds = Rounds(strategy, lambda clients: arrays, plan, middleware=SecureGrid)

        def enrol(grid, snapshot):
            rounds.clients = clients_of(grid)
            rounds.grid = EnrolledGrid(grid, rounds.clients)

        monkeypatch.setattr(rounds, "_enrol", enrol)
        return rounds.run(grid)

    if why:
        with pytest.raises(StudyError, match=why):
            on_server(act, fedavg_app())
    else:
        assert np.any(on_server(act, fedavg_app()).arrays["weights"].numpy() != 0.0)


@pytest.mark.parametrize("name", sorted(path.stem for path in EXAMPLES.glob("*.py")))
def test_an_example_is_short_and_runs(name, capsys):
    path = EXAMPLES / f"{name}.py"
    pytest.importorskip("torch")
    assert len(path.read_text().splitlines()) <= 60
    runpy.run_path(str(path), run_name="__main__")
    assert "0.weight" in capsys.readouterr().out
