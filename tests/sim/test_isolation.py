"""Node ids, a node's state, and that neither side can change what the other holds."""

from __future__ import annotations

import threading

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict

from tests.sim.engines import ask, client_app, configs, count, echo, local_grid, metrics
from trellis.sim.copies import copy_records
from trellis.sim.grid import LocalGrid, node_ids


def test_node_ids_look_like_flowers() -> None:
    ids = node_ids(500)
    assert ids == node_ids(500)
    assert len(set(ids)) == 500
    assert all(1 < node < 2**64 for node in ids)
    assert max(ids) > 2**63  # does not fit a signed integer, as half of Flower's
    assert all(sorted(ids[:n]) != ids[:n] for n in range(2, 500))


@pytest.mark.parametrize("workers", [0, 2])
def test_state_belongs_to_one_node_and_lasts(workers: int) -> None:
    with local_grid(count, workers=workers) as grid:
        for expected in (1, 2, 3):
            replies = list(grid.send_and_receive(ask(grid)))
            assert metrics(replies, "n") == [expected] * 3
            assert metrics(replies, "partition") == [0, 1, 2]


def test_the_nodes_are_in_the_order_of_their_configs() -> None:
    with local_grid(count) as grid:
        for index, node in enumerate(node_ids(3)):
            [reply] = grid.send_and_receive([Message(RecordDict(), node, "train")])
            assert reply.content["metrics"]["partition"] == index


@pytest.mark.parametrize("workers", [0, 2])
def test_a_raise_takes_the_change_of_state_with_it(workers: int) -> None:
    def count_then_fail(message: Message, context: Context) -> Message:
        reply = count(message, context)
        context.node_config["partition-id"] = context.run_config["offset"] + 99
        context.run_config["offset"] += 1
        if message.metadata.message_type == "query":
            raise ValueError("boom")
        context.node_config["partition-id"] = 7 + context.run_config["offset"]
        return reply

    with local_grid(count_then_fail, 1, workers=workers, run_config={"offset": 0}) as grid:
        [first] = grid.send_and_receive(ask(grid, "train"))
        [failed] = grid.send_and_receive(ask(grid, "query"))
        [third] = grid.send_and_receive(ask(grid, "train"))
        [fourth] = grid.send_and_receive(ask(grid, "train"))
    assert failed.error.code == 2
    assert first.content["metrics"]["n"] == 1
    assert third.content["metrics"]["n"] == 2
    assert third.content["metrics"]["partition"] == 8
    assert fourth.content["metrics"]["partition"] == 9


def test_neither_side_can_change_what_the_other_holds() -> None:
    held: list[tuple[Message, Context, Message]] = []

    def meddle(message: Message, context: Context) -> Message:
        """Reply, keep hold of everything, and change what the server sent."""
        sent = [message.content["arrays"]["x"].data, list(message.content["c"]["list"])]
        context.state["arrays"] = message.content["arrays"]
        reply = Message(message.content, reply_to=message)
        held.append((message, context, reply))
        message.metadata.group_id = "changed"
        context.run_config["key"] = context.node_config["partition-id"]
        assert sent == [Array(np.arange(3.0)).data, [1, 2]]
        return reply

    def spoil(content: RecordDict) -> None:
        content["arrays"]["x"].data = b"spoilt"
        content["arrays"]["y"] = Array(np.zeros(1))
        content["c"]["list"].append(99)
        content["m"]["loss"] = -1.0
        content["new"] = ConfigRecord()

    def check(content: RecordDict) -> None:
        assert set(content) == {"arrays", "c", "m"}
        assert set(content["arrays"]) == {"x"}
        np.testing.assert_array_equal(content["arrays"]["x"].numpy(), np.arange(3.0))
        assert content["c"]["list"] == [1, 2]
        assert content["m"]["loss"] == 0.5

    def content() -> RecordDict:
        return RecordDict(
            {
                "arrays": ArrayRecord([np.arange(3.0)]),
                "c": ConfigRecord({"list": [1, 2]}),
                "m": MetricRecord({"loss": 0.5}),
            }
        )

    shared = content()
    shared["arrays"] = ArrayRecord({"x": Array(np.arange(3.0))})
    run_config = {"key": "original"}
    app = client_app(meddle)
    grid = LocalGrid(app, configs(2), run_config)
    with grid:
        nodes = node_ids(2)
        messages = [Message(shared, node, "train") for node in nodes]
        replies = list(grid.send_and_receive(messages))
        assert len(replies) == 2
        assert [message.metadata.group_id for message in messages] == ["", ""]
        assert run_config == {"key": "original"}
        # What the client kept and changes later reaches neither the server ...
        for message, context, reply in held:
            spoil(message.content) if "new" not in message.content else None
            reply.metadata.group_id = "later"
            context.state["arrays"]["x"] = Array(np.zeros(9))
            context.state["added"] = ConfigRecord()
        check(shared)
        for reply in replies:
            assert reply.has_content()
            check(reply.content)
            assert reply.metadata.group_id == ""
        # ... nor, through a server that changes what it received, anyone else.
        spoil(replies[0].content)
        check(replies[1].content)
        check(shared)
        # The state is what it was when the client returned.
        del held[:]
        assert all(
            reply.has_content()
            for reply in grid.send_and_receive([Message(shared, node, "train") for node in nodes])
        )
        for index, (_, context, _) in enumerate(held):
            assert set(context.state) == {"arrays"}
            np.testing.assert_array_equal(context.state["arrays"]["x"].numpy(), np.arange(3.0))
            assert context.run_config == {"key": index}


def test_the_server_may_change_a_message_that_is_on_its_way() -> None:
    release = threading.Event()

    def wait(message: Message, context: Context) -> Message:
        assert release.wait(5.0)
        return echo(message, context)

    with local_grid(wait, 1, workers=1) as grid:
        record = ConfigRecord({"list": [1, 2]})
        message = Message(RecordDict({"c": record}), node_ids(1)[0], "train", group_id="sent")
        ids = grid.push_messages([message])
        record["list"].append(3)
        message.metadata.group_id = "changed"
        release.set()
        replies: list[Message] = []
        while not replies:
            replies = list(grid.pull_messages(ids))
    assert replies[0].content["c"]["list"] == [1, 2]
    assert replies[0].metadata.group_id == "sent"


def test_bytes_that_can_change_are_copied() -> None:
    data = bytearray(Array(np.arange(3.0)).data)
    array = Array(np.arange(3.0))
    array.data = data  # type: ignore[assignment]
    array.shape = [3]  # type: ignore[assignment]
    copied = copy_records(RecordDict({"a": ArrayRecord()}))
    assert len(copied["a"]) == 0
    source = RecordDict({"a": ArrayRecord()})
    source["a"]["x"] = array
    copied = copy_records(source)
    data[-24:] = bytes(24)
    np.testing.assert_array_equal(copied["a"]["x"].numpy(), np.arange(3.0))
    assert copied["a"]["x"].shape == (3,)


def test_copies_are_flowers_records_with_their_checks() -> None:
    source = RecordDict({"a": ArrayRecord([np.eye(2)]), "m": MetricRecord({"x": [1.0]})})
    copied = copy_records(source)
    assert copied.object_id == source.object_id
    assert copied == source
    with pytest.raises(TypeError):
        copied["m"]["x"] = "text"
    with pytest.raises(TypeError):
        copied["a"]["x"] = 1.0
    with pytest.raises(TypeError):
        copied["r"] = 1.0
    # A cached object id does not outlive a change.
    source["a"]["0"].object_id  # noqa: B018
    copied = copy_records(source)
    copied["a"]["0"].data = Array(np.zeros((2, 2))).data
    assert copied.object_id != source.object_id
