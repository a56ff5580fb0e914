"""consensus-graph on Flower's own runtimes gives the in-process engine's numbers, bit for bit."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from trellis.apps import run
from trellis.apps.common.results import RunResult
from trellis.apps.common.runner import app_folder, make_run_config
from trellis.apps.common.settings import config_class
from trellis.sim.deployment import Deployment
from trellis.strategies.core.checkpoint import Checkpoint

from .bits import assert_same_bits

STUDY = "consensus-graph"
pytestmark = [pytest.mark.flower, pytest.mark.timeout(600)]


@pytest.mark.usefixtures("one_superlink")
def test_flowers_simulation_gives_the_same_bits(tmp_path):
    settings = {"rounds": 6, "nodes": 30, "sample": 3}
    here = run(STUDY, settings, seed=11, out=tmp_path / "local")
    there = run(STUDY, settings, seed=11, out=tmp_path / "flower", engine="flower")
    assert (here.engine, there.engine) == ("local", "flower")
    assert_same_bits(here, there)
    assert (tmp_path / "local" / "result.npz").read_bytes() == (
        tmp_path / "flower" / "result.npz"
    ).read_bytes()
    volatile = ("seconds",)
    for mine, theirs in zip(here.metrics, there.metrics, strict=True):
        assert {k: v for k, v in mine.items() if k not in volatile} == {
            k: v for k, v in theirs.items() if k not in volatile
        }
    assert here.ledger == there.ledger
    assert (tmp_path / "flower" / "report.html").is_file()


@pytest.mark.usefixtures("one_superlink")
def test_secure_sums_in_flowers_simulation_give_the_same_bits(tmp_path):
    # Masks are drawn anew by every client; the sum they hide is exact.
    settings = {"method": "fedavg", "secure-aggregation": True, "clients": 4, "nodes": 10}
    here = run(STUDY, settings, out=tmp_path / "local")
    there = run(STUDY, settings, out=tmp_path / "flower", engine="flower")
    assert_same_bits(here, there)


@pytest.mark.usefixtures("one_superlink")
def test_one_noisy_sum_and_graphs_at_home_give_the_same_bits(tmp_path):
    settings = {"privacy": "dp", "clients": 5, "nodes": 8, "signals": "20", "held-out": 0.2}
    here = run(STUDY, settings, seed=3, out=tmp_path / "local")
    there = run(STUDY, settings, seed=3, out=tmp_path / "flower", engine="flower")
    assert_same_bits(here, there)
    assert here.arrays["weights"].shape == (5, 28)
    assert here.headline == there.headline
    assert here.ledger == there.ledger


@pytest.mark.usefixtures("one_superlink")
def test_a_run_stopped_here_goes_on_in_flowers_simulation(tmp_path, monkeypatch):
    # Momentum of the paper's mode lives with the clients: the hardest state to resume.
    settings = {
        "privacy": "paper", "local-steps": 5, "step": 0.01, "rounds": 5, "tolerance": 0.0,
        "clients": 3, "nodes": 8,
    }  # fmt: skip
    data = tmp_path / "data"
    data.mkdir()
    rng = np.random.default_rng(0)
    for name in ("b", "a", "c"):
        np.savez(data / f"{name}.npz", X=rng.normal(size=(40, 8)))
    unbroken = run(STUDY, settings, data=data, out=tmp_path / "unbroken")

    class Stopped(BaseException):
        pass

    original = Checkpoint.save

    def save_and_stop(self, snapshot):
        original(self, snapshot)
        if snapshot.server_round == 3:
            raise Stopped

    monkeypatch.setattr(Checkpoint, "save", save_and_stop)
    monkeypatch.setattr(Checkpoint, "due", lambda self: True)
    with pytest.raises(Stopped):
        run(STUDY, settings, data=data, out=tmp_path / "broken")
    monkeypatch.undo()
    resumed = run(STUDY, settings, data=data, out=tmp_path / "broken", engine="flower", resume=True)
    assert resumed.engine == "flower"
    assert_same_bits(unbroken, resumed)
    assert [c["name"] for c in resumed.clients] == ["a", "b", "c"]
    assert resumed.ledger == unbroken.ledger


def test_real_processes_with_their_own_files_give_the_same_result(tmp_path):
    data = tmp_path / "data"
    data.mkdir()
    rng = np.random.default_rng(0)
    for name in ("clinic", "hospital"):
        mixing = rng.normal(size=(6, 6))
        rows = rng.normal(size=(40, 6)) @ mixing
        header = ",".join(f"region-{i}" for i in range(6))
        np.savetxt(data / f"{name}.csv", rows, delimiter=",", header=header, comments="")
    # A run config has no idea of whose data it is: what is left open is the study's default.
    settings = config_class(STUDY).as_defaults({"rounds": 2, "tolerance": 0.0})
    here = run(STUDY, settings, data=data, out=tmp_path / "local")

    out = tmp_path / "deployed"
    run_config = make_run_config(STUDY, {**settings, "clients": 3})
    run_config |= {"out": str(out), "report": True}
    # Started in the other order: clients are ordered by name, not by arrival. The third device's
    # owner wants privacy, which this run does not offer: it refuses and the others go on.
    nodes = [{"data-path": str(data / f"{name}.csv")} for name in ("hospital", "clinic")]
    nodes.append({**nodes[0], "name": "strict", "require-privacy": True})
    with Deployment(nodes) as deployment:
        deployment.run(app_folder(STUDY), run_config, timeout=300).check()
    there = RunResult.load(out)
    assert there.engine == "deployment"
    assert [c["name"] for c in there.clients] == ["clinic", "hospital"]
    assert there.variables == [f"region-{i}" for i in range(6)]
    assert_same_bits(here, there)
    refused = "strict: refused by the owner's policy (E4)"
    assert any(refused in note for note in there.notes)
    assert "strict: refused by the owner" in (out / "report.html").read_text()


def test_kill_nine_and_resume_from_the_command_line(tmp_path):
    command = [sys.executable, "-m", "trellis", "run", STUDY]
    settings = ["--set", "nodes=60", "--set", "rounds=150", "--set", "tolerance=0", "--seed", "3"]
    unbroken = tmp_path / "unbroken"
    subprocess.run([*command, *settings, "--out", unbroken], check=True, capture_output=True)
    broken = tmp_path / "broken"
    process = subprocess.Popen(
        [*command, *settings, "--out", broken], stdout=subprocess.DEVNULL, start_new_session=True
    )
    state = broken / "checkpoint" / "state.npz"
    deadline = time.monotonic() + 60
    while not state.is_file() and time.monotonic() < deadline:
        time.sleep(0.01)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    assert state.is_file()
    assert RunResult.load(broken).status == "running"  # nobody was left to say otherwise
    subprocess.run(
        [*command, "--resume", broken], check=True, capture_output=True, cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
    )  # fmt: skip
    assert_same_bits(RunResult.load(unbroken), RunResult.load(broken))
    assert (unbroken / "result.npz").read_bytes() == (broken / "result.npz").read_bytes()
