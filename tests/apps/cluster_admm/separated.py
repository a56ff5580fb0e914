"""Federations of cluster-admm whose clusters can be told apart, for tests."""

from __future__ import annotations

from trellis import apps
from trellis.apps.cluster_admm.config import ClusterAdmmConfig

# Separated clusters: the true models tell (nearly) all clients apart.
APART = {
    "servers": 4, "topology": "ring", "clients": 36, "features": 12, "samples": "20",
    "similarity": 1.0, "noise": 0.5, "clusters": "auto:3", "assign-every": 5, "rounds": 30,
}  # fmt: skip
SEPARATED = (4, 6, 9)  # seeds that draw them so
TINY = {**APART, "clients": 9, "servers": 3, "features": 4, "assign-every": 2, "rounds": 12}


def run(settings, seed=1, **options):
    return apps.run("cluster-admm", settings, seed=seed, **options)


def config_of(settings):
    return ClusterAdmmConfig.from_settings(settings)


def rows_with(result, name):
    return [row for row in result.metrics if name in row]
