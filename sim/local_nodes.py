"""The nodes of the in-process engine, and the messages under way to them."""

from __future__ import annotations

import hashlib
import math
import threading
from collections import Counter
from collections.abc import Sequence
from concurrent import futures
from dataclasses import dataclass, field

from flwr.app import Context, Message, Metadata, RecordDict, UserConfig

from trellis.sim.copies import copy_records
from trellis.sim.faults import Away, Drop, Fault, Late

NOTHING = RecordDict()  # in the state of all nodes that keep nothing; never changed, only copied


def node_ids(count: int) -> list[int]:
    """Return the ids of ``count`` nodes: like Flower's they look random and are in no order."""
    # With this salt the first exceeds the second: sorted ids are never in partition order.
    digests = (hashlib.sha256(f"supernode {index}".encode()).digest() for index in range(count))
    return [int.from_bytes(digest[:8], "big") for digest in digests]


def another_id(node_id: int) -> int:
    """Return the id of a node that has no key of its own and was started again."""
    digest = hashlib.sha256(f"supernode {node_id}, again".encode()).digest()
    return int.from_bytes(digest[:8], "big")


@dataclass(slots=True)
class LocalNode:
    """What one node keeps between messages."""

    id: int
    node_config: UserConfig
    run_config: UserConfig
    fault: Fault | None
    state: RecordDict = field(default_factory=lambda: NOTHING)
    received: Counter[str] | None = None
    busy_until: int = 0
    away: bool = False
    name: str = ""
    starts: int = 1
    last: threading.Event | None = None

    def receive(self, sent: SentMessage, current_round: int) -> None:
        """Count a message and let the node's fault, if it has one, act on it."""
        if self.fault is None or isinstance(self.fault, Away):
            return
        category = sent.metadata.message_type.partition(".")[0]
        self.received = self.received or Counter()
        self.received[category] += 1
        number = self.received[category]
        sent.fault = self.fault if self.fault.acts(category, number) else None
        if isinstance(sent.fault, Late):
            self.busy_until = max(self.busy_until, current_round + 1 + sent.fault.rounds)
        sent.due_round = self.busy_until
        self.away = isinstance(sent.fault, Drop) and sent.fault.acts(category, number + 1)

    def turn(self, current_round: int) -> bool:
        """Let the node go or come back as its fault says; return whether it was started anew."""
        if not isinstance(self.fault, Away):
            return False
        self.away = self.fault.away_in(current_round)
        if not self.fault.back_in(current_round) or self.starts > 1:
            return False
        self.starts, self.state = 2, NOTHING
        return True

    def context(self, run_id: int) -> Context:
        """Return a context that is the ClientApp's own."""
        state = copy_records(self.state)
        return Context(run_id, self.id, dict(self.node_config), state, dict(self.run_config))

    def keep(self, context: Context) -> None:
        """Keep what the ClientApp left in its context, as a copy: it may hold on to the context."""
        self.state = copy_records(context.state) if len(context.state) else NOTHING
        # Hardly ever changed, and nodes share the run's: a copy each would be most of what an idle
        # node takes.
        if context.node_config != self.node_config:
            self.node_config = dict(context.node_config)
        if context.run_config != self.run_config:
            self.run_config = dict(context.run_config)


@dataclass(slots=True, eq=False)
class SentMessage:
    """A message under way: as the server sent it, the node's copy, and what became of it."""

    metadata: Metadata
    message: Message | None
    node: LocalNode
    fault: Fault | None = None
    due_round: int = 0
    tasks: Sequence[futures.Future[None]] = ()
    reply: Message | None = None
    finished: float = math.inf

    def take(self) -> Message:
        """Return the node's copy, once: a round's messages are not kept until its end."""
        message, self.message = self.message, None
        assert message is not None
        return message


@dataclass(slots=True, eq=False)
class NodeWork:
    """What one push asks of one node, and whether it is done; it begins when ``after`` is."""

    after: threading.Event | None
    messages: list[SentMessage] = field(default_factory=list)
    done: threading.Event = field(default_factory=threading.Event)
