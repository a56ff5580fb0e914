"""The baseline in which clients do not share: argmin f_k of every client, once.

    w_k = argmin_w f_k(w),    f_k = loss_k / D_k + R:

the step (4) of `mixing` with v = 0, share = 1 and, because a step needs one, the smallest
rho that matters to nobody. Every client is its own server and its own cluster: ``models`` is
(K, 1, d), ``homes`` 0 to K - 1, ``groups`` zero.

A round asks those who have not answered yet, three times at most by default; a client that never
does keeps the model 0.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from flwr.app import ConfigRecord, RecordDict

from trellis.strategies.core import wire
from trellis.strategies.core.base import Client, Row

from .strategy import ClusterAdmm, Vector

# w_k is off by about rho / curvature; smaller, and the step's rounding, 1e-16 / rho, is more.
_RHO = 1e-8


class ClientsAlone(ClusterAdmm):
    """The Flower strategy of the method ``local``; ``tries`` is how often a client is asked."""

    def __init__(self, *args: Any, tries: int = 3, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._tries = tries

    def begin(self, clients: Sequence[Client]) -> None:
        """Start at zero, every client for itself."""
        count, self.size = len(clients), self.parameters(clients)
        self.homes = np.arange(count, dtype=np.intp)
        self.groups = np.zeros(count, dtype=np.intp)
        self.set_up(1)
        self.models = np.zeros((count, 1, self.size))
        self.server_duals = np.zeros_like(self.models)

    def admit(self, client: Client) -> bool:
        """Return False: there is no round that it could join."""
        return False

    def participants(self, server_round: int) -> list[int]:
        """Return all who have not answered: there is no server that would draw some."""
        return [int(client) for client in np.flatnonzero(~self.seen)]

    def payload(self, server_round: int, client: int) -> RecordDict:
        """Return the order for argmin f_k."""
        arrays = wire.record({"v": np.zeros(self.models.shape[2]), **self.preprocessing})
        order = ConfigRecord({"round": server_round, "rho": _RHO, "share": 1.0})
        return RecordDict({"arrays": arrays, "order": order})

    def update(self, server_round: int, replies: Mapping[int, Vector]) -> Row:
        """Keep what clients found; ``change`` is the share of them still to come."""
        for client, model in replies.items():
            self.models[client, 0] = self.last[client] = model
            self.seen[client] = True
        return {"change": 1.0 - float(np.mean(self.seen)), "tau": 0.0}

    def needs_reply(self) -> bool:
        """Return whether nobody has answered so far."""
        return not np.any(self.seen)

    def settled(self, row: Row) -> bool:
        """Return whether everyone has answered."""
        return bool(np.all(self.seen))

    def exhausted(self) -> bool:
        """Return whether everyone has answered, or was asked often enough."""
        return bool(np.all(self.seen)) or len(self.progress.rows) >= self._tries
