"""What owners of devices get from cluster-admm."""

from __future__ import annotations

import numpy as np
import pytest

from tests.apps.owner_runs import devices, held_out_places, kept_by, run_on, score_of
from trellis.apps.cluster_admm.config import ClusterAdmmConfig
from trellis.apps.command import main
from trellis.apps.common.evaluation.measures import ALONE, MEAN, THIS

STUDY = "cluster-admm"
NAMES = np.array(["a", "b", "c"])
SETTINGS = {
    "servers": 2, "topology": "complete", "clusters": "2", "rounds": 6, "ridge": 0.1,
    "held-out": 0.2,
}  # fmt: skip


def tables():
    rng = np.random.default_rng(1)
    models = np.array([[1.0, -2.0, 0.5], [-1.0, 2.0, 3.0]])
    found = []
    for k in range(4):
        X = rng.normal(size=(30, 3))
        y = X @ models[k % 2] + 0.1 * rng.normal(size=30)
        found.append({"X": X, "y": y, "columns": NAMES})
    return found


def nodes_of(folder, data):
    nodes = devices(folder, data)
    return [node | {"server": k // 2, "cluster": k % 2} for k, node in enumerate(nodes)]


@pytest.mark.parametrize(
    "more",
    [{}, {"privacy": "paper"}, {"method": "local"}],
    ids=["none", "paper", "local"],
)
def test_every_device_gets_the_model_of_its_cluster(more, tmp_path):
    nodes = nodes_of(tmp_path, tables())
    run_on(nodes, STUDY, tmp_path / "out", ClusterAdmmConfig.having_effect(SETTINGS | more))
    with np.load(tmp_path / "out" / "result.npz") as arrays:
        clients, clusters = arrays["clients"], arrays["clusters"]
    for k, node in enumerate(nodes):
        kept = kept_by(node)
        np.testing.assert_array_equal(kept.arrays["model"], clients[k])
        assert kept.arrays["cluster"] == clusters[k]
        assert kept.about["scores"]["count"] == 6


def test_scores_beside_learning_alone_and_predictions(tmp_path, capsys):
    data = tables()
    nodes = nodes_of(tmp_path, data)
    run_on(nodes, STUDY, tmp_path / "out", SETTINGS)
    kept, arrays = kept_by(nodes[1]), data[1]
    held = held_out_places(30, 6)
    X, y, w = arrays["X"][held], arrays["y"][held], kept.arrays["model"]
    assert score_of(kept, THIS)["mean loss"] == pytest.approx(np.mean((y - X @ w) ** 2))
    rest, target = arrays["X"][~held], arrays["y"][~held]
    # argmin |target - rest v|^2 / n + ridge |v|^2
    v = np.linalg.solve(rest.T @ rest / 24 + 0.1 * np.eye(3), rest.T @ target / 24)
    assert score_of(kept, ALONE)["mean loss"] == pytest.approx(np.mean((y - X @ v) ** 2))
    expected = 1 - np.sum((y - target.mean()) ** 2) / np.sum((y - y.mean()) ** 2)
    assert score_of(kept, MEAN)["R squared"] == pytest.approx(expected)
    np.savez(tmp_path / "new.npz", X=X, y=y, columns=NAMES)
    assert main(["device", "predict", nodes[1]["state-path"], str(tmp_path / "new.npz")]) == 0
    said = capsys.readouterr().out
    assert f"R squared on these rows: {score_of(kept, THIS)['R squared']:.4g}" in said
    assert f"  1  {X[0] @ w:.6g}" in said
