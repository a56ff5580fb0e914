"""What to expect of a private run before it: computed from clients, samples, variables, epsilon.

The consensus competes with what a client knows by itself. The measure of both is the error of one
tau: noise over all samples for the consensus (with its own sampling error), sampling error over n
for a client alone. `RATIOS` says what their ratio gave in measurements (``trellis paper
joint-precision break-even``).
"""

from __future__ import annotations

import math

from trellis.privacy.accounting.sampled import ratio_for
from trellis.privacy.secagg.graph import expected_noisers

from .concordance import sensitivity
from .consensus import sampling_error

# Error of the consensus over that of a client alone, at most; and what to expect.
RATIOS = ((0.5, "good"), (1.5, "some"))


def noise_of_tau(
    clients: int,
    samples: int,
    variables: int,
    *,
    epsilon: float,
    delta: float,
    dropout: float,
    colluding: float,
    part: float = 1.0,
) -> float:
    """Return the standard deviation of the noise in a tau of the consensus.

    ``samples`` is the number of all clients' samples together; ``part`` is the
    share of the budget, as zCDP, that goes to it.
    """
    counted = expected_noisers(clients, dropout, colluding)
    ratio = ratio_for(epsilon, delta) * math.sqrt(part)
    excess = math.sqrt(clients / counted)
    return sensitivity(variables) / ratio * excess / samples


def error_ratio(noise: float, samples: int, own: int) -> float:
    """Return the error of a consensus tau over that of a client with ``own`` samples alone."""
    return math.hypot(noise, sampling_error(samples)) / sampling_error(own)


def verdict(ratio: float) -> str:
    """Return ``good``, ``some`` or ``none``: how much help to expect."""
    return next((word for most, word in RATIOS if ratio <= most), "none")


def epsilon_for(
    wanted: float,
    clients: int,
    samples: int,
    variables: int,
    own: int,
    delta: float,
    **shares: float,
) -> float:
    """Return the epsilon, to two digits, at which the error ratio is ``wanted``; inf where none is.

    ``shares`` are ``dropout`` and ``colluding``.
    """
    if error_ratio(0.0, samples, own) >= wanted:
        return math.inf
    low, high = math.log(1e-3), math.log(1e3)
    for _ in range(40):
        middle = 0.5 * (low + high)
        noise = noise_of_tau(
            clients, samples, variables, epsilon=math.exp(middle), delta=delta, **shares
        )
        if error_ratio(noise, samples, own) > wanted:
            low = middle
        else:
            high = middle
    return float(f"{math.exp(high):.2g}")


def clients_for(
    wanted: float, variables: int, own: int, *, epsilon: float, delta: float, **shares: float
) -> int:
    """Return how many clients with ``own`` samples each it takes for a ratio ``wanted``."""
    clients = 3
    while clients < 1_000_000:
        noise = noise_of_tau(
            clients, clients * own, variables, epsilon=epsilon, delta=delta, **shares
        )
        if error_ratio(noise, clients * own, own) <= wanted:
            return clients
        clients = math.ceil(clients * 1.05)
    return clients
