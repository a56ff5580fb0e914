"""The tables of found clusters, small."""

from __future__ import annotations

import csv

import joblib
import numpy as np
import pytest

from tests.apps.experiments.making import make
from trellis.apps.cluster_admm.config import ClusterAdmmConfig
from trellis.apps.cluster_admm.data import synthetic_table, synthetic_truth
from trellis.apps.cluster_admm.paper import clusters as paper_clusters

STUDY = "cluster-admm"
SMALL = {"servers": 3, "topology": "ring", "assign-every": 3}
SIZE = {"seeds": 2, "clients": 24, "features": 8, "rounds": 13}


@pytest.fixture(autouse=True)
def _small(monkeypatch):
    whole = paper_clusters.settings
    monkeypatch.setattr(paper_clusters, "settings", lambda *a, **k: {**whole(*a, **k), **SMALL})
    with joblib.parallel_config(n_jobs=1):
        yield


def read(path):
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_the_share_that_is_right_stands_beside_the_oracles(tmp_path, console):
    cells = {"samples": ["20", "40"], "similarities": [0.15, 0.5]}
    make(STUDY, "clusters", tmp_path, console, **SIZE, **cells)
    rows = read(tmp_path / "clusters.csv")
    assert [(row["similarity"], row["samples per client"]) for row in rows] == [
        ("0.15", "20"), ("0.15", "40"), ("0.5", "20"), ("0.5", "40"),
    ]  # fmt: skip
    for row in rows:
        for name in ("found", "oracle"):
            least, mean, most = (float(row[f"{name}{part}"]) for part in (", least", "", ", most"))
            assert 1 / 3 <= least <= mean <= most <= 1.0


def test_the_oracle_assigns_by_the_true_models():
    settings = {**paper_clusters.settings(0.5, "20"), "clients": 24, "features": 8}
    config = ClusterAdmmConfig.from_settings(settings)
    truth = synthetic_truth(config, 7)
    right = 0
    for k, cluster in enumerate(truth.clusters):
        table = synthetic_table(config, 7, k)
        errors = [np.sum((table.y - table.X @ w) ** 2) for w in truth.models]
        right += int(np.argmin(errors) == cluster)
    assert paper_clusters.oracle(settings, 7) == pytest.approx(right / config.clients)
