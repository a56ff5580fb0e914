"""What to expect of an epsilon before anything is spent: computed from public numbers.

The consensus is made of a statistic with noise of known size. Over the mean entry of the pooled
statistic, that is

    nu = (d - 1) s / T,     s = sqrt(n / m) D / r,

with T signals in all, n clients of which the noise of m is counted, D the sensitivity and r the
ratio of the release (`pooled`). A client's own statistic of N signals has a sampling error of
sqrt(2 / N). What decides is the *quotient* nu / sqrt(2 / N): how noisy the consensus is in units of
what a client does not know anyhow. Measured with graphs of 20 nodes that share half of their edges
(``trellis paper consensus-graph break-even``, 20 and 50 signals, 5 to 1000 clients): below `CLEAR`
graphs made at home are better than those learnt alone by .1 in MCC and more, from there to
`NOTHING` by .08 to .02, and beyond they are the same.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from trellis.apps.consensus_graph.config import ConsensusGraphConfig
from trellis.privacy.accounting.sampled import ratio_for
from trellis.privacy.numerics import brentq
from trellis.privacy.secagg.graph import expected_noisers

from .pooled import sensitivity

CLEAR, NOTHING = 0.3, 1.0
_EPSILONS = (1e-3, 1e3)


@dataclass(frozen=True)
class Forecast:
    """What a run may expect.

    Attributes
    ----------
    clients, signals, nodes, epsilon : of the run; ``signals`` is the median client's
    quotient : noise of the consensus over a client's own sampling error
    worth : smallest epsilon at which the quotient is `CLEAR`
    needed : clients at which the quotient is `CLEAR` with this epsilon, as many signals each
    """

    clients: int
    signals: int
    nodes: int
    epsilon: float
    quotient: float
    worth: float
    needed: int

    def text(self) -> str:
        """Return the forecast in words."""
        who = f"{self.clients:,} clients with {self.signals:,} signals on {self.nodes} nodes"
        head = (
            f"Forecast for {who} at epsilon {self.epsilon:g}: the noise of the consensus is "
            f"{self.quotient:.2g} times the sampling error of a client's own statistic. "
        )
        if self.quotient <= CLEAR:
            return (
                head + "That is little: expect graphs made at home to be clearly better than "
                f"those learnt alone; an epsilon of {self.worth:.2g} would do."
            )
        middle = (
            "Expect graphs a little better than learnt alone"
            if self.quotient < NOTHING
            else "Expect graphs as good as learnt alone: devices will not use this consensus"
        )
        return (
            f"{head}{middle}. Worth it: epsilon {self.worth:.2g}, or about {self.needed:,} clients."
        )


def forecast_of(
    config: ConsensusGraphConfig, counts: Sequence[int], nodes: int, epsilon: float | None = None
) -> Forecast:
    """Return the forecast for clients with ``counts`` signals on ``nodes`` nodes."""
    epsilon = config.epsilon if epsilon is None else epsilon
    typical = int(np.median(counts))

    def quotient(value: float) -> float:
        noise = relative_noise(config, counts, nodes, value)
        return noise / math.sqrt(2.0 / typical)

    def excess(log_epsilon: float) -> float:
        return math.log(quotient(math.exp(log_epsilon)) / CLEAR)

    low, high = (math.log(value) for value in _EPSILONS)
    if excess(low) <= 0.0:
        worth = _EPSILONS[0]
    else:
        worth = math.exp(brentq(excess, low, high)) if excess(high) < 0.0 else math.inf
    found = quotient(epsilon)
    # Clients add noise as the root of their number and signals as the number itself, but for those
    # that may drop out; so the quotient falls as 1 / clients where its shares m / n stay.
    needed = math.ceil(len(counts) * found / CLEAR)
    return Forecast(len(counts), typical, nodes, epsilon, found, worth, needed)


def relative_noise(
    config: ConsensusGraphConfig, counts: Sequence[int], nodes: int, epsilon: float
) -> float:
    """Return nu, see the module; without a held-out score and with ``clip = 0``."""
    clients = len(counts)
    ratio = ratio_for(epsilon, config.delta) * math.sqrt(config.statistic_share)
    counted = expected_noisers(clients, config.dropout, config.colluding)
    noise = math.sqrt(clients / counted) * sensitivity(0.0) / ratio
    return (nodes - 1) * noise / sum(counts)
