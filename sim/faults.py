"""Faults that a node of the in-process engine can be given, for tests and for studies of dropout.

A fault acts on some of the messages that its node receives, but for `Away`, which is of rounds.
Messages are counted from 1, for each
node and each category (``train``, ``evaluate``, ``query``) on its own, so ``since=3`` is the third
training message even where a query came first.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from flwr.app import Array, ArrayRecord, Message, RecordDict
from numpy.typing import NDArray


@dataclass(frozen=True, kw_only=True)
class Fault:
    """When a fault acts.

    Attributes
    ----------
    since : the first message it may act on
    at : the messages it acts on; None stands for every message from ``since`` on
    category : ``train``, ``evaluate`` or ``query``; None stands for all three
    """

    since: int = 1
    at: frozenset[int] | None = None
    category: str | None = None

    def acts(self, category: str, number: int) -> bool:
        """Return whether the fault acts on the node's message ``number`` of ``category``."""
        return (
            number >= self.since
            and (self.at is None or number in self.at)
            and self.category in (None, category)
        )


@dataclass(frozen=True, kw_only=True)
class Drop(Fault):
    """The node has gone: its message is answered by the server's error 5, NODE_UNAVAILABLE.

    As in Flower the node is still listed by ``get_node_ids()`` when it misses its first message,
    and then no longer, until a message would reach it again.

    Attributes
    ----------
    forget : whether ``context.state`` is lost, as by a restart of the device
    """

    forget: bool = True


@dataclass(frozen=True, kw_only=True)
class Away(Fault):
    """The node is not online in some rounds: a device that is killed, restarted, or comes late.

    A round begins with the first push after a pull; a strategy's enrolment is round 1. What the
    node is sent meanwhile is answered by error 5, and its ``context.state`` is lost. Where
    ``until`` is ``first``, it restarts between two rounds and is never seen to be away.

    Attributes
    ----------
    first : the first round without it; 1 for one that comes late
    until : the round in which it is back; 0 for never
    new_id : whether it comes back as another node, as a SuperNode without authentication does
    """

    first: int
    until: int = 0
    new_id: bool = False

    def acts(self, category: str, number: int) -> bool:
        """Return False: it does not depend on messages."""
        return False

    def away_in(self, current_round: int) -> bool:
        """Return whether the node is not online in a round."""
        return current_round >= self.first and not self.back_in(current_round)

    def back_in(self, current_round: int) -> bool:
        """Return whether the node has come back by a round."""
        return bool(self.until) and current_round >= max(self.first, self.until)


@dataclass(frozen=True, kw_only=True)
class Late(Fault):
    """The node's reply misses the timeout, without anyone sleeping.

    ``send_and_receive`` with a timeout returns without the reply; with none it waits, so the reply
    is there. A round, here, begins with the first push after a pull. Once the node is free again,
    a pull delivers what it missed.

    Attributes
    ----------
    rounds : how many further rounds the node stays busy; what it is sent then is late as well
    """

    rounds: int = 1


@dataclass(frozen=True, kw_only=True)
class Raise(Fault):
    """The ClientApp raises ``RuntimeError(text)`` before it does anything."""

    text: str = "simulated fault"


@dataclass(frozen=True, kw_only=True)
class Nonsense(Fault):
    """The node's reply is changed on its way: by a bug, or by a node that means harm.

    Attributes
    ----------
    change : takes the reply, which it may alter, and returns it or another content for it
    """

    change: Callable[[Message], Message | RecordDict]


def not_a_number(reply: Message) -> RecordDict:
    """Replace every array of real numbers by NaN."""
    return _with_arrays(reply, lambda array: _filled(array, np.nan))


def infinite(reply: Message) -> RecordDict:
    """Replace every array of real numbers by infinity."""
    return _with_arrays(reply, lambda array: _filled(array, np.inf))


def huge(reply: Message) -> RecordDict:
    """Replace every array of real numbers by the largest finite number, which overflows a sum."""
    return _with_arrays(reply, lambda array: np.asarray(np.nan_to_num(_filled(array, np.inf))))


def wrong_shape(reply: Message) -> RecordDict:
    """Give every array one entry more, flat."""
    return _with_arrays(reply, lambda array: np.append(array.ravel(), np.zeros(1, array.dtype)))


def lying_shape(reply: Message) -> RecordDict:
    """Let every array claim one entry more than its bytes hold."""
    for record in reply.content.array_records.values():
        for name, array in record.items():
            shape = (*array.shape[:-1], array.shape[-1] + 1) if array.shape else (2,)
            record[name] = Array(array.dtype, shape, array.stype, array.data)
    return reply.content


def without_arrays(reply: Message) -> RecordDict:
    """Leave every array record out."""
    content = reply.content
    for name in list(content.array_records):
        del content[name]
    return content


def without_records(reply: Message) -> RecordDict:
    """Answer with nothing at all."""
    return RecordDict()


def _real(array: NDArray[np.generic]) -> bool:
    return np.issubdtype(array.dtype, np.floating)


def _filled(array: NDArray[np.generic], value: float) -> NDArray[np.generic]:
    return np.full_like(array, value) if _real(array) else array


def _with_arrays(
    reply: Message, change: Callable[[NDArray[np.generic]], NDArray[np.generic]]
) -> RecordDict:
    content = reply.content
    for record_name, record in content.array_records.items():
        content[record_name] = ArrayRecord(
            {name: Array(change(array.numpy())) for name, array in record.items()}
        )
    return content
