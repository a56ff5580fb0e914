"""The study's training without messages: every client in turn, in this process.

For the paper's figures. A client's part is `update.client_update`, the server's `weighted_mean`,
as in ``trellis run gromov-wasserstein``; from the same start, graphs and seed both end at the same
weights, to the bit. Every client answers in every round, and nothing ends the rounds early.
"""

from __future__ import annotations

from collections.abc import Sequence

from strategies.core.sums import add_up
from strategies.gromov_wasserstein.strategy import weighted_mean

from .config import GromovWassersteinConfig
from .graphs import Graph
from .model.gnn import Vector, nn
from .model.update import client_update, simulated_draw


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
        shared = weighted_mean(add_up(replies, ("weights", "count")))
    return shared
