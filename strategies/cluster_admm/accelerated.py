"""`ClusterAdmm` with Anderson acceleration of the servers' whole state, for fewer rounds.

The duals are the servers', so a round maps their state (models, server duals, clients' duals) to
the next, and a fixed point of that is what is sought. For the ridge loss the map is affine, for the
logistic it is smooth. `Anderson` combines the last rounds and has its way back to plain ones. A
round that not all clients answer is taken as it is, and forgets those before.

A run has settled where a plain round leaves the models, and the whole state, where they are; its
result is that plain round's.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trellis.strategies.core.anderson import Anderson
from trellis.strategies.core.base import Row

from .strategy import ClusterAdmm, Vector, relative

_MEMORY = 30


class AcceleratedAdmm(ClusterAdmm):
    """One model a cluster over a graph of servers, to a tolerance in fewer rounds."""

    together = "rounds are combined from the state of all servers; set acceleration=off"

    def set_up(self, clusters: int) -> None:
        """Start at zero, remembering nothing."""
        super().set_up(clusters)
        self.anderson = Anderson(self._joined().shape, _MEMORY)
        self.last_tau = np.array(np.nan)

    def _joined(self) -> Vector:
        """Return the state as one vector, duals on the scale of models."""
        rho = self.task.rho
        parts = (self.models, self.server_duals / rho, self.duals / rho)
        return np.concatenate([part.ravel() for part in parts])

    def _part(self, whole: Vector) -> None:
        """Take the state from one vector."""
        rho, size = self.task.rho, self.models.size
        self.models = whole[:size].reshape(self.models.shape)
        self.server_duals = rho * whole[size : 2 * size].reshape(self.models.shape)
        self.duals = rho * whole[2 * size :].reshape(self.duals.shape)

    def update(self, server_round: int, replies: Mapping[int, Vector]) -> Row:
        """Take a plain round, and go on from a combination of the last ones."""
        before = self._joined()
        row = super().update(server_round, replies)
        after = self._joined()
        row["change"] = max(row["change"], relative(after, before))
        if len(replies) < len(self.homes) or row["tau"] != float(self.last_tau):
            self.anderson.forget()  # another map, or only a part of it
        self.last_tau = np.array(row["tau"])
        if len(replies) == len(self.homes) and row["change"] > self.plan.tolerance:
            self._part(self.anderson.next(before, after - before))
        return row

    def state(self) -> dict[str, NDArray[Any]]:
        """Return every array that the next round depends on."""
        memory = {f"anderson_{name}": array for name, array in self.anderson.state().items()}
        return {**super().state(), **memory, "last_tau": self.last_tau}

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Take back `state`."""
        super().restore(state)
        names = self.anderson.state()
        self.anderson.restore({name: state[f"anderson_{name}"] for name in names})
        self.last_tau = state["last_tau"].copy()
