"""What to expect of noisy sums, by numbers that are public, and what to say afterwards [GG].

Of n samples with d features in Q clusters that are alike, the first sum has a cross moment of length
about n c / sqrt(d) (rows of length B, targets about as wide as Y; c = 0.68 of a normal target is
left by clipping at one deviation), and noise of length sqrt(d) 2 K / r for a ratio r, with K^2 the
clients over those whose noise is counted. Their quotient

    SNR = n c r / (2 K d)

goes with n / d: a model has d numbers, and d more samples are needed for each. With SNR = 1 half of
the variance of the targets that a model can explain is explained by the common model.
"""

from __future__ import annotations

import math

import numpy as np

from privacy.accounting.sampled import ratio_for
from strategies.cluster_admm.summed import SummedClusters

from ..config import ClusterAdmmConfig

_LEFT_BY_CLIPPING = 0.68
EPSILONS = (0.3, 1.0, 3.0)


def signal_to_noise(samples: float, size: int, epsilon: float, config: ClusterAdmmConfig) -> float:
    """Return the SNR of all clusters' sum, see the module."""
    counted = max(1.0 - config.dropout - config.colluding, 1e-3)
    excess = 1.0 / math.sqrt(counted)
    ratio = ratio_for(epsilon, config.delta)
    return samples * _LEFT_BY_CLIPPING * ratio / (2.0 * excess * size)


def explained(snr: float) -> float:
    """Return the share of what a model can explain that one with this SNR does."""
    return snr**2 / (1.0 + snr**2)


def samples_needed(share: float, size: int, epsilon: float, config: ClusterAdmmConfig) -> int:
    """Return how many samples, over all clients, a model needs to explain ``share``."""
    snr = math.sqrt(share / (1.0 - share))
    return math.ceil(snr / signal_to_noise(1.0, size, epsilon, config))


def forecast(config: ClusterAdmmConfig, samples: int, size: int) -> str:
    """Return which epsilon is worth it for so many samples of so many features."""
    told = ", ".join(
        f"{explained(signal_to_noise(samples, size, epsilon, config)):.0%} at epsilon {epsilon:g}"
        for epsilon in EPSILONS
    )
    needed = samples_needed(0.9, size, config.epsilon, config)
    return (
        f"{samples:,} samples of {size} features over all clients: expect the models to explain "
        f"{told} of what they can explain. For 90% at epsilon {config.epsilon:g} it takes about "
        f"{needed:,} samples."
    )


def sum_warnings(config: ClusterAdmmConfig, strategy: SummedClusters) -> list[str]:
    """Return what a reader of the result must know, from what was released alone."""
    found, releases = [], strategy.releases
    if releases.found is None:
        return []
    samples = int(sum(strategy.task.taught(client.count) for client in strategy.clients))
    found.append(forecast(config, samples, strategy.size))
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
