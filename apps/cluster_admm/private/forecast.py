"""How noisy the moments will be, in units of what one sample says [GG].

The sum over samples of d features, rows about as long as B and targets about as wide as Y, has a
cross moment of length about c / sqrt(d) per sample (of a normal target c = 0.68 is left by clipping
at one deviation), and noise of length 2 K G sqrt(d) / r for a ratio r. K^2 is how many clients
there are for each whose noise is counted, G^2 = 2 Q / (1 + Q) what Q clusters' slots add to the
noise in what clusters share, at b^2 = 1/2. A sample's own deviation is sqrt(d) times its mean, so

    s = 2 K G sqrt(d) / (c r n)

in units of that, for n samples of clusters that are nearly alike.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from trellis.apps.common.private.forecast import Forecast, forecast
from trellis.privacy.accounting.sampled import ratio_for
from trellis.strategies.cluster_admm.moments import ClusterMoments

from ..config import ClusterAdmmConfig
from ..data import held_out_count
from .budget import PART

_LEFT_BY_CLIPPING = 0.68


def forecast_of(config: ClusterAdmmConfig, counts: Sequence[int], size: int) -> Forecast:
    """Return the forecast for clients with ``counts`` samples of ``size`` features."""
    learned = [count - held_out_count(count, config.held_out) for count in counts]
    counted = max(1.0 - config.dropout - config.colluding, 1e-3)
    slots = 2.0 * config.task_count / (1.0 + config.task_count)
    parts = 1.0 - PART * (bool(config.held_out) + bool(config.find_clips))

    def noise(epsilon: float) -> float:
        ratio = ratio_for(epsilon, config.delta) * math.sqrt(parts)
        signal = _LEFT_BY_CLIPPING * ratio * sum(learned)
        return 2.0 * math.sqrt(slots / counted * size) / signal

    return forecast(noise, learned, config.epsilon)


def sum_warnings(config: ClusterAdmmConfig, strategy: ClusterMoments) -> list[str]:
    """Return what a reader of the result must know, from what was released alone."""
    found: list[str] = []
    releases = strategy.releases
    if releases.found is None:
        return []
    if releases.found.common == 0.0 or not np.any(releases.models):
        found.append(
            "Nothing but noise was seen in the sums: the models are zero, and devices learn alone."
        )
    elif config.task_count > 1 and releases.found.apart == 0.0:
        found.append(
            "The sums do not tell the clusters apart: all have the same model. With more samples, "
            "or a larger epsilon, they may."
        )
    return found
