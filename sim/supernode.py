"""Flower's SuperNode with short waits: ``python -m trellis.sim.supernode`` and its own options.

A SuperNode asks for messages every three seconds, looks every half second whether its ClientApp has
answered, and its SuperExec asks it every second whether there is anything to start: in a study of
many short rounds most of a round is waiting. Here

- it asks for messages after a tenth of the time since the last one, `SHORTEST` at least and at most
  Flower's three seconds: a round is late by a tenth at most, and a device that nobody asks is as
  quiet as Flower makes it;
- it wakes its SuperExec (`sim.superexec`, by a signal) when a message has come, so that this need
  not ask often, which would cost an idle device several per cent of a core;
- it promises a sign of life every ten seconds, the least that Flower takes, in place of thirty: a
  SuperLink misses a dead device after two such times, and only then lets it come back with its key.
  `HEARTBEAT` in the environment sets other seconds;
- it ends where the process that looks after it (`sim.federation.moving`) has died, if there is one:
  `SUPERVISOR` in the environment is its process id. Otherwise the next one would start a second
  SuperNode beside it.

All that is private to Flower here: its main loop waits by ``time.sleep`` of its module, a second or
more between two questions to the server and less while a ClientApp works; it starts SuperExec by
``subprocess.Popen`` of its module, and calls ``_push_messages`` when a message has come. What it
promises, and how often it sends, is ``HEARTBEAT_DEFAULT_INTERVAL`` of two modules.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from types import SimpleNamespace
from typing import Any

SHORTEST = 0.1  # seconds between two questions to the SuperLink, right after a message
AT_WORK = 0.05  # seconds between two looks for the ClientApp's reply, in this process's memory
ASLEEP = "2"  # seconds after which SuperExec looks by itself
_SHARE = 0.1
HEARTBEAT = "TRELLIS_HEARTBEAT"  # in the environment: seconds between two signs of life
SUPERVISOR = "TRELLIS_SUPERVISOR"  # in the environment: the process without which this one ends
_LOOK = 1.0  # seconds between two looks for it
_LOOP = "flwr.supernode.start_client_internal"
_INTERVAL = "HEARTBEAT_DEFAULT_INTERVAL"
_WHO_BEATS = ("flwr.supernode.fleet_http_connection", "flwr.supercore.heartbeat")


class AdaptiveSleep:
    """What the SuperNode's main loop calls in place of ``time.sleep``.

    Parameters
    ----------
    sleep, clock : of the ``time`` module
    """

    def __init__(
        self,
        sleep: Callable[[float], None] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._sleep, self._clock = sleep, clock
        self._last = clock()  # of the last sign of work

    def __call__(self, seconds: float) -> None:
        """Sleep for ``seconds`` at most, shorter where something may come soon."""
        if seconds < 1.0:  # a ClientApp works on a message
            self._last = self._clock()
            self._sleep(min(seconds, AT_WORK))
            return
        since = self._clock() - self._last
        self._sleep(min(seconds, max(SHORTEST, _SHARE * since)))


class _SuperExec:
    """The one SuperExec of this SuperNode: started as ours, woken by a signal."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[Any] | None = None

    def start(self, command: Sequence[str]) -> subprocess.Popen[Any]:
        """Start it in the way in which it can be woken."""
        name, *arguments = command
        if name != "flower-superexec":
            raise RuntimeError(f"flower-superexec was expected, and Flower starts {name!r}")
        # Ignored until it listens, and so inherited: a signal that comes early must not end it.
        signal.signal(signal.SIGUSR1, signal.SIG_IGN)
        self._process = subprocess.Popen(
            [sys.executable, "-m", "trellis.sim.superexec", *arguments],
            env=os.environ | {"FLWR_SUPEREXEC_TASK_POLL_INTERVAL": ASLEEP},
        )
        return self._process

    def wake(self) -> None:
        """Have it look for work now."""
        if self._process is not None and self._process.poll() is None:
            with suppress(ProcessLookupError):
                self._process.send_signal(signal.SIGUSR1)


def heartbeat_interval(environment: Mapping[str, str] = os.environ) -> float:
    """Return the seconds in which the SuperLink may expect a sign of life.

    Raises
    ------
    ValueError
        Where the environment names seconds that Flower does not take.
    """
    from flwr.common.constant import HEARTBEAT_MAX_INTERVAL, HEARTBEAT_MIN_INTERVAL

    least, most = float(HEARTBEAT_MIN_INTERVAL), float(HEARTBEAT_MAX_INTERVAL)
    given = environment.get(HEARTBEAT, "")
    try:
        seconds = float(given) if given else least
    except ValueError:
        seconds = -1.0
    if not least <= seconds <= most:
        raise ValueError(f"{HEARTBEAT}={given!r}: must be from {least:g} to {most:g} seconds")
    return seconds


def install() -> None:
    """Let this process's SuperNode wait adaptively, and be missed soon where it dies."""
    for name in _WHO_BEATS:
        __import__(name)
        sys.modules[name].__dict__[_INTERVAL] = heartbeat_interval()
    __import__(_LOOP)
    loop, helper = sys.modules[_LOOP].__dict__, _SuperExec()
    answer = loop["_push_messages"]

    def wake_and_answer(*arguments: Any, **named: Any) -> None:
        helper.wake()
        answer(*arguments, **named)

    loop["_push_messages"] = wake_and_answer
    loop["time"] = SimpleNamespace(sleep=AdaptiveSleep())
    loop["subprocess"] = SimpleNamespace(Popen=helper.start)


def end_without(parent: int) -> None:
    """Have this process stopped, as by SIGTERM, when ``parent`` is its parent no longer."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(_LOOK)
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=watch, daemon=True).start()


def main() -> None:
    """Run a SuperNode with the arguments of the command line."""
    from flwr.supernode.cli import flower_supernode

    if parent := os.environ.pop(SUPERVISOR, ""):
        end_without(int(parent))
    try:
        install()
    except ValueError as error:
        sys.exit(f"error: {error}")
    flower_supernode()


if __name__ == "__main__":
    main()
