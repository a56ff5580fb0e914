"""The mailbox of one server that lives alone: letters go by bridges, through Flower.

A bridge of server m at the SuperLink of server p is a SuperNode of m's host. Server m puts sealed
letters into its spool (`spool`); server p's ServerApp asks m's bridge for them like any node. Who
runs a bridge, or says to be one, can hold letters back and no more (`privacy.servers.envelope`).

In step (``max_staleness = 0``) a round needs the letters of the same round. They are asked for when
the round begins, and bridges wait for them, so that one message per link and round is enough. A
neighbour whose letter has not come is waited for as long as it gives signs of life, of which each
server puts one a second into its spool: it may itself be waiting for another. After ``timeout``
seconds without, it is counted as gone (`links`), and the round ends without it. Where a neighbour
is rounds ahead, after the network was cut or this server was down, this server goes on with that
round (`ahead`).

Otherwise a server takes what is there: of each neighbour the latest letter, if that is at most
``max_staleness`` rounds older than its own round; it waits, up to the timeout, only for one that is
older. The last letter of a server that has come to its end has no age.

What a neighbour sees is what the method tells it; everybody else sees that letters pass, their size
and time, and greetings (`board`): names, keys, numbers of clients.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from flwr.serverapp import Grid
from numpy.typing import NDArray

from trellis.privacy.secagg.errors import BadMessage
from trellis.privacy.servers.identity import Identity
from trellis.strategies.topology.graph import Topology

from .asking import Asking, Reply
from .board import Board
from .letters import Written
from .links import Links
from .mailbox import Letter
from .place import Place
from .quiet import Quiet
from .seen import Seen
from .spool import NEWEST, Spool, digest

log = logging.getLogger("trellis.network")

PULSE = b"alive"
_LONGEST_WAIT = 20.0  # seconds that a bridge waits at a time
_FIRST_PAUSE, _LONGEST_PAUSE = 0.002, 0.25  # a look at a SuperLink costs it some milliseconds


@dataclass
class Neighbour:
    """What is known of one neighbour.

    Attributes
    ----------
    board : digest of the greetings that it last passed on
    letter : its latest, open
    ended : whether that is its last
    pulse : the number of its last sign of life
    until : how long to wait for it
    """

    board: str = ""
    letter: Written | None = None
    ended: bool = False
    pulse: int = 0
    until: float = 0.0


class Bridges:
    """The letters of one server of a graph.

    Parameters
    ----------
    graph : of all servers
    place : which one this is

    Attributes
    ----------
    own : the server that lives here
    links : which links count
    seen : what came, when, and what happened
    quiet : since when servers are quiet
    ahead : the latest round that a neighbour was heard to be in
    messages, bytes : letters to other servers and their size, sealed
    on_gone, on_join : called with a neighbour that counts no more, or anew
    """

    def __init__(self, graph: Topology, place: Place) -> None:
        self.graph, self.place = graph, place
        self.own = (place.server,)
        self.ahead = self.messages = self.bytes = 0
        self.on_gone: Callable[[int], None] = lambda server: None
        self.on_join: Callable[[int], None] = lambda server: None
        identity = Identity.load(place.folder, place.server, graph.servers)
        self.spool = Spool(place.folder / "spool", place.run)
        self.board = Board(identity, place.run, place.terms, self.spool.new_epoch())
        self.links = Links(graph, place.server, self.board.seals.epoch)
        self.seen = Seen(self.board.names, place.server, self.links.neighbours)
        self.quiet = Quiet(place.server, graph.servers)
        self.asking = Asking(place, self._take, self._refused)
        self.near: dict[int, Neighbour] = {p: Neighbour() for p in self.links.neighbours}
        self._last: Mapping[int, Letter] = {}
        self._beats = 0
        self._wait = min(self.place.timeout / 2.0, _LONGEST_WAIT)

    @property
    def in_step(self) -> bool:
        """Whether all servers are in the same round."""
        return not self.place.max_staleness

    def bridge(self, server: int, node: int) -> None:
        """Take note of a node that says to be the bridge of a server."""
        if server in self.near and self.asking.add(server, node):
            log.info("a bridge of %s is there", self.board.names[server])

    # --- a round -----------------------------------------------------------------------------

    def expect(self, grid: Grid, server_round: int) -> None:
        """Begin a round: ask for its letters, which bridges wait for."""
        self.asking.grid = grid
        self.seen.begin(server_round)
        self.links.turn()
        used = self.links.used()
        for p, near in self.near.items():
            if near.ended:
                continue
            if p in used and self.in_step:
                self.asking.ask(p, server_round, near.board, self._wait)
            else:
                # An answer that takes longer than a round is still waited for.
                self.asking.ask_idle(p, NEWEST, near.board, 0.0)

    def carry(
        self,
        server_round: int,
        letters: Mapping[int, Mapping[int, Letter]],
        edges: NDArray[np.bool_],
    ) -> dict[int, dict[int, Letter]]:
        """Put this server's letters in; return those that came for it, by sender.

        Letters go to neighbours whose links count; all others that can be reached are told where
        this server is, so that they find back.
        """
        me = self.place.server
        mine = letters[me]
        if strangers := sorted(set(mine) - set(np.flatnonzero(edges[me]).tolist())):
            raise ValueError(f"round {server_round}: no edge from server {me} to {strangers[0]}")
        self.spool.about_to_tell(server_round)
        self._put_all(server_round, mine)
        return {me: self._received(server_round, self.links.used())}

    def show(self) -> None:
        """Tell neighbours that this server is there, before its first round."""
        self._put_all(0, {})

    def close(self, server_round: int) -> None:
        """Tell neighbours that no letter comes after this round; what was told last stays."""
        for p in self._reachable():
            arrays = {} if self.in_step else self._last.get(p, {})
            notes = {"next": self.links.announce(), "quiet": self.quiet.encode(), "last": True}
            self._put(p, Written(server_round + 1, arrays, notes))

    def beat(self) -> None:
        """Give neighbours a sign of life; another thread calls this."""
        self._beats += 1
        for p in self._reachable():
            sealed = self.board.seals.seal(self.board.greetings[p], self._beats, PULSE)
            self.spool.put_pulse(p, sealed)

    def _put_all(self, number: int, mine: Mapping[int, Letter]) -> None:
        self._last = mine
        notes = {"next": self.links.announce(), "quiet": self.quiet.encode()}
        for p in self._reachable():
            self._put(p, Written(number, mine.get(p, {}), notes))

    def _reachable(self) -> list[int]:
        return [p for p in self.links.neighbours if p in self.board.greetings]

    def _put(self, receiver: int, letter: Written) -> None:
        greeting = self.board.greetings[receiver]
        sealed = self.board.seals.seal(greeting, letter.number, letter.encode())
        self.spool.put(receiver, letter.number, sealed)
        self.messages += 1
        self.bytes += len(sealed)

    def _received(self, server_round: int, used: list[int]) -> dict[int, Letter]:
        """Wait for the letters of the round; who does not come is gone."""
        pause, timeout = _FIRST_PAUSE, self.place.timeout
        first = max(1, server_round - self.place.max_staleness)
        for near in self.near.values():
            near.until = time.monotonic() + timeout
        while True:
            came = self.asking.pull()
            waiting = [p for p in used if self.links.still(p) and not self._has(p, first)]
            if not waiting:
                break
            for p in waiting:
                near = self.near[p]
                if time.monotonic() >= near.until:
                    self.lose(server_round, p, f"gone: no sign of life within {timeout:g} s")
                else:
                    self.asking.ask_idle(p, first, near.board, self._wait)
            if not came:
                time.sleep(pause)
                pause = min(2.0 * pause, _LONGEST_PAUSE)
        return {p: self._letter(p) for p in used if self._usable(server_round, p)}

    def _has(self, server: int, first: int) -> bool:
        near = self.near[server]
        return near.letter is not None and (near.ended or near.letter.number >= first)

    def _usable(self, server_round: int, server: int) -> bool:
        """Return whether there is a letter that this round may take."""
        letter, near = self.near[server].letter, self.near[server]
        if letter is None or not letter.arrays or not self.links.still(server):
            return False
        if self.in_step:
            return letter.number == server_round
        return near.ended or letter.number >= server_round - self.place.max_staleness

    def _letter(self, server: int) -> Letter:
        letter = self.near[server].letter
        assert letter is not None
        self.seen.used(server, letter.number)
        return letter.arrays

    def lose(self, server_round: int, server: int, why: str) -> None:
        """Count a neighbour no more."""
        self.links.gone(server)
        self.seen.note(server_round, server, why)
        self.on_gone(server)

    # --- what bridges bring ------------------------------------------------------------------

    def _refused(self, server: int, why: str) -> None:
        self.seen.note(self.seen.round, server, f"refused: {why}")

    def _take(self, server: int, reply: Reply) -> None:
        """Take greetings and a letter; raise `BadMessage` for what is none."""
        if reply.board:
            self._take_board(server, reply.board)
        if reply.pulse:
            self._take_pulse(server, reply.pulse)
        if reply.letter:
            self._take_letter(server, reply.letter, reply.asked)

    def _take_board(self, server: int, board: bytes) -> None:
        # First: what is refused now would be refused again.
        self.near[server].board = digest(board)
        strange = set(self.board.strange.items())
        new = self.board.take(board)
        if not self.seen.round:
            # Older ones may be from before a restart: `greet` waits for what comes.
            self.board.agree(since=self.board.seals.epoch)
        for p, _ in sorted(set(self.board.strange.items()) - strange):
            if self.seen.round:
                # It must not end a run that is under way.
                self._refused(p, "it runs with other settings")
        if not new:
            return
        self.spool.put_board(self.board.encode())
        for p in sorted(new & set(self.near)):
            self.near[p] = Neighbour(self.near[p].board)
            self.spool.clear(p)  # sealed for an earlier life of it
            if self.seen.round:
                self.links.began_anew(p, self.board.greetings[p].epoch)
                self.seen.note(self.seen.round, p, "has started, and is taken in")
                self.on_gone(p)
                self.on_join(p)

    def _take_pulse(self, server: int, sealed: bytes) -> None:
        greeting, near = self.board.greetings.get(server), self.near[server]
        if greeting is None:
            return
        try:
            number, content = self.board.seals.open(greeting, sealed)
        except BadMessage:
            return  # of an earlier life of one of the two
        if content == PULSE and number > near.pulse:
            near.pulse, near.until = number, time.monotonic() + self.place.timeout

    def _take_letter(self, server: int, sealed: bytes, asked: int = NEWEST) -> None:
        greeting, near = self.board.greetings.get(server), self.near[server]
        if greeting is None:
            raise BadMessage(f"a letter before the greeting of {self.board.names[server]}")
        number, content = self.board.seals.open(greeting, sealed)
        if number < asked:
            raise BadMessage(f"a letter of round {number} in place of round {asked}")
        if near.letter is not None and number <= near.letter.number:
            if number < near.letter.number:
                raise BadMessage(f"round {number}, after round {near.letter.number}")
            return
        letter = Written.decode(number, content)
        self.quiet.heard(letter.notes)
        back = bool(self.seen.round) and server not in self.links.counted
        # Before the first round a server does not know yet who will be there.
        self.links.heard(server, greeting.epoch, letter.notes if number else None)
        if back:
            self.seen.note(self.seen.round, server, f"heard again, in its round {number}")
            self.on_join(server)
        near.letter = letter
        self.seen.came(server)
        if letter.notes.get("last"):
            near.ended = True
            self.seen.note(number - 1, server, "has come to its end")
            if self.in_step:
                self.links.gone(server)
                self.on_gone(server)
        else:
            self.ahead = max(self.ahead, number)
