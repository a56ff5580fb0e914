"""What owners of devices get from consensus-graph."""

from __future__ import annotations

import numpy as np
import pytest

from tests.apps.owner_runs import devices, held_out_places, kept_by, run_on, score_of, secret_places
from trellis.apps.command import main
from trellis.apps.common.evaluation.measures import ALONE, THIS
from trellis.apps.consensus_graph.problem import statistic
from trellis.apps.consensus_graph.solver import solve

STUDY = "consensus-graph"
NAMES = np.array([f"gene {k}" for k in range(6)])
MEASURE = "mean log likelihood of a signal"


def tables():
    rng = np.random.default_rng(2)
    mixing = np.eye(6) + 0.5 * np.diag(np.ones(5), 1)
    return [{"X": rng.normal(size=(40, 6)) @ mixing, "columns": NAMES} for _ in range(3)]


def likelihood(w, learning, signals):
    """The Gaussian density of signals without their mean, precision c L, by its eigenvalues."""
    w = w + 0.05 * w.mean()
    L = np.zeros((6, 6))
    for weight, a, b in zip(w, *np.triu_indices(6, 1), strict=True):
        e = np.eye(6)[a] - np.eye(6)[b]
        L += weight * np.outer(e, e)
    c = 5 / np.mean([x @ L @ x for x in learning])
    values = np.linalg.eigvalsh(c * L)[1:]
    return np.array([0.5 * np.sum(np.log(values)) - 0.5 * c * x @ L @ x for x in signals])


WAYS = {
    "none": {},
    "igl": {"method": "igl"},
    "fedavg": {"method": "fedavg"},
    "paper": {"privacy": "paper", "local-steps": 2},
    "one-shot": {"method": "one-shot"},
    "one graph from a noisy sum": {"privacy": "dp", "method": "fedavg"},
}


@pytest.mark.parametrize("way", WAYS)
def test_every_device_gets_its_graph_in_every_mode(way, tmp_path):
    nodes = devices(tmp_path, tables())
    run_on(nodes, STUDY, tmp_path / "out", {"rounds": 3, "held-out": 0.25, **WAYS[way]})
    with np.load(tmp_path / "out" / "result.npz") as arrays:
        weights, consensus = arrays["weights"], arrays["consensus"]
    for k, node in enumerate(nodes):
        kept = kept_by(node)
        np.testing.assert_array_equal(kept.arrays["weights"], weights[k])
        assert ("consensus" in kept.arrays) == (way != "igl")
        if way != "igl":
            np.testing.assert_array_equal(kept.arrays["consensus"], consensus)
        assert kept.about["scores"]["count"] == 10
        assert (kept.folder / "graph.graphml").is_file()


def test_scores_and_predictions_are_gaussian_likelihoods(tmp_path, capsys):
    data = tables()
    nodes = devices(tmp_path, data)
    run_on(nodes, STUDY, tmp_path / "out", {"rounds": 3, "held-out": 0.25})
    kept, X = kept_by(nodes[0]), data[0]["X"]
    held = held_out_places(40, 10)
    w = kept.arrays["weights"]
    expected = likelihood(w, X[~held], X[held])
    assert score_of(kept, THIS)[MEASURE] == pytest.approx(expected.mean())
    z = statistic(X[~held])
    alone = solve(z, 2.0, 3.0 / np.sqrt(30) * z.mean() ** 2 / 2.0).w  # as `personal` has it
    found = score_of(kept, ALONE)[MEASURE]
    assert found == pytest.approx(likelihood(alone, X[~held], X[held]).mean(), rel=1e-3)
    np.savez(tmp_path / "new.npz", X=X[held], columns=NAMES)
    assert main(["device", "predict", nodes[0]["state-path"], str(tmp_path / "new.npz")]) == 0
    said = capsys.readouterr().out
    assert f"  1  {expected[0]:.6g}" in said
    assert f"mean log likelihood of these rows: {expected.mean():.4g}" in said


def test_a_graph_made_at_home_is_scored_and_used_too(tmp_path):
    data = tables()
    nodes = devices(tmp_path, data, **{"count-noise-of": "anyone"})
    settings = {"privacy": "dp", "held-out": 0.25, "epsilon": 5.0}
    run_on(nodes, STUDY, tmp_path / "out", settings)
    kept, X = kept_by(nodes[0]), data[0]["X"]
    held = secret_places(nodes[0], 40, 10)
    assert kept.about["made"] == "here"
    expected = likelihood(kept.arrays["weights"], X[~held], X[held]).mean()
    assert score_of(kept, THIS)[MEASURE] == pytest.approx(expected)
    assert kept.about["spent"]["run-releases"] == 2
