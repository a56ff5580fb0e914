"""The device has the last word, whatever the server asks; and its budget is for life."""

from __future__ import annotations

import numpy as np
import pytest

from tests.apps.device_logs import reasons
from trellis import apps
from trellis.apps.common.results import RunResult
from trellis.apps.common.runner import make_run_config
from trellis.sim.grid import run_local
from trellis.strategies.core.enrolment import StudyError

STUDY = "consensus-graph"


@pytest.fixture
def devices(tmp_path):
    """Three devices with their own files; node configs may be changed."""
    rng = np.random.default_rng(0)
    nodes = []
    for name in ("a", "b", "c"):
        np.savez(tmp_path / f"{name}.npz", X=rng.normal(size=(40, 5)))
        nodes.append(
            {"data-path": str(tmp_path / f"{name}.npz"), "state-path": str(tmp_path / f"s-{name}")}
        )
    return nodes


def start(nodes, out, **settings) -> RunResult:
    settings = {"clients": 3, "rounds": 3, "tolerance": 0.0, **settings}
    seed = settings.pop("seed", 1)
    run_config = make_run_config(STUDY, settings, seed=seed) | {"out": str(out)}
    run_local(apps.server_app, apps.client_app, nodes, run_config)
    return RunResult.load(out)


def test_a_run_without_privacy_is_refused_by_the_device_that_requires_it(devices, tmp_path, caplog):
    devices[1]["require-privacy"] = True
    result = start(devices, tmp_path / "out", privacy="none")
    assert result.status == "completed"
    assert [c["name"] for c in result.clients] == ["a", "c"]  # the others go on
    assert result.arrays["weights"].shape == (2, 10)
    assert any("b: refused by the owner's policy (E4)" in note for note in result.notes)
    assert "b: refused by the owner's policy (E4)" in caplog.text
    (reason,) = reasons(tmp_path / "s-b")  # for its owner only
    assert reason == "this device requires privacy='dp', the run asks for privacy='none'"


def test_where_all_refuse_the_server_is_told_why(devices, tmp_path):
    for node in devices:
        node["max-epsilon"] = 0.5
    with pytest.raises(StudyError, match=r"(?s)0 of 3 clients.*a: refused.*b: refused.*c: refused"):
        start(devices, tmp_path / "out", privacy="dp", epsilon=1.0)


def test_a_budget_that_is_none_is_named(devices, tmp_path):
    devices[2]["max-epsilon"] = "much"
    with pytest.raises(StudyError, match="device error E1"):
        start(devices, tmp_path / "out", privacy="dp")
    assert "max-epsilon='much': must be a number" in reasons(tmp_path / "s-c")[0]


def test_the_server_never_sees_a_fingerprint_of_the_data(devices, tmp_path):
    result = start(devices, tmp_path / "out", privacy="dp")
    names = {e["name"] for entry in result.ledger["clients"] for e in entry["events"]}
    assert names == {"sum-directions and sizes of signals, summed over all clients-1-1"}
