"""The in-process engine: a Flower `Grid` that runs the ClientApp here, without Ray or a network.

The same, unmodified ServerApp and ClientApp run here as in Flower's simulation and on devices, and
they see what they would see there: messages are copies, a node's state is its own, an exception
comes back as an error message, node ids say nothing about the order of the partitions. `LocalGrid`
answers as Flower's ``InMemoryGrid`` does; a test puts both through the same contract.

One thread at a time, the server's, may push and pull.
"""

from __future__ import annotations

import copy
import itertools
import logging
import math
import secrets
import time
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from concurrent import futures
from datetime import UTC, datetime
from typing import Self

from flwr.app import (
    Context,
    Error,
    Message,
    Metadata,
    RecordDict,
    UserConfigValue,
)
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp

from trellis.sim.copies import copy_message
from trellis.sim.faults import Away, Drop, Fault, Nonsense, Raise
from trellis.sim.garbage import pace
from trellis.sim.local_nodes import NOTHING, LocalNode, NodeWork, SentMessage, another_id, node_ids
from trellis.sim.private import (
    SUPERLINK_NODE_ID,
    SYSTEM_MESSAGE_TYPE,
    ErrorCode,
    NodeInfo,
    Run,
    identity,
    make_message,
    set_message_id,
    shallow_copy,
    validate_message,
)

Config = Mapping[str, UserConfigValue]

_log = logging.getLogger(__name__)


def run_local(
    server_app: ServerApp,
    client_app: ClientApp,
    node_configs: Sequence[Config],
    run_config: Config,
    *,
    workers: int = 0,
    faults: Mapping[int, Fault] | None = None,
    names: Sequence[str] = (),
) -> LocalGrid:
    """Run a ServerApp and its ClientApps in this process, with one BLAS thread.

    The parameters are those of `LocalGrid`, which is returned once the ServerApp has ended.
    """
    grid = LocalGrid(
        client_app, node_configs, run_config, workers=workers, faults=faults, names=names
    )
    context = Context(grid.run.run_id, SUPERLINK_NODE_ID, {}, RecordDict(), dict(run_config))
    with grid:
        server_app(grid, context)
    return grid


class LocalGrid(Grid):
    """A grid whose nodes live in this process.

    Parameters
    ----------
    client_app : what every node runs
    node_configs : one node each, with ``partition-id``, ``num-partitions`` and what else a
        SuperNode's node config would hold
    run_config : what the apps find in ``context.run_config``
    run_id : random by default, as Flower's
    workers : 0 runs the nodes one after the other, n > 0 on n threads
    faults : what goes wrong, by position in ``node_configs``
    names : what the nodes are registered under, in their order; none by default

    Notes
    -----
    Use it inside ``with grid:``, as `run_local` does: there messages can be made, and at the end of
    it the workers are gone.
    """

    # Messages may be made as they are pushed: each is taken once, in its turn.
    takes_one_by_one = True

    def __init__(
        self,
        client_app: ClientApp,
        node_configs: Sequence[Config],
        run_config: Config,
        *,
        run_id: int | None = None,
        workers: int = 0,
        faults: Mapping[int, Fault] | None = None,
        names: Sequence[str] = (),
    ) -> None:
        faults = faults or {}
        if workers < 0:
            raise ValueError(f"workers={workers}: 0 for one node after the other, n for n threads")
        if strangers := sorted(set(faults) - set(range(len(node_configs)))):
            raise ValueError(f"faults for nodes {strangers}, but there are {len(node_configs)}")
        self._client_app = client_app
        self._run = Run.create_empty(secrets.randbits(63) + 1 if run_id is None else run_id)
        # One for all nodes: what a ClientApp is given, or has left changed, is a copy.
        shared = dict(run_config)
        self._nodes = {
            node_id: LocalNode(node_id, dict(config), shared, faults.get(index))
            for index, (node_id, config) in enumerate(
                zip(node_ids(len(node_configs)), node_configs, strict=True)
            )
        }
        for node, name in zip(self._nodes.values(), names, strict=False):
            node.name = name
        # Whether nodes come and go; a server need not look where they do not.
        self.nodes_change = any(isinstance(fault, Away) for fault in faults.values())
        self._sent: dict[str, SentMessage] = {}
        self._numbers = itertools.count(1)
        # Faults count in rounds: one begins with the first push after a pull.
        self._round, self._pulled = 0, True
        self._workers = workers
        self._pool: futures.ThreadPoolExecutor | None = None

    def __enter__(self) -> Self:
        identity.take(self._run.run_id)
        pace.take(len(self._nodes))
        return self

    def __exit__(self, *_: object) -> None:
        try:
            if self._pool is not None:
                self._pool.shutdown(cancel_futures=True)
        finally:
            self._pool = None
            pace.give_back(len(self._nodes))
            identity.give_back(self._run.run_id)

    @property
    def run(self) -> Run:
        """The run this grid works for."""
        return copy.copy(self._run)

    def set_run(self, run: Run) -> None:
        """Set the run; a grid in this process knows one only."""
        if not isinstance(run, Run):
            raise TypeError(f"`run` must be an instance of Run, got {type(run).__name__}")
        if run.run_id != self._run.run_id:
            raise RuntimeError(f"Cannot find the run with ID: {run.run_id}")
        self._run = run

    def create_message(
        self,
        content: RecordDict,
        message_type: str,
        dst_node_id: int,
        group_id: str,
        ttl: float | None = None,
    ) -> Message:
        """Return a new message; Flower keeps this for old apps, `Message` does the same."""
        return Message(content, dst_node_id, message_type, ttl=ttl, group_id=group_id)

    def get_node_ids(self) -> Iterable[int]:
        """Return the ids of the nodes that are there."""
        self._turn(self._round + self._pulled)
        return {node.id for node in self._nodes.values() if not node.away}

    def get_nodes(self) -> Iterable[NodeInfo]:
        """Return the nodes that are there, with what they are registered under."""
        self._turn(self._round + self._pulled)
        return [
            NodeInfo(node_id=node.id, name=node.name, last_activated_at=f"start {node.starts}")
            for node in self._nodes.values()
            if not node.away
        ]

    def _turn(self, current_round: int) -> None:
        """Let nodes go and come back, some as another node."""
        if not self.nodes_change:
            return
        for node in list(self._nodes.values()):
            if node.turn(current_round) and isinstance(node.fault, Away) and node.fault.new_id:
                del self._nodes[node.id]
                node.id = another_id(node.id)
                self._nodes[node.id] = node

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        """Send messages, and without workers also run their nodes, each before the next is taken.

        Returns
        -------
        message_ids : Iterable[str]
            One for each message that was sent. As in Flower one to an unknown node, or of another
            run, is logged and left out.
        """
        now = _iso_now()
        batch = []
        # One message after the other, from its making on if they are made as they are asked for:
        # of ten thousand at once each would have left the processor's cache before its turn.
        for message in messages:
            if self._pulled:
                self._round, self._pulled = self._round + 1, False
                self._turn(self._round)
            sent = self._accept(message, now)
            if sent is None:
                continue
            batch.append(sent)
            self._sent[sent.metadata.message_id] = sent
            sent.node.receive(sent, self._round)
            if not self._workers:
                self._answer(sent)
        if self._workers:
            self._submit(batch)
        return [sent.metadata.message_id for sent in batch]

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        """Return the replies that are there, each once.

        An id that is unknown, or no longer known because its reply was pulled or its time to live
        has passed, is answered by error 3, MESSAGE_UNAVAILABLE, as in Flower.
        """
        self._pulled = True
        return self._collect(message_ids, math.inf)

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> Iterable[Message]:
        """Send messages and return the replies that come within ``timeout`` seconds."""
        deadline = math.inf if timeout is None else time.monotonic() + timeout
        message_ids = list(self.push_messages(messages))
        self._pulled = True
        waiting = [self._sent[message_id] for message_id in message_ids]
        if running := {task for sent in waiting for task in sent.tasks}:
            lifetime = max(_expiry(sent.metadata) for sent in waiting) - time.time()
            futures.wait(running, max(0.0, min(deadline - time.monotonic(), lifetime)))
        if timeout is None:
            self._round = max([self._round, *(sent.due_round for sent in waiting)])
        return self._collect(message_ids, deadline)

    def _accept(self, message: Message, now: str) -> SentMessage | None:
        """Check a message as Flower's grid does and return it with the node's own copy."""
        metadata = message.metadata
        set_message_id(metadata, self._new_id())
        if metadata.reply_to_message_id or metadata.ttl <= 0 or metadata.delivered_at:
            raise ValueError(f"Invalid message, a reply or one that was pushed before: {message}")
        problems = validate_message(message, is_reply_message=False)
        node = self._nodes.get(metadata.dst_node_id)
        if node is None:
            problems.append(f"Invalid destination node ID for Message: {metadata.dst_node_id}")
        if metadata.run_id != self._run.run_id and not identity.adopt(metadata, self._run.run_id):
            problems.append(f"Invalid run ID for Message: {metadata.run_id}")
        if problems or node is None:
            _log.error("message not sent: %s", "; ".join(problems))
            return None
        metadata.delivered_at = now
        return SentMessage(shallow_copy(metadata), copy_message(message), node)

    def _submit(self, batch: Sequence[SentMessage]) -> None:
        """Let the workers run the nodes, each node its messages in order and one at a time."""
        if self._pool is None:
            self._pool = futures.ThreadPoolExecutor(self._workers, "trellis-node")
        by_node: dict[int, NodeWork] = {}
        for sent in batch:
            node = sent.node
            if node.id not in by_node:
                by_node[node.id] = NodeWork(after=node.last)
                node.last = by_node[node.id].done
            by_node[node.id].messages.append(sent)
        # One task a worker, not one a node: a thread that is woken for each small message costs
        # more than the message.
        work = deque(by_node.values())
        tasks = [
            self._pool.submit(self._answer_all, work) for _ in range(min(self._workers, len(work)))
        ]
        for sent in batch:
            sent.tasks = tasks

    def _answer_all(self, queue: deque[NodeWork]) -> None:
        while True:
            try:
                work = queue.popleft()
            except IndexError:
                return
            if work.after is not None:
                # An earlier push; its work was all begun before this task was, so it will end.
                work.after.wait()
            try:
                for sent in work.messages:
                    self._answer(sent)
            finally:
                work.done.set()

    def _answer(self, sent: SentMessage) -> None:
        """Run the ClientApp on one message; what it raises becomes an error message."""
        try:
            sent.reply = self._run_node(sent)
        except Exception as error:
            config = sent.node.node_config
            _log.error("ClientApp of the node with %s raised", config, exc_info=error)
            # Flower's form, as in <class 'ValueError'>:<'boom'>
            reason = f"{type(error)}:<'{error}'>"
            failure = Error(ErrorCode.CLIENT_APP_RAISED_EXCEPTION, reason)
            # Not a reply to the node's copy: the ClientApp had that in its hands.
            asked = make_message(sent.metadata, RecordDict())
            sent.reply = Message(failure, reply_to=asked)
            set_message_id(sent.reply.metadata, self._new_id())
        sent.finished = time.monotonic()

    def _run_node(self, sent: SentMessage) -> Message:
        node, fault = sent.node, sent.fault
        if node.away and isinstance(node.fault, Away):
            return self._server_error(sent.metadata, ErrorCode.NODE_UNAVAILABLE)
        if isinstance(fault, Drop):
            if fault.forget:
                node.state = NOTHING
            return self._server_error(sent.metadata, ErrorCode.NODE_UNAVAILABLE)
        if isinstance(fault, Raise):
            raise RuntimeError(fault.text)
        context = node.context(self._run.run_id)
        reply = self._receive(self._client_app(sent.take(), context), sent.metadata)
        if isinstance(fault, Nonsense) and reply.has_content():
            changed = fault.change(reply)
            if isinstance(changed, RecordDict):
                reply.content = changed
            else:
                reply = changed
            reply = self._receive(reply, sent.metadata)
        # Last, so that whatever goes wrong leaves the node as it was.
        node.keep(context)
        return reply

    def _receive(self, reply: object, asked: Metadata) -> Message:
        """Return the server's own copy of a reply, or raise where Flower would refuse it."""
        if not isinstance(reply, Message):
            raise TypeError(f"the ClientApp returned {type(reply).__name__}, not a Message")
        received = copy_message(reply)
        set_message_id(received.metadata, self._new_id())
        problems = validate_message(received, is_reply_message=True)
        if received.metadata.reply_to_message_id != asked.message_id:
            problems.append("it is no reply to the message that the node was sent")
        if received.metadata.src_node_id != asked.dst_node_id:
            problems.append(f"it names node {received.metadata.src_node_id} as its sender")
        if problems:
            raise ValueError(f"the ClientApp returned an invalid reply: {'; '.join(problems)}")
        return received

    def _collect(self, message_ids: Iterable[str], deadline: float) -> list[Message]:
        """Return and forget the replies that were finished before ``deadline``."""
        replies, now, iso_now = [], time.time(), _iso_now()
        # Flower promises no order. This one is not that of the nodes, but always the same.
        for message_id in sorted(set(message_ids), reverse=True):
            sent = self._sent.get(message_id)
            if sent is None or _expiry(sent.metadata) <= now:
                self._sent.pop(message_id, None)
                replies.append(self._unavailable(message_id))
                continue
            for task in sent.tasks:
                if task.done():
                    task.result()  # An interrupt ends the run, on whichever thread it came.
            if sent.reply is None or sent.finished >= deadline or sent.due_round > self._round:
                continue
            del self._sent[message_id]
            reply = sent.reply
            if _expiry(reply.metadata) < now:
                reply = self._server_error(sent.metadata, ErrorCode.REPLY_MESSAGE_UNAVAILABLE)
            reply.metadata.delivered_at = iso_now
            replies.append(reply)
        return replies

    def _server_error(self, asked: Metadata, code: int) -> Message:
        """Return an error in the server's own name: it does not say which node failed."""
        metadata = Metadata(
            run_id=asked.run_id,
            message_id=self._new_id(),
            src_node_id=SUPERLINK_NODE_ID,
            dst_node_id=SUPERLINK_NODE_ID,
            reply_to_message_id=asked.message_id,
            group_id=asked.group_id,
            created_at=time.time(),
            ttl=max(0.0, _expiry(asked) - time.time()),
            message_type=asked.message_type,
            src_task_id=asked.dst_task_id,
            dst_task_id=asked.src_task_id,
        )
        return make_message(metadata, error=Error(code, _REASONS[code]))

    def _unavailable(self, message_id: str) -> Message:
        """Return the error for a message that the server does not, or no longer, know."""
        code = ErrorCode.MESSAGE_UNAVAILABLE
        metadata = Metadata(
            run_id=self._run.run_id,
            message_id=self._new_id(),
            src_node_id=SUPERLINK_NODE_ID,
            dst_node_id=SUPERLINK_NODE_ID,
            reply_to_message_id=message_id,
            group_id="",
            created_at=time.time(),
            ttl=0,
            message_type=SYSTEM_MESSAGE_TYPE,
        )
        return make_message(metadata, error=Error(code, _REASONS[code]))

    def _new_id(self) -> str:
        return f"{self._run.run_id:016x}-{next(self._numbers):012d}"


_REASONS = {
    ErrorCode.MESSAGE_UNAVAILABLE: "Error: Message Unavailable - "
    "It was answered before, has expired due to its TTL, or never existed.",
    ErrorCode.REPLY_MESSAGE_UNAVAILABLE: "Error: Reply Message Unavailable - "
    "The reply message has expired.",
    ErrorCode.NODE_UNAVAILABLE: "Error: Node Unavailable - "
    "The destination node failed to report a heartbeat.",
}


def _expiry(metadata: Metadata) -> float:
    return metadata.created_at + metadata.ttl


def _iso_now() -> str:
    return datetime.now(tz=UTC).isoformat()
