"""cluster-admm through messages: the numbers of the arithmetic, its optimum, its limits."""

from __future__ import annotations

import numpy as np
import pytest

from trellis.apps.cluster_admm.client_app import app as client_app
from trellis.apps.cluster_admm.config import ClusterAdmmConfig
from trellis.apps.cluster_admm.data import synthetic_table, synthetic_truth
from trellis.apps.cluster_admm.problem import optimum
from trellis.apps.cluster_admm.server_app import app as server_app
from trellis.apps.cluster_admm.simulate import simulate
from trellis.apps.common.results import RunResult
from trellis.sim.grid import run_local
from trellis.strategies.core.enrolment import StudyError

SMALL = {"servers": 4, "topology": "ring", "clients": 16, "features": 5, "samples": "6-9"}


def run(out, seed=1, **settings):
    config = ClusterAdmmConfig.from_settings({**SMALL, **settings})
    nodes = [
        {"partition-id": i, "num-partitions": config.clients, "simulation": True}
        for i in range(config.clients)
    ]
    run_config = {"seed": seed, "out": str(out), "report": False, **config.run_config()}
    run_local(server_app, client_app, nodes, run_config)
    return config, RunResult.load(out)


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"mixing": "exact", "tau": 0.0},
        {"method": "gfl"},
        {"method": "clusterfl"},
        {"sample": 2, "privacy": "paper", "tau-decay": 0.9},
    ],
    ids=str,
)
def test_a_run_has_the_numbers_of_its_arithmetic(settings, tmp_path):
    config, result = run(tmp_path, rounds=12, **settings)
    expected = simulate(config, 1)
    np.testing.assert_allclose(result.arrays["models"], expected.models, atol=1e-10)


def test_exact_mixing_reaches_the_optimum_of_every_cluster(tmp_path):
    config, result = run(tmp_path, rounds=1500, mixing="exact", tau=0.0)
    truth = synthetic_truth(config, 1)
    for cluster in range(config.cluster_count):
        mine = np.flatnonzero(truth.clusters == cluster)
        tables = [synthetic_table(config, 1, int(k)) for k in mine]
        best = optimum("ridge", [(t.X, t.y) for t in tables], config.ridge)
        found = result.arrays["models"][:, cluster]
        np.testing.assert_allclose(found, np.tile(best, (4, 1)), atol=1e-8)


def test_divergence_is_named_with_rho_tau_and_the_graph(tmp_path):
    with pytest.raises(StudyError, match=r"diverge.*rho=0\.05.*tau=0\.9.*second eigenvalue"):
        run(tmp_path, rounds=400, rho=0.05, tau=0.9, features=20, samples="2-4")


def test_one_cluster_and_one_server_work(tmp_path):
    _, result = run(tmp_path, rounds=30, clusters="1", servers=1)
    assert result.arrays["models"].shape == (1, 1, 5)
    assert result.headline["nmsd"] < 0.0


def test_logistic_clients_learn(tmp_path):
    _, result = run(tmp_path, rounds=40, loss="logistic", samples="20-30", tau=0.0)
    assert np.all(np.isfinite(result.arrays["models"]))
    assert result.metrics[-1]["change"] < 0.05
