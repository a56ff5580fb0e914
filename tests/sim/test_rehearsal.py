"""What is stopped is what was started: by process id, start time and mark."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from trellis.sim.federation.folder import Federation
from trellis.sim.federation.rehearsal import Rehearsal
from trellis.sim.processes import HAS_PROC, MARK, descendants, started_at, stop_all

pytestmark = pytest.mark.skipif(not HAS_PROC, reason="needs Linux's /proc")
SLEEPER = [sys.executable, "-c", "import time; time.sleep(300)"]


@pytest.fixture
def rehearsal(tmp_path):
    found = Rehearsal(Federation(tmp_path, ("a", "b"), "127.0.0.1", 8000, False))
    found.folder.mkdir()
    return found


@pytest.fixture
def start():
    begun = []

    def run(mark=None):
        environment = os.environ | ({MARK: str(mark)} if mark else {})
        process = subprocess.Popen(SLEEPER, env=environment, start_new_session=True)
        begun.append(process)
        return process

    yield run
    for process in begun:
        process.kill()
        process.wait()


def record(rehearsal, **processes):
    rows = {name: [str(pid), began] for name, (pid, began) in processes.items()}
    (rehearsal.folder / "processes.json").write_text(json.dumps(rows))


def test_a_start_time_belongs_to_a_process(start):
    process = start()
    assert started_at(process.pid) == started_at(process.pid) != ""
    process.kill()
    process.wait()
    assert started_at(process.pid) == ""


def test_a_stranger_with_the_same_id_is_left_alone(rehearsal, start):
    ours, stranger = start(rehearsal.federation.folder), start()
    record(
        rehearsal,
        server=(ours.pid, started_at(ours.pid)),
        a=(stranger.pid, started_at(stranger.pid)),  # an id that came to be somebody else's
        b=(ours.pid, "1"),  # one that is used again
    )
    assert rehearsal.processes() == {"server": ours.pid}
    assert rehearsal.down() == 1
    ours.wait(timeout=10)
    assert stranger.poll() is None
    assert not (rehearsal.folder / "processes.json").exists()
    assert rehearsal.down() == 0


def test_another_federation_s_processes_are_left_alone(rehearsal, start, tmp_path):
    other = start(tmp_path / "elsewhere")
    assert rehearsal.down() == 0
    assert other.poll() is None


def test_what_no_record_names_is_stopped_by_its_mark(rehearsal, start):
    """As after a kill -9 of the launcher, between starting a process and writing it down."""
    lost = start(rehearsal.federation.folder)
    assert rehearsal.processes() == {}
    assert rehearsal.down() == 1
    lost.wait(timeout=10)


def test_what_ignores_a_request_is_killed(rehearsal):
    code = "import signal, time; signal.signal(15, signal.SIG_IGN); print(1, flush=True)"
    process = subprocess.Popen(
        [sys.executable, "-c", f"{code}; time.sleep(300)"], stdout=subprocess.PIPE
    )
    process.stdout.readline()
    assert stop_all(lambda known: descendants({process.pid}), grace=0.3) == set()
    assert process.wait(timeout=10) == -9
    process.stdout.close()
