"""Bounds on replies as middleware: a Grid that rejects or clips replies far from what was sent.

A strategy says which vector x of a reply is bounded and from which reference r, known to both ends,
it is measured. With the bound B a reply with |x - r| > B is rejected, or clipped to the bound; a
client that exceeds it three times running is excluded for the rest of the run. A mean over n
clients then moves by at most 2 B / n if one of them is replaced by a liar. `core.robust` has the
formulas, and centres that one liar cannot carry off.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from flwr.app import Message, RecordDict

from .core.robust import Robust, Vector, clipped, excess
from .enrolled_grid import EnrolledGrid
from .grid_wrapper import GridWrapper

log = logging.getLogger("trellis.strategy")

_PATIENCE = 3


@dataclass(frozen=True)
class Bounded:
    """Which part of a reply is bounded.

    Attributes
    ----------
    reference : reduces the content of a message to what its reply is measured from
    vector : the bounded vector of a reply, from its content and that reference
    origin : what it is measured from, as a vector of the same length
    replace : puts a clipped vector into the content of a reply
    """

    reference: Callable[[RecordDict], Any]
    vector: Callable[[RecordDict, Any], Vector]
    origin: Callable[[RecordDict, Any], Vector]
    replace: Callable[[RecordDict, Vector], None]


class BoundedGrid(GridWrapper):
    """The clients of a run as a Grid that keeps their ``train`` replies within a bound.

    Parameters
    ----------
    grid : the clients
    robust : the bound, and whether replies beyond it are clipped (``clip``) or rejected
    part : what is bounded
    on_exclude : called with the number of a client that is excluded
    """

    def __init__(
        self,
        grid: EnrolledGrid,
        robust: Robust,
        part: Bounded,
        on_exclude: Callable[[int], None] = lambda number: None,
    ) -> None:
        super().__init__(grid)
        self.enrolled, self.robust, self.part = grid, robust, part
        self.on_exclude = on_exclude

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> Iterable[Message]:
        """Send messages; return the replies that are within the bound, or clipped to it."""
        sent: dict[int, Any] = {}
        kind = [""]

        def noting() -> Iterator[Message]:
            for message in messages:
                kind[0] = message.metadata.message_type
                sent[message.metadata.dst_node_id] = self.part.reference(message.content)
                yield message

        replies = self.enrolled.send_and_receive(noting(), timeout=timeout)
        if not kind[0].startswith("train"):
            return replies
        return [reply for reply in replies if reply.has_error() or self._within(reply, sent)]

    def _within(self, reply: Message, sent: dict[int, Any]) -> bool:
        """Return whether a reply may be used, clipped if the rule says so."""
        number = reply.metadata.src_node_id
        client, bound = self.enrolled.client(number), self.robust.bound
        try:
            vector = self.part.vector(reply.content, sent[number])
            origin = self.part.origin(reply.content, sent[number])
            norm = excess(vector, origin, bound)
        except Exception as error:  # whatever a malformed reply provokes
            self.enrolled.failures[number] = f"reply rejected: {error}"
            return False
        client.strikes = client.strikes + 1 if norm else 0
        if not norm:
            return True
        client.out_of_range += 1
        what = f"its update has norm {norm:.3g}, above norm-bound={bound:g}"
        if client.strikes >= _PATIENCE:
            group = reply.metadata.group_id
            client.left_out = int(group) if group.isdecimal() else 1
            self.on_exclude(number)
            what += f", {client.strikes} times running: left out from now on"
        elif self.robust.rule == "clip":
            log.warning("client %s is clipped: %s", client.name, what)
            self.part.replace(reply.content, clipped(vector, origin, bound))
            return True
        self.enrolled.failures[number] = f"reply rejected: {what}"
        return False
