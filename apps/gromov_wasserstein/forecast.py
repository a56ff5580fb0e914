"""Which epsilon is worth it: what noise leaves of training and of bits, before anything is sent.

Training with noise in the sums. The mean over n graphs of gradients no longer than C has noise of
length, in units of C,

    z = 2 sqrt(K / m) sqrt(d) / (r n),      r = ratio_for(epsilon_training, delta, rounds)

with d weights, K clients, and m of them counted on for noise. Momentum averages over rounds, so a
run can learn at z somewhat above 1. On synthetic graphs (``break-even``, 3 seeds) noisy training
was within 0.11 of the accuracy of the same steps without noise up to z = 1.02, between 0.63 and
0.86 at z from 2.8 to 3.4, and at most 0.44, with a third by chance, from z = 8.6 on. These numbers
are of one data set: an order of magnitude.

Bits. A bit of a graph with n nodes has b = epsilon / (n m) and is wrong with probability
1 / (e^b + 1). From epsilon = n m log 3 on, three bits in four are right.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from trellis.privacy.accounting.sampled import ratio_for
from trellis.privacy.numerics import brentq
from trellis.privacy.secagg.graph import expected_noisers

from .config import GromovWassersteinConfig

ENOUGH, HOPELESS = 1.0, 8.0
_RIGHT_BITS = math.log(3.0)
_LARGEST = 1e4  # an epsilon beyond which nothing is forecast


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


def epsilon_for(
    config: GromovWassersteinConfig, size: int, graphs: int, clients: int, target: float = ENOUGH
) -> float:
    """Return the epsilon of a run at which z is ``target``; infinite where none does."""

    def excess(log_epsilon: float) -> float:
        return noise_length(config, size, graphs, clients, math.exp(log_epsilon)) - target

    low, high = math.log(1e-3), math.log(_LARGEST)
    if excess(high) > 0.0:
        return math.inf
    return math.exp(low if excess(low) < 0.0 else brentq(excess, low, high, xtol=1e-6))


def training_forecast(
    config: GromovWassersteinConfig, size: int, graphs: int, clients: int
) -> list[str]:
    """Return what to expect of noisy training, for people."""
    z = noise_length(config, size, graphs, clients)
    enough = epsilon_for(config, size, graphs, clients)
    at = f"epsilon = {enough:.2g}" if math.isfinite(enough) else "no epsilon"
    more = math.ceil(graphs * z / ENOUGH)
    text = (
        f"Noise in the mean gradient of {graphs} graphs is {z:.2g} times as long as the longest "
        f"gradient can be ({size} weights, {config.rounds} rounds, epsilon "
        f"{config.training_epsilon:g} of {config.epsilon:g})."
    )
    if z <= ENOUGH:
        return [f"{text} On synthetic graphs training is little worse for that much."]
    verdict = "next to nothing is learned" if z >= HOPELESS else "training suffers"
    return [
        f"{text} On synthetic graphs {verdict} at that. It is {ENOUGH:g} at {at} with these "
        f"graphs, or with some {more} graphs at this epsilon."
    ]


def bits_forecast(config: GromovWassersteinConfig, sizes: Sequence[int]) -> list[str]:
    """Return what to expect of the encoded embedding, for people."""
    middle = sorted(sizes)[len(sizes) // 2]
    rows = middle if config.budget_per == "graph" else 1
    share = config.bits_epsilon / config.epsilon
    wrong = 1.0 / (math.exp(min(config.bits_epsilon / rows, 50.0)) + 1.0)
    needed = rows * _RIGHT_BITS / share
    per = "graph" if config.budget_per == "graph" else "node"
    text = (
        f"With one bit a row, {100.0 * wrong:.0f} % of the bits of a graph of {middle} nodes are "
        "wrong (50 % are coin flips)."
    )
    if config.epsilon >= needed:
        return [text]
    return [
        f"{text} Three in four are right from epsilon = {needed:.2g} a {per} on; below, compare "
        "with the constant embedding before anything is concluded."
    ]
