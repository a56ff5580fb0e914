"""Where the nodes of a graph stand: on a circle, or by springs between them."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from trellis.apps.common.metrics import EDGE_THRESHOLD, Vector, edges

Matrix = NDArray[np.float64]

_GRAVITY = 3.0
_STEPS, _NODES = 60, 300  # of the springs; larger graphs take fewer steps, not longer


def circle(nodes: int) -> Matrix:
    """Return positions (d, 2) on the unit circle, the first node on top, then clockwise."""
    angle = np.pi / 2 - 2.0 * np.pi * np.arange(nodes) / max(nodes, 1)
    return np.column_stack([np.cos(angle), np.sin(angle)])


def spring(weights: Vector, nodes: int, threshold: float = EDGE_THRESHOLD) -> Matrix:
    """Return positions (d, 2) that put strongly connected nodes side by side.

    Nodes without an edge stand on a ring around the rest, where a spring layout would let them
    drift away. The same weights give the same positions.
    """
    chosen = np.flatnonzero(edges(weights, threshold))
    a, b = (ends[chosen] for ends in np.triu_indices(nodes, 1))
    place = 1.25 * circle(nodes)
    linked = np.unique(np.concatenate([a, b]))
    if linked.size:
        pull = np.zeros((linked.size, linked.size))
        first, second = np.searchsorted(linked, a), np.searchsorted(linked, b)
        pull[first, second] = pull[second, first] = np.abs(weights[chosen])
        place[linked] = _settled(pull)
        alone = np.setdiff1d(np.arange(nodes), linked)
        place[alone] = 1.25 * circle(alone.size)
    return place


def _settled(pull: Matrix) -> Matrix:
    """Return where n nodes settle that push each other away and are pulled by springs.

    Fruchterman and Reingold's forces, k^2 / r between all and pull r^2 / k along edges, for all
    pairs at once: with F_ij = k^2 / r_ij^2 - pull_ij r_ij / k the step of node i is along
    sum_j F_ij (x_i - x_j), which is a product of matrices. A weak pull to the middle keeps parts
    that no edge joins from drifting apart.
    """
    count = len(pull)
    if count == 1:
        return np.zeros((1, 2))
    place = np.random.default_rng(1).random((count, 2)) - 0.5
    # Weights in any unit: the heaviest spring is as strong as that of a plain edge.
    springs = pull * (np.sqrt(count) / pull.max())
    k_squared = 1.0 / count
    steps = int(np.clip(_STEPS * (_NODES / count) ** 2, 15, _STEPS))
    warmth = 0.1
    for _ in range(steps):
        squares = np.einsum("ij,ij->i", place, place)
        apart = place @ place.T
        apart *= -2.0
        apart += squares[:, None]
        apart += squares
        np.maximum(apart, 1e-4, out=apart)
        force = k_squared / apart
        np.sqrt(apart, out=apart)
        apart *= springs
        force -= apart
        step = (force.sum(axis=1) - _GRAVITY)[:, None] * place - force @ place
        length = np.maximum(np.linalg.norm(step, axis=1), 0.01)
        place += step * (warmth / length)[:, None]
        warmth -= 0.1 / (steps + 1)
    place -= np.median(place, axis=0)
    radius = np.linalg.norm(place, axis=1)
    # A few nodes far outside must not make a dot of all others: they are drawn in to the rim.
    rim = max(float(np.quantile(radius, 0.97)), 1e-12)
    return place / np.maximum(radius, rim)[:, None]


def strongest(weights: Vector, threshold: float, most: int) -> tuple[NDArray[np.intp], int]:
    """Return the indices of the ``most`` heaviest edges, light to heavy, and how many there are."""
    chosen = np.flatnonzero(edges(weights, threshold))
    # Stable, so that ties fall the same way everywhere.
    order = np.argsort(np.abs(weights[chosen]), kind="stable")
    return chosen[order][-most:] if most else chosen[:0], int(chosen.size)
