"""What to expect of noisy sums, by numbers that are public, and what to say afterwards [GG].

Of n samples with d features, rows about as long as B and targets about as wide as Y, the first sum
has a cross moment of length about n c / sqrt(d) (of a normal target c = 0.68 is left by clipping at
one deviation), and noise of length sqrt(d) 2 K G / r for a ratio r. K^2 is how many clients there
are for each whose noise is counted, G^2 = 2 Q / (1 + Q) what Q clusters' slots add to the noise in
what clusters share, at b^2 = 1/2. Their quotient

    SNR = n c r / (2 K G d),        explained = SNR^2 / (1 + SNR^2)

goes with n / d: a model has d numbers, and every one of them needs its samples. By itself a client
with D samples explains about D / d. Both are of clusters that are nearly alike, and rough: the
figure ``private`` has what was measured.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from trellis.privacy.accounting.sampled import ratio_for
from trellis.strategies.cluster_admm.moments import ClusterMoments
from trellis.strategies.core.declared import Client

from ..config import ClusterAdmmConfig
from ..data import held_out_count
from .budget import PART

_LEFT_BY_CLIPPING = 0.68
EPSILONS = (0.3, 1.0, 3.0)
_SCALE = (0.03, 0.1, 0.2, 0.3, 0.5, 0.7, 1.0, 1.5, 2.0, 3.0, 5.0, 10.0)


def signal_to_noise(samples: float, size: int, epsilon: float, config: ClusterAdmmConfig) -> float:
    """Return the SNR of what clusters share, see the module."""
    counted = max(1.0 - config.dropout - config.colluding, 1e-3)
    slots = 2.0 * config.task_count / (1.0 + config.task_count)
    parts = 1.0 - PART * (bool(config.held_out) + bool(config.find_clips))
    ratio = ratio_for(epsilon, config.delta) * math.sqrt(parts)
    return samples * _LEFT_BY_CLIPPING * ratio * math.sqrt(counted / slots) / (2.0 * size)


def explained(snr: float) -> float:
    """Return the share of what a model can explain that one with this SNR does."""
    return snr**2 / (1.0 + snr**2)


def worth(config: ClusterAdmmConfig, samples: int, size: int, clients: int) -> float | None:
    """Return the least epsilon with which the private models explain more than a client alone."""
    by_itself = samples / max(clients, 1) / size
    for epsilon in _SCALE:
        if explained(signal_to_noise(samples, size, epsilon, config)) > by_itself:
            return epsilon
    return None


def forecast(config: ClusterAdmmConfig, samples: int, size: int, clients: int) -> str:
    """Return which epsilon is worth it for so many samples of so many features."""
    told = ", ".join(
        f"{explained(signal_to_noise(samples, size, epsilon, config)):.0%} at epsilon {epsilon:g}"
        for epsilon in EPSILONS
    )
    own = samples / max(clients, 1)
    text = (
        f"Forecast for {clients:,} clients with {samples:,} samples of {size} features: of what "
        f"models can explain, private ones explain about {told}"
    )
    if own >= size:
        return (
            f"{text}. With about {own:.0f} samples a client may learn as well by itself; devices "
            "choose by their own samples."
        )
    least = worth(config, samples, size, clients)
    text += f"; a client by itself about {own / size:.0%}."
    if least is None:
        return f"{text} At no epsilon up to {_SCALE[-1]:g} do private models beat that."
    return f"{text} Private models beat that from about epsilon {least:g} on."


def sum_warnings(
    config: ClusterAdmmConfig, strategy: ClusterMoments, clients: Sequence[Client]
) -> list[str]:
    """Return what a reader of the result must know, from what was released alone."""
    found, releases = [], strategy.releases
    if releases.found is None:
        return []
    held = [held_out_count(client.counted, config.held_out) for client in clients]
    samples = sum(client.counted for client in clients) - sum(held)
    found.append(forecast(config, samples, strategy.size, len(clients)))
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
