"""A study in a package of its own, on runtimes where Trellis is installed and the study is not."""

from __future__ import annotations

import sys

import numpy as np
import pytest

from trellis.apps.command.new.making import make_package
from trellis.apps.common.results import RunResult
from trellis.sim.deployment import Deployment
from trellis.sim.flower import simulate

NAME, PACKAGE = "trial-pool", "trial_pool"
pytestmark = [pytest.mark.flower, pytest.mark.timeout(600)]


@pytest.mark.usefixtures("one_superlink")
def test_the_bundle_that_it_ships_in_is_run_by_flowers_simulation(tmp_path):
    make_package(NAME, tmp_path / NAME)
    out = tmp_path / "out"
    config = {"out": str(out), f"{NAME}.clients": 4, f"{NAME}.privacy": "dp"}
    simulate(tmp_path / NAME, config, nodes=4).check()
    result = RunResult.load(out)
    assert (result.study, result.engine, result.status) == (NAME, "flower", "completed")
    assert result.headline["records"] == 400
    assert (out / "report.html").is_file()
    assert PACKAGE not in sys.modules


def test_supernodes_get_it_with_the_run(tmp_path):
    make_package(NAME, tmp_path / NAME)
    rng, nodes = np.random.default_rng(0), []
    for name in ("clinic", "hospital"):
        path = tmp_path / f"{name}.npz"
        np.savez(path, X=rng.normal(size=(30, 3)), y=rng.normal(size=30))
        nodes.append({"data-path": str(path)})
    out = tmp_path / "out"
    with Deployment(nodes) as deployment:
        config = {"out": str(out), f"{NAME}.clients": 2}
        deployment.run(tmp_path / NAME, config, timeout=300).check()
    result = RunResult.load(out)
    assert (result.engine, result.status) == ("deployment", "completed")
    assert [client["name"] for client in result.clients] == ["clinic", "hospital"]
