"""The tables of found clusters, small."""

from __future__ import annotations

import csv

import numpy as np
import pytest
from rich.console import Console

from apps.cluster_admm.config import ClusterAdmmConfig
from apps.cluster_admm.data import synthetic_table, synthetic_truth
from apps.cluster_admm.paper import clusters as paper_clusters
from apps.experiments import sweep as sweeping

SMALL = {"servers": 3, "topology": "ring", "clients": 24, "features": 8, "assign-every": 3}


@pytest.fixture(autouse=True)
def _small(monkeypatch):
    whole = paper_clusters.settings
    monkeypatch.setattr(paper_clusters, "settings", lambda *a, **k: {**whole(*a, **k), **SMALL})
    monkeypatch.setattr(paper_clusters, "SEEDS", range(1, 3))
    monkeypatch.setattr(paper_clusters, "SAMPLES", ("20", "40"))
    monkeypatch.setattr(paper_clusters, "ROUNDS", 13)
    monkeypatch.setattr(paper_clusters, "CHOICE_ROUNDS", 13)
    run_here = lambda jobs, console, title: [sweeping.run_job(job) for job in jobs]  # noqa: E731
    monkeypatch.setattr(paper_clusters, "sweep", run_here)


def read(path):
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_the_share_that_is_right_stands_beside_the_oracles(tmp_path):
    paper_clusters.found_clusters(tmp_path, Console(quiet=True))
    rows = read(tmp_path / "clusters.csv")
    assert [(row["similarity"], row["D"]) for row in rows] == [
        ("0.15", "20"), ("0.15", "40"), ("0.5", "20"), ("0.5", "40"),
    ]  # fmt: skip
    for row in rows:
        for name in ("found", "oracle"):
            least, mean, most = (float(row[f"{name}{part}"]) for part in (", least", "", ", most"))
            assert 1 / 3 <= least <= mean <= most <= 1.0


def test_the_oracle_assigns_by_the_true_models():
    settings = paper_clusters.settings(0.5, "20")
    config = ClusterAdmmConfig.from_settings(settings)
    truth = synthetic_truth(config, 7)
    right = 0
    for k, cluster in enumerate(truth.clusters):
        table = synthetic_table(config, 7, k)
        errors = [np.sum((table.y - table.X @ w) ** 2) for w in truth.models]
        right += int(np.argmin(errors) == cluster)
    assert paper_clusters.oracle(settings, 7) == pytest.approx(right / config.clients)


def test_the_choice_of_q_is_told_by_seed(tmp_path):
    paper_clusters.choose_q(tmp_path, Console(quiet=True))
    rows = read(tmp_path / "choose-q.csv")
    assert [row["seed"] for row in rows] == ["1", "2"]
    for row in rows:
        losses = [float(row[f"Q = {count}"]) for count in (2, 3, 4, 5)]
        assert int(row["chosen"]) == 2 + int(np.argmin(losses))
        scales = [float(text) for text in row["scales"].split()]
        assert scales == sorted(scales)
        assert all(0.5 <= scale <= 1.5 for scale in scales)
