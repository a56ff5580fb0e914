"""How well clusters are found, and how many: two tables of ``trellis paper cluster-admm``.

The paper's regression setting, which is the study's default, with clusters that no client knows. A
client may fit another cluster's model better than its own: with D samples and noise 1 it cannot
tell models apart whose predictions hardly differ. So the share that is right stands beside that of
the *oracle*, which knows the true models and assigns every client to the one of smallest loss. With
normal noise and clusters of equal size that is the likeliest one: no rule is right more often, on
average over draws.

Runs are of messages, in this process. tau = 0 also after clusters are found: only who belongs where
is told here.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console

from apps.experiments.sweep import Job, Outcome, by_row, show_rows, sweep, write_rows
from strategies.cluster_admm.search import agreement

from ..config import ClusterAdmmConfig
from ..data import synthetic_truth
from ..problem import mean_losses
from ..simulate import client_tables

SEEDS = range(1, 6)
SAMPLES = ("2-9", "20", "40", "100")
SIMILARITIES = (0.15, 0.5)
ROUNDS = 41  # the first split before round 21, then two assignments
CANDIDATES = "auto:2-5"
CHOICE_ROUNDS = 41
STUDY = "cluster-admm"


def found_clusters(out: Path, console: Console) -> None:
    """Write the share of clients assigned to the right cluster, by D and similarity."""
    cells = list(itertools.product(SIMILARITIES, SAMPLES))
    jobs = [
        Job(STUDY, settings(similarity, samples, rounds=ROUNDS), seed, (similarity, samples))
        for similarity, samples in cells
        for seed in SEEDS
    ]
    rows: list[dict[str, Any]] = []
    for (similarity, samples), outcomes in by_row(sweep(jobs, console, "clusters")).items():
        right = [outcome.headline["right"] for outcome in outcomes]
        best = [oracle(settings(similarity, samples), seed) for seed in SEEDS]
        row = {"similarity": similarity, "D": samples}
        row |= {**_spread("found", right), **_spread("oracle", best)}
        rows.append({**row, "found of oracle's": float(np.mean(right) / np.mean(best))})
    show_rows(rows, f"Share of clients in the right cluster, {len(SEEDS)} seeds", console)
    console.print("oracle: every client assigned by its losses under the true models")
    write_rows(out / "clusters.csv", rows, console)


def choose_q(out: Path, console: Console) -> None:
    """Write the held-out loss by number of clusters and seed, at similarity .5 and D = 20."""
    chosen = settings(0.5, "20", clusters=CANDIDATES, rounds=CHOICE_ROUNDS)
    keep = ("candidates", "held_out")
    outcomes = sweep([Job(STUDY, chosen, s, (s,), keep) for s in SEEDS], console, "choose-q")
    rows = [_choice(outcome) for outcome in outcomes]
    show_rows(rows, "Held-out loss by number of clusters; synthetic data has 3", console)
    console.print(
        "scales: 1 + gamma of the true models, w_q = (1 + gamma_q) w_0; two that are close are one "
        "cluster to 20 samples"
    )
    write_rows(out / "choose-q.csv", rows, console)


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


def _choice(outcome: Outcome) -> dict[str, Any]:
    config = ClusterAdmmConfig.from_settings(outcome.job.settings)
    models = synthetic_truth(config, outcome.job.seed).models
    base = synthetic_truth(
        ClusterAdmmConfig.from_settings({**outcome.job.settings, "similarity": 0.0}),
        outcome.job.seed,
    ).models[0]
    scales = np.sort(models @ base / (base @ base))
    tried = zip(
        outcome.arrays["candidates"].tolist(), outcome.arrays["held_out"].tolist(), strict=True
    )
    return {
        "seed": outcome.job.seed,
        "scales": " ".join(f"{scale:.2f}" for scale in scales),
        **{f"Q = {count}": loss for count, loss in tried},
        "chosen": int(outcome.headline["clusters"]),
    }
