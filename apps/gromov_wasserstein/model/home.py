"""What a device keeps: a model of its own, from its raw graphs and the shared weights.

    shared   the weights that came
    tuned    those, trained on for some epochs on the device's own graphs
    alone    trained from weights of its own, as if there were no others

In this order, the next one is taken in the place of the one before where it has more hits, by more
than the standard error sqrt(items) / 2, in `FOLDS`-fold cross-validation over the device's own
graphs; those of `Split.test` are left aside. (The shared weights may have seen these graphs; but
they are private, so they cannot know one of them by heart.) Nothing of this leaves the device: it
needs no noise. From few graphs the choice is crude: where the shared weights are noise, a device
with nine graphs of its own ends below what it would learn alone (``break-even``). Where nothing is
trained together, the weights that came are as good a start as any, and ``tuned`` is alone.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from .gnn import Vector, load, nn
from .training import Score, evaluate, local_training

if TYPE_CHECKING:
    from ..data import Split
    from ..graphs import Graph

FOLDS = 3
TUNED, ALONE = 20, 40  # epochs
RATE = {"gin": 0.001}
USUAL_RATE = 0.01
DECAY = 0.0005


@dataclass(frozen=True)
class Home:
    """The weights (d,) that are kept, which they are, and all scores on the test graphs."""

    weights: Vector
    chosen: str
    test: dict[str, Score]


def at_home(
    model: nn.Module,
    graphs: Sequence[Graph],
    parts: Split,
    shared: Vector,
    fresh: Vector | None,
    task: str,
    *,
    rate: float = USUAL_RATE,
    draw: int = 0,
) -> Home:
    """Return the model that a client keeps; see the module.

    Parameters
    ----------
    model : is left with the weights that are kept
    parts : which graphs are for what
    shared : the weights that came (d,)
    fresh : weights to learn alone from (d,); None where the shared ones are such themselves
    draw : seed of the training
    """
    own = [graphs[place] for place in np.sort(np.concatenate([parts.train, parts.validation]))]
    ways = {"tuned": (shared, ALONE)}
    if fresh is not None:
        ways = {"shared": (shared, 0), "tuned": (shared, TUNED), "alone": (fresh, ALONE)}

    def learn(name: str, given: Sequence[Graph]) -> Vector:
        start, epochs = ways[name]
        if not epochs or not given:
            return start
        try:
            done = local_training(model, given, start, task, epochs, 0, rate, DECAY, 0.0, draw)
        except ValueError:  # it diverged; what it began with is no worse
            return start
        return done.weights

    chosen, best = "tuned", -1.0
    for name in ways if len(own) >= FOLDS and len(ways) > 1 else ():
        right = items = 0
        for fold in range(FOLDS):
            vector = learn(name, [g for place, g in enumerate(own) if place % FOLDS != fold])
            told = score(model, vector, own[fold::FOLDS], task)
            right, items = right + told.correct, items + told.count
        margin = math.sqrt(items) / 2.0 if best >= 0.0 else 0.0
        if right > best + margin:
            chosen, best = name, float(right)
    found = {name: learn(name, own) for name in ways}
    unseen = [graphs[place] for place in parts.test]
    test = {name: score(model, vector, unseen, task) for name, vector in found.items()}
    load(model, found[chosen])
    return Home(found[chosen], chosen, test)


def score(model: nn.Module, vector: Vector, graphs: Sequence[Graph], task: str) -> Score:
    """Return how the model with these weights does on all labelled items of the graphs."""
    if not graphs:
        return Score(0, 0, 0.0)
    load(model, vector)
    items = sum(graph.nodes for graph in graphs) if task == "node" else len(graphs)
    return evaluate(model, graphs, task, {"all": np.ones(items, dtype=np.bool_)})["all"]
