"""Asking bridges for letters: messages under way, and what their answers hold."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass

from flwr.app import ConfigRecord, Message, RecordDict
from flwr.serverapp import Grid

from privacy.secagg.errors import BadMessage
from privacy.servers.envelope import OtherLife
from strategies.core.enrolment import StudyError

from .board import OtherTerms
from .place import Place

log = logging.getLogger("trellis.network")

ASK = "query.letter"


@dataclass(frozen=True)
class Reply:
    """What a bridge brings: a letter, greetings, a sign of life; each may be empty."""

    letter: bytes
    board: bytes
    pulse: bytes


class Asking:
    """The messages to the bridges of one server's neighbours.

    Parameters
    ----------
    place : who asks
    take : called with a server and what its bridge brought; may refuse it by an exception
    refused : called with a server and why something was refused

    Attributes
    ----------
    grid : set before the first question
    """

    grid: Grid

    def __init__(
        self,
        place: Place,
        take: Callable[[int, Reply], None],
        refused: Callable[[int, str], None],
    ) -> None:
        self.place, self._take, self._refused = place, take, refused
        self._nodes: dict[int, list[int]] = {}
        self._asked: dict[str, int] = {}  # the server, by message

    def add(self, server: int, node: int) -> bool:
        """Take note of a node that says to be a bridge of a server; return whether it is new."""
        nodes = self._nodes.setdefault(server, [])
        if node in nodes:
            return False
        nodes.append(node)
        return True

    def under_way(self, server: int) -> bool:
        """Return whether a bridge of a server still has to answer."""
        return server in self._asked.values()

    def ask(self, server: int, number: int, board: str, wait: float) -> None:
        """Ask all bridges of a server, as one that is none cannot be told from one that is.

        What was asked before is not waited for any more.

        Parameters
        ----------
        number, board, wait : as in `Spool.take`
        """
        self._asked = {i: s for i, s in self._asked.items() if s != server}
        messages = []
        for node in self._nodes.get(server, []):
            order = ConfigRecord({"run": self.place.run, "receiver": self.place.server})
            order["round"], order["board"], order["wait"] = number, board, wait
            messages.append(Message(RecordDict({"order": order}), node, ASK))
        if messages:
            pushed = {i for i in self.grid.push_messages(messages) if i}
            self._asked |= dict.fromkeys(pushed, server)

    def pull(self) -> bool:
        """Take what bridges have answered; return whether anything came.

        Raises
        ------
        StudyError
            Where a server runs with other settings.
        """
        if not self._asked:
            return False
        replies = list(self.grid.pull_messages(list(self._asked)))
        for reply in replies:
            server = self._asked.pop(reply.metadata.reply_to_message_id, None)
            if server is None:
                continue
            if reply.has_error():
                self._forget_those_gone(server)
                continue
            try:
                self._take(server, _read(reply.content))
            except OtherTerms as error:
                raise StudyError(str(error)) from None
            except OtherLife as error:
                log.debug("%s", error)
            except Exception as error:  # whatever a bridge makes up
                self._refused(server, str(error))
        return bool(replies)

    def _forget_those_gone(self, server: int) -> None:
        """Forget bridges that are not online; one that comes back says who it is."""
        here = set(self.grid.get_node_ids())
        self._nodes[server] = [node for node in self._nodes[server] if node in here]


def _read(content: RecordDict) -> Reply:
    found = content.config_records["found"]
    parts = [found[name] for name in ("letter", "board", "pulse")]
    if not all(isinstance(part, bytes) for part in parts):
        raise BadMessage("something else than a letter and greetings")
    return Reply(*parts)  # type: ignore[arg-type]
