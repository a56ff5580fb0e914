"""Finding programs, ports and processes, for what starts Flower and has to stop it again."""

from __future__ import annotations

import shutil
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

INSTALL = "pip install 'trellis[laptop]'"
HAS_PROC = Path("/proc/self/environ").exists()  # Linux


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
    raise FlowerRunError(f"Flower's program {name} was not found: {INSTALL}")


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
