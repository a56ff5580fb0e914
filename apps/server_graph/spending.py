"""What noise between servers spends by the paper's formula and by the corrected one; see `release`.

Both grow as the square of the rounds and fall as 1 / sigma. What the paper's formula counts is in
the settings. The corrected one also grows with the root of M, the number of parameters, which is
known when clients have enrolled, and with ``iid`` with the largest number of neighbours.
"""

from __future__ import annotations

import math
from dataclasses import replace
from functools import lru_cache

import numpy as np

from trellis.apps.common.settings import ConfigError
from trellis.privacy.accounting.zcdp import zcdp_epsilon
from trellis.strategies.topology.graph import Topology

from .config import DEFAULT_SIGMA, ServerGraphConfig

_PRIVATE_SIDE = 1.0 + 1e-12  # of rounding


def paper_epsilon(config: ServerGraphConfig, server_round: int) -> float:
    """Return Theorem 2's epsilon after a round; sigma is a number, see `settled`."""
    if config.sigma == 0.0 or config.clip == 0.0:
        return math.inf
    _number(config)
    i = float(server_round)
    return math.sqrt(2.0) * config.step * config.clip * (1.0 + i) * i / config.sigma


def corrected_epsilon(
    config: ServerGraphConfig, server_round: int, size: int, releases: int = 1
) -> float:
    """Return epsilon at ``delta`` of all rounds up to ``server_round``; sigma is a number.

    Parameters
    ----------
    size : M
    releases : messages a round with noise of their own, see `releases_in`
    """
    if config.sigma == 0.0 or config.clip == 0.0:
        return math.inf
    _number(config)
    i = float(server_round)
    scale = config.sigma / math.sqrt(2.0)
    first = _moved(config, size) / scale  # epsilon_1; epsilon_j = j epsilon_1
    pure = first * i * (i + 1.0) / 2.0
    rho = 0.5 * first**2 * i * (i + 1.0) * (2.0 * i + 1.0) / 6.0
    return min(releases * pure, zcdp_epsilon(releases * rho, config.delta))


def epsilons(
    config: ServerGraphConfig, graph: Topology, server_round: int, size: int
) -> dict[str, float]:
    """Return what is spent up to a round by both formulas; nothing if there is no such noise."""
    releases = releases_in(config, graph)
    if not releases or config.clip == 0.0 or config.sigma == 0.0:
        return {}
    config = settled(config, size)
    return {
        "epsilon-paper": paper_epsilon(config, server_round),
        "epsilon-corrected": corrected_epsilon(config, server_round, size, releases),
    }


def releases_in(config: ServerGraphConfig, graph: Topology) -> int:
    """Return how many messages of a server have noise of their own in a round, at most.

    One with ``hybrid``, as many as a server has neighbours with ``iid``; none with other methods.
    """
    return {"hybrid": 1, "iid": int(np.max(graph.degree))}.get(config.method, 0)


@lru_cache(maxsize=64)
def settled(config: ServerGraphConfig, size: int) -> ServerGraphConfig:
    """Return the settings with numbers for step and sigma, for a model of ``size``.

    Raises
    ------
    ConfigError
        For a sigma that is given and with which all rounds spend more than epsilon.
    """
    if config.is_auto("step"):
        config = replace(config, step=config.pace(size))
    if not config.row.has("sigma"):
        return config
    if not config.row.has("epsilon"):
        return replace(config, sigma=DEFAULT_SIGMA) if config.is_auto("sigma") else config
    i = float(config.rounds)
    needed = math.sqrt(2.0) * config.step * config.clip * (1.0 + i) * i / config.epsilon
    needed *= _PRIVATE_SIDE
    if config.is_auto("sigma"):
        return replace(config, sigma=needed)
    spent = paper_epsilon(config, config.rounds)
    if spent > config.epsilon * (1.0 + 1e-9):
        raise ConfigError(
            f"sigma={config.sigma:g}: {config.rounds} rounds would spend epsilon {spent:.4g}, more "
            f"than epsilon={config.epsilon:g}; set sigma=auto (here {needed:.4g}), lower rounds, "
            f"step or clip, or set epsilon to {spent:.4g} if that is meant"
        )
    return config


def _number(config: ServerGraphConfig) -> None:
    if config.is_auto("sigma"):
        raise ValueError("sigma=auto: `settled` has the number")


def _moved(config: ServerGraphConfig, size: int) -> float:
    """Return how far one client's data moves a server's model in one round, in l1."""
    return math.sqrt(size) * (2.0 * config.step * config.clip * config.local_steps)
