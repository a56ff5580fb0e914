"""Nodes on several threads: time, order, interrupts."""

from __future__ import annotations

import threading
import time

import numpy as np
import pytest
from flwr.app import ArrayRecord, Context, Message, RecordDict
from flwr.serverapp import Grid, ServerApp

from tests.sim.engines import ask, client_app, configs, count, local_grid, metrics, reply_with
from trellis.sim.grid import node_ids, run_local


@pytest.mark.parametrize("workers", [0, 2])
def test_a_reply_after_the_timeout_can_be_pulled_later(workers: int) -> None:
    release = threading.Event()

    def slow(message: Message, context: Context) -> Message:
        release.wait(60.0 if workers else 0.05)  # without workers nobody can release it
        return count(message, context)

    with local_grid(slow, 1, workers=workers) as grid:
        messages = ask(grid)
        assert list(grid.send_and_receive(messages, timeout=0.01)) == []
        release.set()
        ids = [messages[0].metadata.message_id]
        replies: list[Message] = []
        while not replies:
            replies = list(grid.pull_messages(ids))
        assert metrics(replies, "n") == [1]
        assert len(list(grid.send_and_receive(ask(grid), timeout=60.0))) == 1


def test_a_worker_that_outlives_its_message_is_not_waited_for() -> None:
    release, ended = threading.Event(), threading.Event()

    def hang(message: Message, context: Context) -> Message:
        release.wait(60.0)
        ended.set()
        return count(message, context)

    with local_grid(hang, 1, workers=1) as grid:
        [reply] = grid.send_and_receive([Message(RecordDict(), node_ids(1)[0], "train", ttl=0.05)])
        assert not ended.is_set()
        assert reply.error.code == 3
        release.set()


def test_workers_run_at_the_same_time() -> None:
    together = threading.Barrier(2)

    def meet(message: Message, context: Context) -> Message:
        together.wait(60.0)
        return reply_with(message, n=1.0)

    with local_grid(meet, 2, workers=2) as grid:
        assert metrics(list(grid.send_and_receive(ask(grid))), "n") == [1.0, 1.0]


def test_a_node_handles_one_message_at_a_time_and_in_order() -> None:
    inside: set[int] = set()
    order: dict[int, list[str]] = {node: [] for node in node_ids(3)}

    def watch(message: Message, context: Context) -> Message:
        assert context.node_id not in inside
        inside.add(context.node_id)
        time.sleep(0.002)
        order[context.node_id].append(message.metadata.group_id)
        inside.remove(context.node_id)
        return count(message, context)

    with local_grid(watch, 3, workers=4) as grid:
        ids: list[str] = []
        for push in range(4):
            ids += grid.push_messages(
                Message(RecordDict(), node, "train", group_id=f"{push}{k}")
                for k in range(3)
                for node in order
            )
        replies: list[Message] = []
        while len(replies) < len(ids):
            known = {reply.metadata.reply_to_message_id for reply in replies}
            replies += grid.pull_messages(set(ids) - known)
    assert metrics(replies, "n") == sorted(list(range(1, 13)) * 3)
    expected = [f"{push}{k}" for push in range(4) for k in range(3)]
    assert all(seen == expected for seen in order.values())


def test_threads_and_one_after_the_other_agree() -> None:
    def draw(message: Message, context: Context) -> Message:
        kept = context.state.get("x", ArrayRecord([np.zeros(4)])).to_numpy_ndarrays()[0]
        kept = np.sin(kept + context.node_config["partition-id"] + 0.1)
        context.state["x"] = ArrayRecord([kept])
        return Message(RecordDict({"x": ArrayRecord([kept])}), reply_to=message)

    def run(workers: int) -> list[bytes]:
        with local_grid(draw, 20, workers=workers) as grid:
            for _ in range(5):
                replies = list(grid.send_and_receive(ask(grid)))
        replies.sort(key=lambda reply: reply.metadata.src_node_id)
        return [reply.content["x"]["0"].data for reply in replies]

    assert run(0) == run(1) == run(3)


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("interrupt", [KeyboardInterrupt, SystemExit])
def test_an_interrupt_ends_the_run(workers: int, interrupt: type[BaseException]) -> None:
    def stop(message: Message, context: Context) -> Message:
        raise interrupt

    def main(grid: Grid, context: Context) -> None:
        list(grid.send_and_receive(ask(grid)))

    server = ServerApp()
    server.main()(main)
    with pytest.raises(interrupt):
        run_local(server, client_app(stop), configs(2), {}, workers=workers)
    assert not [t for t in threading.enumerate() if t.name.startswith("trellis-node")]
