"""How many clusters: every candidate Q is trained on a part of the data and tried on the rest.

Rounds come in phases of ``length`` rounds. In phase p clients train with Q = candidates[p] and
leave out a fraction of their samples; at its end every client tells its mean loss of those under
the model of its cluster,

    held_out[p] = sum_k n_k l_k / sum_k n_k,      n_k samples that client k left out.

Candidates are tried at tau = 0: (10) multiplies the distance between models by 1 - tau Q / (Q - 1),
less the fewer there are, and that would decide instead of the data.

The Q with the least (of equals the smallest) is trained once more in the last phase, on all data:
the same run, to the last bit, as with that Q from the start.

Who belongs where must not be decided by the samples that are left out: with Q models to choose
from their loss would fall though nothing was learned. Clients tell the losses of all their samples
and of those left out, the server subtracts:

    training loss = (D l_all - n l_out) / (D - n).

It sees both anyway; finding clusters claims no privacy.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from flwr.serverapp import Grid
from numpy.typing import NDArray

from trellis.strategies.core.base import Client, Row, StudyError

from .finding import ClusterFinding

log = logging.getLogger("trellis.strategy")

Array = NDArray[np.float64]


class ClusterSelection(ClusterFinding):
    """One model a cluster, whose it is, and how many there are.

    ``plan.rounds`` must be (number of candidates + 1) * ``length``; ``task.clusters`` is not used.

    Parameters
    ----------
    candidates : the Q to try, rising
    length : rounds of a phase
    fraction : of a client's samples that it leaves out, between 0 and 1
    """

    def __init__(
        self, *args: Any, candidates: Sequence[int], length: int, fraction: float, **kwargs: Any
    ) -> None:
        super().__init__(*args, **kwargs)
        self.candidates = np.array(candidates, dtype=np.int64)
        self.length, self.fraction = length, fraction
        # nan: not known yet
        self.tried = np.full(len(self.candidates), np.nan)

    def begin(self, clients: Sequence[Client]) -> None:
        """Start with the first candidate."""
        super().begin(clients)
        self.set_up(int(self.candidates[0]))

    def iteration(self, server_round: int) -> int:
        """Return n, counted from 1 in every phase."""
        return (server_round - 1) % self.length + 1

    def tau(self, iteration: int) -> float:
        """Return 0 where a candidate is tried."""
        return 0.0 if self.held_out else super().tau(iteration)

    def phase(self, server_round: int) -> int:
        """Return which candidate is tried; their number in the last phase."""
        return (server_round - 1) // self.length

    def settled(self, row: Row) -> bool:
        """Return whether the last phase has come to rest."""
        last = self.phase(int(row["round"])) == len(self.candidates)
        return last and super().settled(row)

    def gather(self, grid: Grid, server_round: int) -> Row:
        """Run the round; at the end of a candidate's phase, try it."""
        phase, trying = self.phase(server_round), self.phase(server_round) < len(self.candidates)
        self.held_out = self.fraction if trying else 0.0
        if self.iteration(server_round) == 1:
            self.set_up(int(self.candidates[phase]) if trying else self.choose())
        row = super().gather(grid, server_round) | {"candidate": float(self.models.shape[1])}
        if trying and self.iteration(server_round) == self.length:
            self.tried[phase] = row["held-out"] = self._try(grid, server_round)
            row = self.counted(row)
        return row

    def choose(self) -> int:
        """Return the Q with the least held-out loss.

        Raises
        ------
        StudyError
            Where no candidate could be tried.
        """
        if not np.any(np.isfinite(self.tried)):
            raise StudyError(
                "no client told a held-out loss, so no number of clusters can be chosen: clients "
                "need two samples at least; or give the number, as in clusters=auto:3"
            )
        return int(self.candidates[np.nanargmin(self.tried)])

    def _try(self, grid: Grid, server_round: int) -> float:
        """Return the mean loss of the samples that were left out; nan where nobody tells."""
        own = self.models[self.homes, self.groups][:, None]
        told = self.ask_losses(grid, server_round, own, self.fraction)
        counts = np.where(told.known, told.counts, 0.0)
        total = float(counts.sum())
        losses = np.where(told.known, told.losses[:, 0], 0.0)
        found = float(counts @ losses) / total if total > 0.0 else float("nan")
        log.info("%d clusters: held-out loss %.6g", self.models.shape[1], found)
        return found

    def fit(self, grid: Grid, server_round: int, models: Array) -> Array:
        """Return the losses of the samples that clients train with."""
        whole = self.ask_losses(grid, server_round, models)
        if not self.held_out:
            return whole.losses
        out = self.ask_losses(grid, server_round, models, self.held_out)
        kept = (whole.counts - out.counts)[:, None]
        sums = whole.counts[:, None] * whole.losses - out.counts[:, None] * out.losses
        usable = whole.known[:, None] & out.known[:, None] & (kept > 0.0)
        # A client that contradicts itself has losses below 0: as if it fitted perfectly.
        return np.where(usable, np.maximum(sums, 0.0) / np.maximum(kept, 1.0), np.nan)

    # --- checkpoints -------------------------------------------------------------------------

    def state(self) -> dict[str, NDArray[Any]]:
        """Return every array that the next round depends on."""
        return super().state() | {"tried": self.tried, "length": np.array(self.length)}

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Take back `state`, of whatever phase it is."""
        if int(state["length"]) != self.length:
            raise ValueError(
                f"the checkpoint is of rounds={int(state['length'])}, this run has rounds="
                f"{self.length}; the choice of clusters must be resumed with the same"
            )
        self.set_up(state["models"].shape[1])
        super().restore(state)
        self.tried = state["tried"].copy()
