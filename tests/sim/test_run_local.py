"""A ServerApp run whole: what it finds, and what it leaves behind."""

from __future__ import annotations

import threading

import numpy as np
import pytest
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.serverapp import Grid
from flwr.serverapp.strategy import FedAvg
from flwr.supercore.task_identity import TaskIdentity

from tests.sim.engines import ask, client_app, configs, echo, reply_with, server_app
from trellis.sim.grid import run_local


def identity() -> tuple:
    return TaskIdentity._run_id, TaskIdentity._node_id, TaskIdentity._task_id


def test_the_server_finds_its_context() -> None:
    seen = []

    def main(grid: Grid, context: Context) -> None:
        context.run_config["key"] = 2
        assert run_config == {"key": 1}
        seen.append((context.run_id, context.node_id, TaskIdentity.run_id, TaskIdentity.node_id))
        [reply] = grid.send_and_receive(ask(grid))
        seen.append(reply.content["metrics"]["key"])

    def handle(message: Message, context: Context) -> Message:
        return reply_with(message, key=context.run_config["key"])

    run_config = {"key": 1}
    grid = run_local(server_app(main), client_app(handle), configs(1), run_config)
    run_id = grid.run.run_id
    assert seen == [(run_id, 1, run_id, 1), 1]
    assert run_local(server_app(main), client_app(handle), configs(1), run_config).run != grid.run


def test_the_identity_comes_back_also_after_a_raise() -> None:
    before = identity()

    def main(grid: Grid, context: Context) -> None:
        assert identity() != before
        raise ValueError("server boom")

    with pytest.raises(ValueError, match="server boom"):
        run_local(server_app(main), client_app(echo), configs(1), {})
    assert identity() == before


def test_runs_can_be_nested() -> None:
    rates = []

    def inner(grid: Grid, context: Context) -> None:
        rates.append(len(list(grid.send_and_receive(ask(grid)))))

    def outer(grid: Grid, context: Context) -> None:
        mine = identity()
        rates.append(len(list(grid.send_and_receive(ask(grid)))))
        run_local(server_app(inner), client_app(echo), configs(2), {})
        assert identity() == mine
        rates.append(len(list(grid.send_and_receive(ask(grid)))))

    before = identity()
    run_local(server_app(outer), client_app(echo), configs(3), {})
    assert rates == [3, 2, 3]
    assert identity() == before


def test_runs_can_overlap_on_several_threads() -> None:
    before = identity()
    both = threading.Barrier(2)
    replies: list[Message] = []

    def main(grid: Grid, context: Context) -> None:
        both.wait(5.0)
        for _ in range(3):
            messages = ask(grid)
            both.wait(5.0)
            replies.extend(grid.send_and_receive(messages))
        if context.run_config["first"]:
            both.wait(5.0)  # the other one ends before this one does
            replies.extend(grid.send_and_receive(ask(grid)))

    def start(first: bool) -> None:
        run_local(server_app(main), client_app(echo), configs(2), {"first": first})
        if not first:
            both.wait(5.0)

    threads = [threading.Thread(target=start, args=(first,)) for first in (True, False)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10.0)
    assert len(replies) == 14
    assert all(reply.has_content() for reply in replies)
    assert identity() == before


def test_flowers_own_strategy_runs() -> None:
    def train(message: Message, context: Context) -> Message:
        [x] = message.content["arrays"].to_numpy_ndarrays()
        content = RecordDict(
            {
                "arrays": ArrayRecord([x + context.node_config["partition-id"]]),
                "metrics": MetricRecord({"num-examples": 1, "loss": 0.0}),
            }
        )
        return Message(content, reply_to=message)

    results = []

    def main(grid: Grid, context: Context) -> None:
        strategy = FedAvg(fraction_evaluate=0.0, min_available_nodes=3)
        results.append(strategy.start(grid, ArrayRecord([np.zeros(2)]), num_rounds=2))

    run_local(server_app(main), client_app(train), configs(3), {})
    np.testing.assert_allclose(results[0].arrays.to_numpy_ndarrays()[0], [2.0, 2.0])
