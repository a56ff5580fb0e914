"""The device has the last word, whatever the server asks; here each makes its own release."""

from __future__ import annotations

import json

import numpy as np
import pytest

from tests.apps.device_logs import reasons
from trellis import apps
from trellis.apps.common.results import RunResult
from trellis.apps.common.runner import make_run_config
from trellis.privacy.accounting.budget import DeviceLedger, Policy
from trellis.sim.grid import run_local
from trellis.strategies.core.base import StudyError

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
    settings = {"clients": 3, "rounds": 3, "tolerance": 0.0, "release": "each", **settings}
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
    assert reason == "this device requires privacy='sound', the run asks for privacy='none'"


def test_the_budget_is_for_life_over_all_runs(devices, tmp_path):
    devices[0]["max-epsilon"] = 2.0
    sound = {"privacy": "sound", "epsilon": 1.0}
    first = start(devices, tmp_path / "1", **sound)
    assert len(first.clients) == 3
    # The same release again, in another run with another seed: the same noise, no cost.
    again = start(devices, tmp_path / "2", seed=5, **sound)
    assert len(again.clients) == 3
    np.testing.assert_array_equal(again.arrays["weights"], first.arrays["weights"])
    # Another setting is another release.
    second = start(devices, tmp_path / "3", privacy="sound", epsilon=0.8)
    assert len(second.clients) == 3
    third = start(devices, tmp_path / "4", privacy="sound", epsilon=1.5)
    assert [c["name"] for c in third.clients] == ["b", "c"]
    (note,) = [n for n in third.notes if "refused" in n]
    assert "a: refused by the owner's policy (E4)" in note
    (reason,) = reasons(tmp_path / "s-a")
    assert "refused: this release (epsilon 1.5) would bring the total to epsilon" in reason
    assert "max-epsilon 2" in reason
    # What was refused is not spent: a smaller wish is granted.
    assert len(start(devices, tmp_path / "5", privacy="sound", epsilon=0.2).clients) == 3
    ledger = DeviceLedger(tmp_path / "s-a", Policy(2.0, 1e-5, True))
    assert len(ledger.events()) == 3
    assert 1.2 < ledger.spent() <= 2.0
    content = json.loads((tmp_path / "s-a" / "ledger.json").read_text())
    assert {e["state"] for e in content["entries"].values()} == {"released"}


def test_changed_data_is_a_new_release_from_the_same_budget(devices, tmp_path):
    devices[0]["max-epsilon"] = 1.2
    start(devices, tmp_path / "1", privacy="sound", epsilon=1.0)
    np.savez(tmp_path / "a.npz", X=np.random.default_rng(9).normal(size=(40, 5)))
    result = start(devices, tmp_path / "2", privacy="sound", epsilon=1.0)
    assert [c["name"] for c in result.clients] == ["b", "c"]


def test_where_all_refuse_the_server_is_told_why(devices, tmp_path):
    for node in devices:
        node["max-epsilon"] = 0.5
    with pytest.raises(StudyError, match=r"(?s)0 of 3 clients.*a: refused.*b: refused.*c: refused"):
        start(devices, tmp_path / "out", privacy="sound", epsilon=1.0)


def test_a_budget_that_is_none_is_named(devices, tmp_path):
    devices[2]["max-epsilon"] = "much"
    with pytest.raises(StudyError, match="device error E1"):
        start(devices, tmp_path / "out", privacy="sound")
    assert "max-epsilon='much': must be a number" in reasons(tmp_path / "s-c")[0]


def test_the_server_never_sees_a_fingerprint_of_the_data(devices, tmp_path):
    result = start(devices, tmp_path / "out", privacy="sound")
    names = {e["name"] for entry in result.ledger["clients"] for e in entry["events"]}
    assert names == {"statistic"}


def test_float_noise_is_refused_by_a_device_before_it_reads_its_data(devices, tmp_path):
    devices[0]["data-path"] = str(tmp_path / "gone.npz")
    with pytest.raises(StudyError, match="gone: refused by the owner's policy"):
        start(devices, tmp_path / "out", privacy="sound", epsilon=2.0, noise="gaussian")
    for state in ("s-a", "s-b"):
        assert "noise='gaussian' is made of floats" in reasons(tmp_path / state)[-1]
        assert not DeviceLedger(tmp_path / state).events()


@pytest.mark.parametrize("noise", ["auto", "discrete"])
def test_a_device_s_noise_is_discrete_and_accounted(devices, tmp_path, noise):
    result = start(devices, tmp_path / "out", privacy="sound", epsilon=2.0, noise=noise)
    for entry in result.ledger["clients"]:
        assert entry["epsilon"] == pytest.approx(2.0, abs=1e-6)
        assert entry["epsilon_pld"] <= 2.0 + 1e-3
        assert entry["events"][0]["mechanism"] == "discrete-gaussian"
    assert DeviceLedger(tmp_path / "s-a").spent() == pytest.approx(2.0, abs=1e-6)
