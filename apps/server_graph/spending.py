"""What all rounds of noise between servers spend, and the sigma that spends epsilon; see `release`.

Both grow as the square of the rounds and fall as 1 / sigma. What the paper's formula counts is in
the settings. The sound one also grows with the root of M, the number of parameters, which is known
when clients have told their variables, and with ``iid`` with the largest number of neighbours. So
settings that spend too much whatever the model are refused when they are read, on devices too, and
all others before the first round, by every server for itself: the same M and graph give all of them
the same sigma.
"""

from __future__ import annotations

import math
from dataclasses import replace
from functools import lru_cache

from trellis.apps.common.settings import ConfigError
from trellis.privacy.accounting.zcdp import zcdp_epsilon, zcdp_rho

from .config import DEFAULT_SIGMA, ServerGraphConfig

_PRIVATE_SIDE = 1.0 + 1e-12  # of rounding


def paper_epsilon(config: ServerGraphConfig, server_round: int) -> float:
    """Return Theorem 2's epsilon after a round; sigma is a number, see `settled`."""
    if config.sigma == 0.0 or config.clip == 0.0:
        return math.inf
    _number(config)
    i = float(server_round)
    return math.sqrt(2.0) * config.step * config.clip * (1.0 + i) * i / config.sigma


def sound_epsilon(
    config: ServerGraphConfig, server_round: int, size: int, releases: int = 1
) -> float:
    """Return epsilon at ``delta`` of all rounds up to ``server_round``; sigma is a number.

    Parameters
    ----------
    size : M
    releases : messages a round with noise of their own: 1 for ``hybrid``, with ``iid`` as many as
        m has neighbours
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


@lru_cache(maxsize=64)
def settled(config: ServerGraphConfig, size: int, releases: int) -> ServerGraphConfig:
    """Return the settings with numbers for step and sigma; see `sound_epsilon` for the arguments.

    Raises
    ------
    ConfigError
        For a sigma that is given and with which all rounds spend more than epsilon.
    """
    if config.is_auto("step"):
        config = replace(config, step=config.pace(size))
    if config.privacy == "none" or config.sums or config.method not in ("hybrid", "iid"):
        return replace(config, sigma=DEFAULT_SIGMA) if config.is_auto("sigma") else config
    needed = _sigma_for(config, size, releases)
    if config.is_auto("sigma"):
        return replace(config, sigma=needed)
    if config.privacy == "paper":
        spent, about = paper_epsilon(config, config.rounds), ""
    else:
        spent = sound_epsilon(config, config.rounds, size, releases)
        about = f" with {size} parameters" + (f", {releases} neighbours" if releases > 1 else "")
    if spent > config.epsilon * (1.0 + 1e-9):
        raise ConfigError(
            f"sigma={config.sigma:g}: {config.rounds} rounds{about} would spend epsilon "
            f"{spent:.4g}, more than epsilon={config.epsilon:g} at delta={config.delta:g}; set "
            f"sigma=auto (here {needed:.4g}), lower rounds, step or clip, or set epsilon to "
            f"{spent:.4g} if that is meant"
        )
    return config


def _sigma_for(config: ServerGraphConfig, size: int, releases: int) -> float:
    """Return the least sigma with which all rounds spend epsilon."""
    i = float(config.rounds)
    if config.privacy == "paper":
        needed = math.sqrt(2.0) * config.step * config.clip * (1.0 + i) * i / config.epsilon
        return needed * _PRIVATE_SIDE
    # epsilon_1 by either way of adding up; the larger is the less noise.
    pure = config.epsilon / (releases * i * (i + 1.0) / 2.0)
    squares = releases * i * (i + 1.0) * (2.0 * i + 1.0) / 6.0
    by_zcdp = math.sqrt(2.0 * zcdp_rho(config.epsilon, config.delta) / squares)
    return math.sqrt(2.0) * _moved(config, size) / max(pure, by_zcdp) * _PRIVATE_SIDE


def _number(config: ServerGraphConfig) -> None:
    if config.is_auto("sigma"):
        raise ValueError("sigma=auto: `settled` has the number")


def _moved(config: ServerGraphConfig, size: int) -> float:
    """Return how far one client's data moves a server's model in one round, in l1."""
    return math.sqrt(size) * (2.0 * config.step * config.clip * config.local_steps)
