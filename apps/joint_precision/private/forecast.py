"""How noisy the consensus will be, in units of what one sample says."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from trellis.apps.common.private.forecast import Forecast, forecast
from trellis.privacy.accounting.sampled import ratio_for
from trellis.privacy.secagg.graph import expected_noisers

from ..config import JointPrecisionConfig
from .concordance import learning_count, sensitivity
from .consensus import sampling_error
from .score import learning_part


def forecast_of(config: JointPrecisionConfig, counts: Sequence[int], variables: int) -> Forecast:
    """Return the forecast for clients with ``counts`` samples of so many variables."""
    learned = [learning_count(count, config.held_out) for count in counts]
    typical = int(np.median(learned))
    one = sampling_error(typical) * math.sqrt(typical)  # of one sample

    def noise(epsilon: float) -> float:
        return noise_of_tau(config, learned, variables, epsilon) / one

    return forecast(noise, learned, config.epsilon)


def noise_of_tau(
    config: JointPrecisionConfig, counts: Sequence[int], variables: int, epsilon: float
) -> float:
    """Return the standard deviation of the noise in a tau of the consensus."""
    clients = len(counts)
    counted = expected_noisers(clients, config.dropout, config.colluding)
    ratio = ratio_for(epsilon, config.delta) * math.sqrt(learning_part(config.held_out))
    return sensitivity(variables) / ratio * math.sqrt(clients / counted) / sum(counts)
