"""A graph of servers over TLS on this machine: started, looked at, stopped, and started again."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys

import pytest

from trellis.sim.federation.graph.folder import ServerGraph
from trellis.sim.federation.graph.rehearsal import GraphRehearsal
from trellis.sim.processes import descendants, free_port

from .site import processes_of, trellis, until

pytestmark = [pytest.mark.deploy, pytest.mark.timeout(1800)]
WIDE = {"env": os.environ | {"COLUMNS": "200"}}


@pytest.fixture
def folder(tmp_path):
    place = tmp_path / "graph"
    given = ("--servers", 3, "--topology", "path", "--clients", 2)
    trellis("deploy", "init", place, *given, "--tls", "--open", "--port", free_port())
    try:
        yield place
    finally:
        trellis("deploy", "down", place)
    assert processes_of(place) == []


def nodes_of(rehearsal):
    """Return the ids of every process that is a SuperNode of the graph."""
    roots = {
        pid
        for server in rehearsal.servers.values()
        for name, pid in server.processes().items()
        if name != "server"
    }
    return descendants(roots)


def test_up_status_down_twice_without_leftovers(folder):
    rehearsal = GraphRehearsal(ServerGraph.load(folder))
    numbers = []
    for _ in range(2):
        trellis("deploy", "up", folder)
        words = trellis("deploy", "status", folder, **WIDE)
        for name, bridges in (("server-0", 1), ("server-1", 2), ("server-2", 1)):
            row = rf"{name} │ answers │ - │ - │ - │ 2 of 2 │ {bridges} of {bridges} "
            assert re.search(row, words), words
        assert [server.ok for server in rehearsal.status()] == [True] * 3
        processes = {name: set(s.processes()) for name, s in rehearsal.servers.items()}
        assert processes["server-1"] == {
            "server", "client-3", "client-4", "bridge-to-server-0", "bridge-to-server-2",
        }  # fmt: skip
        numbers.append({name: s.node_numbers() for name, s in rehearsal.servers.items()})
        started = nodes_of(rehearsal)
        assert len(started) >= 3 * 10  # a shell, a SuperNode and its SuperExec for each
        trellis("deploy", "down", folder)
        assert processes_of(folder) == []
        assert descendants(started) == set()
        words = trellis("deploy", "status", folder, code=1, **WIDE)
        assert len(re.findall("no answer", words)) == 3
    # Known by their keys, everybody is who they were before.
    assert numbers[0] == numbers[1]
    assert "nothing was running" in trellis("deploy", "down", folder)


def test_one_server_goes_and_comes_back_and_a_killed_launcher_leaves_nothing(folder):
    rehearsal = GraphRehearsal(ServerGraph.load(folder))
    launcher = subprocess.Popen(
        [sys.executable, "-m", "trellis", "deploy", "up", str(folder)],
        stdout=subprocess.PIPE,
        text=True,
    )
    while "online" not in (line := launcher.stdout.readline()):
        assert line, "the launcher ended by itself"
    launcher.send_signal(signal.SIGKILL)
    launcher.wait()
    launcher.stdout.close()
    trellis("deploy", "up", folder)  # what is missing
    trellis("deploy", "down", folder, "--only", "server-1")
    words = trellis("deploy", "status", folder, code=1, **WIDE)
    assert "server-1: nobody answers" in words
    assert set(rehearsal.servers["server-1"].processes()) == {"client-3", "client-4"}
    assert "server-0: not online: bridge-of-server-1" in words
    assert "server-2: not online: bridge-of-server-1" in words
    trellis("deploy", "up", folder, "--only", "server-1")
    until(
        lambda: all(server.ok for server in rehearsal.status()),
        lambda: str([(s.name, s.missing) for s in rehearsal.status()]),
    )
