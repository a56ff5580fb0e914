"""The mailbox of servers that live in one process.

All that passes between servers passes here, along the edges of their graph: what `Server` makes for
its neighbours, and public keys. A network takes its place where servers are apart.

Adversary: none is kept out; the process sees everything. See `strategies.server_graph.exchange` for
what servers learn of each other.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trellis.strategies.core.member import Member

from .exchange import Message, Server, neighbours

Vector = NDArray[np.float64]
Matrix = NDArray[np.float64]


class Post:
    """The mailbox of servers in one process: carries messages along edges and counts them.

    Attributes
    ----------
    own : the servers that live here; None for all
    messages, bytes : between servers, headers not counted
    key_messages, key_bytes : public keys, each over the receiver it is for
    """

    own: tuple[int, ...] | None = None

    def __init__(self) -> None:
        self.messages = self.bytes = self.key_messages = self.key_bytes = 0
        self._introduced: dict[int, dict[int, bytes]] = {}

    def member(self) -> Member:
        """Return what keeps `Rounds` in step with other servers: nothing here."""
        return Member()

    def running(self, up: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Return which servers (P,) run, as far as it is known here, if ``up`` (P,) run here."""
        return up

    def running_with(self, up: NDArray[np.bool_]) -> float:
        """Return how many servers took part in the last round."""
        return float(up.sum())

    def state_dict(self) -> dict[str, NDArray[Any]]:
        """Return what a server that is resumed must know of messages between servers."""
        return {}

    def load_state_dict(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Restore `state_dict`."""

    def exchange(
        self,
        servers: Sequence[Server],
        server_round: int,
        psi: Mapping[int, Vector],
        weights: Matrix,
        alive: Collection[int] | None = None,
    ) -> dict[int, Vector]:
        """Let servers send, receive and combine; return w_p (M,) by server.

        Parameters
        ----------
        servers : all P, by index
        server_round : the round
        psi : (M,) by server, of those that are up at least
        weights : A (P, P) of this round, see `whole_matrix` for failures
        alive : servers that are up, all by default; the others neither send nor receive
        """
        up = sorted(range(len(servers)) if alive is None else set(alive))
        _check_round(server_round, len(servers), up, psi, weights)
        self._introduce(servers, up, weights)
        boxes: dict[int, dict[int, Message]] = {p: {} for p in up}
        for m in up:
            for p, message in servers[m].messages(server_round, psi[m], weights).items():
                if p not in boxes or weights[m, p] == 0.0:
                    raise ValueError(f"round {server_round}: no edge from server {m} to {p}")
                boxes[p][m] = message
                self.messages += 1
                self.bytes += message.nbytes
        return {p: servers[p].combine(server_round, psi[p], boxes[p], weights) for p in up}

    def _introduce(self, servers: Sequence[Server], up: Sequence[int], weights: Matrix) -> None:
        """Relay the public keys of the senders to each server, where they are new."""
        for p in up:
            hellos = {m: servers[m].hello() for m in neighbours(weights, p)}
            if len(hellos) < 2 or not any(hellos.values()) or self._introduced.get(p) == hellos:
                continue
            self._introduced[p] = hellos
            for m in hellos:
                servers[m].meet({peer: key for peer, key in hellos.items() if peer != m})
            self.key_messages += len(hellos) ** 2  # one to p from each, n - 1 back to each
            self.key_bytes += len(hellos) * sum(map(len, hellos.values()))


def _check_round(
    server_round: int, count: int, up: Sequence[int], psi: Mapping[int, Vector], weights: Matrix
) -> None:
    where = f"round {server_round}"
    if weights.shape != (count, count):
        raise ValueError(f"{where}: weights of shape {weights.shape} for {count} servers")
    for m in up:
        if not 0 <= m < count:
            raise ValueError(f"{where}: no server {m}; they are numbered 0 to {count - 1}")
        if m not in psi or psi[m].shape != (psi[up[0]].size,):
            raise ValueError(f"{where}: server {m} is up but has no psi of server {up[0]}'s length")
        gone = set(neighbours(weights, m)) - set(up)
        if gone:
            raise ValueError(
                f"{where}: server {min(gone)} is down but has a weight at server {m}; give the "
                "weights of the survivors (`Topology.without`, `whole_matrix`)"
            )
