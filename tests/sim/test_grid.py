"""The in-process engine: Flower's own grid as the oracle of what may be asked and replied."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterator

import pytest
from flwr.app import ConfigRecord, Context, Error, Message, RecordDict
from flwr.server.superlink.linkstate import LinkStateFactory
from flwr.serverapp import Grid
from flwr.supercore.constant import FLWR_IN_MEMORY_DB_NAME, NOOP_FEDERATION_ID
from flwr.supercore.object_store import ObjectStoreFactory
from flwr.supercore.run import Run
from flwr.supercore.task_identity import TaskIdentity
from flwr.superlink.federation import NoOpFederationManager
from flwr.superlink.grid.inmemory_grid import InMemoryGrid

from tests.sim.engines import Handler, ask, client_app, configs, echo, local_grid
from trellis.sim.faults import Drop
from trellis.sim.grid import LocalGrid, node_ids

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


@pytest.mark.parametrize(
    ("options", "message"),
    [({"workers": -1}, "workers=-1"), ({"faults": {3: Drop()}}, r"faults for nodes \[3\]")],
)
def test_wrong_options_are_named(options: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        LocalGrid(client_app(echo), configs(3), {}, **options)
