"""The mailbox of servers that live in one process: letters go along the edges of their graph.

All that passes between servers passes here, as named arrays. Where servers are apart a network
takes its place, behind the same method `Mailbox.carry`.

Adversary: none is kept out; the process sees everything.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Letter = Mapping[str, NDArray[Any]]
"""What one server tells another in a round: named arrays, which the receiver only reads."""


class BadLetter(ValueError):
    """A letter that cannot be used.

    Attributes
    ----------
    server : who wrote it
    """

    def __init__(self, server: int, reason: str) -> None:
        super().__init__(reason)
        self.server = server


class Mailbox:
    """Carries letters between servers and counts them; here all of them live in this process.

    Parameters
    ----------
    servers : how many there are

    Attributes
    ----------
    own : the servers that live in this process
    messages, bytes : between servers so far, headers not counted
    """

    own: Sequence[int]

    def __init__(self, servers: int) -> None:
        self.own = range(servers)
        self.messages = self.bytes = 0

    def carry(
        self,
        server_round: int,
        letters: Mapping[int, Mapping[int, Letter]],
        edges: NDArray[np.bool_],
    ) -> dict[int, dict[int, Letter]]:
        """Take the letters of a round by sender and receiver; return them by receiver and sender.

        Every server that lives here is a receiver, of no letter maybe.

        Parameters
        ----------
        server_round : the round they are of
        letters : of the servers that live here
        edges : (S, S), who may write to whom

        Raises
        ------
        ValueError
            For a letter along no edge; names both ends.
        """
        boxes: dict[int, dict[int, Letter]] = {server: {} for server in self.own}
        for sender in sorted(letters):
            for receiver, letter in letters[sender].items():
                if receiver not in boxes or sender not in boxes or not edges[sender, receiver]:
                    raise ValueError(
                        f"round {server_round}: server {sender} wrote to server {receiver}, which "
                        "is no neighbour of it; servers write along the edges of their graph only"
                    )
                boxes[receiver][sender] = letter
                self.messages += 1
                self.bytes += sum(array.nbytes for array in letter.values())
        return boxes
