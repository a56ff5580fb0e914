"""Small clients' data for every study, in memory and as the same in files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

import trellis
from tests.studies import told
from trellis import apps
from trellis.apps.gromov_wasserstein.files.npz import write_graphs
from trellis.apps.python.graphs import client_graphs

# Settings that are small; of these runs only the bits matter.
SETTINGS: dict[str, dict[str, Any]] = {
    "consensus-graph": {"nodes": 6, "signals": "20", "clients": 3, "rounds": 4},
    "joint-precision": {
        "variables": 6, "blocks": 2, "samples": "30", "clients": 3, "rounds": 20,
    },
    "server-graph": {"clients": 6, "servers": 2, "topology": "ring", "samples": "12", "rounds": 3},
    "cluster-admm": {
        "clients": 4, "servers": 2, "topology": "ring", "clusters": 2, "features": 3,
        "samples": "6-9", "rounds": 4,
    },
    "gromov-wasserstein": {
        "clients": 3, "graphs": 9, "rounds": 1, "task": "graph", "model": "gin",
        "downstream": "knn",
    },
    **told("SMALL"),
}  # fmt: skip
STUDIES = list(apps.STUDIES)


def wards(study: str) -> Any:
    """Return the clients' data, and what each belongs to."""
    return trellis.sample(study, settings=SETTINGS[study])


def as_files(study: str, data: dict[str, Any], folder: Path) -> Path:
    """Write clients' data as anybody would: csv from DataFrames, npz of graphs."""
    folder.mkdir(parents=True)
    for name, own in data.items():
        if study == "gromov-wasserstein":
            write_graphs(folder / f"{name}.npz", client_graphs(name, own))
        else:
            own.to_csv(folder / f"{name}.csv", index=False)
    return folder


def assert_same(one: Any, other: Any) -> None:
    assert set(one.arrays) == set(other.arrays)
    for name, array in one.arrays.items():
        assert array.tobytes() == np.asarray(other.arrays[name]).tobytes(), name
    kept = [[c["name"], c["partition"], c["count"]] for c in one.clients]
    assert kept == [[c["name"], c["partition"], c["count"]] for c in other.clients]
    assert one.variables == other.variables
    assert one.headline == other.headline
