"""Flower starts, its runs end as they say, and nothing stays behind."""

from __future__ import annotations

import json
import math
import shutil
import signal
import subprocess
import time
import tomllib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trellis.sim import flower, processes
from trellis.sim.deployment import Deployment
from trellis.sim.flower import FlowerRun, FlowerRunError, FlowerSession, simulate, toml

NASTY = 'it\'s "quoted" \\ C:\\temp = {x}\n\t# µ 图 😀 \x7f\x01 \u2028'


@pytest.mark.flower
def test_a_simulation_completes_and_leaves_nothing(tiny_app, tmp_path, homes, processes_of):
    out = tmp_path / "out.json"
    lines = []
    running = []

    def on_log(line: str) -> None:
        lines.append(line)
        running.append(len(processes_of(homes[0])))

    config = {"out": str(out), "rounds": 2, "nodes": 3, "nested.rate": 0.25, "text": NASTY}
    run = simulate(tiny_app, config, nodes=3, timeout=240, on_log=on_log)

    assert run.check() is run
    assert (run.status, run.details) == ("finished:completed", "")
    assert run.run_id > 0
    assert 0 < run.seconds < 240
    written = json.loads(out.read_text())
    # Round one: 0 + 1 + 2 = 3; round two: three nodes have 3, and add 0, 1 and 2.
    assert written["total"] == [12.0, 12.0]
    assert written["run_config"] == config | {"fail": False, "sleep": 0.0}
    assert written["grid"] == "InMemoryGrid"
    assert all(node["simulated"] for node in written["nodes"])
    assert any("tiny round 1" in line for line in lines)
    assert run.log == "\n".join(lines)
    assert "\x1b" not in run.log
    assert max(running) >= 4, "SuperLink, SuperExec, simulation, log stream: were they found?"
    assert processes_of(homes[0]) == []
    assert not homes[0].exists()


@pytest.mark.flower
def test_a_server_that_raises_is_a_failed_run(tiny_app, homes, processes_of):
    run = simulate(tiny_app, {"fail": True}, nodes=2, timeout=240)

    assert not run.ok
    assert run.status == "finished:failed"
    with pytest.raises(FlowerRunError, match=r"finished:failed.*told to fail") as error:
        run.check()
    assert "Traceback" in str(error.value)
    assert processes_of(homes[0]) == []


@pytest.mark.flower
@pytest.mark.parametrize(
    ("number", "raised", "has_proc"),
    [
        pytest.param(signal.SIGINT, KeyboardInterrupt, True, id="ctrl-c"),
        pytest.param(signal.SIGTERM, SystemExit, False, id="terminated, without proc"),
    ],
)
def test_an_interrupt_stops_everything(
    number, raised, has_proc, tiny_app, homes, processes_of, monkeypatch
):
    monkeypatch.setattr(flower, "HAS_PROC", has_proc)
    before = signal.getsignal(number)

    def on_log(line: str) -> None:
        if "tiny server started" in line:
            # Not before Ray runs: it has the most processes to leave behind.
            while not any("raylet" in process for process in processes_of(homes[0])):
                time.sleep(0.1)
            signal.raise_signal(number)

    with pytest.raises(raised):
        simulate(tiny_app, {"sleep": 230.0}, nodes=2, timeout=260, on_log=on_log)

    assert signal.getsignal(number) is before
    assert processes_of(homes[0]) == []
    assert not homes[0].exists()


@pytest.mark.flower
def test_a_deployment_runs_an_app_on_its_nodes(tiny_app, tmp_path, homes, processes_of):
    out = tmp_path / "out.json"
    nodes = [{"partition-id": number, "label": NASTY, "fast": True} for number in (1, 2)]
    config = {"out": str(out), "nodes": 2}
    with Deployment(nodes) as deployment:
        with pytest.raises(FlowerRunError, match="did not end within 5 s"):
            deployment.run(tiny_app, config | {"sleep": 60.0}, timeout=5)
        run = deployment.run(tiny_app, config, timeout=240).check()

    assert "tiny round 0" in run.log
    written = json.loads(out.read_text())
    assert written["total"] == [3.0, 3.0]
    assert written["grid"] == "HttpGrid"
    assert not any(node["simulated"] for node in written["nodes"])
    seen = [json.loads(node["config"]) for node in written["nodes"]]
    assert sorted(seen, key=lambda node: node["partition-id"]) == nodes
    assert sorted(deployment.logs()) == ["superlink", "supernode-0", "supernode-1"]
    assert all("Sent successfully" in deployment.logs()[f"supernode-{n}"] for n in (0, 1))
    assert processes_of(homes[0]) == []
    assert not homes[0].exists()


@pytest.mark.flower
def test_a_process_that_dies_is_named_with_its_log():
    with FlowerSession() as session:
        session.start("supernode-0", "flower-supernode", "--no-such-option")
        with pytest.raises(FlowerRunError, match="supernode-0 ended with exit code 2") as error:
            _watch(session, seconds=30)
    assert "unrecognized arguments: --no-such-option" in str(error.value)


def _watch(session: FlowerSession, seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        session.check_alive()
        time.sleep(0.05)


@pytest.mark.parametrize(
    "value",
    ["", NASTY, "'''", '"""', "a\\", "\r\n", "true", True, False, 0, -7, 1e300, 1e-7, -0.0, 5e-324],
)
def test_toml_carries_a_value_unchanged(value):
    read = tomllib.loads(toml({"a.b c": value}))["a.b c"]
    assert (read, type(read)) == (value, type(value))


@given(st.dictionaries(st.text(), st.text() | st.integers() | st.floats() | st.booleans()))
def test_toml_carries_anything(settings):
    read = tomllib.loads(toml(settings).encode().decode())
    assert read.keys() == settings.keys()
    for key, value in settings.items():
        assert type(read[key]) is type(value)
        assert read[key] == value or (math.isnan(value) and math.isnan(read[key]))


def test_toml_of_numpy_and_of_what_is_no_setting():
    assert tomllib.loads(toml({"x": np.float64(0.1)})) == {"x": 0.1}
    with pytest.raises(TypeError, match=r"lambda=\[1, 2\].*not list"):
        toml({"lambda": [1, 2]})


def test_an_unknown_setting_is_named_before_anything_starts(tiny_app, homes):
    with pytest.raises(FlowerRunError, match=r"nested\.raet: not in \[tool\.flwr\.app\.config\]"):
        simulate(tiny_app, {"nested.raet": 1.0, "rounds": 2}, nodes=2)
    assert homes == []


def test_a_folder_without_an_app_is_named(tmp_path):
    with pytest.raises(FlowerRunError, match=r"is no Flower app: .*pyproject\.toml is missing"):
        simulate(tmp_path, {}, nodes=2)


def test_no_nodes_is_refused(tiny_app):
    with pytest.raises(ValueError, match="nodes=0"):
        simulate(tiny_app, {}, nodes=0)
    with pytest.raises(ValueError, match="node_configs is empty"):
        Deployment([])


def test_what_is_missing_comes_with_its_pip_line(tiny_app, tmp_path, monkeypatch):
    pip_line = r"pip install '\.\[laptop\]'"
    monkeypatch.setattr(flower.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(FlowerRunError, match=f"needs ray.*{pip_line}"):
        simulate(tiny_app, {}, nodes=2)
    monkeypatch.setattr(processes.sys, "executable", str(tmp_path / "python"))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(FlowerRunError, match=f"flower-superlink was not found: {pip_line}"):
        processes.executable("flower-superlink")


def test_check_shows_the_end_of_the_log_only():
    log = "\n".join(f"line {number}" for number in range(100))
    with pytest.raises(FlowerRunError, match="run 7 ended as finished:failed: boom") as error:
        FlowerRun(7, "finished:failed", "boom", log, 1.0).check()
    assert "line 99" in str(error.value)
    assert "line 50" not in str(error.value)


@pytest.mark.skipif(shutil.which("ps") is None, reason="needs ps")
def test_descendants_are_found_without_proc():
    with subprocess.Popen(["sh", "-c", "sleep 30 & sleep 30 & wait"]) as shell:
        try:
            deadline = time.monotonic() + 10
            while len(found := processes.descendants({shell.pid})) < 3:
                assert time.monotonic() < deadline
            assert shell.pid in found
        finally:
            for pid in found:
                flower.os.kill(pid, signal.SIGTERM)
    # Who has lost its parent is gone when init has taken note of its end.
    deadline = time.monotonic() + 10
    while processes.descendants(found):
        assert time.monotonic() < deadline
