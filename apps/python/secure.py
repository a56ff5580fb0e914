"""One secure sum in memory: the server's part and every client's, by the real protocol."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from trellis.privacy.secagg.graph import FEWEST, plan
from trellis.privacy.secagg.protocol import Member, Policy
from trellis.privacy.secagg.ring import Ring
from trellis.privacy.secagg.server import ServerRound, Session

_NAME = "sum"
_NO_PAYLOAD = bytes(32)  # hash of what the server sent along: nothing, the same for all


def play(
    names: Sequence[str], vectors: Sequence[NDArray[np.float64]], fraction_bits: int
) -> NDArray[np.float64]:
    """Return the sum of the clients' vectors (n,), all of one length.

    Raises
    ------
    ValueError, OverflowError
        For an entry that is not finite, or too large for the sum.
    """
    if len(names) < FEWEST:  # the protocol wants as many; these add nothing
        extra = range(FEWEST - len(names))
        names = [*names, *(f"{max(names, key=len)}-{place}" for place in extra)]
        vectors = [*vectors, *(np.zeros_like(vectors[0]) for _ in extra)]
    clients = range(len(names))
    session, policy = Session(dict(enumerate(names))), Policy()
    members = []
    for client in clients:
        member, advert = Member.enter(session.hello(client), policy)
        session.take_advert(client, advert)
        members.append(member)
    directory = session.close()
    for member in members:
        member.meet(directory)
    server = ServerRound(session, 1, list(clients), plan(len(names)), ring=Ring(fraction_bits))
    for client in clients:
        members[client].begin(server.order, _NO_PAYLOAD)
        words, beside, clipped = members[client].mask({_NAME: vectors[client]})
        if clipped:
            raise OverflowError(
                f"client {names[client]!r}: an entry is too large for the sum; lower fraction_bits"
            )
        server.take_masked(client, beside, words)
    server.close_masked()
    for client in server.survivors:
        server.take_agreed(client, members[client].agree(server.roll()))
    for client in server.close_agreed():
        server.take_opened(client, members[client].unmask(server.question(client)))
    return server.total()[_NAME]
