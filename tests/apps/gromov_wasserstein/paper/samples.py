"""Small graphs, embeddings and settings for the paper's figures, and what these write."""

from __future__ import annotations

import csv
from dataclasses import replace
from pathlib import Path

import numpy as np

from trellis.apps.gromov_wasserstein.config import GromovWassersteinConfig
from trellis.apps.gromov_wasserstein.graphs import Graph, k_hop, labels_of, undirected
from trellis.apps.gromov_wasserstein.paper.scores import Embedded
from trellis.apps.gromov_wasserstein.synthetic import synthetic_graphs

FAST = GromovWassersteinConfig(rounds=2, local_epochs=1, clients=3)


def two_classes(count: int) -> list[Graph]:
    found = synthetic_graphs(2 * count, np.random.default_rng(7))
    return [graph for graph in found if graph.label < 2][:count]


def citations(name: str, count: int, hops: int, seed: int = 1) -> tuple[list[Graph], list[Graph]]:
    """Return subgraphs of a small random graph whose labels follow its features."""
    count = count or 10
    rng = np.random.default_rng(3)
    n = 120
    labels = rng.integers(0, 3, n)
    edges = undirected(rng.integers(0, n, (220, 2)), n, symmetrise=True)
    edges = edges[labels[edges[:, 0]] == labels[edges[:, 1]]]
    big = Graph(edges, np.eye(3, dtype=np.float32)[labels], -1, labels, "small")
    big = replace(big, edges=undirected(edges, n, symmetrise=True))
    known = replace(big, node_labels=np.where(np.arange(n) < 20, labels, -1))
    training = [k_hop(known, centre, hops) for centre in range(20)]
    return training, [k_hop(big, centre, hops) for centre in range(20, 20 + count)]


def rows_that_differ(graphs: list[Graph]) -> Embedded:
    rng = np.random.default_rng(2)
    rows = []
    for graph in graphs:
        share = rng.dirichlet(np.ones(3))
        rows.append(np.eye(3)[rng.choice(3, graph.nodes, p=share)])
    return Embedded(np.arange(len(rows)), rows, labels_of(graphs))


def read(path: Path) -> list[dict[str, str]]:
    with path.open() as file:
        return list(csv.DictReader(file))


def drawn(folder: Path, *stems: str) -> None:
    there = {path.name for path in folder.iterdir()}
    for stem in stems:
        assert {f"{stem}.png", f"{stem}.svg"} <= there
