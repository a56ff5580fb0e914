"""What the nearest molecule is worth: how often it has the same effect.

Of every molecule the nearest is looked up, among those of the other companies or among the other
ones of its own. Where several are equally near, the share of them with the same effect counts. A
company alone has its own molecules only, with the same distances.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trellis.apps.common.results import RunResult

from ..evidence import Estimate, beside_alone, estimate

Vector = NDArray[np.float64]
Matrix = NDArray[np.float64]

MEASURE = "nearest molecule has the same effect"
_TIE = 1e-9  # relative: distances that close are one


def agreeing(
    distances: Matrix, owner: NDArray[np.int64], labels: NDArray[np.int64], *, own: bool
) -> Vector:
    """Return for every molecule (N,) which share of its nearest ones has its label."""
    same = owner[:, None] == owner[None, :]
    allowed = (same if own else ~same) & ~np.eye(len(owner), dtype=bool)
    far = np.where(allowed, distances, np.inf)
    least = far.min(axis=1, keepdims=True)
    nearest = allowed & (far <= least * (1.0 + _TIE) + 1e-12)
    agree = labels[:, None] == labels[None, :]
    found: Vector = (nearest & agree).sum(axis=1) / nearest.sum(axis=1)
    return found


def by_company(runs: Sequence[RunResult], *, own: bool = False, sizes: bool = False) -> Vector:
    """Return the mean share of every company (K,), over the splits.

    ``sizes`` takes the difference of the numbers of atoms for the distance.
    """
    found = []
    for run in runs:
        arrays = run.arrays
        atoms = arrays["sizes"].astype(np.float64)
        distances = np.abs(atoms[:, None] - atoms[None, :]) if sizes else arrays["distances"]
        shares = agreeing(distances, arrays["owner"], arrays["labels"], own=own)
        owners = range(int(arrays["owner"].max()) + 1)
        found.append([float(shares[arrays["owner"] == k].mean()) for k in owners])
    return np.asarray(np.mean(found, axis=0), dtype=np.float64)


def by_chance(run: RunResult) -> float:
    """Return how often two molecules of different companies have the same effect."""
    owner, labels = run.arrays["owner"], run.arrays["labels"]
    apart = owner[:, None] != owner[None, :]
    return float(np.mean((labels[:, None] == labels[None, :])[apart]))


def over_companies(values: Vector) -> Estimate:
    """Return the mean over companies and its standard error."""
    return estimate(values.tolist(), 0.0)


def scores(runs: Sequence[RunResult]) -> dict[str, Any]:
    """Return neighbours elsewhere beside those at home (`apps.common.evaluation.scores`)."""
    ours, alone = by_company(runs), by_company(runs, own=True)
    clients = [
        (str(client["name"]), int(client["count"]), float(together), float(by_itself))
        for client, together, by_itself in zip(runs[0].clients, ours, alone, strict=True)
    ]
    return beside_alone(MEASURE, clients, (float(ours.mean()), float(alone.mean())))
