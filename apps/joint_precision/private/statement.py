"""What a run with ``release = sum`` claims, and what to expect of it, in words."""

from __future__ import annotations

import math

import numpy as np

from ..config import JointPrecisionConfig
from .concordance import learning_count
from .consensus import sampling_error
from .forecast import (
    RATIOS,
    clients_for,
    epsilon_for,
    error_ratio,
    noise_of_tau,
    verdict,
)
from .score import learning_part

CLAIM = (
    "What the server learns of the samples is {sums}, in which devices have put shares of discrete "
    "Gaussian noise before masking, and what follows from that. {own}No single sample decides "
    "whether a device answers. {enrolment}"
)
STATEMENT = {
    "adversary": "A server that chooses settings and messages, sees every message, knows all "
    "samples but one, and works with up to the declared share of the clients (colluding), whose "
    "noise it knows.",
    "neighbouring": "One sample of one client replaced by another; the numbers of samples are "
    "public.",
    "trusted": "That as many others as a device counts on add their noise and do not tell it to "
    "the server: in a simulation all but the shares dropout and colluding; a device counts on "
    "signed keys that its owner has listed, and without them on itself alone.",
    "not_covered": "The number of samples, the variables' names and the fact of taking part; that "
    "a client's data has changed since a run with the same settings; how long an answer took; who "
    "reads a device's state folder. In a simulation noise comes from the seed and protects nobody.",
}
_SUMS = "one noisy sum over all clients (concordances of pairs of variables)"
_SCORED = (
    "two noisy sums over all clients (concordances of pairs of variables; right predictions of "
    "held-out signs, with one bit per client, which has a tenth of the budget)"
)
_OWN = (
    "A client's own graph is made on its device from raw samples and is not sent; in a simulation "
    "it is gathered for evaluation. "
)


def summed_statement(config: JointPrecisionConfig, enrolment: str) -> dict[str, str]:
    """Return what a run with these settings claims; ``enrolment`` says what that tells."""
    sums = _SCORED if config.held_out else _SUMS
    own = _OWN if config.at_home else ""
    return {"claim": CLAIM.format(sums=sums, own=own, enrolment=enrolment), **STATEMENT}


_EXPECT = {
    "good": "expect a consensus that is more exact than any client alone, and better graphs of "
    "their own on the devices",
    "some": "expect the strong edges of the consensus, and some help for the devices' own graphs",
    "none": "the consensus will mostly show noise, and devices will find that and do without: "
    "their own graphs will be what each can learn alone",
}


def summed_forecast(config: JointPrecisionConfig, variables: int, counts: list[int]) -> str:
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
        f"Forecast for release='sum': {clients} clients with {samples:,} samples of {variables} "
        f"variables at epsilon = {config.epsilon:g}: every tau of the consensus has an error of "
        f"{math.hypot(noise, sampling_error(samples)):.2g}, {noise:.2g} of it noise; that of a "
        f"client alone is {sampling_error(own):.2g}. So {_EXPECT[verdict(ratio)]}. {which}; "
        f"much help at epsilon = {config.epsilon:g} takes about {many:,} clients of {own:,} "
        "samples."
    )
