"""What real SuperNodes tell when something goes wrong: a code, and nothing of their data."""

from __future__ import annotations

import numpy as np
import pytest

from trellis.apps.common.runner import app_folder, make_run_config
from trellis.privacy.device import log
from trellis.sim.deployment import Deployment

pytestmark = [pytest.mark.flower, pytest.mark.timeout(600)]


def test_no_text_of_an_exception_leaves_a_supernode(tmp_path):
    rng = np.random.default_rng(0)
    rows = "\n".join(",".join(map(str, row)) for row in rng.normal(size=(40, 3)))
    (tmp_path / "good.csv").write_text(f"pulse,name,bp\n{rows}\n")
    (tmp_path / "bad.csv").write_text("pulse,name,bp\n70,Maria Rossi HIV+,120\n71,Ben,118\n")
    nodes = [
        {"data-path": str(tmp_path / f"{name}.csv"), "state-path": str(tmp_path / f"s-{name}")}
        for name in ("good", "bad")
    ]
    settings = {"rounds": 1, "clients": 2, "privacy": "none"}
    run_config = make_run_config("consensus-graph", settings) | {"out": str(tmp_path / "out")}
    with Deployment(nodes) as deployment:
        done = deployment.run(app_folder("consensus-graph"), run_config, timeout=300)
    with pytest.raises(Exception, match="device error E2") as caught:
        done.check()
    assert "Maria" not in f"{caught.value}{done.details}{done.log}"
    (line,) = log.read(tmp_path / "s-bad")
    assert "Maria Rossi HIV+" in line["error"]
    assert (line["study"], line["kind"], line["code"]) == ("consensus-graph", "query.enrol", "E2")
    what = [line["what"] for line in log.read(tmp_path / "s-good")]
    assert what == ["enrolled"]
