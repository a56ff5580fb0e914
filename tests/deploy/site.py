"""A federation on this machine as its operator uses it, and the harm that the world does to it."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from trellis.apps.common.results import RunResult
from trellis.privacy.device import log
from trellis.sim.federation.folder import Federation
from trellis.sim.federation.rehearsal import Rehearsal
from trellis.sim.flwr_command import CONNECTION
from trellis.sim.processes import descendants, free_port

PATIENCE = 300.0  # seconds for anything that must come, on a machine with much else to do


def trellis(*arguments: object, code: int = 0, **options: Any) -> str:
    """Run the command; return what it said, in one line."""
    command = [sys.executable, "-m", "trellis", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, **options)
    assert done.returncode == code, f"{done.stdout}\n{done.stderr}"
    return " ".join(done.stdout.split())


def processes_of(folder: Path) -> list[str]:
    """Return the processes that name a folder, found in another way than the code finds them."""
    found = []
    for place in Path("/proc").iterdir():
        if place.name.isdecimal():
            try:
                command = (place / "cmdline").read_bytes()
                mentions = str(folder).encode() in command + (place / "environ").read_bytes()
            except OSError:
                continue
            if mentions:
                found.append(f"{place.name} {command.decode(errors='replace')[:100]}")
    return found


def write_table(path: Path, seed: int, columns: list[str] | None = None) -> None:
    """Write a client's table of 40 records of six variables."""
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(40, 6)) @ rng.normal(size=(6, 6))
    header = ",".join(columns or [f"region-{i}" for i in range(6)])
    np.savetxt(path, rows, delimiter=",", header=header, comments="")


def until(true: Callable[[], Any], what: Callable[[], str]) -> Any:
    """Wait until something is true and return it; fail with ``what`` where it never is."""
    deadline = time.monotonic() + PATIENCE
    while not (found := true()):
        assert time.monotonic() < deadline, what()
        time.sleep(0.2)
    return found


class Submitted:
    """A run that the operator has submitted and follows: ``trellis --verbose deploy run``."""

    def __init__(self, arguments: list[str], output: Path, out: Path) -> None:
        self.out, self._output = out, output
        command = [sys.executable, "-m", "trellis", "--verbose", "deploy", "run", *arguments]
        # Into a file: it can be read while the run goes on. Wide, so that lines stay whole.
        with output.open("wb") as file:
            self.process = subprocess.Popen(
                command, stdout=file, stderr=subprocess.STDOUT, env=os.environ | {"COLUMNS": "2000"}
            )

    @property
    def text(self) -> str:
        """What the operator has seen so far, spaces made one."""
        return re.sub(r" +", " ", self._output.read_text(errors="replace"))

    @property
    def run_id(self) -> str:
        return self.wait_for(r"run (\d+) of \S+ was submitted")[1]

    @property
    def result(self) -> RunResult:
        """What is in the run's folder."""
        return RunResult.load(self.out)

    def wait_for(self, pattern: str, start: int = 0) -> re.Match[str]:
        """Wait until the operator is told something; return where."""

        def look() -> re.Match[str] | None:
            ended = self.process.poll() is not None
            found = re.compile(pattern).search(self.text, start)
            assert found or not ended, f"{pattern!r} was never said:\n{self.text[-6000:]}"
            return found

        return until(look, lambda: f"{pattern!r} was not said in time:\n{self.text[-6000:]}")

    def in_round(self, number: int) -> None:
        """Wait until a round is under way: the one before it has been told."""
        self.wait_for(rf"round {number - 1}: \d+ clients answered")

    def end(self, code: int = 0, patience: float = PATIENCE) -> str:
        """Wait for the end; return all that the operator has seen."""
        found = self.process.wait(timeout=patience)
        assert found == code, self.text[-6000:]
        return self.text

    def kill(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()


class Site:
    """A federation that runs on this machine.

    Parameters
    ----------
    folder : of the federation
    work : an empty folder for what runs leave
    """

    def __init__(self, folder: Path, work: Path) -> None:
        self.folder, self.work = folder, work
        self.federation = Federation.load(folder)
        self.rehearsal = Rehearsal(self.federation)
        self._submitted: list[Submitted] = []

    # --- as its operator ---------------------------------------------------------------------

    def submit(self, study: str, out: str, resume: bool = False, **settings: object) -> Submitted:
        """Submit a run as an operator who does not hold the devices' folders."""
        operator = self.work / "operator"
        if not operator.exists():
            operator.mkdir()
            shutil.copy(self.folder / "federation.toml", operator)
            shutil.copytree(self.folder / "operator", operator / "operator")
        place = self.work / out
        given = ["--resume" if resume else "--out", str(place)]
        for key, value in settings.items():
            given += ["--set", f"{key.rstrip('_').replace('_', '-')}={value}"]
        output = self.work / f"{len(self._submitted)}-{out}.log"
        run = Submitted([str(operator), study, *given], output, place)
        self._submitted.append(run)
        return run

    def stop(self, run: Submitted) -> None:
        """Stop a run as Flower's own command does."""
        self.rehearsal.command.ask("stop", run.run_id, CONNECTION)

    def let_go(self) -> None:
        """End what still follows a run."""
        for run in self._submitted:
            run.kill()

    # --- as an owner -------------------------------------------------------------------------

    def device(self, name: str) -> Path:
        return self.federation.device(name)

    def data(self, name: str) -> Path:
        (path,) = (p for p in (self.device(name) / "data").iterdir() if p.suffix != ".kept")
        return path

    def lines(self, name: str, run: Submitted) -> list[dict[str, Any]]:
        """Return what a device's log says of a run."""
        found = log.read(self.device(name) / "state")
        return [line for line in found if line.get("run") == run.run_id]

    def said(self, name: str, run: Submitted) -> list[str]:
        return [line["what"] for line in self.lines(name, run)]

    def releases(self, name: str) -> int:
        """Return how many releases a device's ledger holds."""
        ledger = self.device(name) / "state" / "ledger.json"
        return len(json.loads(ledger.read_text())["entries"]) if ledger.exists() else 0

    @contextmanager
    def policy(self, name: str, text: str) -> Iterator[None]:
        """Give a device another policy."""
        path = self.device(name) / "policy.toml"
        before = path.read_text()
        path.write_text(text)
        try:
            yield
        finally:
            path.write_text(before)

    @contextmanager
    def kept_data(self) -> Iterator[None]:
        """Put every device's file back as it was."""
        kept = {path: path.read_bytes() for path in map(self.data, self.federation.names)}
        try:
            yield
        finally:
            for path, content in kept.items():
                path.write_bytes(content)

    # --- as the world ------------------------------------------------------------------------

    def node(self, name: str) -> int:
        """Return the process of a device's SuperNode."""
        return self._process(name, "trellis.sim.supernode")

    def server_app(self) -> int:
        """Return the process of the run's ServerApp."""
        return self._process("server", "flwr-serverapp")

    def _process(self, part: str, program: str) -> int:
        def look() -> list[int]:
            roots = {pid for name, pid in self.rehearsal.processes().items() if name == part}
            return [pid for pid in descendants(roots) if program in _command(pid)]

        return int(until(look, lambda: f"{part} runs no {program}")[0])

    def kill(self, pid: int) -> None:
        os.kill(pid, signal.SIGKILL)

    def turn_off(self, name: str) -> None:
        """Stop a device as its owner does."""
        pid = self.rehearsal.processes()[name]
        os.kill(pid, signal.SIGTERM)
        until(lambda: name not in self.rehearsal.processes(), lambda: f"{name} does not stop")

    def up(self) -> None:
        """Start what does not run, and wait until all are online."""
        trellis("deploy", "up", self.folder)

    def starts(self, name: str) -> int:
        """Return how often a device has come online since its start.sh was started."""
        return self.rehearsal.log(name).count("SuperNode ID")


def _command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
    except OSError:
        return ""


@contextmanager
def site(place: Path, data: Path, *options: str) -> Iterator[Site]:
    """Make a federation, start it, and stop it whatever happens; nothing stays behind."""
    folder, work = place / "federation", place / "work"
    work.mkdir()
    port = str(free_port())
    trellis("deploy", "init", folder, "--open", "--data", data, "--port", port, *options)
    try:
        trellis("deploy", "up", folder)
        found = Site(folder, work)
        try:
            yield found
        finally:
            found.let_go()
    finally:
        # What runs an app hides its environment: known by its parents, while they live.
        started = descendants(set(Rehearsal(Federation.load(folder)).processes().values()))
        trellis("deploy", "down", folder)
    assert processes_of(place) == []
    assert descendants(started) == set()
