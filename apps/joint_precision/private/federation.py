"""The private consensus without messages: for tables over many seeds and sizes.

The same functions as in a run, on the clients' samples in one process; the noise of the sum is
drawn at once (`trellis.privacy.mechanisms.shares.simulated_sum_noise`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from trellis.privacy.accounting.sampled import ratio_for
from trellis.privacy.mechanisms.shares import plan_share, simulated_sum_noise
from trellis.privacy.secagg.graph import expected_noisers

from .concordance import FRACTION_BITS, sensitivity, summands
from .consensus import Consensus, consensus

Matrix = NDArray[np.float64]


def summed(tables: Sequence[Matrix]) -> tuple[NDArray[np.float64], float]:
    """Return the sums of all clients' concordances and weights."""
    parts = [summands(values) for values in tables]
    total = np.sum([part["concordance"] for part in parts], axis=0)
    return total, float(np.sum([part["weight"] for part in parts]))


def private_consensus(
    total: NDArray[np.float64],
    weight: float,
    clients: int,
    samples: int,
    variables: int,
    rng: np.random.Generator,
    *,
    epsilon: float | None,
    delta: float = 1e-5,
    dropout: float = 0.1,
    colluding: float = 0.1,
) -> Consensus:
    """Return the consensus of a sum at ``epsilon``; None adds no noise."""
    if epsilon is None:
        return consensus(total, weight, samples, variables, 0.0)
    share = plan_share(
        FRACTION_BITS,
        ratio_for(epsilon, delta),
        sensitivity(variables),
        total.size + 1,
        expected_noisers(clients, dropout, colluding),
    )
    noise = simulated_sum_noise(rng, share, clients)
    deviation = share.width * math.sqrt(clients)
    return consensus(total + noise[:-1], weight + float(noise[-1]), samples, variables, deviation)
