"""What a Flower app of somebody else's may leave out."""

from __future__ import annotations

import pytest

from trellis import apps
from trellis.apps.common.results import RunResult
from trellis.sim.grid import run_local


@pytest.mark.parametrize("study", ["consensus-graph", "joint-precision", "server-graph"])
def test_an_app_that_names_no_seed_runs_as_with_the_usual_one(tmp_path, study):
    nodes = [{"partition-id": k, "num-partitions": 3, "simulation": True} for k in range(3)]
    config = {"study": study, "report": False, f"{study}.clients": 3, f"{study}.rounds": 2}
    if study == "server-graph":
        config[f"{study}.servers"] = 1
    objectives = []
    for name, more in {"left-out": {}, "given": {"seed": 1}}.items():
        out = {"out": str(tmp_path / name)}
        run_local(apps.server_app, apps.client_app, nodes, {**config, **out, **more})
        result = RunResult.load(tmp_path / name)
        assert result.status == "completed"
        objectives.append(result.headline)
    assert objectives[0] == objectives[1]
