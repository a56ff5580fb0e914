"""Sending one message a client and getting the answers back, whatever happens on the way.

Replies are matched to clients by the message they answer: error replies that the SuperLink makes on
a node's behalf carry its own node id, not the node's.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from flwr.app import ArrayRecord, Message, Metadata, RecordDict
from flwr.common.constant import ErrorCode
from flwr.serverapp import Grid

from trellis.privacy.device.codes import in_words

# Why a client got no message; its node id is then 0, see `presence`.
OFFLINE = "its SuperNode is not online"

_FIRST_PAUSE, _LONGEST_PAUSE = 0.001, 0.1


@dataclass
class Answers:
    """What came back: content by client, a reason by client for all others, and bytes."""

    content: dict[int, RecordDict] = field(default_factory=dict)
    failures: dict[int, str] = field(default_factory=dict)
    bytes_down: int = 0
    bytes_up: int = 0

    def take(self, client: int, reply: Message) -> None:
        """Enter one client's reply, or the error that came instead."""
        if reply.has_error():
            self.failures[client] = readable_error(reply)
        else:
            self.content[client] = reply.content
            self.bytes_up += content_bytes(reply.content)


def exchange(
    grid: Grid, messages: Mapping[int, Message] | Iterable[tuple[int, Message]], timeout: float
) -> Answers:
    """Send ``messages`` (by client) and wait at most ``timeout`` seconds for the replies.

    Pushes and pulls by itself: ``Grid.send_and_receive`` sleeps three seconds between two looks on
    a real SuperLink. Nothing is sent to node 0, which stands for one that is not online.

    Pairs of client and message may be made one by one, as they are taken: none is kept then.
    """
    answers = Answers()
    sent: list[tuple[int, Metadata, int]] = []
    outgoing: Iterable[Message] = _outgoing(messages, sent, answers)
    # Flower's grids go through them more than once.
    if not getattr(grid, "takes_one_by_one", False):
        outgoing = list(outgoing)
    pushed = {i for i in grid.push_messages(outgoing) if i}
    waiting: dict[str, int] = {}
    for client, metadata, size in sent:
        if metadata.message_id in pushed:
            waiting[metadata.message_id] = client
            answers.bytes_down += size
        else:
            answers.failures[client] = "the SuperLink did not take the message for this node"

    pause, deadline = _FIRST_PAUSE, time.monotonic() + timeout
    while waiting:
        replies = list(grid.pull_messages(list(waiting)))
        for reply in replies:
            asked = waiting.pop(reply.metadata.reply_to_message_id, None)
            if asked is not None:
                answers.take(asked, reply)
        if waiting and time.monotonic() >= deadline:
            break
        if waiting and not replies:
            time.sleep(pause)
            pause = min(2.0 * pause, _LONGEST_PAUSE)
    for client in waiting.values():
        answers.failures[client] = f"no reply within {timeout:g} s"
    return answers


def _outgoing(
    messages: Mapping[int, Message] | Iterable[tuple[int, Message]],
    sent: list[tuple[int, Metadata, int]],
    answers: Answers,
) -> Iterator[Message]:
    """Yield what is to be sent, and note to whom and how much it is."""
    for client, message in messages.items() if isinstance(messages, Mapping) else messages:
        if not message.metadata.dst_node_id:
            answers.failures[client] = OFFLINE
            continue
        sent.append((client, message.metadata, content_bytes(message.content)))
        yield message


def content_bytes(content: RecordDict) -> int:
    """Return the bytes of a message's records, arrays with their ``.npy`` headers."""
    total = 0
    for item in content.values():
        if isinstance(item, ArrayRecord):
            total += sum(len(array.data) for array in item.values())
        else:
            # Not Flower's own count_bytes: it raises for an empty text or list.
            total += sum(len(key) + _value_bytes(value) for key, value in item.items())
    return total


def _value_bytes(value: object) -> int:
    if isinstance(value, list):
        return sum(_value_bytes(entry) for entry in value)
    return len(value) if isinstance(value, str | bytes) else 8


_ANSI = re.compile(r"\x1b\[[0-9;]*m")
_RAISED = re.compile(r"^<class '[\w.]*?(\w+)'>:<'(.*)'>$", re.DOTALL)
_IN_SIMULATION = re.compile(r"ClientAppException occurred\. Message: (.*?)'?>?\s*$", re.DOTALL)


# What Flower says on a node's behalf, by its code, in words for whoever runs a study.
_ON_BEHALF = {
    ErrorCode.MESSAGE_UNAVAILABLE: "its reply did not come whole, or not in time",
    ErrorCode.NODE_UNAVAILABLE: "its SuperNode has stopped answering",
    ErrorCode.CLIENT_APP_CRASHED: "its process for this message has died",
}


def readable_error(reply: Message) -> str:
    """Return an error reply's reason without the runtime's wrapping."""
    reason = _ANSI.sub("", reply.error.reason or "").strip()
    inner = _IN_SIMULATION.search(reason)
    if inner:
        return inner.group(1).strip()
    raised = _RAISED.match(reason)
    if raised:
        return in_words(f"{raised.group(1)}: {raised.group(2)}")
    told = _ON_BEHALF.get(reply.error.code, reason or "no reason given")
    return f"{told} (Flower error code {reply.error.code})"
