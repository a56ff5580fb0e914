"""What noise in sums will cost: which epsilon is worth it, before anything is asked.

A client that learns alone from n samples has a mean gradient that is off by at most C / sqrt(n) in
standard deviation, a federation of N samples C / sqrt(N). Noise adds to that. Averaged over rounds,
as the mean of the last models is, and over P servers, it is

    noise = sqrt(M) s / sqrt(P T),     s = sigma sqrt(K / m) / K the deviation in a server's mean

for K clients a server, of whom m are counted on, and T rounds. What a model is off by is that times
the same inverse Hessian in both, so the ratio

    gain = (C / sqrt(n)) / sqrt(C^2 / N + noise^2)

says how much closer to the minimiser the private federation gets than a client by itself; below 1
learning alone is better. `break_even_epsilon` is where it is 1. It takes clients for alike, and a
gradient to be as long as ``clip`` allows: an estimate, not a bound.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import median_low

from trellis.privacy.numerics import brentq
from trellis.privacy.secagg.graph import expected_noisers
from trellis.strategies.core.declared import Client

from .config import ServerGraphConfig
from .private import Terms

_RANGE = 1e-3, 1e3
_COSTLY = 4.0  # times the noise that a client of the median needs


@dataclass(frozen=True)
class Forecast:
    """What a run will be worth.

    Attributes
    ----------
    noise : deviation in an entry of a server's mean gradient, in one round
    gain : see the module
    break_even : the smallest epsilon with a gain of 1
    """

    noise: float
    gain: float
    break_even: float


def forecast(config: ServerGraphConfig, counts: Sequence[int], size: int) -> Forecast:
    """Return the forecast for clients with so many samples and a model of ``size``."""
    terms, least = Terms.of(config), min(counts)
    servers = config.graph_servers
    own = max(len(counts) // servers, 1)
    asked = min(config.sample or own, own)
    m = expected_noisers(asked, config.dropout, config.colluding)

    def parts(epsilon: float) -> tuple[float, float]:
        sigma = replace(terms, epsilon=epsilon).needed_deviation(least)
        noise = sigma * math.sqrt(asked / m) / asked
        whole = noise * math.sqrt(size / (servers * config.rounds))
        together = math.hypot(terms.clip / math.sqrt(sum(counts)), whole)
        typical = sorted(counts)[len(counts) // 2]
        return noise, terms.clip / math.sqrt(typical) / together

    def excess(log_epsilon: float) -> float:
        return parts(math.exp(log_epsilon))[1] - 1.0

    low, high = map(math.log, _RANGE)
    if excess(high) < 0.0:
        even = math.inf
    else:
        even = math.exp(brentq(excess, low, high, xtol=1e-3)) if excess(low) < 0.0 else _RANGE[0]
    return Forecast(*parts(config.epsilon), even)


def sum_warnings(config: ServerGraphConfig, clients: Sequence[Client], size: int) -> list[str]:
    """Return what a reader of the result must know beforehand."""
    counts = [client.counted for client in clients]
    found = forecast(config, counts, size)
    notes = []
    if config.clip == 0.0:
        notes.append(
            f"clip=0: noise in sums needs a bound on every sample's gradient; {config.bound:g} is "
            "taken, which suits features of about unit scale."
        )
    notes += _costly_client(config, clients)
    worth = f"worth it from about epsilon {found.break_even:.2g} on"
    if math.isinf(found.break_even):
        worth = "not worth it at any epsilon; it needs more clients"
    text = (
        f"Forecast for {len(clients)} clients of {min(counts)} samples or more and {size} "
        f"parameters: with epsilon {config.epsilon:g} the private model is about {found.gain:.2g} "
        f"times as close to the minimiser as a client's own would be; it is {worth}."
    )
    return [*notes, text]


def _costly_client(config: ServerGraphConfig, clients: Sequence[Client]) -> list[str]:
    """Return a note where one client's few samples, as it declares them, cost all much noise."""
    terms = Terms.of(config)
    least = min(clients, key=lambda client: client.count)
    usual = median_low([client.count for client in clients])
    times = terms.needed_deviation(least.count) / terms.needed_deviation(usual)
    if times < _COSTLY:
        return []
    return [
        f"Client {least.name} declares {least.count} samples, the median of all clients is "
        f"{usual}: the noise in its server's sums is {times:.2g} times what a client of the median "
        "needs. Ask its owner whether the number is right; without this client there is less noise."
    ]
