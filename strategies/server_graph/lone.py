"""The post of one server that lives alone: its part of the combination, from letters by bridges.

The server makes messages for its neighbours and combines theirs as ever (`exchange.Server`); A is
what it knows of the links around it (`strategies.network.links`). Nothing but these messages is in
letters: psi_m as the method disguises it.

A letter that does not come, or that is of no use, is one whose weight stays here. With masks that
is not enough: the sum of the others holds the masks they share with the one that is missing. Then,
and where the senders were not agreed on whom they mask against, w_p = psi_p in this round. A server
that alone sends to another, without noise for that edge, sends it nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trellis.privacy.secagg.errors import BadMessage
from trellis.strategies.core.member import Member
from trellis.strategies.network.bridges import Bridges
from trellis.strategies.network.mailbox import Letter
from trellis.strategies.network.member import GraphMember

from .exchange import MaskedServer, Message, Server, Vector, neighbours
from .post import Matrix, Post

_MODEL, _SENDERS = "model", "senders"


class LonePost(Post):
    """Carries the messages of one server to and from its neighbours' SuperLinks.

    Parameters
    ----------
    mail : its letters
    """

    def __init__(self, mail: Bridges) -> None:
        super().__init__()
        self.mail, self.own = mail, mail.own
        self._me = mail.place.server

    def member(self) -> Member:
        """Return what keeps `Rounds` in step with the other servers."""
        return GraphMember(self.mail)

    def running(self, up: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Return which servers (P,) run, for all that is known here: all but lost neighbours."""
        found = np.ones(self.mail.graph.servers, dtype=bool)
        for p, near in self.mail.near.items():
            found[p] = near.ended or p in self.mail.links.counted
        return found

    def running_with(self, up: NDArray[np.bool_]) -> float:
        """Return how many servers took part in the last round: this one and its neighbours."""
        return 1.0 + self.mail.seen.row()["links"]

    def state_dict(self) -> dict[str, NDArray[Any]]:
        """Return the delivery log: which messages were used."""
        return {"letters": self.mail.seen.state()}

    def load_state_dict(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Restore `state_dict`."""
        self.mail.seen.restore(state["letters"])

    def exchange(
        self,
        servers: Sequence[Server],
        server_round: int,
        psi: Mapping[int, Vector],
        weights: Matrix,
        alive: Collection[int] | None = None,
    ) -> dict[int, Vector]:
        """Send, receive and combine; return w_p (M,) of the one server.

        ``weights`` and ``alive`` are what is planned; what is used follows from the links.
        """
        me, mail = self._me, self.mail
        server, mine = servers[me], psi[me]
        sent = mail.bytes
        letters = self._letters(server, server_round, mine)
        came = mail.carry(server_round, {me: letters}, mail.graph.adjacency)[me]
        self.messages, self.bytes = mail.messages, self.bytes + mail.bytes - sent
        used = mail.links.used()
        masked = isinstance(server, MaskedServer) and len(mail.links.mine) > 1
        kind = np.uint64 if masked else np.float64
        received = {p: one for p, one in came.items() if self._is_good(p, one, mine.shape, kind)}
        if masked and not self._agreed(received):
            if used:
                mail.seen.note(server_round, me, "could not open the sum: a sender was missing")
            received = {}
        final = mail.links.weights(without=set(used) - set(received))
        mail.seen.weigh(final[:, me])
        if masked and not received:
            return {me: mine.copy()}
        messages = {p: letter[_MODEL] for p, letter in received.items()}
        return {me: server.combine(server_round, mine, messages, final)}

    def _letters(self, server: Server, server_round: int, psi: Vector) -> dict[int, Letter]:
        """Return this server's messages, with whom they are masked against."""
        mail = self.mail
        weights = mail.links.weights()
        if not isinstance(server, MaskedServer):
            found = server.messages(server_round, psi, weights)
            return {p: {_MODEL: message} for p, message in found.items()}
        greetings = mail.board.greetings
        met = self._meet(server)
        for p, why in self._unmaskable(server, weights, met).items():
            mail.seen.note(server_round, p, why)
            weights = weights.copy()
            weights[server.index, p] = weights[p, server.index] = 0.0
        letters: dict[int, Letter] = {}
        for p, message in server.messages(server_round, psi, weights).items():
            senders = [[q, greetings[q].epoch] for q in neighbours(weights, p) if q in greetings]
            letters[p] = {_MODEL: message, _SENDERS: np.array(senders, dtype=np.int64)}
        return letters

    def _meet(self, server: MaskedServer) -> set[int]:
        """Take the others' keys for masks; return whose can be used, this server's among them."""
        met = {server.index}
        for p, greeting in self.mail.board.greetings.items():
            if p == server.index or not greeting.mask:
                continue
            try:
                server.meet({p: greeting.mask})
            except BadMessage as error:
                self.mail.seen.note(self.mail.seen.round, p, f"refused: {error}")
                continue
            met.add(p)
        return met

    def _unmaskable(
        self, server: MaskedServer, weights: Matrix, met: Collection[int]
    ) -> dict[int, str]:
        """Return the receivers for which nothing can be hidden now, and why."""
        greetings, found = self.mail.board.greetings, dict[int, str]()
        for p in neighbours(weights, server.index):
            senders = self.mail.links.list_of(p)
            strangers = [
                q
                for q, epoch in senders.items()
                if q not in met or epoch not in (0, greetings[q].epoch)
            ]
            if strangers:
                found[p] = f"is sent nothing: the key of server {strangers[0]} is not known"
            elif len(senders) == 1 and server.deviation == 0.0:
                found[p] = "is sent nothing: it hears from nobody else, and sigma is 0"
        return found

    def _agreed(self, received: Mapping[int, Letter]) -> bool:
        """Return whether all senders are there, masked against each other as they are now."""
        mine = self.mail.links.mine
        if set(received) != set(mine):
            return False
        expected = sorted([p, epoch] for p, epoch in mine.items())
        return all(sorted(one[_SENDERS].tolist()) == expected for one in received.values())

    def _is_good(
        self, sender: int, letter: Letter, shape: tuple[int, ...], kind: type[np.generic]
    ) -> bool:
        """Return whether a letter can be used; also a server of the graph may send nonsense.

        Or it has masked for a sum what now comes alone, or the other way round: where a server was
        lost, it may not know yet from whom else this one hears.
        """
        message: Message | None = letter.get(_MODEL)
        senders = letter.get(_SENDERS, np.zeros((0, 2), np.int64))
        good = (
            message is not None
            and message.shape == shape
            and message.dtype == kind
            and bool(np.isfinite(message).all())
            and senders.ndim == 2
            and senders.dtype == np.int64
        )
        if not good:
            self.mail.seen.note(self.mail.seen.round, sender, "sent no usable model: left out")
        return good
