"""What to expect of a private run before it: computed from clients, samples, variables, epsilon.

The consensus competes with what a client knows by itself. The measure of both is the error of one
tau: noise over all samples for the consensus (with its own sampling error), sampling error over n
for a client alone. `RATIOS` says what their ratio gave in measurements (``trellis paper
joint-precision break-even``).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from trellis.privacy.accounting.sampled import ratio_for
from trellis.privacy.secagg.graph import expected_noisers

from ..config import JointPrecisionConfig
from .concordance import learning_count, sensitivity
from .consensus import sampling_error
from .score import learning_part

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


_EXPECT = {
    "good": "expect a consensus that is more exact than any client alone, and better graphs of "
    "their own on the devices",
    "some": "expect the strong edges of the consensus, and some help for the devices' own graphs",
    "none": "the consensus will mostly show noise, and devices will find that and do without: "
    "their own graphs will be what each can learn alone",
}


def forecast(config: JointPrecisionConfig, variables: int, counts: Sequence[int]) -> str:
    """Return what one noisy sum will give, and which epsilon would be worth it."""
    shares = {"dropout": config.dropout, "colluding": config.colluding}
    learned = [learning_count(count, config.held_out) for count in counts]
    clients, samples, own = len(counts), sum(learned), int(np.median(learned))
    noise = noise_of_tau(
        clients,
        samples,
        variables,
        epsilon=config.epsilon,
        delta=config.delta,
        part=learning_part(config.held_out),
        **shares,
    )
    ratio = error_ratio(noise, samples, own)
    wanted = {
        word: epsilon_for(most, clients, samples, variables, own, config.delta, **shares)
        for most, word in RATIOS
    }
    many = clients_for(
        RATIOS[0][0], variables, own, epsilon=config.epsilon, delta=config.delta, **shares
    )
    worth = {k: f"{v:.2g}" if math.isfinite(v) else "" for k, v in wanted.items()}
    which = f"For these clients epsilon from {worth['some']} gives some help"
    which += f" and from {worth['good']} much" if worth["good"] else ""
    return (
        f"Forecast: {clients} clients with {samples:,} samples of {variables} "
        f"variables at epsilon = {config.epsilon:g}: every tau of the consensus has an error of "
        f"{math.hypot(noise, sampling_error(samples)):.2g}, {noise:.2g} of it noise; that of a "
        f"client alone is {sampling_error(own):.2g}. So {_EXPECT[verdict(ratio)]}. {which}; "
        f"much help at epsilon = {config.epsilon:g} takes about {many:,} clients of {own:,} "
        "samples."
    )
