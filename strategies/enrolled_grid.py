"""A Grid of enrolled clients: known by number, asked with a deadline, counted and named.

Flower's node ids are random and change when a node without a key restarts. Here a client is its
number, 1 to n in the order of enrolment, for as long as the run lasts and after a resume: sums are
added up in the same order on every runtime, and a log line says "client 3". The grid hides nodes
that are offline or excluded, waits for replies at most as long as it is told to, counts bytes, and
keeps a reason for every client that failed. Any Flower strategy runs on it.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Sequence
from itertools import chain

from flwr.app import Error, Message, Metadata, MetricRecord, RecordDict
from flwr.serverapp import Grid

from .core.declared import Client
from .core.exchange import OFFLINE, content_bytes, readable_error
from .core.wire import BadReply
from .grid_wrapper import GridWrapper

log = logging.getLogger("trellis.strategy")

_FIRST_PAUSE, _LONGEST_PAUSE = 0.001, 0.1
_UNKNOWN_ERROR = 0


class EnrolledGrid(GridWrapper):
    """The clients of a run as a Flower Grid.

    Parameters
    ----------
    grid : what the runtime gave the ServerApp
    clients : enrolled, in order; client number i is ``clients[i - 1]``. Their node ids are read at
        every use, so whoever notices that a client is gone or back changes them there
    timeout : seconds that an exchange may take, if its caller names none
    on_reply : called with the client and the content of every reply, before anybody else sees it;
        an exception rejects the reply
    """

    def __init__(
        self,
        grid: Grid,
        clients: list[Client],
        timeout: float = 3600.0,
        on_reply: Callable[[Client, RecordDict], None] = lambda client, content: None,
    ) -> None:
        super().__init__(grid)
        self.clients, self.timeout = clients, timeout
        self.on_reply = on_reply
        # Whether a reply's num-examples are records, of which a client has enrolled with some.
        self.bounds_counts = True
        self.bytes_up = self.bytes_down = 0
        # Who failed since the last `begin_round`, and why, by number.
        self.failures: dict[int, str] = {}
        self._sent: dict[str, int] = {}
        # Messages may be made as they are pushed, if the grid below takes them so.
        self.takes_one_by_one = bool(getattr(grid, "takes_one_by_one", False))

    def client(self, number: int) -> Client:
        """Return a client by its number."""
        return self.clients[number - 1]

    def begin_round(self) -> None:
        """Forget who failed before; clients that are offline fail in this round, too."""
        self.failures = {
            number: OFFLINE
            for number, client in enumerate(self.clients, 1)
            if not client.node_id and not client.left_out
        }

    def get_node_ids(self) -> Sequence[int]:
        """Return the numbers of the clients that are online and not excluded, in order."""
        return [
            number
            for number, client in enumerate(self.clients, 1)
            if client.node_id and not client.left_out
        ]

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        """Send messages to clients by number; return the ids of those that were sent."""
        sent: list[tuple[Metadata, Metadata]] = []
        outgoing: Iterable[Message] = self._readdressed(messages, sent)
        if not self.takes_one_by_one:
            outgoing = list(outgoing)
        pushed = {message_id for message_id in self.grid.push_messages(outgoing) if message_id}
        found = []
        for asked, copied in sent:
            number, message_id = asked.dst_node_id, copied.message_id
            # Flower has no public way to say it: whoever sent a message knows its reply by this.
            asked.__dict__["_message_id"] = message_id
            if message_id in pushed:
                self._sent[message_id] = number
                found.append(message_id)
            else:
                self._fail(number, "the SuperLink did not take the message for this node")
        return found

    def _readdressed(
        self, messages: Iterable[Message], sent: list[tuple[Metadata, Metadata]]
    ) -> Iterable[Message]:
        """Yield copies of messages that have the node ids of their clients; note both.

        Copies, because the grid below may keep what it is given.
        """
        for message in messages:
            about = message.metadata
            client = self.client(about.dst_node_id)
            if not client.node_id:
                self.failures[about.dst_node_id] = OFFLINE
                continue
            self.bytes_down += content_bytes(message.content)
            copy = _copy_for(client.node_id, message)
            sent.append((about, copy.metadata))
            yield copy

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        """Return the replies that are there; their source is the client's number."""
        return [self._received(reply) for reply in self.grid.pull_messages(message_ids)]

    def _received(self, reply: Message) -> Message:
        number = self._sent.pop(reply.metadata.reply_to_message_id, None)
        if number is None:
            return reply
        # Flower has no public way to say whose a reply is, and those that a SuperLink makes on a
        # node's behalf have its own number.
        reply.metadata.__dict__["_src_node_id"] = number
        if reply.has_error():
            self._fail(number, readable_error(reply))
            return reply
        self.bytes_up += content_bytes(reply.content)
        client = self.client(number)
        try:
            if self.bounds_counts:
                _bound_count(reply.content, client)
            self.on_reply(client, reply.content)
        except Exception as error:  # whatever a malicious reply provokes
            self._fail(number, f"reply rejected: {error}")
            rejected = Message(Error(_UNKNOWN_ERROR, f"reply rejected: {error}"), reply_to=reply)
            rejected.metadata.__dict__["_src_node_id"] = number
            return rejected
        return reply

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> Iterable[Message]:
        """Send messages and return the replies that came within the time, in order of clients.

        Flower's own sleeps three seconds between two looks on a SuperLink; this does not.
        """
        outgoing = iter(messages)
        first = next(outgoing, None)
        if first is None:  # nothing to ask, and nobody to trouble
            return []
        ids = list(self.push_messages(chain([first], outgoing)))
        waiting = {message_id: self._sent[message_id] for message_id in ids}
        limit = self.timeout if timeout is None else timeout
        replies: list[Message] = []
        pause, deadline = _FIRST_PAUSE, time.monotonic() + limit
        while waiting:
            came = list(self.pull_messages(list(waiting)))
            for reply in came:
                waiting.pop(reply.metadata.reply_to_message_id, None)
            replies += came
            if waiting and time.monotonic() >= deadline:
                break
            if waiting and not came:
                time.sleep(pause)
                pause = min(2.0 * pause, _LONGEST_PAUSE)
        for message_id, number in waiting.items():
            self._sent.pop(message_id, None)
            self._fail(number, f"no reply within {limit:g} s")
        return sorted(replies, key=lambda reply: reply.metadata.src_node_id)

    def _fail(self, number: int, reason: str) -> None:
        self.failures[number] = reason
        log.warning("client %s failed: %s", self.client(number).name, reason)


def _copy_for(node_id: int, message: Message) -> Message:
    """Return the same message for another node.

    By its parts, as the engine's own copies are (`sim.copies`): to make one anew, with all of
    Flower's checks, takes a tenth of the time of a round of many small messages.
    """
    metadata: Metadata = object.__new__(type(message.metadata))
    metadata.__dict__.update(message.metadata.__dict__, _dst_node_id=node_id, _message_id="")
    copy: Message = object.__new__(type(message))
    copy.__dict__.update(message.__dict__, _metadata=metadata)
    return copy


def _bound_count(content: RecordDict, client: Client) -> None:
    """Refuse more examples than a client enrolled with; let them count as `core.declared` says."""
    metrics = content.get("metrics")
    count = metrics.get("num-examples") if isinstance(metrics, MetricRecord) else None
    if not isinstance(count, int | float):
        return
    if not 0 <= count <= client.count:
        raise BadReply(f"num-examples={count}, and the client enrolled with {client.count}")
    if count > client.counted:
        content["metrics"] = MetricRecord({**metrics, "num-examples": client.counted})  # type: ignore[dict-item]
