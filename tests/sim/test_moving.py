"""When a device goes to another SuperLink and when it goes home; and that one SuperNode runs."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import ClassVar

import pytest

from trellis.sim.federation import moving
from trellis.sim.federation.device import Device
from trellis.sim.federation.moving import EVERY, Moving, SuperNode
from trellis.sim.federation.whereabouts import AGAIN, STEADY, Move, Whereabouts
from trellis.sim.processes import descendants, started_at
from trellis.sim.reach import Reach

OWN, FIRST, SECOND = "own:1", "first:2", "second:3"
AFTER = 10.0


class World:
    """A clock, the SuperLinks that answer, and how often each was asked."""

    def __init__(self, *up: str) -> None:
        self.now, self.up, self.asked = 1000.0, set(up), []

    def ask(self, address: str) -> Reach:
        self.asked.append(address)
        up = address in self.up
        return Reach(up, up, f"{address} answers" if up else f"nobody answers at {address}")


def look_for(seconds: float, where: Whereabouts, world: World) -> tuple[float, Move] | None:
    """Look every two seconds; return the first move and after how long it came."""
    began = world.now
    while world.now < began + seconds:
        if (move := where.look(world.now, world.ask)) is not None:
            where.moved(move.to, world.now)
            return world.now - began, move
        world.now += EVERY
    return None


def at_home(world: World, *fallback: str) -> Whereabouts:
    world.up.add(OWN)
    where = Whereabouts(OWN, fallback or (FIRST, SECOND), AFTER, world.now)
    assert look_for(1.0, where, world) == (0.0, Move(OWN, ""))
    return where


# --- the decision ----------------------------------------------------------------------------


def test_at_home_only_the_own_superlink_is_asked():
    world = World(FIRST, SECOND)
    where = at_home(world)
    assert look_for(100.0, where, world) is None
    assert set(world.asked) == {OWN}


def test_a_short_silence_moves_nothing_and_does_not_add_up():
    world = World(FIRST)
    where = at_home(world)
    for _ in range(5):
        world.up.discard(OWN)
        assert look_for(AFTER - EVERY, where, world) is None
        world.up.add(OWN)
        assert look_for(EVERY, where, world) is None
    assert where.at == OWN


def test_a_long_silence_moves_it_to_the_first_that_answers():
    world = World(SECOND)
    where = at_home(world)
    world.up.discard(OWN)
    after, move = look_for(60.0, where, world)
    assert move.to == SECOND
    assert AFTER <= after <= AFTER + EVERY
    assert move.why == f"own:1 has not answered for {after:.0f} s: nobody answers at own:1"
    # The first in the order that answers again is no reason to move once more.
    world.up.add(FIRST)
    assert look_for(60.0, where, world) is None


def test_where_nobody_answers_it_stays_and_says_so():
    world = World()
    where = at_home(world)
    world.up.clear()
    assert look_for(60.0, where, world) is None
    assert where.at == OWN
    assert where.complaint.endswith("; nor does any fallback answer")
    world.up.add(OWN)
    assert look_for(60.0, where, world) is None
    assert where.complaint == ""


def test_it_goes_home_when_its_own_has_answered_for_a_while():
    world = World(FIRST)
    where = at_home(world)
    world.up.discard(OWN)
    look_for(60.0, where, world)
    assert where.at == FIRST
    world.up.add(OWN)
    after, move = look_for(60.0, where, world)
    assert move == Move(OWN, "own:1 answers again")
    assert STEADY <= after <= STEADY + EVERY


def test_a_server_that_comes_and_goes_does_not_take_it_along():
    world = World(FIRST)
    where = at_home(world)
    world.up.discard(OWN)
    look_for(60.0, where, world)
    for _ in range(20):
        world.up.add(OWN)
        assert look_for(STEADY - EVERY, where, world) is None
        world.up.discard(OWN)
        assert look_for(EVERY, where, world) is None
    assert where.at == FIRST


def test_two_answers_are_needed_also_where_looks_are_far_apart():
    world = World(FIRST)
    where = at_home(world)
    world.up.discard(OWN)
    look_for(60.0, where, world)
    world.up.add(OWN)
    world.now += 1000.0
    assert where.look(world.now, world.ask) is None
    world.now += 1000.0
    assert where.look(world.now, world.ask).to == OWN


def test_a_fallback_that_goes_too_is_left_for_the_next():
    world = World(FIRST, SECOND)
    where = at_home(world)
    world.up.discard(OWN)
    look_for(60.0, where, world)
    assert look_for(60.0, where, world) is None
    world.up.discard(FIRST)
    after, move = look_for(60.0, where, world)
    assert (move.to, AFTER - EVERY <= after <= AFTER) == (SECOND, True)
    assert "first:2 has not answered" in move.why


def test_a_fallback_that_ends_the_supernode_is_set_aside():
    world = World(FIRST, SECOND)
    where = at_home(world)
    world.up.discard(OWN)
    look_for(60.0, where, world)
    where.ended(world.now)
    assert look_for(60.0, where, world)[1].to == SECOND
    where.ended(world.now)
    after, move = look_for(60.0, where, world)
    assert (move.to, AGAIN <= after <= AGAIN + EVERY) == (FIRST, True)
    # With a single one it is tried again, after a while.
    alone = World(FIRST)
    where = at_home(alone, FIRST)
    alone.up.discard(OWN)
    look_for(60.0, where, alone)
    where.ended(alone.now)
    after, move = look_for(60.0, where, alone)
    assert (move.to, AGAIN <= after <= AGAIN + EVERY) == (FIRST, True)
    where.ended(alone.now)
    alone.up.add(OWN)
    assert look_for(60.0, where, alone) == (0.0, Move(OWN, "own:1 answers again"))


def test_a_device_that_starts_without_its_server_waits_as_long():
    world = World(FIRST)
    where = Whereabouts(OWN, (FIRST,), AFTER, world.now)
    after, move = look_for(60.0, where, world)
    assert (move.to, after) == (FIRST, AFTER)
    assert "own:1 has not answered for 10 s" in move.why


# --- what runs -------------------------------------------------------------------------------


class Node:
    """A SuperNode that is none."""

    running: ClassVar[list[Node]] = []

    def __init__(self, device: Device) -> None:
        self.address, self.code = device.superlink, None
        self.running.append(self)
        # Never two at once: one ledger, one server.
        assert len(self.running) == 1

    def poll(self) -> int | None:
        return self.code

    def stop(self) -> None:
        self.running.remove(self)


class Scene:
    """A device, its world, and what its owner was told."""

    def __init__(self, folder: Path) -> None:
        Node.running = []
        self.told: list[tuple[str, str]] = []
        self.world = World(OWN, FIRST)
        self.device = Device(
            folder, "ward", OWN, None, None, 0, {}, fallback=(FIRST, SECOND), fallback_after=AFTER
        )
        self.moving = Moving(
            self.device,
            self.world.ask,
            lambda what, address, why: self.told.append((what, address)),
            start=Node,
            clock=lambda: self.world.now,
        )

    def pass_(self, seconds: float) -> int | None:
        until = self.world.now + seconds
        while self.world.now < until:
            if (code := self.moving.step()) is not None:
                return code
            self.world.now += EVERY
        return None

    @property
    def at(self) -> str:
        (node,) = Node.running
        return node.address


@pytest.fixture
def scene(tmp_path):
    return Scene(tmp_path)


def test_away_and_home_with_one_supernode_at_a_time(scene):
    assert scene.pass_(10) is None
    assert scene.at == OWN
    scene.world.up.discard(OWN)
    assert scene.pass_(AFTER - EVERY) is None
    assert scene.at == OWN
    assert scene.pass_(3 * EVERY) is None
    assert scene.at == FIRST
    scene.world.up.add(OWN)
    assert scene.pass_(STEADY + 2 * EVERY) is None
    assert scene.at == OWN
    assert scene.told == [("connects", OWN), ("moved", FIRST), ("moved", OWN)]


def test_a_supernode_that_ends_at_home_ends_it_all_with_its_code(scene):
    scene.pass_(10)
    Node.running[0].code = 1
    assert scene.pass_(10) == 1


def test_a_supernode_that_ends_away_is_started_elsewhere(scene):
    scene.pass_(10)
    scene.world.up = {FIRST, SECOND}
    scene.pass_(AFTER + EVERY)
    assert scene.at == FIRST
    Node.running[0].code = 1
    assert scene.pass_(EVERY) is None
    assert scene.at == SECOND
    assert scene.told[-2:] == [("ended", FIRST), ("moved", SECOND)]


def test_that_nobody_answers_is_said_once(scene):
    scene.pass_(10)
    scene.world.up = set()
    scene.pass_(100)
    assert scene.told == [("connects", OWN), ("waits", OWN)]
    scene.world.up = {OWN}
    scene.pass_(10)
    scene.world.up = set()
    scene.pass_(100)
    assert scene.told[2:] == [("waits", OWN)]
    assert scene.at == OWN


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_stops_everything_and_is_no_failure(scene, number):
    before = signal.getsignal(number)

    def send_when_connected():  # its handlers are in place then; before, this would end pytest
        while not scene.told:
            time.sleep(0.01)
        os.kill(os.getpid(), number)

    sender = threading.Thread(target=send_when_connected, daemon=True)
    sender.start()
    assert scene.moving.run() == 0
    sender.join()
    assert scene.told == [("connects", OWN)]
    assert Node.running == []
    assert signal.getsignal(number) == before


FAMILY = """
import signal, subprocess, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
if len(sys.argv) == 1:
    subprocess.Popen([sys.executable, __file__, "child"])
time.sleep(120)
"""


@pytest.fixture
def family(scene, tmp_path, monkeypatch):
    """A process with a child, both deaf to SIGTERM, in the place of a SuperNode."""
    (tmp_path / "family.py").write_text(FAMILY)
    real = subprocess.Popen

    class Popen(real):
        def __init__(self, command, **options):
            if "trellis.sim.supernode" in command:
                command = [sys.executable, str(tmp_path / "family.py")]
            super().__init__(command, **options)

    monkeypatch.setattr(moving.subprocess, "Popen", Popen)
    node = SuperNode(scene.device)
    deadline = time.monotonic() + 30
    while len(found := descendants({node._process.pid})) < 2:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    time.sleep(0.5)  # until both are deaf
    yield node, found
    for pid in found:
        if started_at(pid):
            os.kill(pid, signal.SIGKILL)


def test_what_is_deaf_is_stopped_too_with_its_children(family):
    node, found = family
    assert node.poll() is None
    node.stop()
    assert [pid for pid in found if started_at(pid)] == []
    assert node.poll() == 128 + signal.SIGKILL


@pytest.mark.skipif(not moving.HAS_PROC, reason="needs /proc")
def test_what_a_killed_supernode_left_behind_is_stopped(family):
    node, found = family
    os.kill(node._process.pid, signal.SIGKILL)
    node._process.wait()
    assert len([pid for pid in found if started_at(pid)]) == 1
    node.stop()
    assert [pid for pid in found if started_at(pid)] == []
