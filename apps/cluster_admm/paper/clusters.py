"""How well clusters are found: a table of ``trellis paper cluster-admm``.

The paper's regression setting, which is the study's default, with clusters that no client knows. A
client may fit another cluster's model better than its own: with D samples and noise 1 it cannot
tell models apart whose predictions hardly differ. So the share that is right stands beside that of
the *oracle*, which knows the true models and assigns every client to the one of smallest loss. With
normal noise and clusters of equal size that is the likeliest one: no rule is right more often, on
average over draws.

Runs are of messages, in this process. tau = 0 also after clusters are found: only who belongs where
is told here. It is not of the paper, whose clients know their cluster.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

from trellis.apps.experiments.finding import Finding, spread
from trellis.apps.experiments.making import Making
from trellis.apps.experiments.sweep import Job, by_row
from trellis.strategies.cluster_admm.search import agreement

from ..config import ClusterAdmmConfig
from ..data import synthetic_truth
from ..problem import mean_losses
from ..simulate import client_tables

STUDY = "cluster-admm"
CLOSE = 0.05  # of the oracle's share: found nearly as often as can be


def found_clusters(making: Making) -> list[Finding]:
    """Write the share of clients assigned to the right cluster, by D and similarity."""
    cells = list(itertools.product(map(float, making["similarities"]), making["samples"]))
    small = {"clients": making["clients"], "features": making["features"]}
    chosen = {cell: settings(*cell, rounds=making["rounds"], **small) for cell in cells}
    jobs = [Job(STUDY, chosen[cell], seed, cell) for cell in cells for seed in making.seeds]
    rows: list[dict[str, Any]] = []
    shares: dict[tuple[Any, ...], tuple[list[float], list[float]]] = {}
    for cell, outcomes in by_row(making.sweep(jobs)).items():
        right = [outcome.headline["right"] for outcome in outcomes]
        best = [oracle(chosen[cell], seed) for seed in making.seeds]
        shares[cell] = right, best
        row = {"similarity": cell[0], "samples per client": cell[1]}
        row |= {**_spread("found", right), **_spread("oracle", best)}
        rows.append({**row, "found of oracle's": float(np.mean(right) / np.mean(best))})
    count = len(making.seeds)
    making.table(rows, show=f"Share of clients in the right cluster, {count} seeds")
    making.console.print("oracle: every client assigned by its losses under the true models")
    right, best = shares[cells[-1]]
    why = f"on average {float(np.mean(best) - np.mean(right)):.2g} below the oracle"
    near = float(np.mean(best) - np.mean(right)) <= CLOSE
    return [
        Finding(
            "clusters-found",
            f"similarity {cells[-1][0]:g}, {cells[-1][1]} samples: {spread(right)} found, the "
            f"oracle {spread(best)}",
            "reproduced" if near else "refuted",
            "" if near else why,
            count,
        )
    ]


def settings(similarity: float, samples: str, **more: Any) -> dict[str, Any]:
    """Return the paper's setting with clusters to be found."""
    changed = {"clusters": "auto:3", "similarity": similarity, "samples": samples, "tau": 0.0}
    return {**changed, **more}


def oracle(changed: dict[str, Any], seed: int) -> float:
    """Return the share of clients whose own true model fits them best."""
    config = ClusterAdmmConfig.from_settings(changed)
    truth = synthetic_truth(config, seed)
    tables = client_tables(config, seed)
    losses = np.array([mean_losses(config.loss, truth.models, X, y) for X, y in tables])
    return agreement(np.argmin(losses, axis=1), truth.clusters, len(truth.models))


def _spread(name: str, shares: Sequence[float]) -> dict[str, float]:
    return {
        name: float(np.mean(shares)),
        f"{name}, least": min(shares),
        f"{name}, most": max(shares),
    }
