"""Whoever reads the folder of a private run on devices: nothing in it is a number of one of them.

And its ledger says of every device what the device's own ledger says: all sums are in both, those
that find the scale of features and those that score as well.
"""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.apps.owner_runs import devices, run_on
from trellis.apps.common.private.kept import kept_results
from trellis.privacy.accounting.budget import DeviceLedger

CLIENTS, N, D = 4, 40, 4
DP = {"privacy": "dp", "held-out": 0.3, "epsilon": 8.0}
FEATURES = {"servers": 1, "topology": "complete", "standardise": "shared"}
STUDIES: dict[str, dict[str, Any]] = {
    "consensus-graph": {},
    "joint-precision": {},
    "server-graph": {**FEATURES, "rounds": 3, "batch": 10},
    "cluster-admm": {"standardise": "shared", "clusters": "1", "loss": "logistic"},
}
_NUMBER = re.compile(r"-?\d+\.\d+(?:[eE][+-]?\d+)?")


def _tables() -> list[dict[str, Any]]:
    found = []
    for k in range(CLIENTS):
        rng = np.random.default_rng(k)
        X = rng.standard_normal((N, D)) * [1.0, 20.0, 0.3, 5.0] + [0.0, 60.0, 1.0, -3.0]
        found.append({"X": X, "y": np.sign(X[:, 0] + 0.2 * rng.standard_normal(N))})
    return found


@pytest.fixture(scope="module", params=STUDIES)
def made(request, tmp_path_factory):
    """Return a study's record, its folder, and the devices that took part."""
    folder = tmp_path_factory.mktemp(request.param)
    nodes = devices(folder, _tables(), **{"count-noise-of": "anyone", "server": 0, "cluster": 0})
    settings = {**DP, **STUDIES[request.param]}
    record = run_on(nodes, request.param, folder / "out", settings)
    return record, folder / "out", nodes


def _numbers_in(folder: Path) -> np.ndarray:
    """Return all numbers with a point that a folder has, in texts and in arrays."""
    found: list[float] = []
    for path in folder.rglob("*"):
        if path.suffix in (".json", ".csv", ".html", ".graphml", ".toml"):
            found += [float(number) for number in _NUMBER.findall(path.read_text())]
        elif path.suffix == ".npz":
            with np.load(path) as file:
                arrays = [file[name] for name in file.files]
            found += [float(v) for a in arrays if a.dtype.kind == "f" for v in a.ravel()]
    return np.sort(np.array([number for number in found if math.isfinite(number)]))


def _of_a_device(table: dict[str, Any], node: dict[str, Any]) -> np.ndarray:
    """Return numbers that are exact of one device: of its records, its result and its scores."""
    X, y = table["X"], table["y"]
    parts = [X.ravel(), X.mean(axis=0), X.std(axis=0), X.sum(axis=0), (X**2).sum(axis=0)]
    parts += [np.cov(X.T).ravel(), np.corrcoef(X.T).ravel(), X.T @ y, X.T @ y / N]
    (kept,) = kept_results(Path(node["state-path"]))
    own = [kept.arrays[name] for name in ("model", "weights", "alone", "sparse", "precision")
           if name in kept.arrays]  # fmt: skip
    scores = [v for row in kept.about["scores"]["rows"].values() for v in row if v is not None]
    found = np.concatenate([*parts, *(a.ravel() for a in own), np.array(scores)]).astype(float)
    # A device may choose the model that all share for its own.
    public = [kept.arrays[name].ravel() for name in ("private-model",) if name in kept.arrays]
    found = found[~np.isin(found, np.concatenate([*public, np.zeros(1)]))]
    # What is 1/2, 1 or so is so by chance.
    return found[np.abs(found * 64.0 - np.round(found * 64.0)) > 1e-9]


def _found(folder: Path, nodes: list[dict[str, Any]]) -> int:
    """Return how many numbers of one device there are in a folder."""
    there, count = _numbers_in(folder), 0
    assert len(there) > 20
    for table, node in zip(_tables(), nodes, strict=True):
        own = _of_a_device(table, node)
        assert len(own) > N * D
        near = np.searchsorted(there, own)
        for side in (np.minimum(near, len(there) - 1), np.maximum(near - 1, 0)):
            # Numbers are told to six places and more.
            count += int(np.isclose(there[side], own, rtol=1e-7, atol=0.0).sum())
    return count


def test_nothing_in_the_folder_is_a_number_of_one_device(made):
    record, folder, nodes = made
    assert record["status"] == "completed"
    assert record["scores"] == {}
    assert not (folder / "scores.csv").exists()
    assert _found(folder, nodes) == 0


def test_without_privacy_they_are_found(tmp_path):
    nodes = devices(tmp_path, _tables())
    run_on(nodes, "consensus-graph", tmp_path / "out", {"held-out": 0.3})
    assert _found(tmp_path / "out", nodes) > 20


def test_the_run_s_ledger_is_that_of_the_devices(made):
    record, _, nodes = made
    told = {entry["name"]: entry for entry in record["ledger"]["clients"]}
    for node in nodes:
        known = DeviceLedger(Path(node["state-path"]))
        entry = told[Path(node["data-path"]).stem]
        kinds = sorted(event.what for event in known.events())
        assert kinds == sorted(event["what"] for event in entry["events"])
        assert any("score" in kind or "held-out" in kind for kind in kinds)
        assert ("counts of the sizes of features" in kinds) is (
            record["config"].get("standardise") == "shared"
        )
        assert entry["epsilon"] == pytest.approx(known.spent(), rel=1e-9)
        assert 4.0 < known.spent() <= 8.0


def test_what_is_told_of_clients_is_what_is_declared(made):
    record, _, _ = made
    for entry in record["clients"]:
        assert set(entry) == {"name", "partition", "count", "rounds", "failures", "last_failure"}
        assert entry["count"] in (N, N - 12)  # of all, or of those that are learned from
    assert json.dumps(record["variables"]) == json.dumps(["v1", "v2", "v3", "v4"])
