"""(8) solved at the server from every client's statistic: the rounds of `strategy` in one place.

Where clients' statistics are released, each with its own noise (``privacy = "sound"``,
``release = "each"``), a round tells the server nothing new: what a client would answer it can
compute. So clients send their noisy statistic once, with their enrolment, and the alternating
updates (13), (19), (20) run here until they settle, to the same graphs, bit for bit.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, RecordDict

from trellis.strategies.core import wire
from trellis.strategies.core.base import BadReply, Client, Row

from .strategy import ConsensusGraph, GraphReply, Vector

# A client's graph and objective, from its statistic, the pull and the consensus: (13).
LocalSolve = Callable[[Vector, float, Vector], tuple[Vector, float]]


class ReleasedStatistics(ConsensusGraph):
    """`ConsensusGraph` in one exchange.

    Parameters
    ----------
    local : solves (13) for one client
    """

    def __init__(self, *args: Any, local: LocalSolve, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.local_solve = local

    def admit(self, client: Client) -> bool:
        """Return False: there is one exchange, and it is over."""
        return False

    def opening(self) -> RecordDict | None:
        """Ask with enrolment: there is nothing else to ask."""
        return self.payload(1, 0)

    def payload(self, server_round: int, client: int) -> RecordDict:
        """Ask for the client's released statistic."""
        return RecordDict({"order": ConfigRecord({"round": server_round, "statistic": True})})

    def read_reply(self, client: int, content: RecordDict) -> GraphReply:
        """Return the statistic (p,) in the place of a graph; noise may have made it negative."""
        record = content["arrays"]
        if not isinstance(record, ArrayRecord) or "statistic" not in record:
            raise BadReply("statistic is missing")
        z = wire.unpack(record["statistic"])
        wire.check_reals(z, "statistic", self.consensus.shape)
        return GraphReply(z, np.nan)

    def update(self, server_round: int, replies: Mapping[int, GraphReply]) -> Row:
        """Run (13), (19) and (20) for the clients that answered until they settle."""
        row: Row = {}
        for step in range(1, self.plan.rounds + 1):
            graphs = {}
            for client, reply in replies.items():
                found = self.local_solve(reply.weights, self.pull(client), self.consensus)
                graphs[client] = GraphReply(*found)
            row = super().update(step, graphs)
            row["iterations"] = float(step)
            if self.plan.tolerance > 0.0 and row["change"] <= self.plan.tolerance:
                break
        return row

    def _has_converged(self, row: Row) -> bool:
        # Who failed to answer is not asked again: there is nothing to wait for.
        return self.plan.tolerance > 0.0 and self.settled(row)

    def exhausted(self) -> bool:
        """Return whether the one exchange is over: there is no second."""
        return bool(self.progress.rows)
