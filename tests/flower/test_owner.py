"""What owners of real SuperNodes find afterwards: results, refusals and who asked."""

from __future__ import annotations

import numpy as np
import pytest

from trellis.apps.common.private.kept import kept_results
from trellis.apps.common.runner import app_folder, make_run_config
from trellis.privacy.device import log
from trellis.sim.deployment import Deployment

pytestmark = [pytest.mark.flower, pytest.mark.timeout(600)]


def test_every_device_has_its_result_and_a_refusal_leaves_a_line(tmp_path):
    rng = np.random.default_rng(0)
    nodes = []
    for name in ("a", "b", "strict", "typo"):
        np.savez(tmp_path / f"{name}.npz", X=rng.normal(size=(30, 4)))
        node = {"data-path": str(tmp_path / f"{name}.npz"), "server-name": "Lab"}
        nodes.append(node | {"state-path": str(tmp_path / f"s-{name}")})
    nodes[2]["require-privacy"] = True
    nodes[3]["max-epsilom"] = 1.0
    settings = {"rounds": 1, "clients": 3, "privacy": "none", "held-out": 0.2, "method": "igl"}
    run_config = make_run_config("consensus-graph", settings) | {"out": str(tmp_path / "out")}
    with Deployment(nodes) as deployment:
        deployment.run(app_folder("consensus-graph"), run_config, timeout=400).check()
    with np.load(tmp_path / "out" / "result.npz") as arrays:
        weights = arrays["weights"]
    for k, name in enumerate(("a", "b")):
        (kept,) = kept_results(tmp_path / f"s-{name}")
        np.testing.assert_array_equal(kept.arrays["weights"], weights[k])
        assert kept.about["server"] == "Lab"
        assert kept.about["scores"]["count"] == 6
        lines = log.read(tmp_path / f"s-{name}")
        assert [line["what"] for line in lines] == ["enrolled", "result"]
        for line in lines:
            assert line["server"] == "Lab"
            assert line["study"] == "consensus-graph"
            assert line["run"] == kept.about["run"]
            assert line["message"]
            assert line["time"]
    (line,) = log.read(tmp_path / "s-strict")
    assert line["what"] == "refused"
    assert "requires privacy='dp'" in line["reason"]
    (line,) = log.read(tmp_path / "s-typo")
    assert line["what"] == "error"
    assert line["code"] == "E1"
    assert "did you mean 'max-epsilon'" in line["error"]
    for name in ("strict", "typo"):
        assert not kept_results(tmp_path / f"s-{name}")
