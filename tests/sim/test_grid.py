"""The in-process engine: Flower's own grid as the oracle, then isolation, threads and faults."""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import numpy as np
import pytest
from flwr.app import (
    Array,
    ArrayRecord,
    ConfigRecord,
    Context,
    Error,
    Message,
    MetricRecord,
    RecordDict,
)
from flwr.clientapp import ClientApp
from flwr.server.superlink.linkstate import LinkStateFactory
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.supercore.constant import FLWR_IN_MEMORY_DB_NAME, NOOP_FEDERATION_ID
from flwr.supercore.object_store import ObjectStoreFactory
from flwr.supercore.run import Run
from flwr.supercore.task_identity import TaskIdentity
from flwr.superlink.federation import NoOpFederationManager
from flwr.superlink.grid.inmemory_grid import InMemoryGrid

from sim import faults
from sim.copies import copy_records
from sim.faults import Drop, Fault, Late, Nonsense, Raise
from sim.grid import LocalGrid, node_ids, run_local

Handler = Callable[[Message, Context], Message]


def client_app(handle: Handler) -> ClientApp:
    app = ClientApp()
    app.train()(handle)
    app.evaluate()(handle)
    app.query()(handle)
    return app


def reply_with(message: Message, **metrics: float) -> Message:
    return Message(RecordDict({"metrics": MetricRecord(metrics)}), reply_to=message)


def echo(message: Message, context: Context) -> Message:
    return Message(message.content, reply_to=message)


def count(message: Message, context: Context) -> Message:
    """Reply with how many messages this node has handled, and its partition."""
    seen = context.state.get("seen", MetricRecord({"n": 0}))
    context.state["seen"] = MetricRecord({"n": seen["n"] + 1})
    return reply_with(message, n=seen["n"] + 1, partition=context.node_config["partition-id"])


def configs(nodes: int) -> list[dict]:
    return [{"partition-id": i, "num-partitions": nodes} for i in range(nodes)]


@contextmanager
def local_grid(
    handle: Handler,
    nodes: int = 3,
    *,
    workers: int = 0,
    faults: dict[int, Fault] | None = None,
    run_config: dict | None = None,
) -> Iterator[LocalGrid]:
    app = client_app(handle)
    grid = LocalGrid(app, configs(nodes), run_config or {}, workers=workers, faults=faults)
    with grid:
        yield grid


def ask(grid: Grid, category: str = "train", nodes: Sequence[int] | None = None) -> list[Message]:
    """Return one message for each node, in partition order."""
    targets = node_ids(len(grid._nodes)) if nodes is None else nodes
    return [Message(RecordDict(), node, category) for node in targets]


def metrics(replies: list[Message], name: str) -> list[float]:
    return sorted(reply.content["metrics"][name] for reply in replies)


# Flower's grid and ours, through the same contract ---------------------------------------------


class Ours:
    """`LocalGrid`, whose nodes answer as soon as they are asked."""

    def __init__(self, handle: Handler) -> None:
        self.grid: Grid = LocalGrid(client_app(handle), configs(3), {})
        self.run_id = self.grid.run.run_id

    def answer(self) -> None:
        pass


class Flowers:
    """Flower's grid of the simulation runtime; `answer` does what its workers do, without Ray."""

    def __init__(self, handle: Handler) -> None:
        factory = LinkStateFactory(
            FLWR_IN_MEMORY_DB_NAME, NoOpFederationManager(), ObjectStoreFactory()
        )
        self.state = factory.state()
        self.run_id = self.state.create_run(
            None, None, None, {}, NOOP_FEDERATION_ID, None, "<id:none>", "serverapp"
        )
        self.nodes = [
            self.state.create_node("<id:none>", "none", secrets.token_bytes(32), 1e300)
            for _ in range(3)
        ]
        for node in self.nodes:
            self.state.acknowledge_node_heartbeat(node, 1e300)
        self.grid: Grid = InMemoryGrid(factory)
        self.grid.set_run(self.state.get_run_info(run_ids=[self.run_id])[0])
        self.app = client_app(handle)

    def answer(self) -> None:
        for node in self.nodes:
            for message in self.state.get_message_ins(node, None):
                context = Context(self.run_id, node, {}, RecordDict(), {})
                try:
                    reply = self.app(message, context)
                except Exception as error:
                    reason = str(type(error)) + ":<'" + str(error) + "'>"
                    reply = Message(Error(2, reason), reply_to=message)
                reply.metadata.__dict__["_message_id"] = secrets.token_hex(16)
                self.state.store_message_res(reply)


def fail_on_query(message: Message, context: Context) -> Message:
    if message.metadata.message_type == "query":
        raise ValueError("boom")
    return echo(message, context)


@pytest.fixture(params=[Flowers, Ours])
def engine(request: pytest.FixtureRequest) -> Iterator[Flowers | Ours]:
    with LocalGrid(client_app(echo), [], {}):  # keeps the task identity from before
        engine = request.param(fail_on_query)
        TaskIdentity.run_id = engine.run_id
        yield engine


class TestContract:
    def exchange(self, engine: Flowers | Ours, messages: list[Message]) -> list[Message]:
        ids = list(engine.grid.push_messages(messages))
        engine.answer()
        return list(engine.grid.pull_messages(ids))

    def test_every_node_replies_once(self, engine: Flowers | Ours) -> None:
        nodes = list(engine.grid.get_node_ids())
        assert len(set(nodes)) == 3
        messages = [
            Message(RecordDict({"c": ConfigRecord({"i": i})}), node, "train", group_id=str(i))
            for i, node in enumerate(nodes)
        ]
        ids = list(engine.grid.push_messages(messages))
        assert ids == [message.metadata.message_id for message in messages]
        assert len(set(ids)) == 3
        engine.answer()
        replies = list(engine.grid.pull_messages(ids))
        assert {reply.metadata.reply_to_message_id for reply in replies} == set(ids)
        assert len({reply.metadata.message_id for reply in replies} | set(ids)) == 6
        for reply in replies:
            index = ids.index(reply.metadata.reply_to_message_id)
            assert reply.metadata.src_node_id == nodes[index]
            assert reply.metadata.dst_node_id == 1
            assert reply.metadata.run_id == engine.run_id
            assert reply.metadata.message_type == "train"
            assert reply.metadata.group_id == str(index)
            assert reply.metadata.delivered_at != ""
            assert reply.content["c"]["i"] == index

    def test_the_nodes_are_the_node_ids(self, engine: Flowers | Ours) -> None:
        listed = {info.node_id for info in engine.grid.get_nodes()}
        assert listed == set(engine.grid.get_node_ids())

    def test_a_reply_is_delivered_once(self, engine: Flowers | Ours) -> None:
        node = next(iter(engine.grid.get_node_ids()))
        message = Message(RecordDict(), node, "train")
        assert self.exchange(engine, [message])[0].has_content()
        for asked in (message.metadata.message_id, "never-sent"):
            [again] = engine.grid.pull_messages([asked])
            assert again.error.code == 3
            assert again.metadata.message_type == "system"
            assert (again.metadata.src_node_id, again.metadata.dst_node_id) == (1, 1)
            assert again.metadata.reply_to_message_id == asked

    def test_nothing_asked_nothing_pulled(self, engine: Flowers | Ours) -> None:
        assert list(engine.grid.push_messages([])) == []
        assert list(engine.grid.pull_messages([])) == []
        assert list(engine.grid.send_and_receive([])) == []

    def test_an_unknown_node_or_run_is_left_out(self, engine: Flowers | Ours) -> None:
        node = next(iter(engine.grid.get_node_ids()))
        TaskIdentity.run_id = engine.run_id + 1
        stray = Message(RecordDict(), node, "train")
        TaskIdentity.run_id = engine.run_id
        good = Message(RecordDict(), node, "train")
        unknown = Message(RecordDict(), 12345, "train")
        assert len(list(engine.grid.push_messages([stray, unknown, good]))) == 1
        assert list(engine.grid.send_and_receive([unknown], timeout=1.0)) == []

    def test_an_exception_is_an_error_message(self, engine: Flowers | Ours) -> None:
        node = next(iter(engine.grid.get_node_ids()))
        [reply] = self.exchange(engine, [Message(RecordDict(), node, "query")])
        assert reply.error.code == 2
        assert reply.error.reason == "<class 'ValueError'>:<'boom'>"
        assert reply.metadata.src_node_id == node
        assert reply.metadata.message_type == "query"

    def test_an_action_that_is_not_registered_is_an_error(self, engine: Flowers | Ours) -> None:
        node = next(iter(engine.grid.get_node_ids()))
        [reply] = self.exchange(engine, [Message(RecordDict(), node, "train.other")])
        assert reply.error.code == 2
        assert "No train function registered with name 'other'" in str(reply.error.reason)

    def test_an_expired_message_is_unavailable(self, engine: Flowers | Ours) -> None:
        node = next(iter(engine.grid.get_node_ids()))
        message = Message(RecordDict(), node, "train", ttl=0.05)
        ids = list(engine.grid.push_messages([message]))
        engine.answer()
        time.sleep(0.06)
        [reply] = engine.grid.pull_messages(ids)
        assert reply.error.code == 3
        assert (reply.metadata.src_node_id, reply.metadata.message_type) == (1, "system")
        assert (
            list(engine.grid.push_messages([Message(RecordDict(), node, "train", ttl=1e-9)])) == []
        )

    def test_replies_and_messages_sent_before_are_refused(self, engine: Flowers | Ours) -> None:
        node = next(iter(engine.grid.get_node_ids()))
        message = Message(RecordDict(), node, "train")
        [reply] = self.exchange(engine, [message])
        for invalid in (message, reply, Message(RecordDict(), reply_to=message)):
            with pytest.raises(ValueError, match="Invalid message"):
                engine.grid.push_messages([invalid])

    def test_create_message(self, engine: Flowers | Ours) -> None:
        message = engine.grid.create_message(RecordDict(), "train", 7, "group", 5.0)
        seen = message.metadata
        assert (seen.dst_node_id, seen.message_type, seen.group_id) == (7, "train", "group")
        assert (seen.ttl, seen.src_node_id, seen.run_id) == (5.0, 1, engine.run_id)

    def test_the_run_is_checked_and_handed_out_as_a_copy(self, engine: Flowers | Ours) -> None:
        engine.grid.run.fab_id = "changed"
        assert engine.grid.run.fab_id != "changed"
        with pytest.raises(TypeError, match="must be an instance of Run"):
            engine.grid.set_run(engine.run_id)  # type: ignore[arg-type]
        with pytest.raises(RuntimeError, match="Cannot find the run"):
            engine.grid.set_run(Run.create_empty(engine.run_id + 1))
        engine.grid.set_run(engine.grid.run)

    def test_a_timeout_of_zero_waits_for_nothing(self, engine: Flowers | Ours) -> None:
        node = next(iter(engine.grid.get_node_ids()))
        message = Message(RecordDict(), node, "train")
        assert list(engine.grid.send_and_receive([message], timeout=0.0)) == []
        engine.answer()
        [reply] = engine.grid.pull_messages([message.metadata.message_id])
        assert reply.has_content()


# Node ids, state and isolation -----------------------------------------------------------------


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


# Replies that Flower would refuse --------------------------------------------------------------


def as_another(message: Message) -> Message:
    reply = Message(RecordDict(), reply_to=message)
    reply.metadata.__dict__["_src_node_id"] = 5
    return reply


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda message: None, "returned NoneType, not a Message"),
        (lambda message: RecordDict(), "returned RecordDict, not a Message"),
        (lambda message: message, "invalid reply"),
        (lambda message: Message(RecordDict(), 1, "train"), "reply_to_message_id"),
        (as_another, "names node 5"),
    ],
    ids=["nothing", "records", "the message itself", "a new message", "another's name"],
)
def test_an_invalid_reply_is_an_error(make: Callable, reason: str) -> None:
    def handle(message: Message, context: Context) -> Message:
        context.state["touched"] = ConfigRecord()
        return make(message)

    with local_grid(handle, 1) as grid:
        [reply] = grid.send_and_receive(ask(grid))
        assert reply.error.code == 2
        assert reason in str(reply.error.reason)
        assert reply.metadata.src_node_id == node_ids(1)[0]


def test_an_error_that_the_client_sends_arrives() -> None:
    def refuse(message: Message, context: Context) -> Message:
        return Message(Error(6, "budget spent"), reply_to=message)

    with local_grid(refuse, 1) as grid:
        [reply] = grid.send_and_receive(ask(grid))
    assert (reply.error.code, reply.error.reason) == (6, "budget spent")


def test_a_reply_whose_own_time_is_over_has_expired() -> None:
    def short(message: Message, context: Context) -> Message:
        return Message(RecordDict(), reply_to=message, ttl=0.02)

    with local_grid(short, 1) as grid:
        ids = grid.push_messages(ask(grid))
        time.sleep(0.03)
        [reply] = grid.pull_messages(ids)
    assert reply.error.code == 4
    assert (reply.metadata.src_node_id, reply.metadata.message_type) == (1, "train")


# Time and threads ------------------------------------------------------------------------------


def slow(message: Message, context: Context) -> Message:
    time.sleep(0.05)
    return count(message, context)


@pytest.mark.parametrize("workers", [0, 2])
def test_a_reply_after_the_timeout_can_be_pulled_later(workers: int) -> None:
    with local_grid(slow, 1, workers=workers) as grid:
        messages = ask(grid)
        assert list(grid.send_and_receive(messages, timeout=0.01)) == []
        ids = [messages[0].metadata.message_id]
        replies: list[Message] = []
        while not replies:
            replies = list(grid.pull_messages(ids))
        assert metrics(replies, "n") == [1]
        assert len(list(grid.send_and_receive(ask(grid), timeout=5.0))) == 1


def test_a_worker_that_outlives_its_message_is_not_waited_for() -> None:
    release = threading.Event()

    def hang(message: Message, context: Context) -> Message:
        release.wait(5.0)
        return count(message, context)

    with local_grid(hang, 1, workers=1) as grid:
        start = time.monotonic()
        [reply] = grid.send_and_receive([Message(RecordDict(), node_ids(1)[0], "train", ttl=0.05)])
        assert time.monotonic() - start < 2.0
        assert reply.error.code == 3
        release.set()


def test_workers_run_at_the_same_time() -> None:
    together = threading.Barrier(2)

    def meet(message: Message, context: Context) -> Message:
        together.wait(5.0)
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


# run_local -------------------------------------------------------------------------------------


def server_app(main: Callable[[Grid, Context], None]) -> ServerApp:
    app = ServerApp()
    app.main()(main)
    return app


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


@pytest.mark.parametrize(
    ("options", "message"),
    [({"workers": -1}, "workers=-1"), ({"faults": {3: Drop()}}, r"faults for nodes \[3\]")],
)
def test_wrong_options_are_named(options: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        LocalGrid(client_app(echo), configs(3), {}, **options)


# Faults ----------------------------------------------------------------------------------------


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
        assert time.monotonic() - start < 5.0
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
