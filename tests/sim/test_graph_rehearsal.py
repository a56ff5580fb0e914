"""Of a graph's processes, what is stopped is what was asked for, and nobody else."""

from __future__ import annotations

import os
import socket
import subprocess
import sys

import pytest

from trellis.sim.federation.folder import FederationError
from trellis.sim.federation.graph.folder import ServerGraph
from trellis.sim.federation.graph.rehearsal import GraphRehearsal
from trellis.sim.federation.rehearsal import DEVICE, PART, SERVER
from trellis.sim.processes import HAS_PROC, MARK, free_port, is_marked

from .test_graph_folder import NAMES, make

pytestmark = pytest.mark.skipif(not HAS_PROC, reason="needs Linux's /proc")
SLEEPER = [sys.executable, "-c", "import time; time.sleep(300)"]


@pytest.fixture
def rehearsal(tmp_path):
    make(tmp_path / "g", tls=False, port=free_port())
    return GraphRehearsal(ServerGraph.load(tmp_path / "g"))


@pytest.fixture
def processes(rehearsal):
    """A process of every server and one of a device, as if they had been started."""
    begun = {}
    for name in NAMES:
        for part in (SERVER, DEVICE):
            marks = {MARK: str(rehearsal.graph.server(name)), PART: part}
            begun[name, part] = subprocess.Popen(SLEEPER, env=os.environ | marks)
    yield begun
    for process in begun.values():
        process.kill()
        process.wait()


def test_one_server_is_stopped_and_the_others_and_its_devices_go_on(rehearsal, processes):
    assert rehearsal.down("server-1") == 1
    gone = {which for which, process in processes.items() if process.poll() is not None}
    assert gone == {("server-1", SERVER)}
    assert rehearsal.down() == 5
    assert all(process.poll() is not None for process in processes.values())
    assert rehearsal.down() == 0


@pytest.mark.parametrize(("kill", "end"), [(False, 7), (True, -9)])
def test_a_power_cut_lets_nobody_say_goodbye(rehearsal, monkeypatch, kill, end):
    marks = {MARK: str(rehearsal.graph.server("server-2")), PART: SERVER}
    code = "import signal, sys, time; signal.signal(15, lambda *_: sys.exit(7)); print(flush=True)"
    process = subprocess.Popen(
        [sys.executable, "-c", f"{code}; time.sleep(300)"],
        env=os.environ | marks,
        stdout=subprocess.PIPE,
    )
    process.stdout.readline()
    # How it ended is for us to see; the code under test would take note of it first.
    monkeypatch.setattr("trellis.sim.federation.rehearsal._reap", lambda pids: process.poll())
    assert rehearsal.down("server-2", kill=kill) == 1
    assert process.wait(timeout=10) == end
    process.stdout.close()


def test_a_server_that_is_not_there_is_named(rehearsal):
    with pytest.raises(FederationError, match="no server is called 'server-7': server-0, "):
        rehearsal.down("server-7")


def test_a_taken_port_is_told_before_anything_starts(rehearsal):
    port = rehearsal.servers["server-2"].federation.port
    with socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        other.bind(("127.0.0.1", port))
        other.listen()
        with pytest.raises(FederationError, match=f"port {port} is taken by another process"):
            rehearsal.up()
    assert rehearsal.down() == 0
    assert not any((rehearsal.graph.server(name) / "rehearsal").exists() for name in NAMES)


def test_servers_that_nobody_started_do_not_answer(rehearsal):
    found = rehearsal.status()
    assert [(server.name, server.answers, server.ok) for server in found] == [
        (name, False, False) for name in NAMES
    ]


def test_a_process_that_becomes_another_program_keeps_its_mark():
    """Its environment reads as empty for a moment, which is not the same as having no mark."""
    for _ in range(30):
        process = subprocess.Popen(
            ["/bin/sh", "-c", "exec sleep 60"], env=os.environ | {MARK: "/x"}
        )
        try:
            assert is_marked(process.pid, f"{MARK}=/x")
            assert not is_marked(process.pid, f"{MARK}=/y")
        finally:
            process.kill()
            process.wait()
        assert not is_marked(process.pid, f"{MARK}=/x")
