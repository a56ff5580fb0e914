"""Start Flower, follow a run to its true status, stop everything that was started.

`simulate` runs an app in Flower's simulation runtime; `sim.deployment.Deployment` runs it on real
SuperLink and SuperNode processes. Both stand on `FlowerSession`: one temporary ``FLWR_HOME``, the
processes started from it, and the ``flwr`` command line (`sim.flwr_command`) to talk to them.

Flower's processes detach themselves, so a process group does not hold them all: every process
carries a mark in its environment, and stopping means signalling all that carry it, by process id.
"""

from __future__ import annotations

import importlib.util
import logging
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any, NoReturn, Self

from trellis.install import pip_install
from trellis.sim.flwr_command import FlowerRun, FlwrCommand, connection_toml, plain, tail
from trellis.sim.processes import (
    HAS_PROC,
    MARK,
    FlowerRunError,
    descendants,
    flower_environment,
    free_port,
    marked,
    program_of,
    stop_all,
    uninterrupted,
)
from trellis.sim.reach import reach
from trellis.sim.run_config import Scalar, check_run_config, toml

__all__ = ["FlowerRun", "FlowerRunError", "FlowerSession", "simulate", "tail", "toml"]

logger = logging.getLogger("trellis.flower")

_START_TIMEOUT = 60.0  # seconds for a SuperLink to answer, on a busy machine


def simulate(
    app: Path,
    run_config: Mapping[str, Scalar],
    *,
    nodes: int,
    cpus_per_client: int = 1,
    timeout: float = 3600.0,
    on_log: Callable[[str], None] | None = None,
) -> FlowerRun:
    """Run ``app`` in Flower's simulation runtime and wait for its end.

    Parameters
    ----------
    app : folder with the app's ``pyproject.toml``
    run_config : settings that replace the app's defaults; nested keys with dots
    nodes : number of simulated SuperNodes
    cpus_per_client : CPUs that Ray reserves for one ClientApp; decides how many run at once
    timeout : seconds from submission until the run is stopped and given up
    on_log : called with each line of the run's log as it comes

    Returns
    -------
    FlowerRun
        Also where the run failed; ``.check()`` raises then.

    Raises
    ------
    FlowerRunError
        Where Flower is missing or does not start, refuses the run, or the time is over.
    """
    if nodes < 1:
        raise ValueError(f"nodes={nodes}: a simulation needs at least one node")
    check_run_config(app, run_config)
    if importlib.util.find_spec("ray") is None:
        raise FlowerRunError(
            f"Flower's simulation needs ray, which is missing: {pip_install('laptop')}"
        )
    with FlowerSession() as session:
        session.start_superlink("--simulation")
        resources = f"num-supernodes={nodes} client-resources-num-cpus={cpus_per_client}"
        options = ("--federation-config", resources)
        return session.run(app, run_config, *options, timeout=timeout, on_log=on_log)


class FlowerSession:
    """A temporary ``FLWR_HOME`` and every process that was started from it.

    Leaving the context, by whatever way, stops the processes and removes the folder.
    """

    def __init__(self) -> None:
        self.home = Path()
        self.address = ""
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._handlers: dict[signal.Signals, Any] = {}
        self._command = FlwrCommand(self.environment, self.check_alive)

    def __enter__(self) -> Self:
        # Ray keeps its sockets below here, and a socket's path may have 107 characters at most.
        parent = "/tmp" if os.access("/tmp", os.W_OK) else None
        self.home = Path(tempfile.mkdtemp(prefix="flower-", dir=parent))
        self._catch_signals()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with uninterrupted():
            self._stop()
            shutil.rmtree(self.home, ignore_errors=True)
        for number, handler in self._handlers.items():
            signal.signal(number, handler)

    def start_superlink(self, *options: str) -> None:
        """Start a SuperLink on loopback, wait until it answers, name it to the command line."""
        port = free_port()
        self.address = f"127.0.0.1:{port}"
        # Telling Flower not to install the app's dependencies works here only: it is the SuperLink
        # that hands the choice down to the processes which run the app.
        where = ("--insecure", "--host", "127.0.0.1", "--port", str(port))
        self.start("superlink", "flower-superlink", *where, *options)
        (self.home / "config.toml").write_text(connection_toml(self.address))
        deadline = time.monotonic() + _START_TIMEOUT
        while not reach(self.address, None, 1.0).ok:
            self.check_alive()
            if time.monotonic() > deadline:
                raise FlowerRunError(
                    f"the SuperLink does not answer after {_START_TIMEOUT:.0f} s\n"
                    f"{tail(self.log('superlink'))}"
                )
            time.sleep(0.1)
        logger.info("SuperLink listens on %s", self.address)

    def start(self, name: str, program: str, *arguments: str, home: Path | None = None) -> None:
        """Start one of Flower's programs; its output goes to ``<name>.log`` in the home."""
        command = [*program_of(program), *arguments]
        logger.debug("start %s: %s", name, " ".join(command))
        with (self.home / f"{name}.log").open("wb") as output:
            self._processes[name] = subprocess.Popen(
                command,
                env=self.environment(home),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                # The terminal's Ctrl-C is for us alone: we decide in which order things stop.
                start_new_session=True,
            )

    def environment(self, home: Path | None = None) -> dict[str, str]:
        """Return the environment of this session's processes; Ray's and the apps' inherit it."""
        return flower_environment(home or self.home) | {
            MARK: str(self.home),
            "RAY_TMPDIR": str(self.home),
            "RAY_USAGE_STATS_ENABLED": "0",
        }

    def check_alive(self) -> None:
        """Raise `FlowerRunError` if a SuperLink or SuperNode of this session has ended."""
        for name, process in self._processes.items():
            if process.poll() is not None:
                raise FlowerRunError(
                    f"{name} ended with exit code {process.returncode}\n{tail(self.log(name))}"
                )

    def log(self, name: str) -> str:
        """Return what the process called ``name`` has written so far, without colours."""
        text = (self.home / f"{name}.log").read_text(encoding="utf-8", errors="replace")
        return plain(text)

    def logs(self) -> dict[str, str]:
        """Return the log of every process started with `start`, by name."""
        return {name: self.log(name) for name in self._processes}

    def flwr(self, *arguments: str) -> dict[str, Any]:
        """Run a ``flwr`` command and return its JSON answer."""
        return self._command.ask(*arguments)

    def run(
        self,
        app: Path,
        run_config: Mapping[str, Scalar],
        *options: str,
        timeout: float,
        on_log: Callable[[str], None] | None = None,
    ) -> FlowerRun:
        """Submit ``app`` to this session's SuperLink and follow it to its true status."""
        begun = time.monotonic()
        run_id = self._command.submit(app, run_config, *options)
        return self._command.follow(run_id, timeout=timeout, begun=begun, on_log=on_log)

    def _catch_signals(self) -> None:
        """Turn being terminated or losing the terminal into an exception, so that we clean up."""

        def leave(number: int, frame: FrameType | None) -> NoReturn:
            sys.exit(128 + number)

        if threading.current_thread() is not threading.main_thread():
            return  # only the main thread may, and only it gets signals
        for number in (signal.SIGTERM, signal.SIGHUP):
            if signal.getsignal(number) is signal.SIG_DFL:
                self._handlers[number] = signal.signal(number, leave)

    def _stop(self) -> None:
        """Stop every process of the session: SIGTERM, and SIGKILL for what is left."""
        if known := stop_all(self._living):
            logger.warning("these Flower processes could not be stopped: %s", sorted(known))

    def _living(self, known: set[int]) -> set[int]:
        """Return the session's processes that still run: those ``known`` and those found now."""
        for process in self._processes.values():
            process.poll()  # take note of its end; an ended child we never asked stays a zombie
        own = {process.pid for process in self._processes.values() if process.returncode is None}
        if HAS_PROC:
            return own | marked(f"{MARK}={self.home}")
        return own | descendants(own | known)
