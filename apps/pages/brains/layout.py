"""Where the nodes of a connectome stand: three views of a head, or a circle, group by group.

``coordinates`` : (p, 3), x to the right, y to the front, z upwards (as in MNI space). ``groups`` :
p labels; nodes of one group stand side by side on the circle, those of none come last.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from trellis.apps.common.metrics import Vector

Matrix = NDArray[np.float64]


@dataclass(frozen=True)
class View:
    """Where the nodes stand (p, 2); centre (2,) and half axes (2,) of the outline around them."""

    name: str
    place: Matrix
    centre: Vector
    half: Vector
    head: bool


def views_of(
    coordinates: ArrayLike | None, size: int, groups: Sequence[object] | None
) -> list[View]:
    """Return the three views of the head, or the circle."""
    if groups is not None and len(groups) != size:
        raise ValueError(f"{len(groups)} groups for {size} nodes; give one label a node")
    if coordinates is None:
        return [View("", _ring(size, groups), np.zeros(2), np.ones(2), head=False)]
    places = np.asarray(coordinates, dtype=np.float64)
    if places.shape != (size, 3) or not np.all(np.isfinite(places)):
        raise ValueError(
            f"coordinates have shape {places.shape}; {size} nodes need ({size}, 3) finite numbers"
        )
    low, high = places.min(axis=0), places.max(axis=0)
    centre, half = (low + high) / 2.0, (high - low) / 2.0
    # A flat set of nodes still has a head around it.
    half = np.maximum(half, 0.35 * max(float(half.max()), 1e-9))
    views = []
    for name, axes in (("from above", [0, 1]), ("from the right", [1, 2]), ("from behind", [0, 2])):
        place, middle, axis = places[:, axes], centre[axes], half[axes]
        reach = np.max(np.linalg.norm((place - middle) / axis, axis=1), initial=1.0)
        views.append(View(name, place, middle, 1.06 * reach * axis, head=True))
    return views


def _ring(size: int, groups: Sequence[object] | None) -> Matrix:
    """Return places (p, 2) on the unit circle, group by group, with a gap between groups."""
    rank = group_ranks(groups)[1] if groups is not None else np.zeros(size, dtype=np.intp)
    order = np.argsort(rank, kind="stable")
    starts = np.concatenate([[0], np.cumsum(np.diff(rank[order]) != 0)]) if size else np.zeros(0)
    gap = 0.02 * size + 0.5 if np.any(starts) else 0.0
    slot = np.arange(size) + gap * starts
    turn = slot[-1] + 1.0 + gap if size else 1.0
    place = np.empty((size, 2))
    angle = np.pi / 2 - 2.0 * np.pi * slot / turn
    place[order] = np.column_stack([np.cos(angle), np.sin(angle)])
    return place


def group_ranks(groups: Sequence[object]) -> tuple[list[str], NDArray[np.intp]]:
    """Return the groups' labels in order of appearance, and every node's; no group comes last."""
    texts = [str(label) if label is not None else "" for label in groups]
    labels = [label for label in dict.fromkeys(texts) if label]
    number = {label: index for index, label in enumerate(labels)}
    return labels, np.array([number.get(text, len(labels)) for text in texts], dtype=np.intp)


def figure_size(
    views: list[View], rows: int, columns: int, *, alone: bool = False
) -> tuple[float, float]:
    """Return width and height in inches of ``rows`` times ``columns`` graphs in all their views.

    Of circles without what stands above and below them.
    """
    if len(views) == 1:
        side = 4.4 if alone else 2.9
        return side * columns, side * rows if alone else (side + 0.25) * rows
    widths = sum(float(view.half[0]) for view in views)
    tallest = max(float(view.half[1]) for view in views)
    width = 7.6 if columns == 1 else 4.7
    return width * columns, (width * tallest / widths + 0.45) * rows + 0.5
