"""Nodes that drop out, are late, raise or send nonsense."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, Context, Message, MetricRecord, RecordDict

from tests.sim.engines import ask, client_app, configs, count, echo, local_grid, metrics
from trellis.sim import faults
from trellis.sim.faults import Away, Drop, Late, Nonsense, Raise
from trellis.sim.grid import LocalGrid, node_ids


def test_a_fault_says_when_it_acts() -> None:
    assert Drop().acts("train", 1)
    assert [n for n in range(1, 6) if Drop(since=3).acts("train", n)] == [3, 4, 5]
    assert [n for n in range(1, 6) if Drop(at=frozenset({2, 4})).acts("train", n)] == [2, 4]
    assert Drop(category="query").acts("query", 1)
    assert not Drop(category="query").acts("train", 1)


def test_messages_are_counted_for_each_category() -> None:
    with local_grid(echo, 1, faults={0: Raise(at=frozenset({2}))}) as grid:
        outcome = [
            next(iter(grid.send_and_receive(ask(grid, category)))).has_error()
            for category in ("query", "train", "query", "train", "train", "query")
        ]
    assert outcome == [False, False, True, True, False, False]


@pytest.mark.parametrize("workers", [0, 2])
def test_a_dropped_node_is_unavailable_and_leaves(workers: int) -> None:
    gone = node_ids(3)[1]
    with local_grid(count, workers=workers, faults={1: Drop(since=2)}) as grid:
        assert metrics(list(grid.send_and_receive(ask(grid))), "n") == [1, 1, 1]
        assert gone in grid.get_node_ids()
        messages = ask(grid)
        replies = list(grid.send_and_receive(messages))
        [failed] = [reply for reply in replies if reply.has_error()]
        assert failed.error.code == 5
        assert failed.metadata.src_node_id == 1
        assert failed.metadata.message_type == "train"
        assert failed.metadata.reply_to_message_id == messages[1].metadata.message_id
        assert set(grid.get_node_ids()) == set(node_ids(3)) - {gone}
        assert gone not in {info.node_id for info in grid.get_nodes()}
        [again] = grid.send_and_receive([Message(RecordDict(), gone, "train")])
        assert again.error.code == 5


@pytest.mark.parametrize(("forget", "seen"), [(True, 1), (False, 2)])
def test_a_node_that_comes_back_has_lost_its_state(forget: bool, seen: int) -> None:
    with local_grid(count, 1, faults={0: Drop(at=frozenset({2}), forget=forget)}) as grid:
        outcome = [next(iter(grid.send_and_receive(ask(grid)))) for _ in range(3)]
        assert [reply.has_error() for reply in outcome] == [False, True, False]
        assert len(list(grid.get_node_ids())) == 1
    assert outcome[2].content["metrics"]["n"] == seen


def rounds_of(grid, count):
    """Ask whoever is there, so many rounds; return how many messages each says to have had."""
    seen = []
    for _ in range(count):
        here = sorted(grid.get_node_ids())
        replies = list(grid.send_and_receive([Message(RecordDict(), n, "train") for n in here]))
        seen.append(sorted(metrics(replies, "n")))
    return seen


@pytest.mark.parametrize("workers", [0, 2])
def test_a_node_that_is_away_is_not_listed_and_comes_back_without_its_state(workers: int) -> None:
    gone = node_ids(3)[1]
    with local_grid(count, workers=workers, faults={1: Away(first=2, until=4)}) as grid:
        assert grid.nodes_change
        assert rounds_of(grid, 1) == [[1, 1, 1]]
        assert gone not in {info.node_id for info in grid.get_nodes()}
        assert rounds_of(grid, 4) == [[2, 2], [3, 3], [1, 4, 4], [2, 5, 5]]
        starts = {info.node_id: info.last_activated_at for info in grid.get_nodes()}
        assert starts.pop(gone) not in starts.values()


def test_a_message_to_a_node_that_is_away_is_answered_by_the_server() -> None:
    with local_grid(count, faults={1: Away(first=1)}) as grid:
        [reply] = grid.send_and_receive([Message(RecordDict(), node_ids(3)[1], "train")])
        assert reply.error.code == 5


def test_a_node_without_a_key_comes_back_as_another() -> None:
    old = node_ids(3)[1]
    with local_grid(count, faults={1: Away(first=2, until=3, new_id=True)}) as grid:
        assert rounds_of(grid, 3) == [[1, 1, 1], [2, 2], [1, 3, 3]]
        assert old not in grid.get_node_ids()
        assert len(set(grid.get_node_ids())) == 3
        assert not list(grid.push_messages([Message(RecordDict(), old, "train")]))


def test_a_node_that_comes_late_and_one_that_restarts_between_two_rounds() -> None:
    with local_grid(count, faults={0: Away(first=1, until=3), 1: Away(first=3, until=3)}) as grid:
        assert rounds_of(grid, 4) == [[1, 1], [2, 2], [1, 1, 3], [2, 2, 4]]


def test_nodes_have_the_names_that_they_are_registered_under() -> None:
    app = client_app(count)
    with LocalGrid(app, configs(3), {}, names=["north", "south"]) as grid:
        names = {info.node_id: info.name for info in grid.get_nodes()}
        assert not grid.nodes_change
    assert [names[node] for node in node_ids(3)] == ["north", "south", ""]


@pytest.mark.parametrize("workers", [0, 2])
def test_a_late_reply_misses_the_timeout_and_the_next_message_too(workers: int) -> None:
    fault = Late(at=frozenset({1}), rounds=1)
    start = time.monotonic()
    with local_grid(count, 2, workers=workers, faults={0: fault}) as grid:
        sent = []
        for expected in ([1], [2], [3, 3], [4, 4]):
            messages = ask(grid)
            sent.append(messages[0].metadata)
            replies = list(grid.send_and_receive(messages, timeout=100.0))
            assert metrics(replies, "n") == expected
            assert list(grid.get_node_ids())
        assert time.monotonic() - start < 100.0  # nobody has waited for it
        late = list(grid.pull_messages([sent[0].message_id, sent[1].message_id]))
        assert metrics(late, "n") == [1, 2]


def test_a_late_node_that_is_free_at_once_misses_one_round() -> None:
    with local_grid(count, 1, faults={0: Late(at=frozenset({1}), rounds=0)}) as grid:
        outcome = [len(list(grid.send_and_receive(ask(grid), timeout=9.0))) for _ in range(3)]
    assert outcome == [0, 1, 1]


def test_a_late_reply_is_there_for_who_waits() -> None:
    with local_grid(count, 2, faults={0: Late(since=1, rounds=3)}) as grid:
        for expected in ([1, 1], [2, 2]):
            assert metrics(list(grid.send_and_receive(ask(grid))), "n") == expected


def test_a_round_is_counted_from_pull_to_push() -> None:
    with local_grid(count, 2, faults={0: Late(at=frozenset({1}), rounds=0)}) as grid:
        ids = [i for message in ask(grid) for i in grid.push_messages([message])]
        assert metrics(list(grid.pull_messages(ids)), "partition") == [1]
        assert list(grid.pull_messages(ids[:1])) == []
        grid.push_messages(ask(grid))
        assert metrics(list(grid.pull_messages(ids[:1])), "partition") == [0]


def test_a_raising_node_never_ran() -> None:
    with local_grid(count, 1, faults={0: Raise(text="disk full", at=frozenset({1}))}) as grid:
        [failed] = grid.send_and_receive(ask(grid))
        [reply] = grid.send_and_receive(ask(grid))
    assert failed.error.code == 2
    assert failed.error.reason == "<class 'RuntimeError'>:<'disk full'>"
    assert reply.content["metrics"]["n"] == 1


def send_arrays(message: Message, context: Context) -> Message:
    arrays = {"x": Array(np.ones((2, 3))), "i": Array(np.arange(3)), "s": Array(np.array(2.0))}
    content = RecordDict({"arrays": ArrayRecord(arrays), "metrics": MetricRecord({"n": 1})})
    return Message(content, reply_to=message)


def changed(change: Callable) -> RecordDict:
    with local_grid(send_arrays, 1, faults={0: Nonsense(change=change)}) as grid:
        [reply] = grid.send_and_receive(ask(grid))
    return reply.content


def test_nonsense_numbers() -> None:
    assert np.isnan(changed(faults.not_a_number)["arrays"]["x"].numpy()).all()
    assert np.isinf(changed(faults.infinite)["arrays"]["x"].numpy()).all()
    huge = changed(faults.huge)["arrays"]["x"].numpy()
    assert (huge == np.finfo(np.float64).max).all()
    for change in (faults.not_a_number, faults.infinite, faults.huge):
        assert changed(change)["arrays"]["x"].numpy().shape == (2, 3)
        np.testing.assert_array_equal(changed(change)["arrays"]["i"].numpy(), np.arange(3))


def test_nonsense_shapes_and_records() -> None:
    assert changed(faults.wrong_shape)["arrays"]["x"].numpy().shape == (7,)
    lying = changed(faults.lying_shape)["arrays"]
    assert lying["x"].shape == (2, 4)
    assert lying["s"].shape == (2,)
    assert lying["x"].numpy().shape == (2, 3)
    assert set(changed(faults.without_arrays)) == {"metrics"}
    assert len(changed(faults.without_records)) == 0


def test_nonsense_may_change_the_whole_message() -> None:
    def forge(reply: Message) -> Message:
        reply.metadata.__dict__["_src_node_id"] = 5
        return reply

    def rename(reply: Message) -> Message:
        reply.metadata.group_id = "renamed"
        return reply

    for change, code in ((forge, 2), (rename, None)):
        with local_grid(count, 1, faults={0: Nonsense(change=change)}) as grid:
            [reply] = grid.send_and_receive(ask(grid))
        assert (reply.error.code if reply.has_error() else None) == code
    assert reply.metadata.group_id == "renamed"
