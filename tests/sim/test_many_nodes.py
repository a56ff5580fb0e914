"""Many nodes in one process: what is kept of a message, what nodes share, and the collector."""

from __future__ import annotations

import gc
import threading
import weakref

import numpy as np
import pytest
from flwr.app import ArrayRecord, Context, Message, RecordDict

from tests.sim.engines import ask, count, echo, local_grid, reply_with
from trellis.sim import copies, grid, local_nodes
from trellis.sim.faults import Drop, Raise
from trellis.sim.garbage import pace
from trellis.strategies.core.exchange import exchange


def test_each_message_is_answered_before_the_next_is_made() -> None:
    events = []

    def handle(message: Message, context: Context) -> Message:
        events.append(("answered", context.node_config["partition-id"]))
        return reply_with(message, n=1.0)

    def made(grid):
        for place, message in enumerate(ask(grid)):
            events.append(("made", place))
            yield message

    with local_grid(handle, 3) as here:
        ids = list(here.push_messages(made(here)))
        replies = list(here.pull_messages(ids))
    assert len(replies) == 3
    assert [what for what, _ in events] == ["made", "answered"] * 3


@pytest.mark.parametrize("workers", [0, 2])
def test_a_node_s_copy_of_a_message_is_let_go_once_it_is_answered(workers: int) -> None:
    seen: list[weakref.ref] = []

    def handle(message: Message, context: Context) -> Message:
        seen.append(weakref.ref(message.content))
        return reply_with(message, n=1.0)

    with local_grid(handle, 4, workers=workers) as here:
        # Not even while the round lasts: the replies are not pulled yet.
        messages = ask(here)
        ids = list(here.push_messages(messages))
        if workers:
            for sent in here._sent.values():
                for task in sent.tasks:
                    task.result()
        assert len(seen) == 4
        assert [ref() for ref in seen] == [None] * 4
        assert len(list(here.pull_messages(ids))) == 4


def test_a_message_that_no_node_has_taken_up_is_answered_by_its_fault() -> None:
    with local_grid(count, 3, faults={0: Drop(), 1: Raise()}) as here:
        replies = list(here.send_and_receive(ask(here)))
    assert sorted(reply.has_error() for reply in replies) == [False, True, True]


def test_nodes_share_the_run_config_until_one_changes_its_own() -> None:
    def handle(message: Message, context: Context) -> Message:
        place = context.node_config["partition-id"]
        if place == 1:
            context.run_config["key"] += 1
        if place == 2:
            context.node_config["met"] = context.node_config.get("met", 0) + 1
        return reply_with(
            message,
            partition=place,
            key=context.run_config["key"],
            met=context.node_config.get("met", 0),
        )

    given = {"key": 0}
    with local_grid(handle, 3, run_config=given) as here:
        for expected in (1, 2):
            replies = list(here.send_and_receive(ask(here)))
            found = {reply.content["metrics"]["partition"]: reply for reply in replies}
            told = [found[place].content["metrics"] for place in range(3)]
            assert [one["key"] for one in told] == [0, expected, 0]
            assert [one["met"] for one in told] == [0, 0, expected]
        kept = [node.run_config for node in here._nodes.values()]
    assert kept[0] is kept[2]
    assert kept[0] == given == {"key": 0}
    assert kept[1] == {"key": 2}


def test_what_keeps_nothing_shares_nothing_that_could_be_changed() -> None:
    def handle(message: Message, context: Context) -> Message:
        assert len(context.state) == 0
        if message.metadata.message_type == "train":
            return reply_with(message, n=0.0)
        context.state["own"] = ArrayRecord([np.zeros(1)])
        return reply_with(message, n=1.0)

    with local_grid(handle, 3) as here:
        list(here.send_and_receive(ask(here, "train")))
        nodes = list(here._nodes)
        list(here.send_and_receive(ask(here, "query", nodes[:1])))
        replies = list(here.send_and_receive(ask(here, "train", nodes[1:])))
    assert not any(reply.has_error() for reply in replies)
    assert len(local_nodes.NOTHING) == 0


@pytest.mark.parametrize("workers", [0, 2])
def test_twice_the_nodes_take_twice_the_copies(workers: int, monkeypatch) -> None:
    counted = []
    copied = copies.copy_records
    for module in (copies, local_nodes):
        monkeypatch.setattr(module, "copy_records", lambda r: counted.append(1) or copied(r))

    def copies_of(nodes: int) -> int:
        with local_grid(count, nodes, workers=workers) as here:
            list(here.send_and_receive(ask(here)))
            counted.clear()
            list(here.send_and_receive(ask(here)))
        return len(counted)

    assert [copies_of(n) for n in (50, 100, 200)] == [200, 400, 800]


def collections_in_a_round(nodes: int) -> int:
    with local_grid(echo, nodes) as here:
        content = RecordDict({"arrays": ArrayRecord([np.zeros(3)])})

        def messages():
            for node in here.get_node_ids():
                yield node, Message(RecordDict(dict(content)), node, "train")

        exchange(here, messages(), 60.0)
        before = [found["collections"] for found in gc.get_stats()]
        answers = exchange(here, messages(), 60.0)
        after = [found["collections"] for found in gc.get_stats()]
        assert len(answers.content) == nodes
    return sum(after) - sum(before)


def test_the_collector_looks_as_often_at_many_nodes_as_at_few() -> None:
    gc.collect()
    assert collections_in_a_round(50) <= 2
    assert collections_in_a_round(2000) <= 2


class TestPace:
    def test_what_was_found_comes_back_when_the_last_grid_ends(self) -> None:
        before = gc.get_threshold()
        with local_grid(echo, 10):
            one = gc.get_threshold()
            with local_grid(echo, 30):
                both = gc.get_threshold()
            assert gc.get_threshold() == one
        assert gc.get_threshold() == before
        assert before[0] < one[0] < both[0]
        assert before[1:] == one[1:] == both[1:]

    def test_a_collector_that_is_off_stays_off(self) -> None:
        before = gc.get_threshold()
        gc.set_threshold(0, *before[1:])
        try:
            with local_grid(echo, 10):
                assert gc.get_threshold()[0] == 0
        finally:
            gc.set_threshold(*before)

    def test_grids_on_several_threads_leave_it_as_they_found_it(self) -> None:
        before = gc.get_threshold()

        def use() -> None:
            for _ in range(50):
                pace.take(7)
                pace.give_back(7)

        threads = [threading.Thread(target=use) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert gc.get_threshold() == before

    def test_a_grid_that_ends_in_an_error_gives_it_back(self) -> None:
        before = gc.get_threshold()
        with pytest.raises(ZeroDivisionError), local_grid(echo, 10):
            raise ZeroDivisionError
        assert gc.get_threshold() == before
        assert grid.LocalGrid.takes_one_by_one
