"""Runs on real devices in this process: nodes with files and state folders of their own."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from trellis import apps
from trellis.apps.common.private.kept import Kept, kept_results
from trellis.apps.common.runner import make_run_config
from trellis.apps.common.seeds import generator
from trellis.privacy.mechanisms.noise import device_secret, release_noise
from trellis.sim.grid import run_local


def devices(folder: Path, tables, **more):
    """Write a file per device; return the node configs."""
    nodes = []
    for k, arrays in enumerate(tables):
        path = folder / f"ward{k}.npz"
        np.savez(path, **arrays)
        state = str(folder / f"state{k}")
        nodes.append({"data-path": str(path), "state-path": state, "partition-id": k, **more})
    return nodes


def run_on(nodes, study: str, out: Path, settings) -> dict:
    """Run a study on these devices; return its ``run.json``."""
    config = make_run_config(study, {"clients": len(nodes), **settings})
    run_local(apps.server_app, apps.client_app, nodes, config | {"out": str(out)})
    return json.loads((out / "run.json").read_text())


def kept_by(node) -> Kept:
    """Return the one result that a device has."""
    (kept,) = kept_results(Path(node["state-path"]))
    return kept


def held_out_places(count: int, number: int, seed: int = 1) -> np.ndarray:
    """Return which rows a device holds out in a run without privacy, by the run's seed."""
    rng = generator(seed, "held out")
    rows = np.zeros(count, dtype=bool)
    rows[rng.permutation(count)[:number]] = True
    return rows


def secret_places(node, count: int, number: int) -> np.ndarray:
    """Return which rows a device holds out under privacy, by its secret."""
    drawn = release_noise(device_secret(Path(node["state-path"])), "held out", str(count))
    rng = np.random.default_rng(int.from_bytes(drawn.bytes(32), "big"))
    rows = np.zeros(count, dtype=bool)
    rows[rng.permutation(count)[:number]] = True
    return rows


def score_of(kept: Kept, row: str) -> dict[str, float]:
    """Return one row of a result's scores by measure."""
    scores = kept.about["scores"]
    return dict(zip(scores["measures"], scores["rows"][row], strict=True))
