"""What owners of devices get from gromov-wasserstein."""

from __future__ import annotations

import csv

import numpy as np
import pytest

from tests.apps.owner_runs import kept_by, run_on, score_of
from trellis.apps.command import main
from trellis.apps.common.evaluation.measures import MOST_FREQUENT, THIS
from trellis.apps.gromov_wasserstein.files.npz import write_graphs
from trellis.apps.gromov_wasserstein.model.gnn import build_model, load
from trellis.apps.gromov_wasserstein.model.training import predicted
from trellis.apps.gromov_wasserstein.synthetic import synthetic_graphs

STUDY = "gromov-wasserstein"
SETTINGS = {"rounds": 2, "task": "graph", "classes": 3, "held-out": 0.25, "downstream": "none"}


@pytest.fixture
def nodes(tmp_path):
    graphs = synthetic_graphs(24, np.random.default_rng(0))
    found = []
    for k in range(3):
        path = tmp_path / f"site{k}.npz"
        write_graphs(path, graphs[8 * k : 8 * k + 8])
        state = str(tmp_path / f"state{k}")
        found.append({"data-path": str(path), "state-path": state, "partition-id": k})
    return found


@pytest.mark.parametrize("way", ["none", "dp"])
def test_every_device_gets_the_weights_and_its_graphs_neighbours(way, nodes, tmp_path):
    run_on(nodes, STUDY, tmp_path / "out", {**SETTINGS, "privacy": way, "held-out": 0.0})
    with np.load(tmp_path / "out" / "result.npz") as arrays:
        distances, owner, weights = arrays["distances"], arrays["owner"], arrays["weights"]
    for k, node in enumerate(nodes):
        kept = kept_by(node)
        assert kept.about["made"] == ("here" if way == "dp" else "by the server")
        np.testing.assert_array_equal(kept.arrays["weights"], weights)
        own = np.flatnonzero(owner == k)
        np.testing.assert_array_equal(kept.arrays["own"], own)
        for row, graph in enumerate(own):
            others = [g for g in range(24) if g != graph]
            near = sorted(others, key=lambda g, graph=graph: distances[graph, g])[:10]
            np.testing.assert_allclose(
                kept.arrays["near-distance"][row], [distances[graph, g] for g in near]
            )
            np.testing.assert_array_equal(
                kept.arrays["near-owner"][row], owner[kept.arrays["near"][row]]
            )
        told = set(kept.arrays) - {"variables", "own-weights", "rows"}
        # Of other clients' graphs: where they are near, and nothing else.
        near = {"near", "near-owner", "near-distance", "own"}
        assert told == {"weights", "sizes", "predicted", *near}


def test_the_shared_model_is_scored_on_held_out_graphs_and_used(nodes, tmp_path):
    run_on(nodes, STUDY, tmp_path / "out", SETTINGS)
    kept = kept_by(nodes[0])
    assert kept.about["scores"]["count"] == 2
    assert 0.0 <= score_of(kept, THIS)["share of right labels"] <= 1.0
    assert 0.0 <= score_of(kept, MOST_FREQUENT)["share of right labels"] <= 1.0
    new, out = tmp_path / "new.npz", tmp_path / "new.csv"
    graphs = synthetic_graphs(6, np.random.default_rng(9))
    write_graphs(new, graphs)
    state = nodes[0]["state-path"]
    assert main(["device", "predict", state, str(new), "--out", str(out)]) == 0
    about = kept.about["model"]
    features = graphs[0].features.shape[1]
    model = build_model(about["model"], features, 3, "graph", about["width"])
    load(model, kept.arrays["weights"])
    expected = predicted(model, graphs, "graph").tolist()
    assert [int(row["class"]) for row in csv.DictReader(out.open())] == expected
