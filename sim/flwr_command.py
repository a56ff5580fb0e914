"""The ``flwr`` command line: ask a SuperLink, submit a run, follow it to its true status.

Two habits of Flower shape this file. ``flwr run --stream`` exits with 0 even where the ServerApp
raised, so the status is asked for afterwards (``flwr ls``). And a run config on the command line is
split by a regular expression that takes no quote inside a string, so it goes by a file.
"""

from __future__ import annotations

import json
import logging
import queue
import re
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn, Self

from trellis.sim.processes import FlowerRunError, executable
from trellis.sim.run_config import Scalar, toml

logger = logging.getLogger("trellis.flower")

# Not a word that may be a folder's: `flwr ls NAME` takes a folder of that name for an app.
CONNECTION = "trellis-superlink"
_CLI_TIMEOUT = 60.0
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


class FlwrCommand:
    """The ``flwr`` command with one configuration.

    Parameters
    ----------
    environment : makes the environment of the command; its ``FLWR_HOME`` holds a ``config.toml``
        with the connection `CONNECTION`
    check_alive : raises where a process that must run for an answer to come has ended
    """

    def __init__(
        self,
        environment: Callable[[], dict[str, str]],
        check_alive: Callable[[], None] = lambda: None,
    ) -> None:
        self._environment = environment
        self.check_alive = check_alive

    @property
    def home(self) -> str:
        """Its ``FLWR_HOME``, for commands that a person types."""
        return self._environment()["FLWR_HOME"]

    def ask(self, *arguments: str) -> dict[str, Any]:
        """Run a ``flwr`` command and return its JSON answer."""
        command = [executable("flwr"), *arguments, "--format", "json"]
        try:
            done = subprocess.run(
                command,
                env=self._environment(),
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

    def submit(self, app: Path, run_config: Mapping[str, Scalar], *options: str) -> int:
        """Submit ``app``; return the number of its run."""
        with tempfile.NamedTemporaryFile("wb", suffix=".toml") as file:
            file.write(toml(run_config).encode())
            file.flush()
            submit = ("run", str(app.resolve()), CONNECTION, "--run-config", file.name)
            run_id = int(self.ask(*submit, *options)["run-id"])
        logger.info("Flower run %d of %s submitted", run_id, app)
        return run_id

    def follow(
        self,
        run_id: int,
        *,
        timeout: float,
        begun: float | None = None,
        on_log: Callable[[str], None] | None = None,
    ) -> FlowerRun:
        """Follow a run to its true status; one whose time is over is stopped and raises."""
        begun = time.monotonic() if begun is None else begun
        lines: list[str] = []
        with closing(self._stream(run_id, begun + timeout)) as stream:
            for line in stream:
                lines.append(line)
                logger.debug("%s", line)
                if on_log is not None:
                    on_log(line)
        while True:
            row = self.row(run_id)
            if row["status"].startswith("finished"):
                break
            if time.monotonic() > begun + timeout:
                self._give_up(run_id, timeout, lines)
            self.check_alive()
            time.sleep(0.5)
        details = "" if row["status-details"] == "N/A" else plain(row["status-details"])
        seconds = time.monotonic() - begun
        logger.info("Flower run %d: %s after %.1f s", run_id, row["status"], seconds)
        return FlowerRun(run_id, row["status"], details, "\n".join(lines), seconds)

    def row(self, run_id: int) -> dict[str, Any]:
        """Return what ``flwr ls`` says of a run."""
        found: dict[str, Any] = self.ask("ls", CONNECTION, "--run-id", str(run_id))["runs"][0]
        return found

    def _stream(self, run_id: int, deadline: float) -> Generator[str, None, None]:
        """Yield the run's log line by line until the run ends or the time is over."""
        stream = subprocess.Popen(
            [executable("flwr"), "log", str(run_id), CONNECTION, "--stream"],
            env=self._environment() | {"PYTHONUNBUFFERED": "1"},
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
                arrived.put(plain(line).rstrip())
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
        """Stop a run whose time is over, so that the SuperLink can be used further, and raise."""
        with suppress(FlowerRunError):  # it may just have ended
            self.ask("stop", str(run_id), CONNECTION)
        end = tail("\n".join(lines))
        raise FlowerRunError(f"Flower run {run_id} did not end within {timeout:g} s\n{end}")


def connection_toml(address: str, root_certificates: Path | None = None) -> str:
    """Return the ``config.toml`` that names a SuperLink to the ``flwr`` command."""
    secure: dict[str, Scalar] = {"insecure": True}
    if root_certificates is not None:
        secure = {"root-certificates": str(root_certificates)}
    return (
        f"[superlink]\n{toml({'default': CONNECTION})}\n"
        f"[superlink.{CONNECTION}]\n{toml({'address': address, **secure})}"
    )


def plain(text: str) -> str:
    """Return a text without colours."""
    return _ANSI.sub("", text)


def tail(text: str, lines: int = 25) -> str:
    """Return the last lines of a log."""
    return "\n".join(text.rstrip().splitlines()[-lines:])
