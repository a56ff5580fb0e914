"""Start Flower, follow a run to its true status, stop everything that was started.

`simulate` runs an app in Flower's simulation runtime; `sim.deployment.Deployment` runs it on real
SuperLink and SuperNode processes. Both stand on `FlowerSession`: one temporary ``FLWR_HOME``, the
processes started from it, and the ``flwr`` command line to talk to them.

Two habits of Flower shape this file. ``flwr run --stream`` exits with 0 even where the ServerApp
raised, so the status is asked for afterwards (``flwr ls``). And Flower's processes detach
themselves, so a process group does not hold them all: every process carries a mark in its
environment, and stopping means signalling all that carry it, by process id.
"""

from __future__ import annotations

import importlib.util
import json
import logging
import os
import queue
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Generator, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any, NoReturn, Self

from sim.processes import (
    HAS_PROC,
    INSTALL,
    FlowerRunError,
    descendants,
    executable,
    free_port,
    marked,
    uninterrupted,
)
from sim.run_config import Scalar, check_run_config, toml

logger = logging.getLogger("trellis.flower")

_MARK = "TRELLIS_FLOWER_SESSION"
_CONNECTION = "trellis"
_START_TIMEOUT = 60.0  # seconds for a SuperLink to answer, on a busy machine
_CLI_TIMEOUT = 60.0
_GRACE = 5.0  # seconds between SIGTERM and SIGKILL
_ANSI = re.compile(r"\x1b\[[0-9;]*m")


@dataclass(frozen=True)
class FlowerRun:
    """How a run ended.

    Attributes
    ----------
    run_id : Flower's number of the run
    status : ``finished:completed``, ``finished:failed`` or ``finished:stopped``
    details : Flower's reason for a failure, else empty
    log : what the run wrote, without colours
    seconds : wall clock from submission to the final status
    """

    run_id: int
    status: str
    details: str
    log: str
    seconds: float

    @property
    def ok(self) -> bool:
        """Whether the run completed."""
        return self.status == "finished:completed"

    def check(self) -> Self:
        """Return this run if it completed.

        Raises
        ------
        FlowerRunError
            Otherwise, with Flower's reason and the end of the log.
        """
        if self.ok:
            return self
        reason = f": {self.details}" if self.details else ""
        raise FlowerRunError(
            f"Flower run {self.run_id} ended as {self.status}{reason}\n{tail(self.log)}"
        )


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
        raise FlowerRunError(f"Flower's simulation needs ray, which is missing: {INSTALL}")
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
        (self.home / "config.toml").write_text(
            f'[superlink]\ndefault = "{_CONNECTION}"\n\n'
            f'[superlink.{_CONNECTION}]\naddress = "{self.address}"\ninsecure = true\n'
        )
        deadline = time.monotonic() + _START_TIMEOUT
        while not _answers(f"http://{self.address}/health"):
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
        command = [executable(program), *arguments]
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
        # SuperExec finds flwr-simulation, flwr-serverapp and flwr-clientapp by PATH.
        path = os.pathsep.join([str(Path(executable("flwr")).parent), os.environ.get("PATH", "")])
        return os.environ | {
            _MARK: str(self.home),
            "PATH": path,
            "FLWR_HOME": str(home or self.home),
            "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
            "FLWR_DISABLE_UPDATE_CHECK": "1",
            "FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "0.05",
            "FLWR_TELEMETRY_ENABLED": "0",
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
        return _ANSI.sub("", text)

    def logs(self) -> dict[str, str]:
        """Return the log of every process started with `start`, by name."""
        return {name: self.log(name) for name in self._processes}

    def flwr(self, *arguments: str) -> dict[str, Any]:
        """Run a ``flwr`` command and return its JSON answer."""
        command = [executable("flwr"), *arguments, "--format", "json"]
        try:
            done = subprocess.run(
                command,
                env=self.environment(),
                stdin=subprocess.DEVNULL,
                capture_output=True,
                encoding="utf-8",
                errors="replace",
                timeout=_CLI_TIMEOUT,
                start_new_session=True,
            )
        except subprocess.TimeoutExpired:
            self.check_alive()
            message = f"`flwr {arguments[0]}` gave no answer in {_CLI_TIMEOUT:.0f} s"
            raise FlowerRunError(message) from None
        try:
            answer: dict[str, Any] = json.loads(done.stdout)
        except ValueError:
            answer = {"success": False, "error-message": done.stdout + done.stderr}
        if not answer.get("success"):
            self.check_alive()
            reason = str(answer.get("error-message", "")).strip()
            raise FlowerRunError(f"`flwr {arguments[0]}` was refused:\n{reason}")
        return answer

    def run(
        self,
        app: Path,
        run_config: Mapping[str, Scalar],
        *options: str,
        timeout: float,
        on_log: Callable[[str], None] | None = None,
    ) -> FlowerRun:
        """Submit ``app`` to this session's SuperLink and follow it to its true status."""
        # A file and not the command line: Flower splits the latter with a regular expression that
        # takes no quote inside a string.
        file = self.home / "run-config.toml"
        file.write_bytes(toml(run_config).encode())
        begun = time.monotonic()
        submit = ("run", str(app.resolve()), _CONNECTION, "--run-config", str(file))
        run_id = int(self.flwr(*submit, *options)["run-id"])
        logger.info("Flower run %d of %s submitted", run_id, app)

        lines: list[str] = []
        with closing(self._stream(run_id, begun + timeout)) as stream:
            for line in stream:
                lines.append(line)
                logger.debug("%s", line)
                if on_log is not None:
                    on_log(line)
        while True:
            row = self.flwr("ls", _CONNECTION, "--run-id", str(run_id))["runs"][0]
            if row["status"].startswith("finished"):
                break
            if time.monotonic() > begun + timeout:
                self._give_up(run_id, timeout, lines)
            self.check_alive()
            time.sleep(0.5)

        details = "" if row["status-details"] == "N/A" else _ANSI.sub("", row["status-details"])
        seconds = time.monotonic() - begun
        logger.info("Flower run %d: %s after %.1f s", run_id, row["status"], seconds)
        return FlowerRun(run_id, row["status"], details, "\n".join(lines), seconds)

    def _stream(self, run_id: int, deadline: float) -> Generator[str, None, None]:
        """Yield the run's log line by line until the run ends or the time is over."""
        stream = subprocess.Popen(
            [executable("flwr"), "log", str(run_id), _CONNECTION, "--stream"],
            env=self.environment() | {"PYTHONUNBUFFERED": "1"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            encoding="utf-8",
            errors="replace",
            start_new_session=True,
        )
        # A thread reads, because a pipe has no timeout; the caller's function runs in its thread.
        arrived: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        output = stream.stdout
        assert output is not None

        def read() -> None:
            for line in output:
                arrived.put(_ANSI.sub("", line).rstrip())
            arrived.put(None)

        reader = threading.Thread(target=read, daemon=True)
        reader.start()
        try:
            while time.monotonic() < deadline:
                try:
                    line = arrived.get(timeout=0.5)
                except queue.Empty:
                    self.check_alive()
                    continue
                if line is None:
                    return
                yield line
        finally:
            stream.kill()
            stream.wait()
            reader.join(timeout=1.0)
            output.close()

    def _give_up(self, run_id: int, timeout: float, lines: list[str]) -> NoReturn:
        """Stop a run whose time is over, so that the session can be used further, and raise."""
        with suppress(FlowerRunError):  # it may just have ended
            self.flwr("stop", str(run_id), _CONNECTION)
        end = tail("\n".join(lines))
        raise FlowerRunError(f"Flower run {run_id} did not end within {timeout:g} s\n{end}")

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
        known: set[int] = set()
        for number, patience in ((signal.SIGTERM, _GRACE), (signal.SIGKILL, _GRACE)):
            deadline = time.monotonic() + patience
            signalled: set[int] = set()
            while time.monotonic() < deadline:
                known = self._living(known)
                if not known:
                    return
                for pid in known - signalled:  # also what was born since the last look
                    with suppress(ProcessLookupError):
                        os.kill(pid, number)
                signalled |= known
                time.sleep(0.05)
        if known := self._living(known):
            logger.warning("these Flower processes could not be stopped: %s", sorted(known))

    def _living(self, known: set[int]) -> set[int]:
        """Return the session's processes that still run: those ``known`` and those found now."""
        for process in self._processes.values():
            process.poll()  # take note of its end; an ended child we never asked stays a zombie
        own = {process.pid for process in self._processes.values() if process.returncode is None}
        if HAS_PROC:
            return own | marked(f"{_MARK}={self.home}")
        return own | descendants(own | known)


def tail(text: str, lines: int = 25) -> str:
    """Return the last lines of a log."""
    return "\n".join(text.rstrip().splitlines()[-lines:])


def _answers(url: str) -> bool:
    # Past any proxy of the environment: this is the loopback interface.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(url, timeout=1.0) as response:
            return bool(response.status == 200)
    except (urllib.error.URLError, OSError):
        return False
