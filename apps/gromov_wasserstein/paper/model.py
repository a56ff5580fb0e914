"""Data and models of the paper's experiments: FedAvg in this process, without messages.

Graphs are dealt to 10 clients by Dirichlet(1), every client trains on its part, and the server
takes the weighted mean: the arithmetic of ``trellis run``, by `simulate`.

Whose labels a model may see decides what an accuracy means. [JC] does not say. Here:

    node     labels of nodes (MUTAG's and PROTEINS' are their features: near trivial). No label of
             a graph is used, so one model embeds all graphs.
    graph    labels of graphs. Two models, each trained on one half of the graphs, embed the *other*
             half, and whatever is learned from distances is cross-validated inside a half. So no
             graph is classified by an embedding that was trained on its label; the price is half
             the graphs to learn from.
    CiteSeer labels of the 120 public training nodes, on their neighbourhoods. The subgraphs that
             are compared have other centres, and no label of these is used.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from trellis.apps.common.seeds import generator
from trellis.apps.experiments.datasets import dataset

from ..config import GromovWassersteinConfig
from ..data import MOST_DEGREE, split
from ..downstream.baselines import Predictor, Trainer, centralised_accuracy
from ..downstream.classify import Accuracy, stratified_folds
from ..files.planetoid import read_planetoid
from ..files.tudataset import read_tudataset
from ..graphs import Graph, Integers, degree_features, dirichlet_split, k_hop, labels_of
from ..model.gnn import build_model, collate, load, nn, torch, weights
from ..model.training import embed, evaluate, local_training
from ..simulate import federated_weights
from .scores import Array, Embedded

CENTRAL_BATCH = 32
_LOOK = 5  # epochs between two looks at the validation graphs
# GIN's steps are a tenth of GCN's: it needs more of them to learn anything. Both were chosen after
# looking at half of MUTAG with seed 1; the paper gives neither rate nor epochs.
MODELS: dict[str, dict[str, Any]] = {
    "GCN": {"model": "gcn"},
    "GIN": {"model": "gin", "local-epochs": 10},
}


def model_config(name: str, task: str, rounds: int) -> GromovWassersteinConfig:
    """Return the settings of one of `MODELS`, trained for so many rounds."""
    return GromovWassersteinConfig.from_settings({**MODELS[name], "task": task, "rounds": rounds})


def collection(name: str, most: int = 0, seed: int = 1) -> list[Graph]:
    """Return a data set of graphs, or ``most`` of them at random; one-hot degrees for none."""
    graphs = read_tudataset(dataset(name))
    if 0 < most < len(graphs):
        chosen = generator(seed, "sample").choice(len(graphs), most, replace=False)
        graphs = [graphs[place] for place in np.sort(chosen)]
    if graphs[0].features.shape[1] == 0:
        graphs = [degree_features(graph, MOST_DEGREE) for graph in graphs]
    return graphs


def has_node_labels(graphs: Sequence[Graph]) -> bool:
    """Return whether a model can be trained on the labels of nodes."""
    return any((graph.node_labels >= 0).any() for graph in graphs)


def federated_model(
    config: GromovWassersteinConfig, graphs: Sequence[Graph], classes: int, seed: int
) -> nn.Module:
    """Return the model that FedAvg learns from the labels of ``graphs``."""
    dealt = dirichlet_split(
        labels_of(graphs), config.clients, config.dirichlet, generator(seed, "split")
    )
    clients = [[graphs[place] for place in part] for part in dealt]
    draw = int(generator(seed, "model").integers(2**62))
    width = graphs[0].features.shape[1]
    model = build_model(config.model, width, classes, config.task, config.width, seed=draw)
    load(model, federated_weights(model, clients, weights(model), config, seed))
    return model


def embedded(
    config: GromovWassersteinConfig, graphs: Sequence[Graph], seed: int
) -> tuple[Embedded, ...]:
    """Return the embeddings of all graphs: one part for the node task, two for the graph task."""
    labels = labels_of(graphs)
    if config.task == "node":
        classes = 1 + max(int(graph.node_labels.max()) for graph in graphs)
        model = federated_model(config, graphs, classes, seed)
        return (Embedded(np.arange(len(graphs)), embed(model, graphs), labels),)
    halves = stratified_folds(labels, 2, generator(seed, "halves"))
    parts = []
    for own, other in (halves, halves[::-1]):
        model = federated_model(
            config, [graphs[place] for place in other], int(labels.max()) + 1, seed
        )
        parts.append(Embedded(own, embed(model, [graphs[place] for place in own]), labels[own]))
    return tuple(parts)


def untrained(config: GromovWassersteinConfig, graphs: Sequence[Graph], seed: int) -> Embedded:
    """Return the embeddings by a model with random weights: what comes without any training."""
    width = graphs[0].features.shape[1]
    model = build_model(config.model, width, 2, config.task, config.width, seed=seed)
    return Embedded(np.arange(len(graphs)), embed(model, graphs), labels_of(graphs))


def central_trainer(config: GromovWassersteinConfig, epochs: int) -> Trainer:
    """Return how a GNN is trained in one place: the epoch with the least validation loss is kept.

    A fifth of the training graphs it is given are its validation graphs.
    """

    def trainer(graphs: Sequence[Graph], seed: int) -> Predictor:
        parts = split(len(graphs), generator(seed, "validation"))
        own = [graphs[place] for place in np.concatenate([parts.train, parts.test])]
        held = [graphs[place] for place in parts.validation]
        features, classes = graphs[0].features.shape[1], int(labels_of(graphs).max()) + 1
        model = build_model(config.model, features, classes, "graph", config.width, seed=seed)
        best, least, now = weights(model), np.inf, weights(model)
        everyone = {"validation": np.ones(len(held), dtype=np.bool_)}
        for block in range(epochs // _LOOK):
            now = local_training(
                model, own, now, "graph", _LOOK, CENTRAL_BATCH, config.rate,
                config.weight_decay, 0.0, seed + block,
            ).weights  # fmt: skip
            loss = evaluate(model, held, "graph", everyone)["validation"].loss_sum
            if loss < least:
                best, least = now, loss
        return lambda unseen: predictions(model, best, unseen)

    return trainer


def predictions(model: nn.Module, vector: Array, graphs: Sequence[Graph]) -> Integers:
    """Return the classes (N,) that a model with these weights gives to graphs."""
    load(model, vector)
    model.eval()
    whole = collate(graphs, "graph")
    with torch.no_grad():
        _, logits = model(whole.x, whole.edge_index, whole.batch)
    return np.asarray(logits.argmax(dim=1).numpy(), dtype=np.int64)


def embed_job(job: tuple[str, int, GromovWassersteinConfig, bool, int]) -> tuple[Embedded, ...]:
    """Return embeddings of a data set by name and sample size, trained or not."""
    name, most, config, trained, seed = job
    graphs = collection(name, most)
    return embedded(config, graphs, seed) if trained else (untrained(config, graphs, seed),)


@dataclass(frozen=True)
class CentralJob:
    """A GNN trained in one place: on which data, how, and in how many folds it is judged."""

    data: str
    most: int
    config: GromovWassersteinConfig
    seed: int
    folds: int
    epochs: int


def central_job(job: CentralJob) -> Accuracy:
    """Return the accuracy of a GNN trained in one place on a data set by name."""
    graphs = collection(job.data, job.most)
    trainer = central_trainer(job.config, job.epochs)
    return centralised_accuracy(graphs, trainer, seed=job.seed, folds=job.folds)


def neighbourhoods(
    name: str, count: int, hops: int, seed: int = 1
) -> tuple[list[Graph], list[Graph]]:
    """Return subgraphs of a citation graph: around all training nodes, and around ``count`` others.

    Of the first, only training nodes have a label; centres of the others are drawn at random, and
    with ``count`` 0 they are the training nodes again, as in [JC] Figs 8 to 10.
    """
    big = read_planetoid(dataset(name)).largest_component()
    known = replace(big.graph, node_labels=np.where(big.train, big.graph.node_labels, -1))
    training = [k_hop(known, centre, hops) for centre in np.flatnonzero(big.train).tolist()]
    if not count:
        own = np.flatnonzero(big.train).tolist()
        return training, [k_hop(big.graph, centre, hops) for centre in own]
    others = np.flatnonzero(~big.train & (big.graph.node_labels >= 0))
    centres = generator(seed, "centres").choice(others, min(count, len(others)), replace=False)
    return training, [k_hop(big.graph, centre, hops) for centre in centres.tolist()]


def embedded_neighbourhoods(
    config: GromovWassersteinConfig, training: Sequence[Graph], others: Sequence[Graph], seed: int
) -> Embedded:
    """Return the embeddings of ``others`` by a model that FedAvg learns on ``training``."""
    classes = 1 + max(int(graph.node_labels.max()) for graph in training)
    model = federated_model(config, training, classes, seed)
    return Embedded(np.arange(len(others)), embed(model, others), labels_of(others))


@dataclass(frozen=True)
class Neighbourhoods:
    """Subgraphs of a citation graph, by name, and the model that embeds them.

    Attributes
    ----------
    data : the citation graph
    count : subgraphs that are compared; 0 takes those of all training nodes
    hops : how far they reach
    rounds : of training
    seed : of the centres, the clients and the weights
    """

    data: str
    count: int
    hops: int
    rounds: int
    seed: int


def neighbourhoods_job(job: Neighbourhoods) -> Embedded:
    """Return the embeddings of the subgraphs by a GCN of the labels of nodes."""
    training, others = neighbourhoods(job.data, job.count, job.hops, job.seed)
    config = model_config("GCN", "node", job.rounds)
    return embedded_neighbourhoods(config, training, others, job.seed)
