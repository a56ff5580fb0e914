"""Asking bridges for letters: messages under way, and what their answers hold."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass

from flwr.app import ConfigRecord, Message, RecordDict
from flwr.serverapp import Grid

from trellis.privacy.secagg.errors import BadMessage
from trellis.privacy.servers.envelope import OtherLife
from trellis.strategies.core.enrolment import StudyError

from .board import OtherTerms
from .place import Place
from .spool import NEWEST

log = logging.getLogger("trellis.network")

ASK = "query.letter"


@dataclass(frozen=True)
class Reply:
    """What a bridge brings: sealed letter, greetings, sealed sign of life; each may be empty.

    ``asked`` is the round of the letter that was asked for: this or a later one.
    """

    letter: bytes
    board: bytes
    pulse: bytes
    asked: int = NEWEST


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
        self._asked: dict[str, tuple[int, int, int]] = {}  # server, node and round, by message

    def add(self, server: int, node: int) -> bool:
        """Take note of a node that says to be a bridge of a server; return whether it is new."""
        nodes = self._nodes.setdefault(server, [])
        if node in nodes:
            return False
        nodes.append(node)
        return True

    def ask(self, server: int, number: int, board: str, wait: float) -> None:
        """Ask all bridges of a server, as one that is none cannot be told from one that is.

        What was asked before is not waited for any more.

        Parameters
        ----------
        number, board, wait : as in `Spool.take`
        """
        self._asked = {i: asked for i, asked in self._asked.items() if asked[0] != server}
        self.ask_idle(server, number, board, wait)

    def ask_idle(self, server: int, number: int, board: str, wait: float) -> None:
        """Ask the bridges of a server that have answered all they were asked.

        One that does not answer, a false one maybe, holds up no other.
        """
        busy = {node for asked, node, _ in self._asked.values() if asked == server}
        messages = []
        for node in self._nodes.get(server, []):
            if node in busy:
                continue
            order = ConfigRecord({"run": self.place.run, "receiver": self.place.server})
            order["round"], order["board"], order["wait"] = number, board, wait
            messages.append(Message(RecordDict({"order": order}), node, ASK))
        if messages:
            pushed = {i for i in self.grid.push_messages(messages) if i}
            for message in messages:
                told = message.metadata
                if told.message_id in pushed:
                    self._asked[told.message_id] = server, told.dst_node_id, number

    def pull(self) -> bool:
        """Take what bridges have answered; return whether any of it could be used.

        Whoever asks again at once where nothing could would ask without end.

        Raises
        ------
        StudyError
            Where a server runs with other settings.
        """
        if not self._asked:
            return False
        useful = False
        for reply in self.grid.pull_messages(list(self._asked)):
            asked = self._asked.pop(reply.metadata.reply_to_message_id, None)
            if asked is None:
                continue
            server, _, number = asked
            if reply.has_error():
                self._forget_those_gone(server)
                continue
            try:
                self._take(server, _read(reply.content, number))
                useful = True
            except OtherTerms as error:
                raise StudyError(str(error)) from None
            except OtherLife as error:
                log.debug("%s", error)
            except Exception as error:  # whatever a bridge makes up
                self._refused(server, str(error))
        return useful

    def _forget_those_gone(self, server: int) -> None:
        """Forget bridges that are not online; one that comes back says who it is."""
        here = set(self.grid.get_node_ids())
        self._nodes[server] = [node for node in self._nodes[server] if node in here]


def _read(content: RecordDict, asked: int) -> Reply:
    found = content.config_records["found"]
    letter, board, pulse = (found[name] for name in ("letter", "board", "pulse"))
    if not (isinstance(letter, bytes) and isinstance(board, bytes) and isinstance(pulse, bytes)):
        raise BadMessage("something else than a letter and greetings")
    return Reply(letter, board, pulse, asked)
