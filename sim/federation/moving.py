"""A device that goes to another SuperLink while its own is gone: what runs its SuperNode then.

`sim.federation.whereabouts` says when to go where. Here a SuperNode is started for that place, and
stopped with everything below it before another is started: there is never more than one, so the
device's ledger and its programs serve one server at a time. A ClientApp that was at work is stopped
with it; what it had entered in the ledger stays entered.
"""

from __future__ import annotations

import os
import secrets
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol

from trellis.sim.processes import HAS_PROC, descendants, flower_environment, marked, stop_all
from trellis.sim.reach import Reach
from trellis.sim.supernode import SUPERVISOR

from .device import Device
from .folder import FederationError
from .whereabouts import Whereabouts

EVERY = 2.0  # seconds between two looks
_ONE = "TRELLIS_SUPERNODE"  # in the environment of one SuperNode and of all that it starts
_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)

Tell = Callable[[str, str, str], None]


class Running(Protocol):
    """A SuperNode that was started."""

    def poll(self) -> int | None:
        """Return the code with which it ended; None while it runs."""
        ...

    def stop(self) -> None:
        """Stop it and all that it has started."""
        ...


class SuperNode:
    """A device's SuperNode as a process of its own.

    Parameters
    ----------
    device : as it is at the SuperLink to connect to
    """

    def __init__(self, device: Device) -> None:
        self._mark = f"{_ONE}={secrets.token_hex(8)}"
        name, _, value = self._mark.partition("=")
        environment = flower_environment(device.home)
        environment |= {name: value, SUPERVISOR: str(os.getpid())}
        command = [sys.executable, "-m", "trellis.sim.supernode", *device.arguments()]
        self._process = subprocess.Popen(command, env=environment)

    def poll(self) -> int | None:
        """Return the code with which it ended; None while it runs."""
        code = self._process.poll()
        # As a shell tells it, where a signal has ended it.
        return 128 - code if code is not None and code < 0 else code

    def stop(self) -> None:
        """Stop it and all that it has started, by process id.

        Raises
        ------
        FederationError
            Where something could not be stopped.
        """
        if left := stop_all(self._living):
            raise FederationError(f"could not be stopped: processes {sorted(left)}")

    def _living(self, known: set[int]) -> set[int]:
        # A process id whose end we have taken note of may be a stranger's by now.
        ended = self._process.poll() is not None
        found = known - {self._process.pid} if ended else known | {self._process.pid}
        if HAS_PROC:
            found = found | marked(self._mark)  # also what it has left behind
        return descendants(found)


class Moving:
    """Keeps a device at its SuperLink, or at one of its fallbacks.

    Parameters
    ----------
    device : with its fallbacks
    ask : whether a SuperLink answers at an address
    tell : is told what happened (``connects``, ``moved``, ``ended`` or ``waits``), the address, why
    start : starts the device's SuperNode
    clock : seconds that only grow
    """

    def __init__(
        self,
        device: Device,
        ask: Callable[[str], Reach],
        tell: Tell,
        *,
        start: Callable[[Device], Running] = SuperNode,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._device, self._ask, self._tell = device, ask, tell
        self._start, self._clock = start, clock
        self._where = Whereabouts(device.superlink, device.fallback, device.fallback_after, clock())
        self._node: Running | None = None
        self._stopped = threading.Event()
        self._complaint = ""

    def run(self) -> int:
        """Go on until told to stop, or until the SuperNode ends at its own SuperLink.

        Returns the code to exit with: that of the SuperNode, or 0 where a signal ended it all.
        """
        with self._signals():
            try:
                while not self._stopped.is_set():
                    if (code := self.step()) is not None:
                        return code
                    self._stopped.wait(EVERY)
                return 0
            finally:
                self._stop()

    def stop(self) -> None:
        """Have `run` stop everything and return."""
        self._stopped.set()

    def step(self) -> int | None:
        """Look once and do what follows from it; return a code where the device is to end."""
        if self._node is not None and (code := self._node.poll()) is not None:
            if self._where.at == self._device.superlink:
                return code
            why = f"the SuperNode ended with code {code}; is this device registered there?"
            self._tell("ended", self._where.at, why)
            self._stop()
            self._where.ended(self._clock())
        move = self._where.look(self._clock(), self._ask)
        if self._stopped.is_set():
            return None
        if move is not None:
            self._stop()
            self._node = self._start(self._device.at(move.to))
            self._where.moved(move.to, self._clock())
            self._tell("moved" if move.why else "connects", move.to, move.why)
        elif self._where.complaint and not self._complaint:
            where = self._where.at or self._device.superlink
            self._tell("waits", where, self._where.complaint)
        self._complaint = self._where.complaint
        return None

    def _stop(self) -> None:
        if self._node is not None:
            self._node.stop()
            self._node = None

    @contextmanager
    def _signals(self) -> Iterator[None]:
        """Let signals end the loop; as exceptions they could come between a start and its note."""
        before = {number: signal.signal(number, self._told) for number in _SIGNALS}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _told(self, number: int, frame: object) -> None:
        self.stop()
