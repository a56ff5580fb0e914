"""joint-precision on a device that has its own files, policy and budget."""

from __future__ import annotations

import numpy as np
import pytest

from tests.apps.device_logs import reasons
from tests.apps.joint_precision.overhearing import SMALL, STUDY, ask_client, overheard
from trellis import apps
from trellis.apps.common.results import RunResult
from trellis.apps.common.runner import make_run_config
from trellis.sim.grid import run_local
from trellis.strategies.core.enrolment import StudyError


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


def start(nodes, out, seed=1, **settings) -> RunResult:
    settings = {"clients": 3, "tolerance": 1e-9, **settings}
    run_config = make_run_config(STUDY, settings, seed=seed) | {"out": str(out)}
    run_local(apps.server_app, apps.client_app, nodes, run_config)
    return RunResult.load(out)


def test_a_device_refuses_what_its_budget_does_not_hold_by_name(devices, tmp_path):
    devices[1]["max-epsilon"] = 1.5
    with pytest.raises(StudyError, match="2 of 2 clients are there; a secure sum needs 3"):
        start(devices, tmp_path / "out", privacy="dp", epsilon=2.0)
    notes = RunResult.load(tmp_path / "out").notes
    assert any("b: refused by the owner's policy (E4)" in note for note in notes)
    assert "max-epsilon 1.5" in reasons(tmp_path / "s-b")[0]
    assert len(start(devices, tmp_path / "2", privacy="dp", epsilon=1.0).clients) == 3


def test_a_device_that_requires_privacy_refuses_a_run_without(devices, tmp_path):
    devices[2]["require-privacy"] = True
    result = start(devices, tmp_path / "out")
    assert [client["name"] for client in result.clients] == ["a", "b"]
    assert any("c: refused by the owner's policy (E4)" in note for note in result.notes)
    assert "this device requires privacy='dp'" in reasons(tmp_path / "s-c")[0]


def test_no_device_sends_its_raw_data(devices, tmp_path):
    with pytest.raises(StudyError, match=r"a: refused by the owner's policy \(E4\)"):
        start(devices, tmp_path / "out", method="pooled")
    assert "a: method='pooled' asks for the raw data, which never" in reasons(tmp_path / "s-a")[0]
    # Nor if the server asks without enrolment.
    run_config = make_run_config(STUDY, {"clients": 3, "method": "pooled"})
    with pytest.raises(PermissionError, match="never leaves a device"):
        ask_client(run_config, devices[0])


def test_raw_data_is_refused_where_privacy_is_required_whatever_else_is_said(devices):
    nodes = [{"partition-id": i, "num-partitions": 2, "simulation": True} for i in range(2)]
    nodes[1] |= {**devices[1], "require-privacy": True}
    heard = overheard({**SMALL, "clients": 2, "method": "pooled"}, nodes=nodes)
    sent = [h[0] for h in heard if "arrays" in h[2].content]
    assert sent == [0]


def test_subsamples_on_devices_need_no_partition(devices, tmp_path):
    result = start(devices, tmp_path / "out", path=3, subsamples=2, choose="stability")
    assert result.arrays["path_instability"].shape == (3,)
