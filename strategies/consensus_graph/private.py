"""The private consensus as a Flower strategy: one sum of all clients' statistics, solved once.

What is computed from the sum is the study's (`apps.consensus_graph.private`), given as a function.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from flwr.app import ArrayRecord, MetricRecord, RecordDict
from numpy.typing import NDArray

from trellis.strategies.core import wire
from trellis.strategies.pooled import Facts, PooledStrategy, Terms

Vector = NDArray[np.float64]


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


class PooledConsensus(PooledStrategy):
    """The graph that all clients share, from one sum over all of them.

    Messages are those of `PooledStrategy`. ``Result.arrays`` has ``consensus`` (p,) and ``noise``
    (1,), the standard deviation of the noise in an entry of the pooled statistic over its mean
    entry. The first score counts held-out signals that the consensus explains better than no graph.

    Parameters
    ----------
    make : the consensus from the sum, the number of signals in it and the noise of an entry
    parts : names and shapes of the terms of the sum
    options : of `PooledStrategy`
    """

    judged = ("consensus", "noise")

    def __init__(
        self,
        make: Callable[[Mapping[str, Vector], int, float], Shared],
        parts: Mapping[str, tuple[int, ...]],
        **options: Any,
    ) -> None:
        super().__init__(parts, **options)
        self.make = make
        # Signals in the sum: as clients declared them, and as it was divided by.
        self.declared = self.signals = 0

    def solve(self, total: Terms, facts: Facts) -> tuple[dict[str, NDArray[Any]], Facts]:
        """Solve (8) from the sum."""
        self.declared = int(facts["num-examples"])
        shared = self.make(total, self.declared, facts["noise"])
        self.signals = shared.signals
        found = {"consensus": shared.consensus, "noise": np.array([shared.noise])}
        return found, {
            "consensus-edges": int(np.count_nonzero(shared.consensus)),
            "noise": shared.noise,
        }


class PersonalGraphs:
    """Graphs that clients made on their devices; simulated ones send them, to be evaluated."""

    def __init__(self, clients: int, size: int) -> None:
        self.own, self.alone = np.zeros((clients, size)), np.zeros((clients, size))
        self.gathered = np.zeros(clients, dtype=bool)
        self.gamma = np.zeros(clients)
        self.pulls = np.full(clients, np.nan)
        self.gains = np.full(clients, np.nan)

    def take(self, client: int, content: RecordDict) -> None:
        """Take a simulated client's graphs; raise `BadReply` to reject them."""
        record = content["arrays"]
        graphs = {}
        for name in ("weights", "alone"):
            if not isinstance(record, ArrayRecord) or name not in record:
                raise wire.BadReply(f"{name} is missing")
            graphs[name] = wire.unpack(record[name])
            wire.check_reals(graphs[name], name, self.own.shape[1:])
            if np.min(graphs[name]) < 0.0:
                raise wire.BadReply(f"{name} has a negative entry, {np.min(graphs[name]):g}")
        self.own[client], self.alone[client] = graphs["weights"], graphs["alone"]
        self.gathered[client] = True
        summary = content.get("summary")
        if isinstance(summary, MetricRecord):
            known = {key: float(value) for key, value in summary.items()}  # type: ignore[arg-type]
            self.gamma[client] = known.get("gamma", 0.0)
            self.pulls[client] = known.get("pull", np.nan)
            self.gains[client] = known.get("gain", np.nan)
