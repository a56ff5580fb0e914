"""A run of twelve graphs to report on, changes to it, and parts of its page."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from trellis.apps.common.results import RunResult
from trellis.apps.gromov_wasserstein.config import GromovWassersteinConfig
from trellis.apps.gromov_wasserstein.report import distances as report_distances
from trellis.apps.gromov_wasserstein.report import learning as report_learning
from trellis.apps.gromov_wasserstein.report import page as report
from trellis.apps.gromov_wasserstein.report import privacy as report_privacy
from trellis.apps.gromov_wasserstein.report.outcome import Outcome
from trellis.apps.gromov_wasserstein.report.words import WORDING
from trellis.apps.pages.report import Table, write_report

DISTANCES, PICTURE = "The distances between graphs", "The graphs in a picture"
LEARNING, TRAINING = "What can be learned from the distances", "Training the shared model"
PRIVACY = "What a release hides"
OWNER = [0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 2]
SIZE = [5, 9, 7, 12, 6, 8, 8, 20, 11, 5, 9, 10]
LABEL = [0, 1, 0, 1, 0, 1, -1, 1, 0, 0, 1, 0]
H = 4


def run(**settings) -> RunResult:
    """Return a run of twelve graphs of three clients, one graph without a label."""
    chosen = {"privacy": "dp", "task": "graph", "width": H}
    chosen |= {name.replace("_", "-"): value for name, value in settings.items()}
    if chosen["privacy"] != "none":
        chosen.setdefault("epsilon", 20.0)
    config = GromovWassersteinConfig.from_settings(chosen)
    rng = np.random.default_rng(3)
    labels = np.array(LABEL)
    points = rng.normal(size=(12, 3)) + 3.0 * labels[:, None]
    D = np.array([[math.dist(a, b) for b in points] for a in points])
    arrays = {
        "distances": D,
        "owner": np.array(OWNER),
        "sizes": np.array(SIZE),
        "labels": labels,
        "codes": np.ones((sum(SIZE), H), dtype=np.int8),
        "anomaly": D.sum(axis=1) / 11,
        "spectral-clusters": (points[:, 0] > 1.5).astype(np.int64),
        "svm-from-constant": np.array([0.70, 0.72, 0.68, 0.75, 0.75]),
    }
    headline = {"rounds": 3.0, "graphs": 12.0, "test-accuracy": 0.7, "majority": 6 / 11}
    headline |= {"svm-accuracy": 0.71, "svm-from-sizes": 0.795, "svm-from-constant": 0.72}
    headline |= {"spectral-ari": 0.31, "spectral-purity": 0.83}
    rows = [
        {"round": n, "change": 0.1, "loss": 1.0 / n, "train-accuracy": 0.5, "test-accuracy": n / 4}
        for n in (1.0, 2.0, 3.0)
    ]
    rows[-1]["released-graphs"] = 12.0
    return RunResult(
        "gromov-wasserstein",
        1,
        "local",
        config.settings(),
        arrays=arrays,
        headline=headline,
        metrics=rows,
        clients=[{"name": name} for name in ("oslo", "<rome>", "bern")],
        ledger={"mode": config.privacy, "epsilon": 20.0, "delta": 0.0},
        status="completed",
        started="2024-01-01T00:00:00Z",
    )


def changed(result, **arrays):
    return replace(result, arrays={**result.arrays, **arrays})


def without(result, *names):
    kept = {name: array for name, array in result.arrays.items() if name not in names}
    return replace(result, arrays=kept)


def told(result, **headline):
    numbers = {name.replace("_", "-"): value for name, value in headline.items()}
    return replace(result, headline={**result.headline, **numbers})


def part(result, title):
    """Return one section, without the work of the others."""
    outcome = Outcome.of(result)
    if title == DISTANCES:
        return report_distances.distances_section(result, outcome)
    if title == LEARNING:
        return report_learning.learning_section(result, outcome)[0]
    if title == PRIVACY:
        return report_privacy.privacy(result, outcome)
    return next(section for section in report.sections(result) if section.title == title)


def shown(result, title):
    return "\n".join(block.html() for block in part(result, title).blocks)


def table(result, title, *headers):
    """Return the table that has these headers, rows by their first cell."""
    tables = [block for block in part(result, title).blocks if isinstance(block, Table)]
    found = next(block for block in tables if set(headers) <= set(block.headers))
    return {row[0]: dict(zip(found.headers, row, strict=True)) for row in found.rows}


def page(result, tmp_path):
    path = tmp_path / "report.html"
    write_report(result, report.sections(result), path, WORDING)
    return path.read_text()
