"""The private consensus: one noisy secure sum, solved once, and graphs that stay at home.

    enrolment, keys (2), the sum (3), the public result (1): seven messages a device, no rounds.

The server sees the sum over all clients of their statistics, with the noise of one central
mechanism in it, and makes the consensus of it. Every client is sent the consensus and makes its own
graph of it and its raw data; only simulated ones send that back, to be evaluated. With a held-out
score a second, small sum follows (three more messages): of how many held-out signals the consensus
explains, and how many clients it helped.

What is computed from the sum is the study's (`apps.consensus_graph.private`), given as functions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, MetricRecord, RecordDict
from flwr.serverapp import Grid
from numpy.typing import NDArray

from trellis.strategies.core import wire
from trellis.strategies.core.base import BadReply, Client, Row
from trellis.strategies.core.one_sum import OneSum
from trellis.strategies.core.sums import noise_in

from .orders import SCORE, STATISTIC

Vector = NDArray[np.float64]

# Held-out signals that the consensus explains better than no graph; clients whom it helped.
SCORES = (2,)


@dataclass(frozen=True)
class Shared:
    """What was made of the sum.

    Attributes
    ----------
    consensus : (p,)
    noise : how much of it is in what the consensus is made of
    signals : number that the sum was divided by; not more than were declared
    """

    consensus: Vector
    noise: float
    signals: int


class PrivateConsensus(OneSum):
    """One noisy sum for the graph that clients share (methods ``fedgl`` and ``fedavg``).

    Parameters
    ----------
    parts : the arrays that clients of d nodes add to the sum, by name
    make : the consensus from the sum, the number of signals in it and the noise of an entry
    learning : how many of a client's signals are learnt from, of all that it has
    scored : make the second sum as well
    """

    def __init__(
        self,
        *args: Any,
        parts: Callable[[int], dict[str, tuple[int, ...]]],
        make: Callable[[Mapping[str, Vector], int, float], Shared],
        learning: Callable[[int], int],
        scored: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(*args, **kwargs)
        self.parts, self.make, self.learning, self.scored = parts, make, learning, scored

    def begin(self, clients: Sequence[Client]) -> None:
        """Start from nothing: no graph is known before the sum."""
        d = len(clients[0].variables)
        p = d * (d - 1) // 2
        self.consensus, self.relative_noise = np.zeros(p), 0.0
        self.declared = self.signals = 0  # in the sum: as clients declare, and as it was divided by
        self.own, self.alone = np.zeros((len(clients), p)), np.zeros((len(clients), p))
        self.gathered = np.zeros(len(clients), dtype=bool)
        self.gamma = np.zeros(len(clients))
        self.pulls = np.full(len(clients), np.nan)
        self.gains = np.full(len(clients), np.nan)

    @property
    def weights(self) -> Vector:
        """Every client's graph (I, p): its own, or where there are none the consensus."""
        return self.own if self.at_home else np.tile(self.consensus, (len(self.gamma), 1))

    def layout(self) -> dict[str, tuple[int, ...]]:
        """Return what a client adds to the sum."""
        return self.parts(len(self.clients[0].variables))

    def payload(self, server_round: int, client: int) -> RecordDict:
        """Ask for the statistic; nothing needs to be told for it."""
        return RecordDict({"order": ConfigRecord({"round": server_round, "sum": STATISTIC})})

    def solve(self, total: Mapping[str, Vector], clients: Sequence[int]) -> Row:
        """Make the consensus from the sum over ``clients``."""
        count = sum(self.learning(self.clients[client].counted) for client in clients)
        shared = self.make(total, count, self.noise)
        self.consensus, self.relative_noise = shared.consensus, shared.noise
        self.declared, self.signals = count, shared.signals
        return {
            "consensus-edges": float(np.count_nonzero(self.consensus)),
            "noise": self.relative_noise,
        }

    def gather(self, grid: Grid, server_round: int) -> Row:
        """Gather the sum, and where it is asked for that of the scores."""
        row = super().gather(grid, server_round)
        return row | self._score(grid, server_round) if self.scored else row

    def public_record(self) -> RecordDict:
        """Return the consensus, and how much noise is in it."""
        arrays = {"consensus": self.consensus, "noise": np.array([self.relative_noise])}
        return RecordDict({"arrays": wire.record(arrays)})

    def take_personal(self, client: int, content: RecordDict) -> None:
        """Take a simulated client's graph, for evaluation."""
        record = content["arrays"]
        graphs = {}
        for name in ("weights", "alone"):
            if not isinstance(record, ArrayRecord) or name not in record:
                raise BadReply(f"{name} is missing")
            graphs[name] = wire.unpack(record[name])
            wire.check_reals(graphs[name], name, self.consensus.shape)
            if np.min(graphs[name]) < 0.0:
                raise BadReply(f"{name} has a negative entry, {np.min(graphs[name]):g}")
        self.own[client], self.alone[client] = graphs["weights"], graphs["alone"]
        self.gathered[client] = True
        summary = content.get("summary")
        if isinstance(summary, MetricRecord):
            known = {key: float(value) for key, value in summary.items()}  # type: ignore[arg-type]
            self.gamma[client] = known.get("gamma", 0.0)
            self.pulls[client] = known.get("pull", np.nan)
            self.gains[client] = known.get("gain", np.nan)

    def _score(self, grid: Grid, server_round: int) -> Row:
        """Gather how many held-out signals the consensus explains, and whom it helped."""
        order = ConfigRecord({"round": server_round, "sum": SCORE})
        asked = {
            client: RecordDict({"order": order, **self.public_record()})
            for client in self.participants(server_round)
        }
        found = self.secure_sum(grid, asked, server_round, {"scores": SCORES})
        self.progress.bytes_up += found.bytes_up
        self.progress.bytes_down += found.bytes_down
        counts = [self.clients[client].counted for client in found.survivors]
        held = sum(count - self.learning(count) for count in counts)
        explained, helped = found.total["scores"]
        noise = noise_in(found)
        row = {"held-out-noise": noise / max(held, 1), "held-out": float(explained) / max(held, 1)}
        if self.at_home:
            row["helped"] = float(helped) / len(counts)
            row["helped-noise"] = noise / len(counts)
        return row

    def state(self) -> dict[str, NDArray[Any]]:
        """Return what is public of the result."""
        return {"consensus": self.consensus, "noise": np.array([self.relative_noise])}

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Take back `state`; clients make their own graphs again."""
        if state["consensus"].shape != self.consensus.shape:
            raise ValueError(f"consensus in the checkpoint has shape {state['consensus'].shape}")
        self.consensus = state["consensus"].copy()
        self.relative_noise = float(state["noise"][0])


class AloneAtHome(PrivateConsensus):
    """Every client learns alone, at home (method ``igl``): nothing is released or spent."""

    def begin(self, clients: Sequence[Client]) -> None:
        """Start, and be done: there are no rounds."""
        super().begin(clients)
        self.progress.converged = True

    def exhausted(self) -> bool:
        """Return True: no sum is made."""
        return True

    def public_record(self) -> RecordDict:
        """Return nothing to learn from."""
        return RecordDict({"order": ConfigRecord({"alone": True})})
