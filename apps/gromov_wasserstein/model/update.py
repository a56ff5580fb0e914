"""What one client answers in a round: arrays and graphs, no messages.

A device calls these for itself and sends what they return; `simulate` calls `client_update` for
every client in turn.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from trellis.apps.common.seeds import generator
from trellis.strategies.core.robust import clipped

from .gnn import Vector, nn
from .training import Trained, evaluate, local_training

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
) -> Trained:
    """Return a client's weights after training [JC, Algorithm 3], see `training`.

    Parameters
    ----------
    model : is changed, and left with the client's weights
    graphs : to train with
    start : w_0 (d,)
    config : epochs, batch, rate, decay and proximal term
    draw : seed of the client's training in this round; `simulated_draw` in simulation
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
        config.pull,
        draw,
    )
    return replace(done, weights=clipped(done.weights, start, config.norm_bound))


def client_hits(
    model: nn.Module, graphs: Sequence[Graph], split: Split, task: str
) -> dict[str, float]:
    """Return the numbers of labelled items, and of those that the model as it is classifies right.

    Returns
    -------
    ``train-items``, ``train-correct``, and the same of ``validation`` and ``test``
    """
    sizes = [graph.nodes if task == "node" else 1 for graph in graphs]
    parts = {"train": split.train, "validation": split.validation, "test": split.test}
    masks = {
        name: np.repeat(np.isin(np.arange(len(sizes)), places), sizes)
        for name, places in parts.items()
    }
    found: dict[str, float] = {}
    for name, score in evaluate(model, graphs, task, masks).items():
        found |= {f"{name}-items": float(score.count), f"{name}-correct": float(score.correct)}
    return found


def simulated_draw(seed: int, partition: int, server_round: int) -> int:
    """Return the ``draw`` of a simulated client in one round of the run ``seed``."""
    return int(generator(seed, "training", partition, server_round).integers(2**62))
