"""Finding programs, ports and processes, for what starts Flower and has to stop it again."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from trellis.install import pip_install

HAS_PROC = Path("/proc/self/environ").exists()  # Linux
MARK = "TRELLIS_FLOWER_SESSION"  # in the environment of every process that is ours to stop
_GRACE = 5.0  # seconds between SIGTERM and SIGKILL


class FlowerRunError(RuntimeError):
    """Flower could not be started, or a run did not end as completed."""


def executable(name: str) -> str:
    """Return the path of one of Flower's programs: beside this Python, or else on the PATH."""
    # Not resolved: in a virtual environment the interpreter is a link to elsewhere.
    beside = Path(sys.executable).parent / name
    if beside.is_file():
        return str(beside)
    if found := shutil.which(name):
        return found
    raise FlowerRunError(f"Flower's program {name} was not found: {pip_install('laptop')}")


def program_of(name: str) -> list[str]:
    """Return the command for one of Flower's programs; a SuperNode is ours, with short waits."""
    if name == "flower-supernode":
        return [sys.executable, "-m", "trellis.sim.supernode"]
    return [executable(name)]


def flower_environment(home: Path) -> dict[str, str]:
    """Return the environment in which Flower's programs phone nobody and install nothing."""
    # SuperExec finds flwr-simulation, flwr-serverapp and flwr-clientapp by PATH.
    path = os.pathsep.join([str(Path(executable("flwr")).parent), os.environ.get("PATH", "")])
    return os.environ | {
        "PATH": path,
        "FLWR_HOME": str(home),
        "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
        "FLWR_DISABLE_UPDATE_CHECK": "1",
        "FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "0.05",
        "FLWR_TELEMETRY_ENABLED": "0",
    }


def free_port() -> int:
    """Return a port of the loopback interface that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def marked(mark: str) -> set[int]:
    """Return the processes that carry ``mark`` in their environment (Linux)."""
    entry = mark.encode()
    found = set()
    for folder in Path("/proc").iterdir():
        if folder.name.isdecimal():
            # It may end while we look, or belong to somebody else.
            with suppress(ProcessLookupError, FileNotFoundError, PermissionError):
                if entry in (folder / "environ").read_bytes().split(b"\0"):
                    found.add(int(folder.name))
    return found


def is_marked(pid: int, mark: str, patience: float = 1.0) -> bool:
    """Return whether a process carries ``mark`` in its environment (Linux).

    While a process becomes another program its environment reads as empty: a look at such a moment
    says nothing, and is taken again for ``patience`` seconds.
    """
    deadline = time.monotonic() + patience
    while True:
        try:
            found = Path(f"/proc/{pid}/environ").read_bytes()
        except OSError:
            return False
        if found or not started_at(pid) or time.monotonic() > deadline:
            return mark.encode() in found.split(b"\0")
        time.sleep(0.005)


def descendants(roots: set[int]) -> set[int]:
    """Return the living processes among ``roots`` and below them (without /proc)."""
    listing = subprocess.run(
        ["ps", "-A", "-o", "pid=", "-o", "ppid=", "-o", "stat="], capture_output=True, text=True
    ).stdout
    rows = [line.split() for line in listing.splitlines()]
    living = {int(pid): int(parent) for pid, parent, state in rows if not state.startswith("Z")}
    found = roots & living.keys()
    while more := {pid for pid, parent in living.items() if parent in found} - found:
        found |= more
    return found


def started_at(pid: int) -> str:
    """Return when a process started, as the system tells it; nothing where there is none.

    A process id is used again after its process has ended; together with this it is not.
    """
    if HAS_PROC:
        try:
            text = Path(f"/proc/{pid}/stat").read_text()
        except OSError:
            return ""
        # The name in parentheses may hold anything; state is the first field after it.
        fields = text.rpartition(")")[2].split()
        return "" if fields[0] == "Z" else fields[19]
    listing = subprocess.run(
        ["ps", "-p", str(pid), "-o", "lstart=", "-o", "stat="], capture_output=True, text=True
    ).stdout.split()
    return "" if not listing or listing[-1].startswith("Z") else " ".join(listing[:-1])


def stop_all(
    living: Callable[[set[int]], set[int]], grace: float = _GRACE, *, kill: bool = False
) -> set[int]:
    """Stop processes by id: SIGTERM, and SIGKILL for what is left; return what still runs.

    Parameters
    ----------
    living : returns which processes are to stop and still run, given those known so far
    grace : seconds for each of the two signals to work
    kill : leave out the first, so that nobody can say goodbye
    """
    known: set[int] = set()
    for number in (signal.SIGKILL,) if kill else (signal.SIGTERM, signal.SIGKILL):
        deadline = time.monotonic() + grace
        signalled: set[int] = set()
        while time.monotonic() < deadline:
            known = living(known)
            if not known:
                return known
            for pid in known - signalled:  # also what was born since the last look
                with suppress(ProcessLookupError):
                    os.kill(pid, number)
            signalled |= known
            time.sleep(0.05)
    return living(known)


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Hold back Ctrl-C: impatience must not leave processes behind."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
