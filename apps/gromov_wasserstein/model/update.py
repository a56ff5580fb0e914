"""What one client adds to the server's sums in a round: arrays and graphs, no messages.

    c w,  c,  c loss        after training from the weights w_0 that were sent, see `training`
    items,  correct         labelled items and hits of w_0, of the train, validation and test graphs

A device calls these for itself and sends what they return; `simulate` calls `client_update` for
every client in turn.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from trellis.apps.common.seeds import generator
from trellis.strategies.core.robust import clipped

from .gnn import Vector, nn
from .training import evaluate, local_training

if TYPE_CHECKING:
    from ..config import GromovWassersteinConfig
    from ..data import Split
    from ..graphs import Graph


def client_update(
    model: nn.Module,
    graphs: Sequence[Graph],
    start: Vector,
    config: GromovWassersteinConfig,
    draw: int,
) -> dict[str, Vector]:
    """Return a client's summands of training [JC, Algorithm 3].

    Parameters
    ----------
    model : is changed, and left with the client's weights
    graphs : to train with
    start : w_0 (d,)
    config : epochs, batch, rate, decay and proximal term
    draw : seed of the client's training in this round; `simulated_draw` in simulation

    Returns
    -------
    ``weights`` (d,), ``count`` (1,), ``loss`` (1,) : c w, c, and c times the mean loss
    """
    done = local_training(
        model,
        graphs,
        start,
        config.task,
        config.local_epochs,
        config.batch,
        config.rate,
        config.weight_decay,
        config.proximal if config.way == "fedprox" else 0.0,
        draw,
    )
    found = clipped(done.weights, start, config.norm_bound)
    return {
        "weights": done.count * found,
        "count": np.array([float(done.count)]),
        "loss": np.array([done.count * done.loss if done.count else 0.0]),
    }


def client_hits(
    model: nn.Module, graphs: Sequence[Graph], split: Split, task: str
) -> dict[str, Vector]:
    """Return a client's summands of the accuracies of the model as it is.

    Returns
    -------
    ``items``, ``correct`` (3,) : of train, validation and test, in this order
    """
    sizes = [graph.nodes if task == "node" else 1 for graph in graphs]
    parts = {"train": split.train, "validation": split.validation, "test": split.test}
    masks = {
        name: np.repeat(np.isin(np.arange(len(sizes)), places), sizes)
        for name, places in parts.items()
    }
    scores = evaluate(model, graphs, task, masks).values()
    return {
        "items": np.array([float(score.count) for score in scores]),
        "correct": np.array([float(score.correct) for score in scores]),
    }


def simulated_draw(seed: int, partition: int, server_round: int) -> int:
    """Return the ``draw`` of a simulated client in one round of the run ``seed``."""
    return int(generator(seed, "training", partition, server_round).integers(2**62))
