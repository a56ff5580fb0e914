"""A federation over TLS on this machine: made, started, used, stopped, and nothing stays behind."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from tests.flower.bits import assert_same_bits
from trellis.apps import run
from trellis.apps.common.results import RunResult
from trellis.sim.federation.certificates import make_authority, make_node_key
from trellis.sim.federation.folder import Federation
from trellis.sim.federation.rehearsal import Rehearsal
from trellis.sim.processes import free_port

from .site import processes_of, trellis

pytestmark = [pytest.mark.deploy, pytest.mark.timeout(1200)]
NAMES = ("clinic", "hospital", "ward")
SETTINGS = {"rounds": 2, "tolerance": 0.0}


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    rng = np.random.default_rng(0)
    for name in NAMES:
        rows = rng.normal(size=(40, 6)) @ rng.normal(size=(6, 6))
        header = ",".join(f"region-{i}" for i in range(6))
        np.savetxt(folder / f"{name}.csv", rows, delimiter=",", header=header, comments="")
    return folder


@pytest.fixture(scope="module")
def folder(tmp_path_factory, data):
    """A federation over TLS that runs, and is stopped whatever happens."""
    place = tmp_path_factory.mktemp("deploy") / "federation"
    port = str(free_port())
    trellis("deploy", "init", place, "--tls", "--open", "--data", data, "--port", port)
    try:
        trellis("deploy", "up", place)
        yield place
    finally:
        trellis("deploy", "down", place)
    assert processes_of(place) == []


def test_all_are_online_by_their_names_and_up_again_starts_nothing(folder):
    words = trellis("deploy", "status", folder)
    for name in NAMES:
        assert re.search(f"{name} .? ?online", words), words
    rehearsal = Rehearsal(Federation.load(folder))
    before, numbers = rehearsal.processes(), rehearsal.node_numbers()
    assert set(before) == {"server", *NAMES}
    trellis("deploy", "up", folder)
    assert rehearsal.processes() == before
    assert rehearsal.node_numbers() == numbers


def test_a_run_gives_the_same_bits_as_in_this_process(folder, data, tmp_path):
    here = run("consensus-graph", SETTINGS, data=data, out=tmp_path / "here")
    given = [part for key, value in SETTINGS.items() for part in ("--set", f"{key}={value}")]
    words = trellis("deploy", "run", folder, "consensus-graph", *given)
    assert "completed" in words
    there = RunResult.load(folder / "runs" / "consensus-graph-1")
    assert there.engine == "deployment"
    assert [client["name"] for client in there.clients] == list(NAMES)
    assert_same_bits(here, there)
    assert "finished:completed" in trellis("deploy", "status", folder)


def test_a_run_that_fails_is_told_and_is_no_success(folder, tmp_path):
    out = tmp_path / "run"
    # A file that is gone ends this run: one device of three is too few for its sums.
    place = folder / "devices" / "ward" / "data" / "ward.csv"
    kept = place.rename(place.with_suffix(".kept"))
    try:
        given = ("--set", "privacy=dp", "--set", "rounds=2", "--set", "timeout=120")
        words = trellis("deploy", "run", folder, "consensus-graph", "--out", out, *given, code=1)
    finally:
        kept.rename(place)
    assert "finished:failed" in words
    # The owner finds out why, with the file's name; the server was told a code only.
    log = trellis("device", "log", folder / "devices" / "ward" / "state")
    assert "ward.csv" in log
    assert "ward.csv" not in words


def test_an_unregistered_device_and_a_wrong_authority_are_refused(folder, tmp_path):
    federation = Federation.load(folder)
    stranger = tmp_path / "stranger"
    shutil.copytree(federation.device("ward"), stranger)
    (stranger / "node.key").write_bytes(make_node_key().private)
    command = [sys.executable, "-m", "trellis", "device", "start", str(stranger)]
    # Into a file: its SuperExec ends only after it, and would hold a pipe open.
    with (tmp_path / "log").open("wb") as output:
        refused = subprocess.run(command, stdout=output, stderr=output, timeout=120)
    assert refused.returncode == 1
    assert "Exit Code: 305" in (tmp_path / "log").read_text()
    (stranger / "ca.crt").write_bytes(make_authority().pair.public)
    words = trellis("device", "start", stranger, code=1)
    assert "is not signed by this side's root certificate" in words
    words = trellis("deploy", "check", stranger, code=1)
    assert "NOT server: the certificate of" in words
    text = (stranger / "device.toml").read_text()
    text = "\n".join(line for line in text.splitlines() if not line.startswith(("root-", "auth-")))
    (stranger / "device.toml").write_text(text)
    assert "speaks TLS" in trellis("device", "start", stranger, code=1)


def test_a_killed_device_comes_back_by_itself(folder):
    rehearsal = Rehearsal(Federation.load(folder))
    (shell,) = [pid for name, pid in rehearsal.processes().items() if name == "ward"]
    listing = subprocess.run(
        ["ps", "-o", "pid=,args=", "--ppid", str(shell)], capture_output=True, text=True
    ).stdout
    (node,) = [line.split()[0] for line in listing.splitlines() if "trellis.sim.supernode" in line]
    os.kill(int(node), signal.SIGKILL)
    deadline = time.monotonic() + 300
    # Flower refuses it while it takes the killed one for online; start.sh tries again.
    while f"{rehearsal.log('ward').count('SuperNode ID')}" != "2":
        assert time.monotonic() < deadline, rehearsal.log("ward")
        time.sleep(1.0)
    assert "is started again in" in rehearsal.log("ward")
    status = {device.name: device.status for device in rehearsal.status()}
    assert status == dict.fromkeys(NAMES, "online")


def test_a_killed_launcher_leaves_nothing_that_down_does_not_stop(data, tmp_path):
    place = tmp_path / "federation"
    trellis("deploy", "init", place, "--open", "--data", data, "--port", free_port())
    for _ in range(2):  # twice in a row, without leftovers
        launcher = subprocess.Popen(
            [sys.executable, "-m", "trellis", "deploy", "up", str(place)],
            stdout=subprocess.PIPE,
            text=True,
        )
        while "online" not in (line := launcher.stdout.readline()):
            assert line, "the launcher ended by itself"
        launcher.send_signal(signal.SIGKILL)
        launcher.wait()
        launcher.stdout.close()
        assert len(processes_of(place)) >= 4
        trellis("deploy", "down", place)
        assert processes_of(place) == []
    assert "nothing was running" in trellis("deploy", "down", place)
