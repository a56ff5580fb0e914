"""How the epsilon of the method ``moments`` is divided, and what a release is about [GG].

Every noisy sum of ratio r (sensitivity over noise) is r^2 / 2-zCDP, and they add up. With R the
ratio of one release that spends all of (epsilon, delta),

    one for scales           r^2 = R^2 / 10, where clips are to be found
    T that teach             r^2 = R^2 rest / T each
    one that scores          r^2 = R^2 / 10, where samples are held out
    one for units            r^2 = R^2 / 10, where the scale of features is to be found

so that the whole run spends epsilon at most, whatever a server does: a device makes no more sums
than that, of each kind.
"""

from __future__ import annotations

import math

from trellis.privacy.accounting.sampled import ratio_for

from ..config import ClusterAdmmConfig

SCALES = "counts of how long samples are"
TEACHES = "moments of bounded samples"
SCORES = "score of the models on held-out samples"
PART = 0.1


def scales_ratio(config: ClusterAdmmConfig) -> float:
    """Return the ratio of the sum that finds B and Y."""
    return ratio_for(config.epsilon, config.delta) * math.sqrt(PART)


def units_ratio(config: ClusterAdmmConfig) -> float:
    """Return the ratio of the sum that finds the scale of features."""
    return ratio_for(config.epsilon, config.delta) * math.sqrt(PART)


def teaching_ratio(config: ClusterAdmmConfig) -> float:
    """Return the ratio of every sum that teaches."""
    others = bool(config.held_out), bool(config.find_clips), config.units() == "noisy"
    rest = 1.0 - PART * sum(others)
    return ratio_for(config.epsilon, config.delta) * math.sqrt(rest / config.exchange_count)


def scoring_ratio(config: ClusterAdmmConfig) -> float:
    """Return the ratio of the sum that scores."""
    return ratio_for(config.epsilon, config.delta) * math.sqrt(PART)
