"""The paper's noise as printed: every client noises the model that it sends (12).

**Not private.** A scheduled client sends w_k + N(0, sigma_n^2 I), its solution of (4) with

    sigma_n^2 = zeta^n Delta^2 / (2 phi_0),  Delta = 2 C / (D rho) (43):  round n is
    phi_0 / zeta^n - zCDP  (47),

and rounds add up (`privacy.accounting.zcdp`; the paper's total (48) has the growth the wrong way
round). C = ``bound`` is taken as given and is **not a bound**: the gradient of (y - x'w)^2 grows
with x, y and w, and nothing limits them. It is here for comparison with the article, under
``privacy=paper``, and stands nowhere else. Neighbouring: one of a client's D samples replaced.

A client may take part in every round: the server draws which ones do, so nothing is credited for
being left out. phi_0 is such that all rounds spend ``epsilon`` at most, each round's own epsilon
composed by the ledger's (32), which is looser than zCDP; or it is refused. Only numbers of the
settings come in, so that server and devices choose the same phi_0.
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Iterable
from dataclasses import replace
from functools import lru_cache

import numpy as np
from flwr.app import ConfigRecord, Context, Message, RecordDict
from numpy.typing import NDArray

from trellis.apps.common.seeds import generator
from trellis.privacy.accounting.composition import kairouz_composition
from trellis.privacy.accounting.events import PrivacyEvent
from trellis.privacy.accounting.zcdp import (
    decaying_rho,
    decaying_sigma,
    decaying_start,
    decaying_total,
    decaying_total_of,
    zcdp_epsilon,
    zcdp_rho,
)
from trellis.privacy.mechanisms.gaussian import gaussian_epsilon
from trellis.privacy.mechanisms.noise import NoiseSource, fresh_noise
from trellis.privacy.numerics import brentq
from trellis.strategies.core import wire
from trellis.strategies.core.robust import clipped

from .config import ClusterAdmmConfig
from .local import solved

Array = NDArray[np.float64]

WORRYING = 10.0  # epsilon
_LEAST_EPSILON = 1e-12  # of one event; an event must claim something
_MOST_RATIO = 1e3  # beyond, one round's epsilon is more than anybody asks for
_SMALLEST = 1e-300


def model(message: Message, context: Context) -> Message:
    """Answer ``train``: the solution of (4) with the noise of (12)."""
    found = solved(message, context)
    config, node = found.config, found.client.node
    event = round_event(config, found.server_round, found.count, found.rho)
    source: NoiseSource
    if node.simulated:
        source = round_noise(found.seed, node.partition, found.server_round)
    else:
        # Fresh noise makes every answer a release of its own, also where a round is asked twice.
        source, event = fresh_noise(), replace(event, name=f"{event.name}-{secrets.token_hex(8)}")
    w = found.w + event.sigma * source.standard_normal(found.w.size)
    # After the noise: clipping what is released tells nothing more.
    w = clipped(w, found.v / found.rho, config.norm_bound)
    content = RecordDict({"arrays": wire.record({"model": w}), "metrics": found.metrics()})
    content[f"privacy.{event.name}"] = ConfigRecord(event.as_record())
    return Message(content, reply_to=message)


def round_noise(seed: int, partition: int, server_round: int) -> NoiseSource:
    """Return where a simulated client's noise of a round comes from."""
    return generator(seed, "noise", partition, server_round)


def sensitivity(config: ClusterAdmmConfig, count: int, rho: float) -> float:
    """Return Delta of (43) for ``count`` samples, which holds only where C does."""
    return 2.0 * config.bound / (count * rho)


def round_sigma(config: ClusterAdmmConfig, server_round: int, count: int, rho: float) -> float:
    """Return sigma_n of (12)."""
    distance = sensitivity(config, count, rho)
    return decaying_sigma(config.phi_start, config.zeta, distance, server_round)


def round_event(
    config: ClusterAdmmConfig, server_round: int, count: int, rho: float
) -> PrivacyEvent:
    """Return the release of one round (from 1) by a client of ``count`` samples."""
    # A later round has less noise: a server must not get it by a number that is not in the run.
    if not 1 <= server_round <= config.rounds:
        raise ValueError(f"round {server_round}: the run's rounds are 1 to {config.rounds}")
    distance = sensitivity(config, count, rho)
    sigma = round_sigma(config, server_round, count, rho)
    return PrivacyEvent(
        name=f"round-{server_round}",
        what="model of one primal step (not a valid guarantee)",
        round=server_round,
        epsilon=max(gaussian_epsilon(sigma, config.delta, distance), _LEAST_EPSILON),
        delta=config.delta,
        sigma=sigma,
        sensitivity=distance,
    )


# --- what all rounds spend ----------------------------------------------------------------------


@lru_cache(maxsize=256)
def spent_by_rounds(phi0: float, zeta: float, rounds: int, delta: float) -> float:
    """Return the epsilon of a client that takes part in all rounds, as the ledger tells it."""
    total = decaying_total(phi0, zeta, rounds)
    if not math.isfinite(total):
        return zcdp_epsilon(total, delta)
    ratios = [math.sqrt(2.0 * decaying_rho(phi0, zeta, n)) for n in range(1, rounds + 1)]
    if max(ratios) > _MOST_RATIO:
        return math.inf
    each = [max(gaussian_epsilon(1.0, delta, ratio), _LEAST_EPSILON) for ratio in ratios]
    return kairouz_composition(each, [delta] * rounds, delta)[0]


@lru_cache(maxsize=256)
def phi_for(epsilon: float, zeta: float, rounds: int, delta: float) -> float:
    """Return the largest phi_0 with which all rounds spend ``epsilon`` at most; 0 for none.

    There is none where ``zeta`` lets the last round's noise fall to nothing a float can hold.
    """
    start = decaying_start(zcdp_rho(epsilon, delta), zeta, rounds)
    if start < _SMALLEST:
        return start

    def excess(log_phi: float) -> float:
        found = spent_by_rounds(math.exp(log_phi), zeta, rounds, delta)
        return math.log(min(max(found, _SMALLEST), 1.0 / _SMALLEST)) - math.log(epsilon)

    low = high = math.log(start)
    while excess(high) < 0.0:
        high += 1.0
    while excess(low) > 0.0:
        low -= 1.0
        if low < math.log(_SMALLEST):
            return 0.0
    found = low if low == high else brentq(excess, low, high, xtol=1e-9)
    while excess(found) > 0.0:  # the private side of the root
        found -= 1e-8
    return math.exp(found)


def total_rho(config: ClusterAdmmConfig, took_part: Iterable[int]) -> float:
    """Return the zCDP of the rounds (from 1) that a client took part in; the same for every D."""
    return decaying_total_of(config.phi_start, config.zeta, took_part)


def notes(config: ClusterAdmmConfig) -> list[str]:
    """Return what was chosen for ``phi0 = auto``; nothing if it was given."""
    if not config.is_auto("phi0"):
        return []
    spent = spent_by_rounds(config.phi_start, config.zeta, config.rounds, config.delta)
    return [
        f"phi0=auto is {config.phi_start:.4g}: a client in all {config.rounds} rounds spends "
        f"epsilon {spent:.4g} at delta {config.delta:g}."
    ]


def warnings(config: ClusterAdmmConfig, took_part: Iterable[int]) -> list[str]:
    """Return what a reader must know about the privacy of a client with these rounds."""
    found = [
        f"privacy=paper takes bound={config.bound:g} for the gradients' bound C; no data gives "
        "it, so the totals bound nothing. Use privacy=dp for a claim."
    ]
    rho = total_rho(config, took_part)
    epsilon = zcdp_epsilon(rho, config.delta)
    if epsilon > WORRYING:
        found.append(
            f"the rounds add up to {rho:.4g}-zCDP, epsilon {epsilon:.3g} at delta "
            f"{config.delta:g}. Above {WORRYING:g} it protects nobody in practice; use a smaller "
            "epsilon with phi0=auto, or a smaller phi0."
        )
    return found
