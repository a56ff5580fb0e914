"""The study's training without messages: every client in turn, in this process.

For the paper's figures. A client's part is `update.client_update`, the server's `weighted_mean`,
as in ``trellis run gromov-wasserstein``; from the same start, graphs and seed both end at the same
weights, to the bit. Every client answers in every round, and nothing ends the rounds early.

`noisy_weights` is training with noise in the sums: the graphs of all clients in one call, and one
draw of the noise that their shares add up to.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from trellis.apps.common.seeds import generator
from trellis.privacy.accounting.sampled import ratio_for
from trellis.privacy.mechanisms.shares import plan_share, simulated_sum_noise
from trellis.strategies.gromov_wasserstein.descent import Descent
from trellis.strategies.gromov_wasserstein.strategy import weighted_mean

from .config import GromovWassersteinConfig
from .graphs import Graph
from .model.clipping import clipped_sum
from .model.gnn import Vector, nn
from .model.update import client_update, simulated_draw

FRACTION_BITS = 24  # a grid that is fine beside the noise; that of `SecureSum` is finer


def federated_weights(
    model: nn.Module,
    clients: Sequence[Sequence[Graph]],
    start: Vector,
    config: GromovWassersteinConfig,
    seed: int,
) -> Vector:
    """Return the weights (d,) after all rounds [JC, Algorithm 2].

    Parameters
    ----------
    model : of the clients; is changed
    clients : the graphs that each trains with
    start : w_0 (d,)
    """
    shared = start
    for server_round in range(1, config.rounds + 1):
        replies = [
            client_update(model, graphs, shared, config, simulated_draw(seed, number, server_round))
            for number, graphs in enumerate(clients)
        ]
        labelled = [reply for reply in replies if reply.count]
        shared = weighted_mean([r.weights for r in labelled], [float(r.count) for r in labelled])
    return shared


@dataclass(frozen=True)
class Noisy:
    """Training with noise in the sums: what it may cost, and how it is done.

    Attributes
    ----------
    epsilon, delta : of all rounds together; epsilon ``inf`` adds no noise
    rounds : steps
    bound : C of `clipping`
    descent : the server's step
    clients, noisers : how many add noise, and how many of them are counted on
    """

    epsilon: float
    delta: float
    rounds: int
    bound: float
    descent: Descent
    clients: int
    noisers: int


def noisy_weights(
    model: nn.Module, graphs: Sequence[Graph], start: Vector, task: str, how: Noisy, seed: int
) -> Vector:
    """Return the weights (d,) after all rounds over the graphs of all clients."""
    shared, velocity = start, np.zeros_like(start)
    for server_round in range(1, how.rounds + 1):
        total = clipped_sum(model, graphs, shared, task, how.bound)
        if math.isfinite(how.epsilon):
            ratio = ratio_for(how.epsilon, how.delta, how.rounds)
            share = plan_share(FRACTION_BITS, ratio, 2.0 * how.bound, total.size, how.noisers)
            rng = generator(seed, "noise of the sum", server_round)
            total = total + simulated_sum_noise(rng, share, how.clients)
        shared, velocity = how.descent.step(shared, velocity, total, len(graphs))
    return shared
