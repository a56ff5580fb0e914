"""What owners of devices get from joint-precision."""

from __future__ import annotations

import csv

import numpy as np
import pytest
from scipy.stats import kendalltau, multivariate_normal

from tests.apps.owner_runs import devices, held_out_places, kept_by, run_on, score_of
from trellis.apps.command import main
from trellis.apps.common.evaluation.measures import THIS
from trellis.apps.joint_precision.owner.margins import from_gaussian, margins, to_gaussian

STUDY = "joint-precision"
NAMES = np.array(["a", "b", "c", "d"])
SETTINGS = {"lambda1": 0.1, "lambda2": 0.05, "rounds": 60, "tolerance": 1e-3, "held-out": 0.25}


NO_LAMBDA2 = {key: value for key, value in SETTINGS.items() if key != "lambda2"}


def tables():
    rng = np.random.default_rng(3)
    mixing = np.eye(4) + 0.8 * np.diag(np.ones(3), 1)
    return [{"X": np.exp(rng.normal(size=(60, 4)) @ mixing), "columns": NAMES} for _ in range(3)]


WAYS = {
    "group": {},
    "glasso": {"method": "glasso"},
    "one-shot": {"method": "one-shot"},
    "pooled": {"method": "pooled", "privacy": "dp", "epsilon": 20.0},
}


@pytest.mark.parametrize("way", WAYS)
def test_every_device_gets_its_matrices_in_every_mode(way, tmp_path):
    nodes = devices(tmp_path, tables())
    settings = SETTINGS if way in ("group", "one-shot") else NO_LAMBDA2
    run_on(nodes, STUDY, tmp_path / "out", settings | WAYS[way])
    with np.load(tmp_path / "out" / "result.npz") as arrays:
        precision, sparse = arrays["precision"], arrays["sparse"]
    upper = np.triu_indices(4, 1)
    for k, node in enumerate(nodes):
        kept = kept_by(node)
        np.testing.assert_array_equal(kept.arrays["precision"], precision[k])
        np.testing.assert_array_equal(kept.arrays["sparse"], sparse[k])
        # Clients that learn alone are told nothing of each other.
        assert ("shared" in kept.arrays) == (way != "glasso")
        if way != "glasso":
            common = np.all(sparse[:, *upper] != 0.0, axis=0)
            np.testing.assert_array_equal(kept.arrays["shared"], common)
        assert kept.about["scores"]["count"] == 15


def test_scores_predictions_and_gaps(tmp_path):
    data = tables()
    nodes = devices(tmp_path, data)
    run_on(nodes, STUDY, tmp_path / "out", SETTINGS)
    kept, X = kept_by(nodes[0]), data[0]["X"]
    held = held_out_places(60, 15)
    omega = kept.arrays["sparse"]
    S = np.eye(4)
    for i in range(4):
        for j in range(i):
            tau = kendalltau(X[held][:, i], X[held][:, j])[0]
            S[i, j] = S[j, i] = np.sin(np.pi / 2 * tau)
    expected = (np.linalg.slogdet(omega)[1] - np.sum(omega * S)) / 2
    assert score_of(kept, THIS)["mean log likelihood of a sample"] == pytest.approx(expected)
    known = margins(X[~held])
    latent = to_gaussian(X[held], known)
    sigma = np.linalg.inv(omega)
    new, out = tmp_path / "new.csv", tmp_path / "out.csv"
    rows = X[held].astype(str).tolist()
    rows[2][1] = ""
    with new.open("w", newline="") as file:
        csv.writer(file).writerows([NAMES.tolist(), *rows])
    state = nodes[0]["state-path"]
    assert main(["device", "predict", state, str(new), "--out", str(out)]) == 0
    found = list(csv.DictReader(out.open()))
    density = multivariate_normal(np.zeros(4), sigma).logpdf(latent)
    there = [0, 2, 3]
    part = multivariate_normal(np.zeros(3), sigma[np.ix_(there, there)])
    density[2] = part.logpdf(latent[2, there])
    np.testing.assert_allclose([float(row["log likelihood"]) for row in found], density)
    mean = sigma[1, there] @ np.linalg.solve(sigma[np.ix_(there, there)], latent[2, there])
    filled = from_gaussian(np.array([[0.0, mean, 0.0, 0.0]]), known)[0, 1]
    assert float(found[2]["b"]) == pytest.approx(filled)
    assert float(found[0]["b"]) == X[held][0, 1]


def test_margins_lead_there_and_back():
    values = np.exp(np.random.default_rng(0).normal(size=(50, 2)))
    known = margins(values)
    inside = np.sort(values, axis=0)[5:45]
    np.testing.assert_allclose(from_gaussian(to_gaussian(inside, known), known), inside)
    assert np.isfinite(to_gaussian(np.array([[1e9, -1e9]]), known)).all()
    tied = margins(np.ones((10, 1)))
    assert to_gaussian(np.ones((1, 1)), tied)[0, 0] == pytest.approx(0.0, abs=1e-12)
