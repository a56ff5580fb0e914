"""A SuperNode waits a share of the time since its last message, and wakes its SuperExec."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest

from trellis.sim.processes import started_at
from trellis.sim.superexec import WakeableSleep
from trellis.sim.supernode import AT_WORK, HEARTBEAT, SHORTEST, AdaptiveSleep, heartbeat_interval


@pytest.fixture
def clock():
    class Clock:
        now, slept = 100.0, []

        def sleep(self, seconds):
            self.slept.append(seconds)
            self.now += seconds

    return Clock()


def test_waits_grow_with_the_silence_up_to_flower_s_own(clock):
    clock.slept = []
    sleep = AdaptiveSleep(clock.sleep, lambda: clock.now)
    while clock.now < 400.0:
        sleep(3)
    assert clock.slept[0] == SHORTEST
    assert clock.slept == sorted(clock.slept)
    assert clock.slept[-1] == 3
    # After T seconds of silence a message waits a tenth of them at most.
    passed = 0.0
    for seconds in clock.slept:
        assert seconds <= max(SHORTEST, 0.1 * passed) + 1e-9
        passed += seconds


def test_a_message_makes_it_quick_again(clock):
    clock.slept = []
    sleep = AdaptiveSleep(clock.sleep, lambda: clock.now)
    clock.now += 1000.0
    sleep(3)
    sleep(0.5)  # Flower waits so for a reply
    sleep(3)
    assert clock.slept == [3, AT_WORK, SHORTEST]


def test_flower_s_loops_wait_as_we_think():
    """What is private to Flower is still so: the names are there, and ours are in their place."""
    code = (
        "import sys, inspect\n"
        "import flwr.supernode.start_client_internal, flwr.supercore.superexec.run_superexec\n"
        "loop = sys.modules['flwr.supernode.start_client_internal']\n"
        "text = inspect.getsource(loop)\n"
        "assert 'time.sleep(3)' in text and 'time.sleep(0.5)' in text\n"
        "assert text.count('time.sleep') == text.count('time.'), 'time is used in other ways'\n"
        "assert 'subprocess.Popen(command)' in text and text.count('subprocess.') == 1\n"
        "other = sys.modules['flwr.supercore.superexec.run_superexec']\n"
        "assert 'time.sleep(task_poll_interval)' in inspect.getsource(other)\n"
        "from trellis.sim.supernode import install, AdaptiveSleep\n"
        "before = loop._push_messages\n"
        "install()\n"
        "assert isinstance(loop.time.sleep, AdaptiveSleep)\n"
        "assert loop._push_messages is not before\n"
        "for name in ('supernode.fleet_http_connection', 'supercore.heartbeat'):\n"
        "    beats = sys.modules['flwr.' + name]\n"
        "    assert 'HEARTBEAT_DEFAULT_INTERVAL' in inspect.getsource(beats)\n"
        "    assert beats.HEARTBEAT_DEFAULT_INTERVAL == 10\n"
    )
    code = code.replace("text.count('time.')", "(text.count('time.') - text.count('total time.'))")
    subprocess.run([sys.executable, "-c", code], check=True)


def test_signs_of_life_are_as_frequent_as_flower_takes_unless_somebody_says_otherwise():
    assert heartbeat_interval({}) == 10.0
    assert heartbeat_interval({HEARTBEAT: "45"}) == 45.0
    for wrong in ("9", "nan", "often", "1e9"):
        with pytest.raises(ValueError, match=r"TRELLIS_HEARTBEAT=.*from 10 to 1800 seconds"):
            heartbeat_interval({HEARTBEAT: wrong})


ORPHAN = """
import os, subprocess, sys, time
from pathlib import Path
from trellis.sim.supernode import end_without
if len(sys.argv) == 2:
    subprocess.Popen([sys.executable, "-c", Path(sys.argv[1]).read_text(), "x", str(os.getpid())])
else:
    end_without(int(sys.argv[2]))
print(os.getpid(), flush=True)
time.sleep(60)
"""


def test_a_supernode_ends_with_the_process_that_looks_after_it(tmp_path):
    (tmp_path / "code").write_text(ORPHAN)
    command = [sys.executable, "-c", ORPHAN, str(tmp_path / "code")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as parent:
        found = {int(parent.stdout.readline()) for _ in range(2)}
        (child,) = found - {parent.pid}
        time.sleep(0.2)
        assert started_at(child)
        parent.kill()
        deadline = time.monotonic() + 20
        while started_at(child):
            assert time.monotonic() < deadline, "it goes on alone"
            time.sleep(0.05)


WAITER = """
import sys, time
from trellis.sim.processes import started_at
from trellis.sim.superexec import WakeableSleep
sleep = WakeableSleep()
print("ready", flush=True)
for _ in range(2):
    sleep(60.0)
    print("woken", flush=True)
sleep(0.01)
print("alone", flush=True)
"""


def test_a_signal_ends_the_sleep_also_one_that_comes_early():
    with subprocess.Popen(
        [sys.executable, "-c", WAITER], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout.readline() == "ready\n"
        for _ in range(2):
            process.send_signal(signal.SIGUSR1)
            assert process.stdout.readline() == "woken\n"
        assert process.stdout.readline() == "alone\n"
    assert process.returncode == 0


def test_a_superexec_that_is_not_listening_yet_survives_a_wake(monkeypatch):
    from trellis.sim import supernode

    before = signal.getsignal(signal.SIGUSR1)
    real = subprocess.Popen
    monkeypatch.setattr(
        supernode.subprocess,
        "Popen",
        lambda command, env: real([sys.executable, "-c", "import time; time.sleep(60)"], env=env),
    )
    helper = supernode._SuperExec()
    helper.wake()  # nothing there yet, nothing happens
    try:
        process = helper.start(["flower-superexec", "--insecure"])
        time.sleep(0.2)
        helper.wake()
        time.sleep(0.2)
        assert process.poll() is None
    finally:
        signal.signal(signal.SIGUSR1, before)
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
    with pytest.raises(RuntimeError, match="flower-superexec was expected"):
        helper.start(["another"])


def test_the_wakeable_sleep_is_a_sleep():
    before, wakeup = signal.getsignal(signal.SIGUSR1), signal.set_wakeup_fd(-1)
    try:
        WakeableSleep()(0.0)
    finally:
        signal.signal(signal.SIGUSR1, before)
        signal.set_wakeup_fd(wakeup)
