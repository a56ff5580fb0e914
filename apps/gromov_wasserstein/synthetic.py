"""Synthetic graphs in which both structure and node types tell the class.

Class 0 is a ring with chords, 1 a tree, 2 two dense communities joined by one edge, of 8 to 16
nodes each. A node's label is its role by degree: 0 an end (1 neighbour), 1 a link (2), 2 a hub (3
and more). Its features are the one-hot role, replaced by one of the three at random in a share
``noise`` of nodes: the neighbourhood helps to mend it, which is what a graph network is for.
"""

from __future__ import annotations

import numpy as np

from .graphs import Graph, Integers, undirected

ROLES = 3
_SMALLEST, _LARGEST = 8, 16
_NOISE = 0.2
_INSIDE = 0.7  # chance of an edge in a community


def synthetic_graphs(count: int, rng: np.random.Generator, noise: float = _NOISE) -> list[Graph]:
    """Return ``count`` graphs, as many of every class, give or take one, in random order."""
    labels = rng.permutation(np.arange(count) % len(_SHAPES))
    return [_graph(int(label), rng, noise, number) for number, label in enumerate(labels)]


def _graph(label: int, rng: np.random.Generator, noise: float, number: int) -> Graph:
    n = int(rng.integers(_SMALLEST, _LARGEST + 1))
    # Shuffled, so that a node's number tells nothing.
    pairs = rng.permutation(n)[_SHAPES[label](n, rng)]
    edges = undirected(pairs, n, symmetrise=True)
    degrees = np.bincount(edges.ravel(), minlength=n)
    roles = np.clip(degrees, 1, ROLES) - 1
    seen = np.where(rng.random(n) < noise, rng.integers(0, ROLES, n), roles)
    features = np.eye(ROLES, dtype=np.float32)[seen]
    return Graph(edges, features, label, roles, f"synthetic graph {number + 1}")


def _ring(n: int, rng: np.random.Generator) -> Integers:
    around = np.column_stack([np.arange(n), (np.arange(n) + 1) % n])
    starts = rng.choice(n, size=max(1, n // 4), replace=False)
    # A chord spans two nodes or more, so it is not an edge of the ring.
    spans = rng.integers(2, n - 1, size=len(starts))
    return np.concatenate([around, np.column_stack([starts, (starts + spans) % n])])


def _tree(n: int, rng: np.random.Generator) -> Integers:
    children = np.arange(1, n)
    return np.column_stack([rng.integers(0, children), children])


def _communities(n: int, rng: np.random.Generator) -> Integers:
    parts = np.split(np.arange(n), [n // 2])
    found = [np.array([[parts[0][-1], parts[1][0]]])]
    for part in parts:
        # A path through the part keeps it in one piece, whatever the draw.
        found.append(np.column_stack([part[:-1], part[1:]]))
        u, v = np.triu_indices(len(part), 1)
        inside = rng.random(len(u)) < _INSIDE
        found.append(np.column_stack([part[u[inside]], part[v[inside]]]))
    return np.concatenate(found)


_SHAPES = (_ring, _tree, _communities)
CLASSES = len(_SHAPES)
