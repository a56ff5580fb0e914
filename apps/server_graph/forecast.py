"""What noise in sums will cost, before anything is asked.

Noise adds to every server's mean gradient. Averaged over T rounds, as the mean of the last models
is, and over P servers, it has length

    sqrt(M) s / sqrt(P T),     s = sigma sqrt(K / m) / K the deviation in a server's mean

for a model of M parameters, K clients a server, and m of them counted on. A record's gradient is as
long as ``clip`` allows, and both errors reach the model through the same inverse Hessian.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from statistics import median_low

from trellis.apps.common.private.forecast import Forecast, forecast
from trellis.privacy.secagg.graph import expected_noisers
from trellis.strategies.core.declared import Client

from .config import ServerGraphConfig
from .private import Terms

_COSTLY = 4.0  # times the noise that a client of the median needs


def forecast_of(config: ServerGraphConfig, counts: Sequence[int], size: int) -> Forecast:
    """Return the forecast for clients with ``counts`` samples and a model of ``size``."""
    servers = config.graph_servers

    def noise(epsilon: float) -> float:
        whole = noise_of_round(config, counts, epsilon) * math.sqrt(size)
        return whole / math.sqrt(servers * config.rounds) / Terms.of(config).clip

    return forecast(noise, counts, config.epsilon)


def noise_of_round(config: ServerGraphConfig, counts: Sequence[int], epsilon: float) -> float:
    """Return s, the deviation in an entry of a server's mean gradient, in one round."""
    own = max(len(counts) // config.graph_servers, 1)
    asked = min(config.sample or own, own)
    counted = expected_noisers(asked, config.dropout, config.colluding)
    sigma = replace(Terms.of(config), epsilon=epsilon).needed_deviation(min(counts))
    return sigma * math.sqrt(asked / counted) / asked


def sum_warnings(config: ServerGraphConfig, clients: Sequence[Client], size: int) -> list[str]:
    """Return what a reader of the result must know beforehand."""
    notes = []
    if config.clip == 0.0:
        notes.append(
            f"clip=0: noise in sums needs a bound on every sample's gradient; {config.bound:g} is "
            "taken, which suits features of about unit scale."
        )
    counts = [client.counted for client in clients]
    notes += _costly_client(config, clients)
    return [*notes, forecast_of(config, counts, size).text()]


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
