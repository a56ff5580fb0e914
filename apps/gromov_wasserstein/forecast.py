"""What noise will leave of training and of encoded embeddings.

The mean over n graphs of gradients of length C at most has noise of length, in units of C,

    z = 2 sqrt(K / m) sqrt(d) / (r n),      r = ratio_for(epsilon_training, delta, rounds)

with d weights, K clients, and m of them counted on for noise. Momentum averages it over rounds.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from trellis.apps.common.private.forecast import Forecast, forecast
from trellis.privacy.accounting.sampled import ratio_for
from trellis.privacy.secagg.graph import expected_noisers

from .config import GromovWassersteinConfig


def forecast_of(config: GromovWassersteinConfig, counts: Sequence[int], size: int) -> Forecast:
    """Return the forecast of training ``size`` weights on clients' ``counts`` graphs."""

    def noise(epsilon: float) -> float:
        z = noise_length(config, size, sum(counts), len(counts), epsilon)
        return z / math.sqrt(config.rounds)

    return forecast(noise, counts, config.epsilon)


def noise_length(
    config: GromovWassersteinConfig, size: int, graphs: int, clients: int, epsilon: float = 0.0
) -> float:
    """Return z for ``size`` weights and so many graphs to train with; see the module.

    ``epsilon`` is of the run; 0 takes the setting.
    """
    ratio = ratio_for(
        config.training_share * (epsilon or config.epsilon), config.delta, config.rounds
    )
    counted = expected_noisers(clients, config.dropout, config.colluding)
    return 2.0 * math.sqrt(clients / counted * size) / (ratio * graphs)


def wrong_bits(config: GromovWassersteinConfig, nodes: int) -> float:
    """Return the share of wrong bits of an encoded graph; half of them are coin flips.

    With one bit a row it is 1 / (e^b + 1), b = epsilon over the rows that share it.
    """
    rows = nodes if config.budget_per == "graph" else 1
    return 1.0 / (math.exp(min(config.bits_epsilon / rows, 50.0)) + 1.0)
