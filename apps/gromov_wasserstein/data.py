"""Whose graphs are whose: a client's own, its part of one data set, or synthetic ones.

A client's own graphs are an npz file (see `files.npz`), a folder in TUDataset's format, or one big
graph in Planetoid's, of which it takes the ``hops``-neighbourhoods of ``centres`` nodes.

In simulation ``--data FOLDER`` holds one of these a client; or it is itself one data set, and its
graphs are dealt to the clients class by class with shares from a Dirichlet distribution [JC,
Sec. 5]. Without it, ``graphs`` synthetic graphs are dealt evenly.

Graphs without features get their one-hot degrees, capped at the same degree everywhere, so that
all clients have features of one length whatever their graphs.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

import numpy as np

from trellis.apps.common.evaluation.holding import is_public, own_places
from trellis.apps.common.node import Node, data_stamp
from trellis.apps.common.seeds import generator
from trellis.apps.common.settings import ConfigError
from trellis.apps.common.tables import DataError, graph_folder

from .config import GromovWassersteinConfig
from .files.npz import read_graphs
from .files.planetoid import CitationGraph, read_planetoid
from .files.tudataset import read_tudataset
from .graphs import Graph, Integers, degree_features, dirichlet_split, k_hop, labels_of
from .synthetic import synthetic_graphs

GRAPH_FOLDERS = True  # `--data` may be a data set of graphs, or one sub-folder a client
MOST_DEGREE = 64  # in IMDB-BINARY one node in 1,800 has as many neighbours

_VALIDATION, _TEST = 0.2, 0.1  # of a client's graphs [JC, Sec. 5]


@dataclass(frozen=True, eq=False)
class Split:
    """Places of a client's graphs to train with, to choose by and to judge by, each sorted."""

    train: Integers
    validation: Integers
    test: Integers


def client_graphs(config: GromovWassersteinConfig, seed: int, node: Node) -> list[Graph]:
    """Return one node's graphs, at least one, all with as many features, in units that fit.

    Raises
    ------
    ConfigError, DataError
        For fewer graphs than clients, and for files that cannot be used.
    """
    found = _own_graphs(config, seed, node)
    return [unit_features(graph) for graph in found] if config.unit_features else found


def unit_features(graph: Graph) -> Graph:
    """Return a graph whose nodes' features have a length of 1, in the mean of squares.

    Each graph is mapped by itself, so one that is replaced moves no other: that is as private as
    the graphs are without it. One-hot features have that length already.
    """
    values = graph.features.astype(np.float64)
    largest = float(np.max(np.abs(values), initial=0.0))
    if not 0.0 < largest < np.inf:
        return graph
    length = np.sqrt(np.mean(np.sum((values / largest) ** 2, axis=1)))
    scaled = (values / largest / length).astype(graph.features.dtype)
    return replace(graph, features=scaled)


def _own_graphs(config: GromovWassersteinConfig, seed: int, node: Node) -> list[Graph]:
    path = node.data_path
    if path is None or node.shared:
        if not 0 <= node.partition < config.clients:
            raise DataError(f"partition {node.partition}: clients are 0 to {config.clients - 1}")
        return _dealt(config, seed, node)
    if path.suffix.lower() == ".npz" and not path.is_dir():
        # On a device under differential privacy no single graph may decide whether the file is read.
        found = read_graphs(path, tolerant=config.privacy == "dp" and not node.simulated)
    elif graph_folder(path) is None:
        raise DataError(
            f"{path}: no graphs; an npz file, or a folder in the format of TUDataset (NAME_A.txt) "
            "or Planetoid (ind.NAME.graph) is needed"
        )
    elif _is_planetoid(path):
        big = read_planetoid(path).largest_component()
        rng = generator(seed, "centres", node.partition) if node.simulated else _own_rng(big.graph)
        found = _neighbourhoods(config, big.graph, _centres(config, big, rng))
    else:
        # Numbers of classes must mean the same for every client, whoever else is in its folder.
        found = read_tudataset(path, relabel=False)
    return featured(found)


def client_split(
    config: GromovWassersteinConfig, graphs: Sequence[Graph], seed: int, node: Node
) -> Split:
    """Return which of a client's graphs are for what, 7 : 2 : 1 [JC, Sec. 5], or see `split`.

    In simulation, and without privacy, it is drawn from the run's seed, else on a device from its
    secret: which places are for what does not depend on any graph (one graph replaced must not
    change the part of all), and no server knows or chooses them.
    """
    if is_public(node, config.privacy):
        rng = generator(seed, "train, validation, test", max(node.partition, 0))
    else:
        rng = own_places(node, len(graphs))
    return split(len(graphs), rng, config.held_out)


def split(count: int, rng: np.random.Generator, held_out: float = 0.0) -> Split:
    """Split ``count`` graphs 7 : 2 : 1, rounded; at least one to train with.

    ``held_out`` > 0 stands in the place of the last tenth, and leaves a fifth of the rest to choose
    by.
    """
    train, validation, _ = split_counts(count, held_out)
    order = rng.permutation(count)
    return Split(*(np.sort(part) for part in np.split(order, [train, train + validation])))


def split_counts(count: int, held_out: float = 0.0) -> tuple[int, int, int]:
    """Return how many of ``count`` graphs are to train with, to choose by and to judge by."""
    test = int((held_out or _TEST) * count + 0.5)
    share = _VALIDATION * (1.0 - held_out) if held_out else _VALIDATION
    validation = int(share * count + 0.5)
    while validation + test >= count:  # one or two graphs, most of them held out
        validation, test = max(validation - 1, 0), test if validation else test - 1
    return count - validation - test, validation, test


def class_count(config: GromovWassersteinConfig, graphs: Sequence[Graph]) -> int:
    """Return how many classes a client knows of: its largest label and one; 0 without labels.

    Raises
    ------
    DataError
        For a label that ``classes`` leaves no room for.
    """
    found, worst = 0, graphs[0]
    for graph in graphs:
        largest = graph.label if config.task == "graph" else int(graph.node_labels.max())
        if largest + 1 > found:
            found, worst = largest + 1, graph
    if 0 < config.classes < found:
        raise DataError(
            f"{worst.source}: label {found - 1} of a {config.task}, but classes={config.classes} "
            f"leaves 0 to {config.classes - 1}; set classes={found} or more, or 0"
        )
    return found


def variables(config: GromovWassersteinConfig, graphs: Sequence[Graph]) -> list[str]:
    """Return what a client has to agree on with the others: a name a feature and a class.

    Classes are named where ``classes`` is set. With ``classes = 0`` a client need not have seen
    them all, and tells its `class_count` only.
    """
    features = graphs[0].features.shape[1]
    return [f"feature {number + 1}" for number in range(features)] + [
        f"class {number + 1}" for number in range(config.classes)
    ]


def feature_count(names: Sequence[str]) -> int:
    """Return how many features the `variables` of a client name."""
    return sum(name.startswith("feature ") for name in names)


def _dealt(config: GromovWassersteinConfig, seed: int, node: Node) -> list[Graph]:
    """Return a simulated client's part of what is dealt to all."""
    if node.data_path is None:
        if config.graphs < config.clients:
            raise ConfigError(
                f"graphs={config.graphs}: fewer than clients={config.clients}; every client "
                "needs a graph"
            )
        return list(_synthetic(config.graphs, seed)[node.partition :: config.clients])
    found = _dataset(node.data_path, data_stamp(node))
    if isinstance(found, CitationGraph):
        centres = _centres(config, found, generator(seed, "centres"))
        own = centres[_part(config, seed, node, found.graph.node_labels[centres])]
        return featured(_neighbourhoods(config, found.graph, own))
    return featured([found[number] for number in _part(config, seed, node, labels_of(found))])


def _part(config: GromovWassersteinConfig, seed: int, node: Node, labels: Integers) -> Integers:
    """Return which of the graphs with ``labels`` are this client's."""
    rng = generator(seed, "split")
    try:
        return dirichlet_split(labels, config.clients, config.dirichlet, rng)[node.partition]
    except DataError as error:
        raise DataError(f"{node.data_path}: {error}") from None


# Simulated clients of one process share what they are dealt from.
@lru_cache(maxsize=1)
def _synthetic(count: int, seed: int) -> tuple[Graph, ...]:
    return tuple(synthetic_graphs(count, generator(seed, "graphs")))


@lru_cache(maxsize=1)
def _dataset(folder: Path, _stamp: tuple[int, int] | None) -> list[Graph] | CitationGraph:
    """Return a data set, read once unless it changes."""
    if _is_planetoid(folder):
        return read_planetoid(folder).largest_component()
    return read_tudataset(folder)


def _is_planetoid(folder: Path) -> bool:
    return next((graph_folder(folder) or folder).glob("*_A.txt"), None) is None


def _centres(
    config: GromovWassersteinConfig, big: CitationGraph, rng: np.random.Generator
) -> Integers:
    """Return nodes to take subgraphs around: training nodes [JC, App. C], others when they end."""
    if config.centres > big.graph.nodes:
        raise ConfigError(
            f"centres={config.centres}: {big.graph.source} has {big.graph.nodes} nodes in its "
            "largest component"
        )
    parts = (rng.permutation(np.flatnonzero(part)) for part in (big.train, ~big.train))
    return np.concatenate(list(parts))[: config.centres]


def _neighbourhoods(
    config: GromovWassersteinConfig, graph: Graph, centres: Integers
) -> list[Graph]:
    return [k_hop(graph, centre, config.hops) for centre in centres.tolist()]


def featured(graphs: list[Graph]) -> list[Graph]:
    """Return graphs with features: their own, or their nodes' degrees."""
    if graphs[0].features.shape[1] > 0:
        return graphs
    return [degree_features(graph, MOST_DEGREE) for graph in graphs]


def _own_rng(*graphs: Graph) -> np.random.Generator:
    """Return a generator that depends on the graphs alone."""
    digest = hashlib.sha256()
    for graph in graphs:
        for part in (graph.edges, graph.features, graph.node_labels, np.array([graph.label])):
            digest.update(np.ascontiguousarray(part).tobytes())
    return np.random.default_rng(int.from_bytes(digest.digest(), "big"))
