"""Every study over TLS on three SuperNodes gives the in-process run's numbers, bit for bit."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

from tests.flower.bits import assert_same_bits
from trellis.apps import run as run_here
from trellis.apps.gromov_wasserstein.files.npz import write_graphs
from trellis.apps.gromov_wasserstein.synthetic import synthetic_graphs

from .site import Site, site

pytestmark = [pytest.mark.deploy, pytest.mark.timeout(1800)]
NAMES = ("clinic", "hospital", "ward")
SERVERS = {"servers": 3, "topology": "path"}
# Small, and without what a device draws from its operating system: batches of some records only.
STUDIES = {
    "consensus-graph": {"rounds": 2, "tolerance": 0.0},
    "joint-precision": {"rounds": 3},
    "server-graph": {"rounds": 2, "method": "none", "batch": 0, **SERVERS},
    "cluster-admm": {"rounds": 2, "clusters": "1", **SERVERS},
    "gromov-wasserstein": {"rounds": 1, "task": "graph", "classes": 3, "downstream": "knn"},
}


def write_data(study: str, folder: Path) -> None:
    """Write one npz file per device."""
    folder.mkdir(exist_ok=True)
    rng = np.random.default_rng(7)
    graphs = synthetic_graphs(24, rng)
    for number, name in enumerate(NAMES):
        path = folder / f"{name}.npz"
        if study == "gromov-wasserstein":
            write_graphs(path, graphs[8 * number : 8 * number + 8])
            continue
        X = rng.normal(size=(40, 5)) @ rng.normal(size=(5, 5))
        y = np.sign(X[:, 0] + rng.normal(size=40)) if study == "server-graph" else X[:, 0] + 1.0
        np.savez(path, X=X, y=y)


@pytest.fixture(scope="module")
def three(tmp_path_factory):
    place = tmp_path_factory.mktemp("three")
    write_data("consensus-graph", place / "data")
    with site(place, place / "data", "--tls") as found:
        yield found


@pytest.mark.parametrize("study", STUDIES)
def test_a_study_on_supernodes_gives_the_same_bits_as_here(study, three: Site, tmp_path):
    settings, data = STUDIES[study] | {"held-out": 0.2}, tmp_path / "data"
    write_data(study, data)
    for name in NAMES:
        shutil.copy(data / f"{name}.npz", three.data(name))
    there = three.submit(study, study, **settings)
    there.end()
    here = run_here(study, settings, data=data, out=tmp_path / "here", report=False)
    assert there.result.engine == "deployment"
    assert [client["name"] for client in there.result.clients] == list(NAMES)
    assert_same_bits(here, there.result)
    assert len(here.scores["clients"]) == 3
    assert there.result.scores == here.scores
    assert (there.out / "report.html").is_file()
    for name in NAMES:
        assert three.said(name, there) == ["enrolled", "result"]
