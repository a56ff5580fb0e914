"""Many runs of consensus-graph side by side, for tables and figures over seeds and settings."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import Progress

from sim.metrics import matthews, relative_error

from .config import ConsensusGraphConfig


@dataclass(frozen=True)
class Job:
    """One run: its settings and seed, and ``row``, what it is called in the table it is for."""

    settings: Mapping[str, Any]
    seed: int
    row: tuple[Any, ...] = ()


@dataclass(frozen=True)
class Outcome:
    """What a table or figure needs of one run."""

    job: Job
    headline: dict[str, float]
    client_mcc: list[float]
    client_re: list[float]
    gamma: list[float]


def sweep(jobs: Sequence[Job], console: Console, title: str) -> list[Outcome]:
    """Run the jobs on all cores, in order, with a progress bar."""
    outcomes = []
    workers = min(os.cpu_count() or 1, max(1, len(jobs)))
    # Fresh processes: a fork of one with threads may hang.
    pool = ProcessPoolExecutor(workers, mp_context=get_context("spawn"))
    with pool, Progress(console=console, transient=True) as progress:
        task = progress.add_task(title, total=len(jobs))
        chunk = max(1, min(16, len(jobs) // (4 * workers)))
        for outcome in pool.map(run_job, jobs, chunksize=chunk):
            outcomes.append(outcome)
            progress.advance(task)
    return outcomes


def run_job(job: Job) -> Outcome:
    """Run one job in this process."""
    from apps.runner import run

    logging.getLogger("trellis").setLevel(logging.ERROR)
    result = run(ConsensusGraphConfig.study, job.settings, seed=job.seed)
    pairs = list(zip(result.arrays["weights"], result.arrays["truth"], strict=True))
    return Outcome(
        job,
        result.headline,
        [matthews(w, t) for w, t in pairs],
        [relative_error(w, t) for w, t in pairs],
        [float(g) for g in result.arrays["gamma"]],
    )


def means(outcomes: Sequence[Outcome]) -> dict[tuple[Any, ...], dict[str, float]]:
    """Return the mean headline of every row, in order of first appearance."""
    rows: dict[tuple[Any, ...], list[dict[str, float]]] = {}
    for outcome in outcomes:
        rows.setdefault(outcome.job.row, []).append(outcome.headline)
    return {
        row: {name: float(np.mean([h[name] for h in found])) for name in found[0]}
        for row, found in rows.items()
    }
