"""What a device of gromov-wasserstein is left with, and how it scores on graphs that it held out.

The shared model's weights, which everyone has, and for each of the device's own graphs those that
are nearest by the released distances: their numbers, whose they are, how far. Of other clients'
graphs a device learns these distances and how many graphs and clients there are, nothing else. With
``privacy = "dp"`` it makes a model of its own as well (`model.home`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from flwr.app import ArrayRecord, RecordDict
from numpy.typing import NDArray

from trellis.apps.common.evaluation.measures import ACCURACY, ALONE, MOST_FREQUENT, THIS, Scores
from trellis.apps.gromov_wasserstein.config import GromovWassersteinConfig
from trellis.apps.gromov_wasserstein.data import Split
from trellis.apps.gromov_wasserstein.graphs import Graph
from trellis.strategies.core import wire

if TYPE_CHECKING:
    from trellis.apps.common.results import RunResult

Arrays = dict[str, NDArray[Any]]

NEIGHBOURS = "neighbours"
MOST_NEAR = 10


def neighbours_of(client: int, distances: NDArray[np.float64], owner: NDArray[np.int64]) -> Arrays:
    """Return the nearest graphs (n, k) of a client's own n: their places, owners and distances."""
    own = np.flatnonzero(owner == client)
    k = min(MOST_NEAR, len(owner) - 1)
    far = distances[own].copy()
    far[np.arange(len(own)), own] = np.inf
    near = np.argsort(far, axis=1, kind="stable")[:, :k]
    return {
        "near": near.astype(np.int64),
        "near-owner": owner[near].astype(np.int64),
        "near-distance": np.take_along_axis(far, near, axis=1),
        "own": own.astype(np.int64),
    }


def read_neighbours(content: RecordDict, graphs: int) -> Arrays:
    """Return the neighbours that came, checked; nothing where none came.

    Raises
    ------
    ValueError
        For arrays that are none, or are not of this many graphs.
    """
    record = content.get(NEIGHBOURS)
    if not isinstance(record, ArrayRecord):
        return {}
    near = wire.received(record, "near", (graphs, None), "int64")
    if near.shape[1] > MOST_NEAR:
        raise wire.BadReply(f"the server's neighbours have shape {near.shape}")
    return {
        "near": np.array(near),
        "near-owner": np.array(wire.received(record, "near-owner", near.shape, "int64")),
        "own": np.array(wire.received(record, "own", (graphs,), "int64")),
        "near-distance": np.array(wire.received(record, "near-distance", near.shape)),
    }


def near_in_words(found: Mapping[str, NDArray[Any]]) -> list[str]:
    """Return what the neighbours tell, in a sentence."""
    if "near" not in found or not found["near"].size:
        return []
    mine = np.isin(found["near"][:, 0], found["own"])
    return [
        f"Nearest by distance: for {int(np.sum(mine))} of your {len(mine)} graphs it is another of "
        "your own, for the rest one of another client (arrays near, near-owner, near-distance)."
    ]


def description(
    config: GromovWassersteinConfig, features: int, classes: int, array: str
) -> dict[str, Any]:
    """Return what ``trellis device predict`` needs to build the model."""
    return {
        "kind": "gnn",
        "array": array,
        "model": config.model,
        "task": config.task,
        "width": config.width,
        "features": features,
        "classes": classes,
        "unit-features": config.unit_features,
    }


def run_model(result: RunResult) -> dict[str, Any] | None:
    """Return what a run has learned: the shared network."""
    features = sum(str(name).startswith("feature ") for name in result.variables)
    classes, config = int(result.arrays.get("classes", 0)), result.config
    if not features or not classes or config["method"] == "untrained":
        return None
    return {
        "kind": "gnn",
        "array": "weights",
        "per": "all",
        **{name: config[name] for name in ("model", "task", "width")},
        "features": features,
        "classes": classes,
        "unit-features": config.get("standardise", "none") != "none",
    }


def shares(right: Mapping[str, float], items: float, trivial: float) -> Scores:
    """Return numbers of right items as a table of shares."""
    rows = {name: (count / items if items else math.nan,) for name, count in right.items()}
    return Scores(int(items), (ACCURACY,), {**rows, MOST_FREQUENT: (trivial,)})


def trivial_share(graphs: Sequence[Graph], parts: Split, task: str) -> float:
    """Return how often the most frequent label of the other graphs is right on the test graphs."""
    learned = _labels([graphs[p] for p in (*parts.train, *parts.validation)], task)
    held = _labels([graphs[p] for p in parts.test], task)
    if not len(learned) or not len(held):
        return math.nan
    return float(np.mean(held == np.argmax(np.bincount(learned))))


def home_scores(test: Mapping[str, Any], chosen: str, trivial: float) -> Scores:
    """Return the scores of the models that were tried at home, on the test graphs."""
    names = {"shared": "the shared model", "tuned": "the shared model, trained on", "alone": ALONE}
    right = {THIS: float(test[chosen].correct)}
    right |= {label: float(test[n].correct) for n, label in names.items() if n in test}
    return shares(right, float(test[chosen].count), trivial)


def _labels(graphs: Sequence[Graph], task: str) -> NDArray[np.int64]:
    if not graphs:
        return np.zeros(0, dtype=np.int64)
    found = (
        np.array([graph.label for graph in graphs])
        if task == "graph"
        else np.concatenate([graph.node_labels for graph in graphs])
    )
    return found[found >= 0].astype(np.int64)
