"""Greetings: every server's own, and those of others that reached it, passed on along the edges."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from typing import Any

from trellis.privacy.secagg.errors import BadMessage
from trellis.privacy.servers.envelope import Seals
from trellis.privacy.servers.identity import Greeting, Identity

_MOST = 10_000_000


class OtherTerms(BadMessage):
    """A server of the table runs with other settings."""


class Board:
    """What one server knows of all.

    Parameters
    ----------
    identity : this server's key, and by what it knows the others
    run : the name of the run
    terms : digest of the settings that all servers must share
    epoch : of this start, later than that of any before; 0 takes the time

    Attributes
    ----------
    seals : of this life of the server
    greetings : by server, the latest of each; this server's among them once it has greeted
    strange : by server, the epoch of its latest greeting with other settings. What a server that is
        down has left may be of a run that was resumed since then with more rounds
    """

    def __init__(self, identity: Identity, run: str, terms: str, epoch: int = 0) -> None:
        self.identity, self.terms = identity, terms
        self.session = b"graph of servers " + run.encode()
        self.seals = Seals(identity.server, epoch or time.time_ns(), self.session)
        self.greetings: dict[int, Greeting] = {}
        self.strange: dict[int, int] = {}
        self._signed: dict[int, bytes] = {}

    @property
    def names(self) -> list[str]:
        """The servers' names, by number."""
        return list(self.identity.table)

    def greet(self, mask: bytes = b"", facts: Mapping[str, Any] | None = None) -> None:
        """Make this server's greeting."""
        seals, me = self.seals, self.identity.server
        greeting = Greeting(me, seals.epoch, seals.public, mask, self.terms, facts or {})
        self.greetings[me] = greeting
        self._signed[me] = self.identity.greet(self.session, greeting)

    def encode(self) -> bytes:
        """Return all greetings, to be passed on."""
        return json.dumps([self._signed[p].hex() for p in sorted(self._signed)]).encode()

    def take(self, data: bytes) -> set[int]:
        """Take greetings from a board that was passed on; return of which servers they are new.

        One with other settings is `strange`, and not taken.

        Raises
        ------
        BadMessage
            Where it is no board, or one of the greetings is not signed by its server.
        """
        try:
            if len(data) > _MOST:
                raise ValueError("too long")
            signed = [bytes.fromhex(text) for text in json.loads(data)]
        except (ValueError, TypeError, RecursionError) as error:
            raise BadMessage(f"no greetings: {error}") from None
        # All are read before one is taken: of a board that is refused nothing stays.
        read = [self.identity.read(self.session, one) for one in signed]
        for greeting in read:
            self.seals.check(greeting)
        new = set()
        for greeting, one in zip(read, signed, strict=True):
            server, known = greeting.server, self.greetings.get(greeting.server)
            if server == self.identity.server or (known and known.epoch >= greeting.epoch):
                continue
            if greeting.terms != self.terms:
                self.strange[server] = max(greeting.epoch, self.strange.get(server, 0))
                continue
            self.greetings[server], self._signed[server] = greeting, one
            new.add(server)
            if self.strange.get(server, 0) < greeting.epoch:
                self.strange.pop(server, None)
        return new

    def agree(self, since: int = 0) -> None:
        """Check that no server runs with other settings.

        Parameters
        ----------
        since : of greetings before this epoch nothing is said

        Raises
        ------
        OtherTerms
            Names the server.
        """
        for server, epoch in sorted(self.strange.items()):
            if epoch >= since:
                raise OtherTerms(
                    f"{self.names[server]} runs with other settings; all servers of a graph need "
                    "the same study, seed and settings"
                )
