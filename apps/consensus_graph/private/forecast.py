"""How noisy the consensus will be, in units of what one signal says."""

from __future__ import annotations

import math
from collections.abc import Sequence

from trellis.apps.common.private.forecast import Forecast, forecast
from trellis.apps.consensus_graph.config import ConsensusGraphConfig
from trellis.privacy.accounting.sampled import ratio_for
from trellis.privacy.secagg.graph import expected_noisers

from .pooled import sensitivity


def forecast_of(
    config: ConsensusGraphConfig, counts: Sequence[int], nodes: int, epsilon: float | None = None
) -> Forecast:
    """Return the forecast for clients with ``counts`` signals on ``nodes`` nodes.

    One signal's squared difference has a standard deviation of sqrt(2) times its mean.
    """

    def noise(value: float) -> float:
        return relative_noise(config, counts, nodes, value) / math.sqrt(2.0)

    return forecast(noise, counts, config.epsilon if epsilon is None else epsilon)


def relative_noise(
    config: ConsensusGraphConfig, counts: Sequence[int], nodes: int, epsilon: float
) -> float:
    """Return the noise in an entry of the pooled statistic over its mean entry, ``clip = 0``.

    (d - 1) sqrt(n / m) D / (r T) for T signals of n clients, of which the noise of m is counted,
    the sensitivity D and the ratio r of the release (`pooled`).
    """
    clients = len(counts)
    ratio = ratio_for(epsilon, config.delta) * math.sqrt(config.statistic_share)
    counted = expected_noisers(clients, config.dropout, config.colluding)
    noise = math.sqrt(clients / counted) * sensitivity(0.0) / ratio
    return (nodes - 1) * noise / sum(counts)
